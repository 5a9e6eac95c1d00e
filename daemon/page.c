#include "daemon/page.h"

/* Each file as it lies in daemon/page/, taken in by the assembler. PAGE_FOLDER comes from CMake. */
#define EMBED(name, file)                                                          \
    __asm__(".pushsection .rodata\n"                                               \
            ".hidden " #name "_begin\n.global " #name "_begin\n" #name "_begin:\n" \
            ".incbin \"" PAGE_FOLDER "/" file "\"\n"                               \
            ".hidden " #name "_end\n.global " #name "_end\n" #name "_end:\n"       \
            ".byte 0\n"                                                            \
            ".popsection\n");                                                      \
    extern const char name##_begin[];                                              \
    extern const char name##_end[]

EMBED(coppelius_page_html, "page.html");
EMBED(coppelius_page_js, "page.js");
EMBED(coppelius_page_css, "page.css");

const struct page_file page_html = {"text/html; charset=utf-8", coppelius_page_html_begin,
                                    coppelius_page_html_end};
const struct page_file page_js = {"text/javascript; charset=utf-8", coppelius_page_js_begin,
                                  coppelius_page_js_end};
const struct page_file page_css = {"text/css; charset=utf-8", coppelius_page_css_begin,
                                   coppelius_page_css_end};

size_t page_size(const struct page_file *file)
{
    return (size_t)(file->end - file->bytes);
}

/* The status page's three files, part of the program. Immutable. */
#ifndef COPPELIUS_DAEMON_PAGE_H
#define COPPELIUS_DAEMON_PAGE_H

#include <stddef.h>

struct page_file {
    const char *type;
    const char *bytes;
    const char *end;
};

extern const struct page_file page_html;
extern const struct page_file page_js;
extern const struct page_file page_css;

size_t page_size(const struct page_file *file);

#endif

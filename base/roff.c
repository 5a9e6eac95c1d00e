#include "base/roff.h"

#include <string.h>

/* A line's characters: a backslash and a dash stand for themselves, a dot or a quote at its front
 * is no request. */
static void put_line(struct buf *out, const char *text, size_t size)
{
    if (size > 0 && (text[0] == '.' || text[0] == '\'')) {
        buf_print(out, "\\&");
    }
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\\') {
            buf_print(out, "\\e");
        } else if (text[i] == '-') {
            buf_print(out, "\\-");
        } else {
            buf_put_u8(out, (uint8_t)text[i]);
        }
    }
    buf_put_u8(out, '\n');
}

static void put_lines(struct buf *out, const char *text)
{
    while (*text != '\0') {
        size_t size = strcspn(text, "\n");
        put_line(out, text, size);
        text += size + (text[size] == '\n' ? 1 : 0);
    }
}

static void put_title(struct buf *out, const char *macro, const char *title)
{
    buf_print(out, ".%s ", macro);
    put_line(out, title, strlen(title));
}

void roff_begin(struct buf *out, const char *program, int section, const char *version,
                const char *about)
{
    buf_print(out, ".TH %s %d \"\" \"coppelius %s\"\n.SH NAME\n%s \\- ", program, section, version,
              program);
    put_lines(out, about);
}

void roff_section(struct buf *out, const char *title)
{
    put_title(out, "SH", title);
}

void roff_subsection(struct buf *out, const char *title)
{
    put_title(out, "SS", title);
}

void roff_text(struct buf *out, const char *text)
{
    buf_print(out, ".PP\n");
    put_lines(out, text);
}

void roff_lines(struct buf *out, const char *text)
{
    buf_print(out, ".PP\n.nf\n");
    put_lines(out, text);
    buf_print(out, ".fi\n");
}

void roff_item(struct buf *out, const char *term, const char *text)
{
    buf_print(out, ".TP\n.B ");
    put_line(out, term, strlen(term));
    put_lines(out, text);
}

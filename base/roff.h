/* Text of a manual page (man(7) macros), for the programs that make the pages out of the tables
 * that
 * --help is printed from. */
#ifndef COPPELIUS_BASE_ROFF_H
#define COPPELIUS_BASE_ROFF_H

#include "base/buf.h"

/* ".TH", then NAME with what follows the dash. section: 1 or 8. */
void roff_begin(struct buf *out, const char *program, int section, const char *version,
                const char *about);
void roff_section(struct buf *out, const char *title);
void roff_subsection(struct buf *out, const char *title);
/* A paragraph that is filled, without what troff would read in it. */
void roff_text(struct buf *out, const char *text);
/* Lines as they are. */
void roff_lines(struct buf *out, const char *text);
/* A term with what it means behind and below it. */
void roff_item(struct buf *out, const char *term, const char *text);

#endif

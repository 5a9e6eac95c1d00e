/* JSON documents: reading their names, and printing them in the form that was asked for.
 *
 * Reading never fails: what is absent or of another type is the fallback, since a newer daemon may
 * say more and an older one less. */
#ifndef COPPELIUS_CTL_DOCUMENT_H
#define COPPELIUS_CTL_DOCUMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ctl/client.h"
#include "ctl/command.h"
#include "ctl/table.h"

const char *document_text(const json_t *object, const char *name); /* "" where absent */
double document_number(const json_t *object, const char *name);    /* NaN where absent or null */
bool document_has(const json_t *object, const char *name);         /* there and not null */
int64_t document_integer(const json_t *object, const char *name);  /* 0 where absent */
bool document_true(const json_t *object, const char *name);
const json_t *document_list(const json_t *object, const char *name); /* NULL where absent */

/* Cells of a table. */
void cell_text(struct table *table, const json_t *object, const char *name);
void cell_integer(struct table *table, const json_t *object, const char *name);
void cell_number(struct table *table, const json_t *object, const char *name); /* %.6g */
void cell_bytes(struct table *table, const json_t *object, const char *name);
void cell_seconds(struct table *table, const json_t *object, const char *name);
void cell_age(struct table *table, const json_t *object, const char *name); /* of *_at_ms */

/* Writes to stdout; ERR_DISK where that fails. */
int output_bytes(const struct buf *bytes, struct problem *problem);
/* The document as JSON: indented for OUTPUT_JSON, one line for OUTPUT_JSONL. */
int output_json(const struct ctl *ctl, const json_t *document, struct problem *problem);
/* What most listings do: asks, then prints json as it is, jsonl as a line for each member of
 * list_name, name as a line with each member's name_key, and tables by draw(). list_name NULL: the
 * document is one object. */
typedef void output_draw_fn(const struct ctl *ctl, const json_t *document, struct buf *out);
int output_answer(struct ctl *ctl, Ctl__Request *request, const char *list_name,
                  const char *name_key, output_draw_fn *draw, struct problem *problem);
int output_document(const struct ctl *ctl, const json_t *document, const char *list_name,
                    const char *name_key, output_draw_fn *draw, struct problem *problem);

/* stderr, unless -q. */
void say(const struct ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

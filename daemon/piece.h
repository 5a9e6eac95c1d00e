/* A bounded piece of a file of a published checkpoint, read on the libuv pool.
 *
 * The name is one plain name: nothing that leaves the folder, no hidden file; a link is not
 * followed. piece_read is called on the loop, and done comes there, once. */
#ifndef COPPELIUS_DAEMON_PIECE_H
#define COPPELIUS_DAEMON_PIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"

#define PIECE_NAME_MAX 127

struct piece {
    struct err err;
    const uint8_t *bytes; /* borrowed for the callback */
    size_t size;          /* 0 at the file's end */
    uint64_t total;       /* the file's size */
};

typedef void piece_done_fn(void *context, const struct piece *piece);

bool piece_name_is_good(const char *name);
int piece_read(uv_loop_t *loop, const char *folder, const char *name, uint64_t offset,
               size_t size_max, piece_done_fn *done, void *context, struct err *err);

#endif

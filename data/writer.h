/* An NPY file that is written from front to end, its header last, when the shape is known.
 * Private to data. */
#ifndef COPPELIUS_DATA_WRITER_H
#define COPPELIUS_DATA_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct writer {
    int fd;
    uint8_t *buffer;
    size_t used;
    uint64_t offset; /* of the buffer's first byte in the file */
    char name[32];
};

#define WRITER_NONE \
    {               \
        .fd = -1    \
    }

/* folder/name, which must not exist. */
int writer_open(struct writer *writer, const char *folder, const char *name, struct err *err);
int writer_put(struct writer *writer, const void *bytes, size_t size, struct err *err);
/* Bytes at a place of their own; the buffered ones are not touched. */
int writer_put_at(struct writer *writer, uint64_t offset, const void *bytes, size_t size,
                  struct err *err);
/* Flushes, writes the header (npy_header), syncs, closes. */
int writer_finish(struct writer *writer, const char *descr, bool fortran, uint64_t rows,
                  uint64_t columns, struct err *err);
void writer_done(
    struct writer *writer); /* gives up what is not finished; NONE and twice are fine */

/* A temporary file in the folder, without a name: the descriptor, or an error below 0. */
int spill_open(const char *folder, struct err *err);
int spill_write(int fd, uint64_t offset, const void *bytes, size_t size, struct err *err);
int spill_read(int fd, uint64_t offset, void *bytes, size_t size, struct err *err);

#endif

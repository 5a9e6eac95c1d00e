/* Bytes of a file as they are, out of gzip, or out of zstd; which of them the first bytes tell.
 * Private to data. */
#ifndef COPPELIUS_DATA_UNPACK_H
#define COPPELIUS_DATA_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct unpack;

/* Reads from fd's beginning; fd and path are borrowed for the object's life. */
int unpack_new(int fd, const char *path, struct unpack **ret_unpack, struct err *err);
void unpack_free(struct unpack *unpack); /* NULL is fine */

/* Up to capacity bytes (0 only at the end), and how many stored bytes were taken from the file for
 * them. ERR_DATA: damaged or cut-off compression. */
int unpack_read(struct unpack *unpack, uint8_t *bytes, size_t capacity, size_t *ret_size,
                uint64_t *ret_stored, struct err *err);

#endif

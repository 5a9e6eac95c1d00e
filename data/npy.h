/* NumPy's file format (versions 1, 2 and 3): header in, header out, elements as numbers.
 * Private to data. */
#ifndef COPPELIUS_DATA_NPY_H
#define COPPELIUS_DATA_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define NPY_HEADER_SIZE 128         /* of the files that we write */
#define NPY_HEADER_MAX  (64U << 10) /* of those that we read */

struct npy {
    char kind;         /* 'f', 'i', 'u', 'b' */
    uint32_t item;     /* bytes: 1, 2, 4, 8 */
    bool fortran;      /* columns are contiguous */
    uint32_t dims;     /* 1 or 2 */
    uint64_t shape[2]; /* shape[1] is 1 where dims is 1 */
    uint64_t offset;   /* bytes before the first element */
};

/* Parses the header at the front of a file of file_size bytes, of which the first `size` are there
 * (at least NPY_HEADER_MAX + 12, or all). The elements must fill the rest of the file exactly.
 * ERR_DATA says what is not supported, ERR_DAMAGED what is broken; no path in either. */
int npy_parse(const uint8_t *bytes, size_t size, uint64_t file_size, struct npy *ret_npy,
              struct err *err);

/* Opens path for reading: its header, and a descriptor that is the caller's. */
int npy_open(const char *path, struct npy *ret_npy, int *ret_fd, struct err *err);

/* A header of NPY_HEADER_SIZE bytes: descr such as "<f4". columns 0: one dimension. */
void npy_header(uint8_t bytes[NPY_HEADER_SIZE], const char *descr, bool fortran, uint64_t rows,
                uint64_t columns);

/* Element `index` of a run of elements, as the nearest binary64. */
double npy_value(const struct npy *npy, const uint8_t *elements, size_t index);

/* All `size` bytes at offset; ERR_DAMAGED where the file ends before. */
int npy_pread(int fd, const char *path, uint64_t offset, void *bytes, size_t size, struct err *err);

#endif

/* What an open dataset is. Private to data. */
#ifndef COPPELIUS_DATA_DATASET_H
#define COPPELIUS_DATA_DATASET_H

#include "base/buf.h"
#include "data/copy.h"
#include "data/data.h"
#include "data/manifest.h"
#include "data/npy.h"

struct dataset_file {
    int fd; /* -1: the folder has none */
    struct npy npy;
    char *path;
    uint64_t first_block; /* in the table, where the folder is a partial copy */
};

struct dataset {
    struct dataset_info info;
    char *folder;
    struct manifest manifest;
    struct dataset_file x;    /* dense */
    struct dataset_file data; /* sparse */
    struct dataset_file indices;
    struct dataset_file indptr;
    struct dataset_file y;
    struct buf names; /* zero-terminated; empty where there is no columns.txt */
    uint64_t *name_offsets;
    bool named;                 /* the names are names, not numbers */
    char (*numbers)[24];        /* "1", "2", … where there is no columns.txt */
    struct copy_record partial; /* a partial copy: what is there; else zero */
};

/* All `size` bytes at offset of the file. ERR_DAMAGED: not in this partial copy, or the file is
 * shorter. */
int dataset_pread(const struct dataset *dataset, const struct dataset_file *file, uint64_t offset,
                  void *bytes, size_t size, struct err *err);

/* Elements first .. first+count-1 of indptr, checked to ascend within the entries. */
int dataset_indptr(const struct dataset *dataset, uint64_t first, uint64_t count, uint64_t *values,
                   struct err *err);

#endif

/* What an open dataset is. Private to data. */
#ifndef COPPELIUS_DATA_DATASET_H
#define COPPELIUS_DATA_DATASET_H

#include "base/buf.h"
#include "data/data.h"
#include "data/manifest.h"
#include "data/npy.h"

struct dataset_file {
    int fd; /* -1: the folder has none */
    struct npy npy;
    char *path;
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
    bool named;          /* the names are names, not numbers */
    char (*numbers)[24]; /* "1", "2", … where there is no columns.txt */
};

/* Elements first .. first+count-1 of indptr, checked to ascend within the entries. */
int dataset_indptr(const struct dataset *dataset, uint64_t first, uint64_t count, uint64_t *values,
                   struct err *err);

#endif

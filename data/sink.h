/* Takes rows one by one and gives the columns of the native folder, in bounded memory.
 *
 * Dense: rows fill a block (column-major); full blocks are kept in memory up to the budget, then
 * spilled to a file; at the end each block's pieces are written to their places in x.npy. Sparse:
 * entries (row, column, value) are kept, then spilled; at the end they are spread by column ranges
 * into a second file (once, each range small enough to be sorted in memory) and written column by
 * column. Targets go straight to y.npy, whose header is written last. Private to data; one thread.
 *
 *      sink_init ── sink_dense_row* | sink_sparse_row* ── sink_finish ── sink_done */
#ifndef COPPELIUS_DATA_SINK_H
#define COPPELIUS_DATA_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/data.h"
#include "data/source.h"
#include "data/writer.h"

struct entry {
    uint64_t row;
    uint32_t column;
    float value;
};

struct dense_block {
    float *values;   /* features * stride; NULL: spilled */
    uint64_t offset; /* in the spill, bytes; then packed, features * rows */
    uint64_t rows;
};

struct sink {
    const char *folder; /* borrowed; files are made in it */
    uint64_t memory;
    bool sparse; /* takes entries; what is written is decided at the end */
    bool has_target;
    uint64_t features; /* grows for svmlight */
    uint64_t rows;
    uint64_t nonzeros;
    struct writer targets;
    int spill;
    uint64_t spilled; /* bytes */

    /* dense */
    uint64_t block_rows;
    uint64_t stride; /* of a column in a block in memory, in values */
    struct dense_block *blocks;
    size_t blocks_count;
    size_t blocks_capacity;
    uint64_t held; /* bytes of blocks in memory */

    /* sparse */
    uint64_t *counts; /* entries of each column */
    uint64_t counts_capacity;
    struct entry *entries;
    size_t entries_count;
    size_t entries_max;
};

#define SINK_NONE                           \
    {                                       \
        .spill = -1, .targets = WRITER_NONE \
    }

/* features is the width where it is known, 0 where entries tell it (sparse). ERR_NOMEM, ERR_DISK.
 */
int sink_init(struct sink *sink, const char *folder, bool sparse, bool has_target,
              uint64_t features, uint64_t memory, struct err *err);
void sink_done(struct sink *sink); /* NONE and twice are fine; its files are the folder's */

/* features values; a sparse sink keeps those that are not zero. */
int sink_dense_row(struct sink *sink, const float *values, double target, struct err *err);
/* Ascending columns; zeros are not kept. Sparse sinks only. */
int sink_sparse_row(struct sink *sink, const uint32_t *columns, const float *values, size_t count,
                    double target, struct err *err);

/* Writes x.npy, or data.npy, indices.npy and indptr.npy, and y.npy where there are targets; removes
 * the spills. features: the final width, at least what was seen. A dense sink writes dense. */
int sink_finish(struct sink *sink, bool write_sparse, uint64_t features, struct meter *meter,
                struct err *err);

/* assemble_sparse.c: the sparse sink's part of sink_finish. */
int sink_finish_sparse(struct sink *sink, bool write_sparse, struct meter *meter, struct err *err);

#endif

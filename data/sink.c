#include "data/sink.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "data/npy.h"
#include "data/source.h"

#define BLOCK_ROWS_MAX 65536U
#define BLOCK_BYTES    (32U << 20)

static int init_dense(struct sink *sink, struct err *err)
{
    uint64_t row_bytes = sink->features * sizeof(float);
    uint64_t block_bytes = sink->memory / 4 < BLOCK_BYTES ? sink->memory / 4 : BLOCK_BYTES;
    uint64_t rows = block_bytes / row_bytes;
    rows = rows > BLOCK_ROWS_MAX ? BLOCK_ROWS_MAX : rows;
    rows = rows < 16 ? 16 : rows & ~UINT64_C(15);
    sink->block_rows = rows;
    /* Not a multiple of the page size: the columns' lines would all fall into the same cache sets.
     */
    sink->stride = rows + 16;
    if (row_bytes * sink->stride > sink->memory &&
        row_bytes * sink->stride > (uint64_t)BLOCK_BYTES * 8) {
        return err_set(
            err, ERR_NOMEM, "%llu features need blocks of %llu bytes; the import may take %llu",
            (unsigned long long)sink->features, (unsigned long long)(row_bytes * sink->stride),
            (unsigned long long)sink->memory);
    }
    return 0;
}

static int init_sparse(struct sink *sink, struct err *err)
{
    sink->entries_max = (size_t)(sink->memory / 2 / sizeof(struct entry));
    sink->entries_max = sink->entries_max < 1024 ? 1024 : sink->entries_max;
    sink->entries = malloc(sink->entries_max * sizeof(struct entry)); /* Touched as it fills. */
    sink->counts_capacity = sink->features > 0 ? sink->features : 1024;
    sink->counts = calloc(sink->counts_capacity, sizeof(*sink->counts));
    if (sink->entries == NULL || sink->counts == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu columns and %zu entries",
                       (unsigned long long)sink->counts_capacity, sink->entries_max);
    }
    return 0;
}

int sink_init(struct sink *sink, const char *folder, bool sparse, bool has_target,
              uint64_t features, uint64_t memory, struct err *err)
{
    struct sink made = SINK_NONE;
    made.folder = folder;
    made.sparse = sparse;
    made.has_target = has_target;
    made.features = features;
    made.memory = memory;
    int code = sparse ? init_sparse(&made, err) : init_dense(&made, err);
    if (code == 0 && has_target) {
        code = writer_open(&made.targets, folder, "y.npy", err);
    }
    if (code != 0) {
        sink_done(&made);
        return code;
    }
    *sink = made;
    return 0;
}

void sink_done(struct sink *sink)
{
    for (size_t i = 0; i < sink->blocks_count; i++) {
        free(sink->blocks[i].values);
    }
    free(sink->blocks);
    free(sink->counts);
    free(sink->entries);
    writer_done(&sink->targets);
    if (sink->spill >= 0) {
        (void)close(sink->spill);
    }
    *sink = (struct sink)SINK_NONE;
}

static int open_spill(struct sink *sink, struct err *err)
{
    if (sink->spill < 0) {
        int fd = spill_open(sink->folder, err);
        if (fd < 0) {
            return fd;
        }
        sink->spill = fd;
    }
    return 0;
}

/* Packs a block's columns and writes them behind the spill. */
static int spill_block(struct sink *sink, struct dense_block *block, struct err *err)
{
    int code = open_spill(sink, err);
    size_t column = (size_t)(block->rows * sizeof(float));
    for (uint64_t j = 1; j < sink->features; j++) {
        memmove(block->values + j * block->rows, block->values + j * sink->stride, column);
    }
    if (code == 0) {
        code = spill_write(sink->spill, sink->spilled, block->values, column * sink->features, err);
    }
    block->offset = sink->spilled;
    sink->spilled += column * sink->features;
    return code;
}

/* A block with room for a row. The last one's memory is used again when it had to be spilled. */
static int next_block(struct sink *sink, struct err *err)
{
    uint64_t block_bytes = sink->stride * sink->features * sizeof(float);
    float *values = NULL;
    if (sink->blocks_count > 0 && sink->held + block_bytes > sink->memory / 4 * 3) {
        struct dense_block *last = &sink->blocks[sink->blocks_count - 1];
        int code = spill_block(sink, last, err);
        if (code != 0) {
            return code;
        }
        values = last->values;
        last->values = NULL;
    } else {
        values = malloc((size_t)block_bytes);
        if (values == NULL) {
            return err_set(err, ERR_NOMEM, "no memory for a block of %llu bytes",
                           (unsigned long long)block_bytes);
        }
        sink->held += block_bytes;
    }
    if (sink->blocks_count == sink->blocks_capacity) {
        size_t capacity = sink->blocks_capacity == 0 ? 16 : sink->blocks_capacity * 2;
        struct dense_block *blocks = realloc(sink->blocks, capacity * sizeof(*blocks));
        if (blocks == NULL) {
            free(values);
            return err_set(err, ERR_NOMEM, "no memory for %zu blocks", capacity);
        }
        sink->blocks = blocks;
        sink->blocks_capacity = capacity;
    }
    sink->blocks[sink->blocks_count] = (struct dense_block){.values = values};
    sink->blocks_count++;
    return 0;
}

static int put_target(struct sink *sink, double target, struct err *err)
{
    if (sink->rows == DATA_ROWS_MAX) {
        return err_set(err, ERR_DATA, "more than %llu rows", (unsigned long long)DATA_ROWS_MAX);
    }
    return sink->has_target ? writer_put(&sink->targets, &target, sizeof(target), err) : 0;
}

static int spill_entries(struct sink *sink, struct err *err)
{
    int code = open_spill(sink, err);
    size_t size = sink->entries_count * sizeof(struct entry);
    if (code == 0) {
        code = spill_write(sink->spill, sink->spilled, sink->entries, size, err);
    }
    sink->spilled += size;
    sink->entries_count = 0;
    return code;
}

static int put_entry(struct sink *sink, uint32_t column, float value, struct err *err)
{
    if (column >= sink->counts_capacity) {
        uint64_t capacity = sink->counts_capacity * 2;
        capacity = capacity > column ? capacity : (uint64_t)column + 1;
        uint64_t *counts = realloc(sink->counts, (size_t)(capacity * sizeof(*counts)));
        if (counts == NULL) {
            return err_set(err, ERR_NOMEM, "no memory for %llu columns",
                           (unsigned long long)capacity);
        }
        memset(counts + sink->counts_capacity, 0,
               (size_t)((capacity - sink->counts_capacity) * sizeof(*counts)));
        sink->counts = counts;
        sink->counts_capacity = capacity;
    }
    if (sink->entries_count == sink->entries_max) {
        int code = spill_entries(sink, err);
        if (code != 0) {
            return code;
        }
    }
    sink->entries[sink->entries_count] = (struct entry){sink->rows, column, value};
    sink->entries_count++;
    sink->counts[column]++;
    sink->nonzeros++;
    return 0;
}

int sink_dense_row(struct sink *sink, const float *values, double target, struct err *err)
{
    int code = put_target(sink, target, err);
    if (sink->sparse) {
        for (uint64_t j = 0; j < sink->features && code == 0; j++) {
            code = values[j] != 0.0F ? put_entry(sink, (uint32_t)j, values[j], err) : 0;
        }
        sink->rows++;
        return code;
    }
    if (code == 0 && (sink->blocks_count == 0 ||
                      sink->blocks[sink->blocks_count - 1].rows == sink->block_rows)) {
        code = next_block(sink, err);
    }
    if (code != 0) {
        return code;
    }
    struct dense_block *block = &sink->blocks[sink->blocks_count - 1];
    float *to = block->values + block->rows;
    uint64_t nonzeros = 0;
    for (uint64_t j = 0; j < sink->features; j++) {
        to[j * sink->stride] = values[j];
        nonzeros += values[j] != 0.0F ? 1 : 0;
    }
    block->rows++;
    sink->nonzeros += nonzeros;
    sink->rows++;
    return 0;
}

int sink_sparse_row(struct sink *sink, const uint32_t *columns, const float *values, size_t count,
                    double target, struct err *err)
{
    ASSERT(sink->sparse);
    int code = put_target(sink, target, err);
    for (size_t i = 0; i < count && code == 0; i++) {
        code = values[i] != 0.0F ? put_entry(sink, columns[i], values[i], err) : 0;
        sink->features = columns[i] >= sink->features ? (uint64_t)columns[i] + 1 : sink->features;
    }
    sink->rows++;
    return code;
}

/* Each block's columns to their places in x.npy: spilled blocks piece by piece; where all are in
 * memory, column by column from front to end. */
static int finish_dense(struct sink *sink, struct meter *meter, struct err *err)
{
    struct writer x = WRITER_NONE;
    int code = writer_open(&x, sink->folder, "x.npy", err);
    float *piece = NULL;
    if (code == 0 && sink->spill < 0) {
        for (uint64_t j = 0; j < sink->features && code == 0; j++) {
            for (size_t b = 0; b < sink->blocks_count && code == 0; b++) {
                const struct dense_block *block = &sink->blocks[b];
                code = writer_put(&x, block->values + j * sink->stride,
                                  (size_t)block->rows * sizeof(float), err);
            }
            if (code == 0) {
                code = meter_add(meter, sink->rows * sizeof(float), err);
            }
        }
    } else if (code == 0) {
        piece = malloc((size_t)(sink->block_rows * sizeof(float)));
        code = piece == NULL ? err_set(err, ERR_NOMEM, "no memory for a block of rows") : 0;
        uint64_t first = 0;
        for (size_t b = 0; b < sink->blocks_count && code == 0; b++) {
            const struct dense_block *block = &sink->blocks[b];
            size_t size = (size_t)block->rows * sizeof(float);
            for (uint64_t j = 0; j < sink->features && code == 0; j++) {
                const float *from = block->values + j * sink->stride;
                if (block->values == NULL) {
                    code = spill_read(sink->spill, block->offset + j * size, piece, size, err);
                    from = piece;
                }
                uint64_t at = NPY_HEADER_SIZE + (j * sink->rows + first) * sizeof(float);
                code = code == 0 ? writer_put_at(&x, at, from, size, err) : code;
            }
            first += block->rows;
            if (code == 0) {
                code = meter_add(meter, size * sink->features, err);
            }
        }
    }
    free(piece);
    if (code == 0) {
        code = writer_finish(&x, "<f4", true, sink->rows, sink->features, err);
    }
    writer_done(&x);
    return code;
}

int sink_finish(struct sink *sink, bool write_sparse, uint64_t features, struct meter *meter,
                struct err *err)
{
    ASSERT(features >= sink->features);
    ASSERT(sink->sparse || (!write_sparse && features == sink->features));
    sink->features = features;
    int code = 0;
    if (sink->has_target) {
        code = writer_finish(&sink->targets, "<f8", false, sink->rows, 0, err);
    }
    if (code == 0) {
        code = sink->sparse ? sink_finish_sparse(sink, write_sparse, meter, err)
                            : finish_dense(sink, meter, err);
    }
    if (sink->spill >= 0) {
        (void)close(sink->spill);
        sink->spill = -1;
    }
    return code;
}

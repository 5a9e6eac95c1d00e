/* Entries in row order to columns: a counting sort in memory where all fit, else spread once over
 * ranges of columns, each of which is then sorted in memory. Within a column the rows ascend,
 * because every step keeps their order. */
#include "data/sink.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "data/npy.h"
#include "data/source.h"

#define PIECE_VALUES 65536U
#define BUCKET_BYTES (64U << 10)

/* Where columns go: CSC files, or x.npy with the zeros written out. */
struct output {
    struct sink *sink;
    bool sparse;
    struct writer data;
    struct writer indices;
    struct writer x;
    float *piece; /* dense: rows piece_first .. of the current column */
    uint64_t piece_first;
};

/* A range of columns whose entries are sorted together. */
struct bucket {
    uint64_t first;
    uint64_t end;
    uint64_t offset; /* of its entries in the spread file, in entries */
    uint64_t count;
    uint64_t written; /* entries in the file so far */
    size_t held;      /* entries in the buffer */
    struct entry *buffer;
};

/* Dense: writes the rows below `row` that are still to be written. */
static int flush_rows(struct output *output, uint64_t row, struct err *err)
{
    while (row - output->piece_first >= PIECE_VALUES) {
        int code = writer_put(&output->x, output->piece, PIECE_VALUES * sizeof(float), err);
        if (code != 0) {
            return code;
        }
        memset(output->piece, 0, PIECE_VALUES * sizeof(float));
        output->piece_first += PIECE_VALUES;
    }
    return 0;
}

static int put_entry(struct output *output, uint64_t row, float value, struct err *err)
{
    if (output->sparse) {
        int64_t index = (int64_t)row;
        int code = writer_put(&output->indices, &index, sizeof(index), err);
        return code != 0 ? code : writer_put(&output->data, &value, sizeof(value), err);
    }
    int code = flush_rows(output, row, err);
    if (code == 0) {
        output->piece[row - output->piece_first] = value;
    }
    return code;
}

static int end_column(struct output *output, struct err *err)
{
    if (output->sparse) {
        return 0;
    }
    uint64_t rows = output->sink->rows;
    int code = flush_rows(output, rows, err);
    if (code == 0) {
        size_t rest = (size_t)(rows - output->piece_first) * sizeof(float);
        code = writer_put(&output->x, output->piece, rest, err);
        memset(output->piece, 0, rest);
    }
    output->piece_first = 0;
    return code;
}

/* Sorts a range's entries by column (stable) and writes its columns. */
static int write_range(struct output *output, uint64_t first, uint64_t end,
                       const struct entry *entries, size_t count, struct meter *meter,
                       struct err *err)
{
    const uint64_t *counts = output->sink->counts;
    size_t columns = (size_t)(end - first);
    uint64_t *cursor = malloc((columns + 1) * sizeof(*cursor));
    uint64_t *rows = malloc((count + 1) * sizeof(*rows));
    float *values = malloc((count + 1) * sizeof(*values));
    int code = 0;
    if (cursor == NULL || rows == NULL || values == NULL) {
        code = err_set(err, ERR_NOMEM, "no memory to sort %zu entries", count);
    }
    if (code == 0) {
        uint64_t at = 0;
        for (size_t j = 0; j < columns; j++) {
            cursor[j] = at;
            at += counts[first + j];
        }
        ASSERT(at == count);
        for (size_t i = 0; i < count; i++) {
            uint64_t place = cursor[entries[i].column - first]++;
            rows[place] = entries[i].row;
            values[place] = entries[i].value;
        }
    }
    if (code == 0 && output->sparse) { /* The sorted arrays are the files' bytes. */
        code = writer_put(&output->indices, rows, count * sizeof(*rows), err);
        code = code == 0 ? writer_put(&output->data, values, count * sizeof(*values), err) : code;
    }
    uint64_t at = 0;
    for (size_t j = 0; j < columns && code == 0 && !output->sparse; j++) {
        for (uint64_t stop = at + counts[first + j]; at < stop && code == 0; at++) {
            code = put_entry(output, rows[at], values[at], err);
        }
        code = code == 0 ? end_column(output, err) : code;
    }
    code = code == 0 ? meter_add(meter, count * sizeof(struct entry), err) : code;
    free(cursor);
    free(rows);
    free(values);
    return code;
}

/* One column too long for memory: its entries are in row order already. */
static int write_long_column(struct output *output, int fd, const struct bucket *bucket,
                             struct entry *entries, size_t entries_max, struct meter *meter,
                             struct err *err)
{
    int code = 0;
    for (uint64_t at = 0; at < bucket->count && code == 0;) {
        uint64_t left = bucket->count - at;
        size_t count = left < entries_max ? (size_t)left : entries_max;
        code = spill_read(fd, (bucket->offset + at) * sizeof(struct entry), entries,
                          count * sizeof(struct entry), err);
        for (size_t i = 0; i < count && code == 0; i++) {
            code = put_entry(output, entries[i].row, entries[i].value, err);
        }
        at += count;
        code = code == 0 ? meter_add(meter, count * sizeof(struct entry), err) : code;
    }
    return code != 0 ? code : end_column(output, err);
}

/* Cuts the columns into ranges of at most `most` entries each, or of one column. */
static int cut_buckets(const struct sink *sink, uint64_t most, struct bucket **ret_buckets,
                       size_t *ret_count, struct err *err)
{
    size_t capacity = (size_t)(sink->nonzeros / most) * 2 + 2;
    struct bucket *buckets = calloc(capacity, sizeof(*buckets));
    if (buckets == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu ranges of columns", capacity);
    }
    size_t count = 0;
    uint64_t offset = 0;
    for (uint64_t j = 0; j < sink->features; j++) {
        struct bucket *last = count > 0 ? &buckets[count - 1] : NULL;
        uint64_t entries = j < sink->counts_capacity ? sink->counts[j] : 0;
        if (last == NULL || last->count + entries > most) {
            ASSERT(count < capacity);
            last = &buckets[count];
            count++;
            last->first = j;
            last->offset = offset;
        }
        last->end = j + 1;
        last->count += entries;
        offset += entries;
    }
    *ret_buckets = buckets;
    *ret_count = count;
    return 0;
}

static int flush_bucket(struct bucket *bucket, int fd, struct err *err)
{
    int code = spill_write(fd, (bucket->offset + bucket->written) * sizeof(struct entry),
                           bucket->buffer, bucket->held * sizeof(struct entry), err);
    bucket->written += bucket->held;
    bucket->held = 0;
    return code;
}

/* Distributes all spilled entries over the buckets' places in another file. */
static int spread(struct sink *sink, struct bucket *buckets, size_t count, int fd, struct err *err)
{
    uint64_t share = sink->memory / 4 / count;
    share = share > BUCKET_BYTES ? BUCKET_BYTES : share < 1024 ? 1024 : share;
    size_t room = (size_t)(share / sizeof(struct entry));
    struct entry *buffers = malloc(count * room * sizeof(struct entry));
    uint32_t *owner = malloc((size_t)sink->features * sizeof(*owner));
    int code = 0;
    if (buffers == NULL || owner == NULL) {
        code = err_set(err, ERR_NOMEM, "no memory for the buffers of %zu ranges", count);
    }
    for (size_t b = 0; b < count && code == 0; b++) {
        buckets[b].buffer = buffers + b * room;
        for (uint64_t j = buckets[b].first; j < buckets[b].end; j++) {
            owner[j] = (uint32_t)b;
        }
    }
    for (uint64_t at = 0; at < sink->spilled && code == 0;) {
        uint64_t left = sink->spilled - at;
        uint64_t most = sink->entries_max * sizeof(struct entry);
        size_t size = (size_t)(left < most ? left : most);
        code = spill_read(sink->spill, at, sink->entries, size, err);
        at += size;
        for (size_t i = 0; i < size / sizeof(struct entry) && code == 0; i++) {
            struct bucket *bucket = &buckets[owner[sink->entries[i].column]];
            bucket->buffer[bucket->held] = sink->entries[i];
            bucket->held++;
            code = bucket->held == room ? flush_bucket(bucket, fd, err) : 0;
        }
    }
    for (size_t b = 0; b < count && code == 0; b++) {
        code = flush_bucket(&buckets[b], fd, err);
        ASSERT(code != 0 || buckets[b].written == buckets[b].count);
    }
    free(buffers);
    free(owner);
    return code;
}

static int write_spilled(struct output *output, struct meter *meter, struct err *err)
{
    struct sink *sink = output->sink;
    struct bucket *buckets = NULL;
    size_t count = 0;
    int fd = -1;
    int code = sink->entries_count > 0
                   ? spill_write(sink->spill, sink->spilled, sink->entries,
                                 sink->entries_count * sizeof(struct entry), err)
                   : 0;
    sink->spilled += sink->entries_count * sizeof(struct entry);
    sink->entries_count = 0;
    if (code == 0) {
        code = cut_buckets(sink, sink->entries_max, &buckets, &count, err);
    }
    if (code == 0) {
        fd = spill_open(sink->folder, err);
        code = fd < 0 ? fd : spread(sink, buckets, count, fd, err);
    }
    for (size_t b = 0; b < count && code == 0; b++) {
        const struct bucket *bucket = &buckets[b];
        if (bucket->count > sink->entries_max) {
            code =
                write_long_column(output, fd, bucket, sink->entries, sink->entries_max, meter, err);
            continue;
        }
        code = spill_read(fd, bucket->offset * sizeof(struct entry), sink->entries,
                          (size_t)bucket->count * sizeof(struct entry), err);
        if (code == 0) {
            code = write_range(output, bucket->first, bucket->end, sink->entries,
                               (size_t)bucket->count, meter, err);
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(buckets);
    return code;
}

/* Pads the counts to the final width and writes their running sums. */
static int write_indptr(struct sink *sink, struct err *err)
{
    struct writer indptr = WRITER_NONE;
    int code = writer_open(&indptr, sink->folder, "indptr.npy", err);
    int64_t at = 0;
    for (uint64_t j = 0; j <= sink->features && code == 0; j++) {
        code = writer_put(&indptr, &at, sizeof(at), err);
        at += j < sink->features ? (int64_t)sink->counts[j] : 0;
    }
    if (code == 0) {
        code = writer_finish(&indptr, "<i8", false, sink->features + 1, 0, err);
    }
    writer_done(&indptr);
    return code;
}

/* counts has an element for each feature, also those that no row has. */
static int pad_counts(struct sink *sink, struct err *err)
{
    if (sink->features <= sink->counts_capacity) {
        return 0;
    }
    uint64_t *counts = realloc(sink->counts, (size_t)(sink->features * sizeof(*counts)));
    if (counts == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu columns",
                       (unsigned long long)sink->features);
    }
    memset(counts + sink->counts_capacity, 0,
           (size_t)((sink->features - sink->counts_capacity) * sizeof(*counts)));
    sink->counts = counts;
    sink->counts_capacity = sink->features;
    return 0;
}

int sink_finish_sparse(struct sink *sink, bool write_sparse, struct meter *meter, struct err *err)
{
    struct output output = {.sink = sink,
                            .sparse = write_sparse,
                            .data = WRITER_NONE,
                            .indices = WRITER_NONE,
                            .x = WRITER_NONE};
    int code = pad_counts(sink, err);
    if (code == 0 && write_sparse) {
        code = writer_open(&output.data, sink->folder, "data.npy", err);
        code = code == 0 ? writer_open(&output.indices, sink->folder, "indices.npy", err) : code;
        code = code == 0 ? write_indptr(sink, err) : code;
    } else if (code == 0) {
        output.piece = calloc(PIECE_VALUES, sizeof(float));
        code = output.piece == NULL ? err_set(err, ERR_NOMEM, "no memory for a column's piece")
                                    : writer_open(&output.x, sink->folder, "x.npy", err);
    }
    if (code == 0) {
        code = sink->spill >= 0 ? write_spilled(&output, meter, err)
                                : write_range(&output, 0, sink->features, sink->entries,
                                              sink->entries_count, meter, err);
    }
    if (code == 0 && write_sparse) {
        code = writer_finish(&output.data, "<f4", false, sink->nonzeros, 0, err);
        code =
            code == 0 ? writer_finish(&output.indices, "<i8", false, sink->nonzeros, 0, err) : code;
    } else if (code == 0) {
        code = writer_finish(&output.x, "<f4", true, sink->rows, sink->features, err);
    }
    writer_done(&output.data);
    writer_done(&output.indices);
    writer_done(&output.x);
    free(output.piece);
    return code;
}

#include "checkpoint/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/json_text.h"

#define FORMAT      "coppelius-shard-1"
#define PIECE_SIZE  (1U << 20) /* bytes of a write or read */
#define TENSORS_MAX 5

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "vectors are written as they lie in memory");

/* ---- write ---- */

static void put_metadata(struct buf *out, const char *key, const char *value)
{
    buf_print(out, ",\"%s\":", key);
    json_put_text(out, value, strlen(value));
}

static void put_metadata_u64(struct buf *out, const char *key, uint64_t value)
{
    buf_print(out, ",\"%s\":\"%" PRIu64 "\"", key, value);
}

static void put_columns(struct buf *out, const char *const *columns, uint64_t count)
{
    struct buf array = BUF_NONE; /* itself JSON, in a text */
    buf_put_u8(&array, '[');
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0) {
            buf_put_u8(&array, ',');
        }
        json_put_text(&array, columns[i], strlen(columns[i]));
    }
    buf_put_u8(&array, ']');
    buf_print(out, ",\"columns\":");
    json_put_text(out, (const char *)array.bytes, array.size);
    buf_done(&array);
}

static void put_tensor(struct buf *out, const char *name, const char *type, uint64_t count,
                       uint64_t *offset)
{
    buf_print(out,
              ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 "],\"data_offsets\":[%" PRIu64
              ",%" PRIu64 "]}",
              name, type, count, *offset, *offset + 8 * count);
    *offset += 8 * count;
}

/* u64 length and the header, a multiple of 8 bytes. */
static void put_header(struct buf *out, const struct shard_content *content)
{
    const struct shard_about *about = &content->about;
    uint64_t count = about->end - about->first;
    struct buf text = BUF_NONE;
    char hex[SHA256_HEX_SIZE];
    sha256_hex(about->identity, hex);
    buf_print(&text, "{\"__metadata__\":{\"format\":\"%s\"", FORMAT);
    put_metadata(&text, "job", about->job);
    put_metadata(&text, "identity", hex);
    put_metadata(&text, "policy", about->policy);
    put_metadata_u64(&text, "epoch", about->epoch);
    put_metadata_u64(&text, "step", about->step);
    put_metadata_u64(&text, "generation", about->generation);
    buf_print(&text, ",\"partition\":\"%" PRIu32 " of %" PRIu32 "\"", about->rank + 1,
              about->ranks);
    put_metadata(&text, "node", about->node);
    put_metadata_u64(&text, "coordinates", about->coordinates);
    if (content->columns != NULL) {
        put_columns(&text, content->columns, count);
    }
    buf_print(&text, "}");
    uint64_t offset = 0;
    put_tensor(&text, "parameter", "F64", count, &offset);
    put_tensor(&text, "accumulator", "F64", count, &offset);
    if (content->mean != NULL) {
        put_tensor(&text, "mean", "F64", count, &offset);
        put_tensor(&text, "scale", "F64", count, &offset);
    }
    put_tensor(&text, "coordinates", "I64", 2, &offset);
    buf_print(&text, "}");
    while (text.size % 8 != 0) {
        buf_put_u8(&text, ' ');
    }
    buf_put_u64(out, text.size);
    buf_put(out, text.bytes, text.size);
    buf_done(&text);
}

struct writer {
    struct fs *fs;
    struct fs_file *file;
    struct sha256 sha;
    uint64_t size;
};

static int write_hashed(struct writer *w, const void *bytes, uint64_t size, struct err *err)
{
    const uint8_t *at = bytes;
    while (size > 0) {
        size_t piece = size < PIECE_SIZE ? (size_t)size : PIECE_SIZE;
        int code = w->fs->ops->write(w->file, at, piece, err);
        if (code != 0) {
            return code;
        }
        sha256_update(&w->sha, at, piece);
        at += piece;
        size -= piece;
        w->size += piece;
    }
    return 0;
}

static int write_all(struct writer *w, const struct shard_content *content, struct err *err)
{
    const struct shard_about *about = &content->about;
    uint64_t bytes = 8 * (about->end - about->first);
    int64_t range[2] = {(int64_t)about->first, (int64_t)about->end};
    struct buf header = BUF_NONE;
    put_header(&header, content);
    int code = 0;
    if (header.size > SHARD_HEADER_SIZE_MAX) {
        code = err_set(err, ERR_DISK, "the column names take %zu bytes; the most is %u",
                       header.size, SHARD_HEADER_SIZE_MAX);
    }
    code = code != 0 ? code : write_hashed(w, header.bytes, header.size, err);
    code = code != 0 ? code : write_hashed(w, content->parameter, bytes, err);
    code = code != 0 ? code : write_hashed(w, content->accumulator, bytes, err);
    if (content->mean != NULL) {
        code = code != 0 ? code : write_hashed(w, content->mean, bytes, err);
        code = code != 0 ? code : write_hashed(w, content->scale, bytes, err);
    }
    code = code != 0 ? code : write_hashed(w, range, sizeof(range), err);
    buf_done(&header);
    return code;
}

int shard_write(struct fs *fs, const char *path, const struct shard_content *content,
                uint8_t ret_sha256[SHA256_SIZE], uint64_t *ret_size, struct err *err)
{
    ASSERT(content->about.first < content->about.end);
    ASSERT(content->about.end <= content->about.coordinates);
    ASSERT(content->about.rank < content->about.ranks);
    ASSERT((content->mean == NULL) == (content->scale == NULL));
    struct writer w = {.fs = fs};
    int code = fs_open(fs, path, FS_CREATE, &w.file, err);
    if (code != 0) {
        return code;
    }
    sha256_init(&w.sha);
    code = write_all(&w, content, err);
    if (code == 0) {
        code = fs->ops->sync(w.file, err);
    }
    int close_code = fs->ops->close(w.file, code == 0 ? err : NULL);
    code = code != 0 ? code : close_code;
    if (code == 0) {
        sha256_finish(&w.sha, ret_sha256);
        *ret_size = w.size;
    }
    sha256_done(&w.sha);
    return code;
}

/* ---- read ---- */

void shard_done(struct shard *shard)
{
    if (shard->columns != NULL) {
        for (uint64_t i = 0; i < shard->about.end - shard->about.first; i++) {
            free(shard->columns[i]);
        }
    }
    free(shard->columns);
    free(shard->parameter);
    free(shard->accumulator);
    free(shard->mean);
    free(shard->scale);
    *shard = (struct shard)SHARD_NONE;
}

/* "2 of 3" */
static bool parse_partition(const char *text, struct shard_about *about)
{
    char again[32];
    char *end = NULL;
    unsigned long rank = strtoul(text, &end, 10);
    unsigned long ranks = strncmp(end, " of ", 4) == 0 ? strtoul(end + 4, &end, 10) : 0;
    if (rank < 1 || rank > ranks || ranks > 99999) {
        return false;
    }
    (void)snprintf(again, sizeof(again), "%lu of %lu", rank, ranks);
    about->rank = (uint32_t)rank - 1;
    about->ranks = (uint32_t)ranks;
    return strcmp(text, again) == 0;
}

static const char *parse_metadata(const json_t *object, struct shard_about *about,
                                  const char **ret_columns)
{
    struct json_reader in = {object, 0, NULL};
    char format[SHARD_TEXT_SIZE];
    char partition[SHARD_TEXT_SIZE];
    json_take_text(&in, "format", format, sizeof(format));
    json_take_text(&in, "job", about->job, sizeof(about->job));
    json_take_digest(&in, "identity", about->identity);
    json_take_text(&in, "policy", about->policy, sizeof(about->policy));
    about->epoch = json_take_decimal(&in, "epoch", 1, UINT64_MAX);
    about->step = json_take_decimal(&in, "step", 0, UINT64_MAX);
    about->generation = json_take_decimal(&in, "generation", 0, UINT64_MAX);
    json_take_text(&in, "partition", partition, sizeof(partition));
    json_take_text(&in, "node", about->node, sizeof(about->node));
    about->coordinates = json_take_decimal(&in, "coordinates", 1, INT64_MAX);
    *ret_columns = NULL;
    if (json_has(&in, "columns")) {
        const json_t *columns = json_take(&in, "columns");
        *ret_columns = json_string_value(columns); /* NULL where it is no text */
        if (*ret_columns == NULL) {
            return "columns";
        }
    }
    const char *wrong = json_end(&in);
    if (wrong == NULL && strcmp(format, FORMAT) != 0) {
        return "format";
    }
    if (wrong == NULL && !parse_partition(partition, about)) {
        return "partition";
    }
    return wrong;
}

static const char *const tensor_names[TENSORS_MAX] = {"parameter", "accumulator", "mean", "scale",
                                                      "coordinates"};

struct tensor {
    uint64_t begin, end; /* in the data behind the header */
    uint64_t count;
    bool there;
};

static bool parse_tensor(const json_t *object, const char *type, uint64_t data_size,
                         struct tensor *ret)
{
    struct json_reader in = {object, 0, NULL};
    char dtype[8];
    json_take_text(&in, "dtype", dtype, sizeof(dtype));
    const json_t *shape = json_take(&in, "shape");
    const json_t *offsets = json_take(&in, "data_offsets");
    if (json_end(&in) != NULL || strcmp(dtype, type) != 0 || json_array_size(shape) != 1 ||
        json_array_size(offsets) != 2) {
        return false;
    }
    const json_t *numbers[3] = {json_array_get(shape, 0), json_array_get(offsets, 0),
                                json_array_get(offsets, 1)};
    for (int i = 0; i < 3; i++) {
        if (!json_is_integer(numbers[i]) || json_integer_value(numbers[i]) < 0) {
            return false;
        }
    }
    ret->count = (uint64_t)json_integer_value(numbers[0]);
    ret->begin = (uint64_t)json_integer_value(numbers[1]);
    ret->end = (uint64_t)json_integer_value(numbers[2]);
    ret->there = true;
    return ret->begin <= ret->end && ret->end <= data_size && (ret->end - ret->begin) % 8 == 0 &&
           (ret->end - ret->begin) / 8 == ret->count;
}

/* The tensors lie one behind the other and fill the data: no gap, no overlap. */
static bool tiles(const struct tensor *tensors, uint64_t data_size)
{
    uint64_t at = 0;
    for (int turn = 0; turn < TENSORS_MAX && at < data_size; turn++) {
        int found = -1;
        for (int i = 0; i < TENSORS_MAX; i++) {
            if (tensors[i].there && tensors[i].begin == at && tensors[i].count > 0) {
                if (found >= 0) {
                    return false;
                }
                found = i;
            }
        }
        if (found < 0) {
            return false;
        }
        at = tensors[found].end;
    }
    uint64_t sum = 0;
    for (int i = 0; i < TENSORS_MAX; i++) {
        sum += tensors[i].there ? tensors[i].end - tensors[i].begin : 0;
    }
    return at == data_size && sum == data_size;
}

static bool parse_columns(const char *text, uint64_t count, struct shard *shard)
{
    json_t *array = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    bool good = json_is_array(array) && json_array_size(array) == count;
    if (good) {
        shard->columns = calloc(count, sizeof(*shard->columns));
        good = shard->columns != NULL;
    }
    for (uint64_t i = 0; good && i < count; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        shard->columns[i] = name == NULL ? NULL : strdup(name);
        good = shard->columns[i] != NULL;
    }
    json_decref(array);
    return good;
}

static const char *parse_object(const json_t *root, uint64_t data_size, struct shard *shard,
                                struct tensor tensors[TENSORS_MAX])
{
    struct json_reader in = {root, 0, NULL};
    const json_t *metadata = json_take(&in, "__metadata__");
    const char *columns = NULL;
    if (metadata == NULL || !json_is_object(metadata)) {
        return "__metadata__";
    }
    const char *wrong = parse_metadata(metadata, &shard->about, &columns);
    if (wrong != NULL) {
        return wrong;
    }
    for (int i = 0; i < TENSORS_MAX; i++) {
        bool optional = i == 2 || i == 3;
        if (optional && !json_has(&in, tensor_names[i])) {
            continue;
        }
        const json_t *tensor = json_take(&in, tensor_names[i]);
        if (tensor == NULL || !json_is_object(tensor) ||
            !parse_tensor(tensor, i == 4 ? "I64" : "F64", data_size, &tensors[i])) {
            return tensor_names[i];
        }
    }
    uint64_t count = tensors[0].count;
    if (json_end(&in) != NULL) {
        return json_end(&in);
    }
    if (tensors[2].there != tensors[3].there || count == 0 || tensors[4].count != 2 ||
        count > shard->about.coordinates) {
        return "shape";
    }
    for (int i = 1; i < 4; i++) {
        if (tensors[i].there && tensors[i].count != count) {
            return tensor_names[i];
        }
    }
    if (!tiles(tensors, data_size)) {
        return "data_offsets";
    }
    shard->about.first = 0; /* until the coordinates are read; the count is already true */
    shard->about.end = count;
    return columns == NULL || parse_columns(columns, count, shard) ? NULL : "columns";
}

int shard_parse_header(const uint8_t *bytes, size_t size, uint64_t file_size,
                       struct shard *ret_shard, struct shard_layout *ret_layout, struct err *err)
{
    struct reader in = {bytes, size, false};
    uint64_t header_size = read_u64(&in);
    if (in.failed || header_size > SHARD_HEADER_SIZE_MAX || header_size < 2 ||
        header_size != in.size || file_size < 8 || header_size > file_size - 8) {
        return err_set(err, ERR_DAMAGED, "the header's size is wrong");
    }
    if (in.bytes[0] != '{') {
        return err_set(err, ERR_DAMAGED, "the header is no JSON object");
    }
    json_t *root = json_loadb((const char *)in.bytes, in.size, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, ERR_DAMAGED, "the header is no JSON object without duplicate keys");
    }
    struct shard made = SHARD_NONE;
    struct tensor tensors[TENSORS_MAX] = {{0}};
    uint64_t data_size = file_size - 8 - header_size;
    const char *wrong = parse_object(root, data_size, &made, tensors);
    int code = 0;
    if (wrong != NULL) {
        code = err_set(err, ERR_DAMAGED, "the header is wrong: %s", wrong);
        shard_done(&made);
    } else {
        uint64_t *const offsets[TENSORS_MAX] = {&ret_layout->parameter, &ret_layout->accumulator,
                                                &ret_layout->mean, &ret_layout->scale,
                                                &ret_layout->coordinates};
        for (int i = 0; i < TENSORS_MAX; i++) {
            *offsets[i] = tensors[i].there ? 8 + header_size + tensors[i].begin : 0;
        }
        *ret_shard = made;
    }
    json_decref(root);
    return code;
}

static int read_hashed(struct fs *fs, struct fs_file *file, struct sha256 *sha, uint64_t offset,
                       void *bytes, uint64_t size, struct err *err)
{
    uint8_t *at = bytes;
    while (size > 0) {
        size_t piece = size < PIECE_SIZE ? (size_t)size : PIECE_SIZE;
        int code = fs->ops->read(file, offset, at, piece, err);
        if (code != 0) {
            return code;
        }
        sha256_update(sha, at, piece);
        at += piece;
        offset += piece;
        size -= piece;
    }
    return 0;
}

/* The tensors in the order of the file, so that one pass reads and hashes. */
static int read_tensors(struct fs *fs, struct fs_file *file, const struct shard_layout *layout,
                        struct sha256 *sha, struct shard *shard, struct err *err)
{
    uint64_t count = shard->about.end;
    int64_t range[2] = {0, 0};
    struct {
        uint64_t offset;
        void *bytes;
        uint64_t size;
    } parts[TENSORS_MAX] = {{layout->parameter, NULL, 8 * count},
                            {layout->accumulator, NULL, 8 * count},
                            {layout->mean, NULL, 8 * count},
                            {layout->scale, NULL, 8 * count},
                            {layout->coordinates, range, sizeof(range)}};
    double **const vectors[4] = {&shard->parameter, &shard->accumulator, &shard->mean,
                                 &shard->scale};
    for (int i = 0; i < 4; i++) {
        if (parts[i].offset != 0) {
            *vectors[i] = calloc(count, sizeof(double)); /* at most the file's size */
            parts[i].bytes = *vectors[i];
            if (*vectors[i] == NULL) {
                return err_set(err, ERR_NOMEM, "no memory for %" PRIu64 " coordinates", count);
            }
        }
    }
    uint64_t last = 0;
    for (int turn = 0; turn < TENSORS_MAX; turn++) {
        int next = -1;
        for (int i = 0; i < TENSORS_MAX; i++) {
            if (parts[i].offset > last && (next < 0 || parts[i].offset < parts[next].offset)) {
                next = i;
            }
        }
        if (next < 0) {
            break;
        }
        last = parts[next].offset;
        int code = read_hashed(fs, file, sha, last, parts[next].bytes, parts[next].size, err);
        if (code != 0) {
            return code;
        }
    }
    if (range[0] < 0 || range[1] <= range[0] || (uint64_t)range[1] > shard->about.coordinates ||
        (uint64_t)(range[1] - range[0]) != count) {
        return err_set(err, ERR_DAMAGED, "its coordinates [%" PRId64 ", %" PRId64 ") are wrong",
                       range[0], range[1]);
    }
    shard->about.first = (uint64_t)range[0];
    shard->about.end = (uint64_t)range[1];
    return 0;
}

static int read_file(struct fs *fs, struct fs_file *file, struct sha256 *sha, struct shard *shard,
                     struct err *err)
{
    uint8_t prefix[8];
    uint64_t size = 0;
    int code = fs->ops->size(file, &size, err);
    if (code != 0) {
        return code;
    }
    if (size < sizeof(prefix)) {
        return err_set(err, ERR_DAMAGED, "it has only %" PRIu64 " bytes", size);
    }
    code = fs->ops->read(file, 0, prefix, sizeof(prefix), err);
    if (code != 0) {
        return code;
    }
    struct reader in = {prefix, sizeof(prefix), false};
    uint64_t header_size = read_u64(&in);
    if (header_size > SHARD_HEADER_SIZE_MAX || header_size > size - sizeof(prefix)) {
        return err_set(err, ERR_DAMAGED,
                       "its header would have %" PRIu64 " bytes, the file has %" PRIu64,
                       header_size, size);
    }
    struct buf header = BUF_NONE;
    struct shard_layout layout = {0};
    buf_reserve(&header, sizeof(prefix) + (size_t)header_size);
    code = read_hashed(fs, file, sha, 0, header.bytes, sizeof(prefix) + header_size, err);
    header.size = sizeof(prefix) + (size_t)header_size;
    if (code == 0) {
        code = shard_parse_header(header.bytes, header.size, size, shard, &layout, err);
    }
    if (code == 0) {
        code = read_tensors(fs, file, &layout, sha, shard, err);
    }
    shard->size = size;
    buf_done(&header);
    return code;
}

int shard_read(struct fs *fs, const char *path, const uint8_t *sha256, struct shard *ret_shard,
               struct err *err)
{
    struct fs_file *file = NULL;
    int code = fs_open(fs, path, FS_READ, &file, err);
    if (code != 0) {
        return code;
    }
    struct shard made = SHARD_NONE;
    struct sha256 sha;
    sha256_init(&sha);
    code = read_file(fs, file, &sha, &made, err);
    (void)fs->ops->close(file, NULL); /* Only read: nothing can be lost. */
    if (code == 0) {
        sha256_finish(&sha, made.sha256);
        if (sha256 != NULL && memcmp(made.sha256, sha256, SHA256_SIZE) != 0) {
            code = err_set(err, ERR_DAMAGED, "its SHA-256 is not the one that was published");
        }
    }
    sha256_done(&sha);
    if (code != 0) {
        shard_done(&made);
        (void)err_prefix(err, "shard '%s': ", path);
        return code;
    }
    *ret_shard = made;
    return 0;
}

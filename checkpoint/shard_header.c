/* A shard's header is read: nothing in it is believed before it fits the file's size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/json_text.h"
#include "checkpoint/shard_format.h"

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
                                  const char **ret_columns, bool *ret_has_digest,
                                  uint8_t ret_losses[SHA256_SIZE])
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
    *ret_has_digest = json_has(&in, "losses_sha256");
    if (*ret_has_digest) {
        json_take_digest(&in, "losses_sha256", ret_losses);
    }
    const char *wrong = json_end(&in);
    if (wrong == NULL && strcmp(format, SHARD_FORMAT) != 0) {
        return "format";
    }
    if (wrong == NULL && !parse_partition(partition, about)) {
        return "partition";
    }
    return wrong;
}

enum { PARAMETER, ACCUMULATOR, MEAN, SCALE, COORDINATES, LOSS_STEPS, LOSSES };

static const struct {
    const char *name;
    const char *type;
    bool optional;
} kinds[SHARD_TENSORS_MAX] = {
    [PARAMETER] = {"parameter", "F64", false},
    [ACCUMULATOR] = {"accumulator", "F64", false},
    [MEAN] = {"mean", "F64", true},
    [SCALE] = {"scale", "F64", true},
    [COORDINATES] = {"coordinates", "I64", false},
    [LOSS_STEPS] = {"loss_steps", "I64", true},
    [LOSSES] = {"losses", "F64", true},
};

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
    for (int turn = 0; turn < SHARD_TENSORS_MAX && at < data_size; turn++) {
        int found = -1;
        for (int i = 0; i < SHARD_TENSORS_MAX; i++) {
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
    for (int i = 0; i < SHARD_TENSORS_MAX; i++) {
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
                                struct shard_layout *layout,
                                struct tensor tensors[SHARD_TENSORS_MAX])
{
    struct json_reader in = {root, 0, NULL};
    const json_t *metadata = json_take(&in, "__metadata__");
    const char *columns = NULL;
    if (metadata == NULL || !json_is_object(metadata)) {
        return "__metadata__";
    }
    bool has_digest = false;
    const char *wrong =
        parse_metadata(metadata, &shard->about, &columns, &has_digest, layout->losses_sha256);
    if (wrong != NULL) {
        return wrong;
    }
    for (int i = 0; i < SHARD_TENSORS_MAX; i++) {
        if (kinds[i].optional && !json_has(&in, kinds[i].name)) {
            continue;
        }
        const json_t *tensor = json_take(&in, kinds[i].name);
        if (tensor == NULL || !json_is_object(tensor) ||
            !parse_tensor(tensor, kinds[i].type, data_size, &tensors[i])) {
            return kinds[i].name;
        }
    }
    uint64_t count = tensors[0].count;
    if (json_end(&in) != NULL) {
        return json_end(&in);
    }
    if (tensors[MEAN].there != tensors[SCALE].there || count == 0 ||
        tensors[COORDINATES].count != 2 || count > shard->about.coordinates) {
        return "shape";
    }
    for (int i = ACCUMULATOR; i <= SCALE; i++) {
        if (tensors[i].there && tensors[i].count != count) {
            return kinds[i].name;
        }
    }
    bool losses = tensors[LOSSES].there;
    if (tensors[LOSS_STEPS].there != losses || has_digest != losses ||
        (losses && (tensors[LOSSES].count == 0 || tensors[LOSSES].count > LOSSES_MAX ||
                    tensors[LOSS_STEPS].count != tensors[LOSSES].count))) {
        return kinds[LOSSES].name;
    }
    layout->losses_count = tensors[LOSSES].count;
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
    struct shard_layout layout = {0};
    struct tensor tensors[SHARD_TENSORS_MAX] = {{0}};
    uint64_t data_size = file_size - 8 - header_size;
    const char *wrong = parse_object(root, data_size, &made, &layout, tensors);
    int code = 0;
    if (wrong != NULL) {
        code = err_set(err, ERR_DAMAGED, "the header is wrong: %s", wrong);
        shard_done(&made);
    } else {
        uint64_t *const offsets[SHARD_TENSORS_MAX] = {
            &layout.parameter,   &layout.accumulator, &layout.mean,  &layout.scale,
            &layout.coordinates, &layout.loss_steps,  &layout.losses};
        for (int i = 0; i < SHARD_TENSORS_MAX; i++) {
            *offsets[i] = tensors[i].there ? 8 + header_size + tensors[i].begin : 0;
        }
        *ret_layout = layout;
        *ret_shard = made;
    }
    json_decref(root);
    return code;
}

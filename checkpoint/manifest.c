#include "checkpoint/manifest.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/json_text.h"

#define EPOCH_PREFIX "epoch-"

/* ---- names ---- */

void checkpoint_epoch_name(uint64_t epoch, char name[MANIFEST_TEXT_SIZE])
{
    (void)snprintf(name, MANIFEST_TEXT_SIZE, EPOCH_PREFIX "%08" PRIu64, epoch);
}

uint64_t checkpoint_epoch_of_name(const char *name)
{
    size_t prefix = sizeof(EPOCH_PREFIX) - 1;
    if (strncmp(name, EPOCH_PREFIX, prefix) != 0) {
        return 0;
    }
    size_t digits = strspn(name + prefix, "0123456789");
    if (digits < 8 || digits > 19 || name[prefix + digits] != '\0') {
        return 0;
    }
    uint64_t epoch = strtoull(name + prefix, NULL, 10);
    char again[MANIFEST_TEXT_SIZE];
    checkpoint_epoch_name(epoch, again);
    return strcmp(name, again) == 0 ? epoch : 0;
}

void checkpoint_shard_name(uint32_t rank, uint32_t ranks, char name[MANIFEST_TEXT_SIZE])
{
    (void)snprintf(name, MANIFEST_TEXT_SIZE, "shard-%05" PRIu32 "-of-%05" PRIu32 ".safetensors",
                   rank + 1, ranks);
}

int checkpoint_shard_of_name(const char *name)
{
    unsigned rank = 0;
    unsigned ranks = 0;
    char again[MANIFEST_TEXT_SIZE];
    if (sscanf(name, "shard-%5u-of-%5u", &rank, &ranks) != 2 || rank == 0 || rank > ranks ||
        ranks > MANIFEST_SHARDS_MAX) {
        return -1;
    }
    checkpoint_shard_name(rank - 1, ranks, again);
    return strcmp(name, again) == 0 ? (int)rank - 1 : -1;
}

bool checkpoint_name_is_plain(const char *name)
{
    size_t size = strnlen(name, MANIFEST_TEXT_SIZE);
    if (size == 0 || size == MANIFEST_TEXT_SIZE || name[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        bool good = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
                    (name[i] >= '0' && name[i] <= '9') || name[i] == '.' || name[i] == '-' ||
                    name[i] == '_';
        if (!good) {
            return false;
        }
    }
    return true;
}

/* ---- from the agreed state ---- */

_Static_assert(COMMAND_NAME_SIZE <= MANIFEST_TEXT_SIZE, "names fit");
_Static_assert(COMMAND_POLICY_SIZE <= MANIFEST_TEXT_SIZE, "the policy fits");

void manifest_of_state(const struct state *state, const struct state_job *job,
                       const struct state_epoch *epoch, struct manifest *ret_manifest)
{
    ASSERT(state_epoch_committed(epoch));
    struct manifest m = {.job = job->id,
                         .epoch = epoch->epoch,
                         .step = epoch->step,
                         .steps = job->steps,
                         .generation = epoch->generation,
                         .coordinates = epoch->shards[epoch->shards_count - 1].end,
                         .decided_index = epoch->decided_index,
                         .decided_ms = epoch->decided_ms,
                         .loss_bits = epoch->loss_bits,
                         .shards_count = epoch->shards_count};
    memcpy(m.name, job->name, sizeof(job->name));
    memcpy(m.policy, job->policy, sizeof(job->policy));
    memcpy(m.identity, job->identity, SHA256_SIZE);
    memcpy(m.dataset, job->dataset, SHA256_SIZE);
    memcpy(m.parameter_sha256, epoch->parameter_sha256, SHA256_SIZE);
    memcpy(m.accumulator_sha256, epoch->accumulator_sha256, SHA256_SIZE);
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        const struct state_shard *shard = &epoch->shards[i];
        struct manifest_shard *target = &m.shards[i];
        checkpoint_shard_name(i, epoch->shards_count, target->file);
        (void)snprintf(target->node, sizeof(target->node), "%s",
                       state_node_name(state, shard->node));
        target->node_id = shard->node;
        target->first = shard->first;
        target->end = shard->end;
        target->size = shard->size;
        memcpy(target->sha256, shard->sha256, SHA256_SIZE);
    }
    *ret_manifest = m;
}

/* ---- write ---- */

static void put_text(struct buf *out, const char *key, const char *text)
{
    buf_print(out, "  \"%s\": ", key);
    json_put_text(out, text, strlen(text));
    buf_print(out, ",\n");
}

static void put_digest(struct buf *out, const char *key, const uint8_t digest[SHA256_SIZE])
{
    char hex[SHA256_HEX_SIZE];
    sha256_hex(digest, hex);
    buf_print(out, "  \"%s\": \"%s\",\n", key, hex);
}

static void put_u64(struct buf *out, const char *key, uint64_t value)
{
    buf_print(out, "  \"%s\": %" PRIu64 ",\n", key, value);
}

void manifest_write(const struct manifest *m, struct buf *out)
{
    double loss = command_double_of(m->loss_bits);
    buf_print(out, "{\n");
    put_u64(out, "schema", MANIFEST_SCHEMA);
    put_u64(out, "job", m->job);
    put_text(out, "name", m->name);
    put_digest(out, "identity", m->identity);
    put_digest(out, "dataset", m->dataset);
    put_text(out, "policy", m->policy);
    put_u64(out, "epoch", m->epoch);
    put_u64(out, "step", m->step);
    put_u64(out, "steps", m->steps);
    put_u64(out, "generation", m->generation);
    put_u64(out, "coordinates", m->coordinates);
    put_u64(out, "decided_index", m->decided_index);
    put_u64(out, "decided_ms", m->decided_ms);
    if (isfinite(loss)) {
        buf_print(out, "  \"loss\": %.17g,\n", loss);
    } else {
        buf_print(out, "  \"loss\": null,\n");
    }
    buf_print(out, "  \"loss_hex\": \"%a\",\n", loss);
    put_digest(out, "parameter_sha256", m->parameter_sha256);
    put_digest(out, "accumulator_sha256", m->accumulator_sha256);
    buf_print(out, "  \"shards\": [");
    for (uint32_t i = 0; i < m->shards_count; i++) {
        const struct manifest_shard *s = &m->shards[i];
        char hex[SHA256_HEX_SIZE];
        sha256_hex(s->sha256, hex);
        buf_print(out, "%s\n    {\"file\": \"%s\", \"node\": ", i == 0 ? "" : ",", s->file);
        json_put_text(out, s->node, strlen(s->node));
        buf_print(out,
                  ", \"node_id\": %" PRIu32 ", \"first\": %" PRIu64 ", \"end\": %" PRIu64
                  ", \"size\": %" PRIu64 ", \"sha256\": \"%s\"}",
                  s->node_id, s->first, s->end, s->size, hex);
    }
    buf_print(out, "\n  ]\n}\n");
}

/* ---- read ---- */

static bool parse_loss(struct json_reader *in, uint64_t *ret_bits)
{
    char text[40];
    char again[40];
    char *end = NULL;
    (void)json_take(in, "loss"); /* For people; the bits are in the other one. */
    json_take_text(in, "loss_hex", text, sizeof(text));
    double loss = strtod(text, &end);
    (void)snprintf(again, sizeof(again), "%a", loss);
    *ret_bits = command_bits_of(loss);
    return end != text && strcmp(text, again) == 0;
}

static const char *parse_shard(const json_t *object, uint32_t rank, uint32_t ranks,
                               struct manifest_shard *s)
{
    struct json_reader in = {object, 0, NULL};
    char expected[MANIFEST_TEXT_SIZE];
    json_take_text(&in, "file", s->file, sizeof(s->file));
    json_take_text(&in, "node", s->node, sizeof(s->node));
    s->node_id = (uint32_t)json_take_u64(&in, "node_id", 1, STATE_NODES_MAX);
    s->first = json_take_u64(&in, "first", 0, INT64_MAX);
    s->end = json_take_u64(&in, "end", 1, INT64_MAX);
    s->size = json_take_u64(&in, "size", 0, INT64_MAX);
    json_take_digest(&in, "sha256", s->sha256);
    if (json_end(&in) != NULL) {
        return json_end(&in);
    }
    checkpoint_shard_name(rank, ranks, expected);
    if (strcmp(s->file, expected) != 0 || !checkpoint_name_is_plain(s->file)) {
        return "file";
    }
    return s->first < s->end ? NULL : "end";
}

static const char *parse_shards(const json_t *array, struct manifest *m)
{
    size_t count = json_array_size(array); /* 0 where it is none */
    if (count == 0 || count > MANIFEST_SHARDS_MAX) {
        return "shards";
    }
    m->shards_count = (uint32_t)count;
    uint64_t at = 0;
    for (uint32_t i = 0; i < m->shards_count; i++) {
        const json_t *object = json_array_get(array, i);
        if (!json_is_object(object)) {
            return "shards";
        }
        const char *wrong = parse_shard(object, i, m->shards_count, &m->shards[i]);
        if (wrong != NULL) {
            return wrong;
        }
        if (m->shards[i].first != at) {
            return "first";
        }
        at = m->shards[i].end;
    }
    return at == m->coordinates ? NULL : "coordinates";
}

static const char *parse_root(const json_t *root, struct manifest *m)
{
    struct json_reader in = {root, 0, NULL};
    (void)json_take_u64(&in, "schema", MANIFEST_SCHEMA, MANIFEST_SCHEMA);
    m->job = json_take_u64(&in, "job", 1, INT64_MAX);
    json_take_text(&in, "name", m->name, sizeof(m->name));
    json_take_digest(&in, "identity", m->identity);
    json_take_digest(&in, "dataset", m->dataset);
    json_take_text(&in, "policy", m->policy, sizeof(m->policy));
    m->epoch = json_take_u64(&in, "epoch", 1, INT64_MAX);
    m->step = json_take_u64(&in, "step", 0, INT64_MAX);
    m->steps = json_take_u64(&in, "steps", 0, INT64_MAX);
    m->generation = json_take_u64(&in, "generation", 0, INT64_MAX);
    m->coordinates = json_take_u64(&in, "coordinates", 1, INT64_MAX);
    m->decided_index = json_take_u64(&in, "decided_index", 0, INT64_MAX);
    m->decided_ms = json_take_u64(&in, "decided_ms", 0, INT64_MAX);
    bool loss_good = parse_loss(&in, &m->loss_bits);
    json_take_digest(&in, "parameter_sha256", m->parameter_sha256);
    json_take_digest(&in, "accumulator_sha256", m->accumulator_sha256);
    const json_t *shards = json_take(&in, "shards");
    if (json_end(&in) != NULL) {
        return json_end(&in);
    }
    return loss_good ? parse_shards(shards, m) : "loss_hex";
}

int manifest_parse(const uint8_t *bytes, size_t size, struct manifest *ret_manifest,
                   struct err *err)
{
    if (size > MANIFEST_SIZE_MAX) {
        return err_set(err, ERR_DAMAGED, "the manifest has %zu bytes; the most is %u", size,
                       MANIFEST_SIZE_MAX);
    }
    if (size == 0) {
        return err_set(err, ERR_DAMAGED, "the manifest is empty");
    }
    json_error_t where;
    json_t *root = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL) {
        return err_set(err, ERR_DAMAGED, "the manifest is no JSON: line %d: %s", where.line,
                       where.text);
    }
    struct manifest *made = calloc(1, sizeof(*made));
    ASSERT(made != NULL);
    const char *wrong = json_is_object(root) ? parse_root(root, made) : "no object";
    int code = 0;
    if (wrong != NULL) {
        code = err_set(err, ERR_DAMAGED, "the manifest is wrong: %s", wrong);
    } else {
        *ret_manifest = *made;
    }
    free(made);
    json_decref(root);
    return code;
}

/* ---- SHA256SUMS ---- */

void sums_put(struct buf *bytes, const char *name, const uint8_t sha256[SHA256_SIZE])
{
    char hex[SHA256_HEX_SIZE];
    ASSERT(checkpoint_name_is_plain(name));
    sha256_hex(sha256, hex);
    buf_print(bytes, "%s  %s\n", hex, name);
}

int sums_parse(const uint8_t *bytes, size_t size, struct sums_line *ret_lines, size_t lines_max,
               size_t *ret_count, struct err *err)
{
    size_t count = 0;
    const char *at = (const char *)bytes;
    while (size > 0) {
        const char *end = memchr(at, '\n', size);
        size_t length = end == NULL ? 0 : (size_t)(end - at);
        struct sums_line *line = &ret_lines[count];
        if (count == lines_max || length < 67 || length - 66 >= sizeof(line->name)) {
            return err_set(err, ERR_DAMAGED, "SHA256SUMS: line %zu is wrong", count + 1);
        }
        char hex[SHA256_HEX_SIZE];
        memcpy(hex, at, 64);
        hex[64] = '\0';
        memcpy(line->name, at + 66, length - 66);
        line->name[length - 66] = '\0';
        if (sha256_from_hex(hex, line->sha256) != 0 || at[64] != ' ' || at[65] != ' ' ||
            strlen(line->name) != length - 66 || !checkpoint_name_is_plain(line->name)) {
            return err_set(err, ERR_DAMAGED, "SHA256SUMS: line %zu is wrong", count + 1);
        }
        at += length + 1;
        size -= length + 1;
        count++;
    }
    *ret_count = count;
    return 0;
}

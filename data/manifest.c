#include "data/manifest.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "data/share.h"

const char *const manifest_file_names[] = {"x.npy", "data.npy",    "indices.npy", "indptr.npy",
                                           "y.npy", "columns.txt", NULL};

const struct manifest_file *manifest_find(const struct manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->files_count; i++) {
        if (strcmp(manifest->files[i].name, name) == 0) {
            return &manifest->files[i];
        }
    }
    return NULL;
}

/* A number of at least 0 under the key, or MANIFEST_UNKNOWN where the key is absent. */
static int get_count(const json_t *root, const char *key, uint64_t *ret_count, struct err *err)
{
    const json_t *value = json_object_get(root, key);
    *ret_count = MANIFEST_UNKNOWN;
    if (value == NULL) {
        return 0;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return err_set(err, ERR_DAMAGED, "'%s' is not a count", key);
    }
    *ret_count = (uint64_t)json_integer_value(value);
    return 0;
}

static int parse_files(const json_t *files, struct manifest *manifest, struct err *err)
{
    if (!json_is_object(files)) {
        return err_set(err, ERR_DAMAGED, "'files' is not an object");
    }
    const char *name = NULL;
    json_t *file = NULL;
    json_t *root = NULL;
    memcpy(&root, &files, sizeof(root)); /* The macro wants it without const; it only reads. */
    json_object_foreach(root, name, file)
    {
        size_t known = 0;
        while (manifest_file_names[known] != NULL &&
               strcmp(manifest_file_names[known], name) != 0) {
            known++;
        }
        if (manifest_file_names[known] == NULL) {
            return err_set(err, ERR_DAMAGED, "'files' names an unknown file");
        }
        struct manifest_file *to = &manifest->files[manifest->files_count];
        const json_t *digest = json_object_get(file, "sha256");
        uint64_t bytes = 0;
        int code = get_count(file, "bytes", &bytes, err);
        if (code != 0) {
            return code;
        }
        if (bytes == MANIFEST_UNKNOWN || !json_is_string(digest) ||
            sha256_from_hex(json_string_value(digest), to->digest) != 0) {
            return err_set(err, ERR_DAMAGED, "'%s' lacks bytes or a SHA-256 of 64 digits", name);
        }
        to->bytes = bytes;
        (void)snprintf(to->name, sizeof(to->name), "%s", name);
        manifest->files_count++;
        ASSERT(manifest->files_count < MANIFEST_FILES_MAX);
    }
    return 0;
}

/* A table of another block size is as good as none: it is made again where it is asked for. */
static int parse_blocks(const json_t *blocks, struct manifest *manifest, struct err *err)
{
    uint64_t bytes = 0;
    const json_t *digest = json_object_get(blocks, "sha256");
    if (blocks == NULL) {
        return 0;
    }
    int code = get_count(blocks, "bytes", &bytes, err);
    if (code == 0 && (!json_is_string(digest) ||
                      sha256_from_hex(json_string_value(digest), manifest->blocks_digest) != 0)) {
        code = err_set(err, ERR_DAMAGED, "'blocks' lacks a SHA-256 of 64 digits");
    }
    manifest->has_blocks = code == 0 && bytes == SHARE_BLOCK_SIZE;
    return code;
}

static int parse_root(const json_t *root, struct manifest *manifest, struct err *err)
{
    const json_t *format = json_object_get(root, "format");
    const json_t *schema = json_object_get(root, "schema");
    if (!json_is_string(format) || strcmp(json_string_value(format), "coppelius-dataset") != 0) {
        return err_set(err, ERR_DATA,
                       "is not the manifest of a dataset ('format' should be "
                       "\"coppelius-dataset\")");
    }
    if (!json_is_integer(schema) || json_integer_value(schema) != 1) {
        return err_set(err, ERR_DATA, "has another schema than 1; import the data again");
    }
    const json_t *storage = json_object_get(root, "storage");
    if (storage != NULL) {
        const char *text = json_is_string(storage) ? json_string_value(storage) : "";
        manifest->sparse = strcmp(text, "sparse") == 0 ? 1 : strcmp(text, "dense") == 0 ? 0 : -2;
        if (manifest->sparse == -2) {
            return err_set(err, ERR_DAMAGED, "'storage' is neither dense nor sparse");
        }
    }
    const json_t *target = json_object_get(root, "target");
    if (json_is_string(target)) {
        if (json_string_length(target) > DATA_NAME_SIZE_MAX) {
            return err_set(err, ERR_DAMAGED, "the target's name is too long");
        }
        (void)snprintf(manifest->target, sizeof(manifest->target), "%s", json_string_value(target));
    }
    const json_t *names = json_object_get(root, "names");
    manifest->named = json_is_string(names) && strcmp(json_string_value(names), "header") == 0;
    int code = get_count(root, "rows", &manifest->rows, err);
    code = code == 0 ? get_count(root, "features", &manifest->features, err) : code;
    code = code == 0 ? get_count(root, "nonzeros", &manifest->nonzeros, err) : code;
    code = code == 0 ? get_count(root, "rows_dropped", &manifest->rows_dropped, err) : code;
    code = code == 0 ? parse_blocks(json_object_get(root, "blocks"), manifest, err) : code;
    return code == 0 ? parse_files(json_object_get(root, "files"), manifest, err) : code;
}

int data_manifest_parse(const uint8_t *bytes, size_t size, struct manifest *ret_manifest,
                        struct err *err)
{
    json_error_t where;
    if (size > MANIFEST_SIZE_MAX) {
        return err_set(err, ERR_DAMAGED, "%zu bytes; the most is %u", size, MANIFEST_SIZE_MAX);
    }
    json_t *root = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL) {
        return err_set(err, ERR_DAMAGED, "is not JSON: line %d column %d", where.line,
                       where.column);
    }
    struct manifest made = {.sparse = -1};
    int code = parse_root(root, &made, err);
    json_decref(root);
    if (code == 0) {
        *ret_manifest = made;
    }
    return code;
}

void data_manifest_write(const struct manifest *manifest, struct buf *bytes)
{
    json_t *files = json_object();
    for (size_t i = 0; i < manifest->files_count; i++) {
        char hex[SHA256_HEX_SIZE];
        sha256_hex(manifest->files[i].digest, hex);
        json_t *file =
            json_pack("{s:I, s:s}", "bytes", (json_int_t)manifest->files[i].bytes, "sha256", hex);
        ASSERT(json_object_set_new(files, manifest->files[i].name, file) == 0);
    }
    json_t *root = json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:s?, s:s, s:I, s:o}", "format",
                             "coppelius-dataset", "schema", 1, "storage",
                             manifest->sparse == 1 ? "sparse" : "dense", "rows",
                             (json_int_t)manifest->rows, "features", (json_int_t)manifest->features,
                             "nonzeros", (json_int_t)manifest->nonzeros, "target",
                             manifest->target[0] != '\0' ? manifest->target : NULL, "names",
                             manifest->named ? "header" : "numbers", "rows_dropped",
                             (json_int_t)manifest->rows_dropped, "files", files);
    ASSERT(root != NULL);
    if (manifest->has_blocks) {
        char hex[SHA256_HEX_SIZE];
        sha256_hex(manifest->blocks_digest, hex);
        json_t *blocks =
            json_pack("{s:I, s:s}", "bytes", (json_int_t)SHARE_BLOCK_SIZE, "sha256", hex);
        ASSERT(json_object_set_new(root, "blocks", blocks) == 0);
    }
    char *text = json_dumps(root, JSON_INDENT(2));
    ASSERT(text != NULL);
    buf_put(bytes, text, strlen(text));
    buf_put_u8(bytes, '\n');
    free(text);
    json_decref(root);
}

void manifest_digest(const struct manifest *manifest, uint8_t ret_digest[SHA256_SIZE])
{
    struct buf bytes = BUF_NONE;
    buf_put_text(&bytes, "coppelius dataset 1");
    buf_put_u64(&bytes, manifest->rows);
    buf_put_u64(&bytes, manifest->features);
    buf_put_u8(&bytes, manifest->sparse == 1 ? 1 : 0);
    for (size_t i = 0; manifest_file_names[i] != NULL; i++) {
        const struct manifest_file *file = manifest_find(manifest, manifest_file_names[i]);
        if (file != NULL) {
            buf_put_text(&bytes, file->name);
            buf_put(&bytes, file->digest, sizeof(file->digest));
        }
    }
    sha256_of(bytes.bytes, bytes.size, ret_digest);
    buf_done(&bytes);
}

uint64_t manifest_blocks(const struct manifest *manifest)
{
    uint64_t blocks = 0;
    for (size_t i = 0; i < manifest->files_count; i++) {
        blocks += share_blocks_of(manifest->files[i].bytes);
    }
    return blocks;
}

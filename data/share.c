/* The holder's side: a whole dataset with its table of blocks, read by number and offset. */
#include "data/share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "data/dataset.h"
#include "data/digest.h"
#include "data/faults.h"

#define PATH_SIZE 4160

struct dataset_share {
    struct manifest manifest; /* files in the order of manifest_file_names */
    struct buf text;          /* the manifest's */
    struct buf table;
    uint8_t digest[SHA256_SIZE];
    int files[MANIFEST_FILES_MAX];
    char folder[PATH_SIZE - 64];
};

/* The table that was written at import; false where it is absent or not the manifest's. */
static bool read_table(const struct dataset *dataset, uint64_t blocks, struct buf *table)
{
    char path[PATH_SIZE];
    struct stat status;
    uint8_t digest[SHA256_SIZE];
    struct err err = {0};
    uint64_t size = blocks * SHA256_SIZE;
    if (!dataset->manifest.has_blocks || size > SHARE_TABLE_SIZE_MAX) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "%s/blocks.bin", dataset->folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool good = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                (uint64_t)status.st_size == size;
    if (good) {
        buf_reserve(table, (size_t)size);
        good = npy_pread(fd, path, 0, table->bytes, (size_t)size, &err) == 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (good) {
        sha256_of(table->bytes, (size_t)size, digest);
        good = memcmp(digest, dataset->manifest.blocks_digest, sizeof(digest)) == 0;
        table->size = good ? (size_t)size : 0;
    }
    return good;
}

/* A file's line in the manifest: as it is said, or as it is. */
static int describe(const struct dataset *dataset, const char *name, struct meter *meter,
                    struct buf *blocks, struct manifest *manifest, struct err *err)
{
    const struct manifest_file *said = manifest_find(&dataset->manifest, name);
    struct manifest_file *file = &manifest->files[manifest->files_count];
    char path[PATH_SIZE];
    int code = 0;
    if (said != NULL && blocks == NULL) {
        *file = *said;
        manifest->files_count++;
        return 0;
    }
    (void)snprintf(path, sizeof(path), "%s/%s", dataset->folder, name);
    (void)snprintf(file->name, sizeof(file->name), "%s", name);
    code = digest_file(path, meter, file->digest, blocks, &file->bytes, err);
    if (code == ERR_NOT_FOUND && said == NULL) {
        return err_forget(err);
    }
    if (code == 0 && said != NULL &&
        (said->bytes != file->bytes || memcmp(said->digest, file->digest, SHA256_SIZE) != 0)) {
        code =
            err_set(err, ERR_DAMAGED, "%s: its SHA-256 is not the manifest's; import again", path);
    }
    manifest->files_count += code == 0 ? 1 : 0;
    return code;
}

static int describe_all(const struct dataset *dataset, const struct data_progress *progress,
                        struct buf *blocks, struct manifest *manifest, struct err *err)
{
    struct meter meter;
    int code = 0;
    manifest->files_count = 0;
    meter_start(&meter, progress, "digest", dataset->info.bytes);
    for (size_t i = 0; manifest_file_names[i] != NULL && code == 0; i++) {
        code = describe(dataset, manifest_file_names[i], &meter, blocks, manifest, err);
    }
    return code;
}

int dataset_manifest(const struct dataset *dataset, const struct data_progress *progress,
                     struct manifest *ret_manifest, struct buf *blocks, struct err *err)
{
    const struct dataset_info *info = &dataset->info;
    struct manifest made = dataset->manifest;
    made.rows = info->rows;
    made.features = info->features;
    made.nonzeros = info->nonzeros;
    made.sparse = info->sparse ? 1 : 0;
    made.named = dataset->named;
    made.rows_dropped = made.rows_dropped == MANIFEST_UNKNOWN ? 0 : made.rows_dropped;
    int code = describe_all(dataset, progress, NULL, &made, err);
    if (code == 0 && blocks != NULL && !read_table(dataset, manifest_blocks(&made), blocks)) {
        buf_clear(blocks);
        code = describe_all(dataset, progress, blocks, &made, err);
    }
    if (code == 0 && blocks != NULL) {
        ASSERT(blocks->size == manifest_blocks(&made) * SHA256_SIZE);
        made.has_blocks = true;
        sha256_of(blocks->bytes, blocks->size, made.blocks_digest);
    }
    if (code == 0) {
        *ret_manifest = made;
    }
    return code;
}

static int open_files(struct dataset_share *share, struct err *err)
{
    for (size_t i = 0; i < share->manifest.files_count; i++) {
        char path[PATH_SIZE];
        (void)snprintf(path, sizeof(path), "%s/%s", share->folder, share->manifest.files[i].name);
        share->files[i] = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (share->files[i] < 0) {
            return err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
        }
    }
    return 0;
}

int dataset_share_open(const char *folder, const struct data_progress *progress,
                       struct dataset_share **ret_share, struct err *err)
{
    struct dataset *dataset = NULL;
    int code = dataset_open(folder, &dataset, err);
    if (code != 0) {
        return code;
    }
    struct dataset_share *made = calloc(1, sizeof(*made));
    ASSERT(made != NULL);
    for (size_t i = 0; i < MANIFEST_FILES_MAX; i++) {
        made->files[i] = -1;
    }
    (void)snprintf(made->folder, sizeof(made->folder), "%s", folder);
    if (dataset->partial.have != NULL) {
        code = err_set(err, ERR_STATE, "%s: is a partial copy; the whole one is served", folder);
    }
    code =
        code == 0 ? dataset_manifest(dataset, progress, &made->manifest, &made->table, err) : code;
    code = code == 0 ? open_files(made, err) : code;
    dataset_close(dataset);
    if (code == 0 && made->table.size > SHARE_TABLE_SIZE_MAX) {
        code = err_set(err, ERR_DATA, "%s: has more blocks than can be served", folder);
    }
    if (code != 0) {
        dataset_share_close(made);
        return code;
    }
    data_manifest_write(&made->manifest, &made->text);
    manifest_digest(&made->manifest, made->digest);
    *ret_share = made;
    return 0;
}

void dataset_share_close(struct dataset_share *share)
{
    if (share == NULL) {
        return;
    }
    for (size_t i = 0; i < MANIFEST_FILES_MAX; i++) {
        if (share->files[i] >= 0) {
            (void)close(share->files[i]);
        }
    }
    buf_done(&share->text);
    buf_done(&share->table);
    free(share);
}

const uint8_t *dataset_share_digest(const struct dataset_share *share)
{
    return share->digest;
}

uint64_t dataset_share_manifest_size(const struct dataset_share *share)
{
    return share->text.size;
}

uint64_t dataset_share_table_size(const struct dataset_share *share)
{
    return share->table.size;
}

int dataset_share_read(const struct dataset_share *share, uint32_t part, uint64_t offset,
                       void *bytes, size_t size, struct err *err)
{
    const struct manifest *manifest = &share->manifest;
    const struct buf *memory = part == SHARE_MANIFEST ? &share->text : &share->table;
    if (part >= SHARE_FILES + manifest->files_count) {
        return err_set(err, ERR_PROTO, "part %u of a dataset of %zu files is asked for", part,
                       manifest->files_count);
    }
    uint64_t whole = part < SHARE_FILES ? memory->size : manifest->files[part - SHARE_FILES].bytes;
    if (offset > whole || size > whole - offset) {
        return err_set(err, ERR_PROTO, "%zu bytes at %llu of part %u are asked for; it has %llu",
                       size, (unsigned long long)offset, part, (unsigned long long)whole);
    }
    if (part < SHARE_FILES) {
        memcpy(bytes, memory->bytes + offset, size);
        return 0;
    }
    return npy_pread(share->files[part - SHARE_FILES], manifest->files[part - SHARE_FILES].name,
                     offset, bytes, size, err);
}

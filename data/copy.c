/* The fetcher's side: a copy with holes that grows block by block. */
#include "data/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/rand.h"
#include "data/dataset.h"
#include "data/digest.h"
#include "data/faults.h"
#include "data/folder.h"
#include "data/share.h"
#include "data/writer.h"

#define PATH_SIZE    4160
#define RECORD_MAGIC "coppelius copy 1\n"
#define RECORD_FRONT (sizeof(RECORD_MAGIC) - 1 + SHA256_SIZE + 8)

struct dataset_copy {
    char folder[PATH_SIZE - 64];
    struct manifest manifest; /* files in the order of manifest_file_names */
    struct buf table;
    struct copy_record record;
    int files[MANIFEST_FILES_MAX]; /* for writing */
    bool written[MANIFEST_FILES_MAX];
    bool checked[MANIFEST_FILES_MAX];
};

/* ---- the record ---- */

void copy_record_done(struct copy_record *record)
{
    free(record->have);
    *record = (struct copy_record){.blocks = 0};
}

static void put_record(const struct manifest *manifest, const struct copy_record *record,
                       struct buf *bytes)
{
    uint8_t digest[SHA256_SIZE];
    manifest_digest(manifest, digest);
    buf_put(bytes, RECORD_MAGIC, sizeof(RECORD_MAGIC) - 1);
    buf_put(bytes, digest, sizeof(digest));
    buf_put_u64(bytes, record->blocks);
    buf_put(bytes, record->have, (size_t)((record->blocks + 7) / 8));
    buf_put_u64(bytes, hash_xxh3(bytes->bytes, bytes->size));
}

int copy_record_read(const char *folder, const struct manifest *manifest,
                     struct copy_record *ret_record, struct err *err)
{
    char path[PATH_SIZE];
    struct stat status;
    uint64_t blocks = manifest_blocks(manifest);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, COPY_RECORD);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK, "%s: %s", path,
                       err_errno(errno));
    }
    uint64_t size = RECORD_FRONT + (blocks + 7) / 8 + 8;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || (uint64_t)status.st_size != size ||
        size > SHARE_TABLE_SIZE_MAX) {
        (void)close(fd);
        return err_set(err, ERR_DAMAGED, "%s: is not the record of %llu blocks; remove the folder",
                       path, (unsigned long long)blocks);
    }
    uint8_t *bytes = malloc((size_t)size);
    struct copy_record none = {.blocks = blocks, .have = calloc(1, (size_t)(blocks + 7) / 8 + 1)};
    struct buf front = BUF_NONE;
    ASSERT(bytes != NULL);
    ASSERT(none.have != NULL);
    int code = npy_pread(fd, path, 0, bytes, (size_t)size, err);
    (void)close(fd);
    if (code == 0) {
        put_record(manifest, &none, &front);
        struct reader tail = {bytes + size - 8, 8, false};
        if (memcmp(bytes, front.bytes, RECORD_FRONT) != 0 ||
            read_u64(&tail) != hash_xxh3(bytes, (size_t)size - 8)) {
            code = err_set(err, ERR_DAMAGED,
                           "%s: is broken or of another dataset; remove the "
                           "folder",
                           path);
        }
    }
    buf_done(&front);
    if (code == 0) {
        memcpy(none.have, bytes + RECORD_FRONT, (size_t)((blocks + 7) / 8));
        *ret_record = none;
    } else {
        copy_record_done(&none);
    }
    free(bytes);
    return code;
}

uint64_t copy_first_block(const struct manifest *manifest, const char *name)
{
    uint64_t first = 0;
    for (size_t i = 0; manifest_file_names[i] != NULL; i++) {
        const struct manifest_file *file = manifest_find(manifest, manifest_file_names[i]);
        if (file != NULL && strcmp(file->name, name) == 0) {
            return first;
        }
        first += file != NULL ? share_blocks_of(file->bytes) : 0;
    }
    return UINT64_MAX;
}

/* ---- a manifest from another node ---- */

static int take_manifest(const void *text, size_t size, const uint8_t digest[SHA256_SIZE],
                         struct manifest *ret_manifest, struct err *err)
{
    struct manifest said;
    if (data_manifest_parse(text, size, &said, err) != 0) {
        return err_prefix(err, "the manifest that came: ");
    }
    struct manifest made = said;
    uint64_t bytes = 0;
    made.files_count = 0;
    for (size_t i = 0; manifest_file_names[i] != NULL; i++) {
        const struct manifest_file *file = manifest_find(&said, manifest_file_names[i]);
        if (file != NULL) {
            made.files[made.files_count++] = *file;
            bytes += file->bytes < UINT64_MAX / 16 ? file->bytes : UINT64_MAX / 16;
        }
    }
    uint8_t got[SHA256_SIZE];
    manifest_digest(&made, got);
    if (said.rows == MANIFEST_UNKNOWN || said.features == MANIFEST_UNKNOWN || said.sparse < 0 ||
        !said.has_blocks || memcmp(got, digest, SHA256_SIZE) != 0) {
        return err_set(err, ERR_DAMAGED,
                       "the manifest that came is not that of the dataset that was asked for");
    }
    if (bytes / SHARE_BLOCK_SIZE >= SHARE_TABLE_SIZE_MAX / SHA256_SIZE - MANIFEST_FILES_MAX) {
        return err_set(err, ERR_DAMAGED, "the manifest that came has %llu bytes of files",
                       (unsigned long long)bytes);
    }
    *ret_manifest = made;
    return 0;
}

int dataset_copy_table_size(const void *manifest, size_t manifest_size,
                            const uint8_t digest[SHA256_SIZE], uint64_t *ret_size, struct err *err)
{
    struct manifest made;
    int code = take_manifest(manifest, manifest_size, digest, &made, err);
    if (code == 0) {
        *ret_size = manifest_blocks(&made) * SHA256_SIZE;
    }
    return code;
}

/* ---- making and opening ---- */

static int write_record(struct dataset_copy *copy, const char *folder, struct err *err)
{
    struct buf bytes = BUF_NONE;
    char from[PATH_SIZE + 16];
    char to[PATH_SIZE];
    (void)snprintf(to, sizeof(to), "%s/%s", folder, COPY_RECORD);
    (void)snprintf(from, sizeof(from), "%s.new", to);
    put_record(&copy->manifest, &copy->record, &bytes);
    (void)unlink(from); /* Of a run that was killed. */
    int code = folder_write(folder, COPY_RECORD ".new", &bytes, err);
    if (code == 0 && rename(from, to) != 0) {
        code = err_set(err, ERR_DISK, "%s: %s", to, err_errno(errno));
    }
    buf_done(&bytes);
    return code;
}

static int make_holes(const char *folder, const struct manifest_file *file, struct err *err)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, file->name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    int code = 0;
    if (fd < 0 || ftruncate(fd, (off_t)file->bytes) != 0 || fsync(fd) != 0) {
        code = err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return code;
}

static struct dataset_copy *copy_new(const char *folder)
{
    struct dataset_copy *copy = calloc(1, sizeof(*copy));
    ASSERT(copy != NULL);
    for (size_t i = 0; i < MANIFEST_FILES_MAX; i++) {
        copy->files[i] = -1;
    }
    (void)snprintf(copy->folder, sizeof(copy->folder), "%s", folder);
    return copy;
}

static int open_files(struct dataset_copy *copy, struct err *err)
{
    for (size_t i = 0; i < copy->manifest.files_count; i++) {
        char path[PATH_SIZE];
        struct stat status;
        (void)snprintf(path, sizeof(path), "%s/%s", copy->folder, copy->manifest.files[i].name);
        copy->files[i] = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        if (copy->files[i] < 0 || fstat(copy->files[i], &status) != 0 ||
            (uint64_t)status.st_size != copy->manifest.files[i].bytes) {
            return err_set(err, ERR_DAMAGED, "%s: is not there in its size; remove the folder",
                           path);
        }
    }
    return 0;
}

int dataset_copy_make(const char *folder, const uint8_t digest[SHA256_SIZE], const void *manifest,
                      size_t manifest_size, const void *table, size_t table_size,
                      struct dataset_copy **ret_copy, struct err *err)
{
    uint8_t got[SHA256_SIZE];
    char fresh[PATH_SIZE];
    struct buf text = BUF_NONE;
    struct dataset_copy *made = copy_new(folder);
    int code = take_manifest(manifest, manifest_size, digest, &made->manifest, err);
    if (code == 0) {
        uint64_t blocks = manifest_blocks(&made->manifest);
        sha256_of(table, table_size, got);
        if (table_size != blocks * SHA256_SIZE ||
            memcmp(got, made->manifest.blocks_digest, sizeof(got)) != 0) {
            code = err_set(err, ERR_DAMAGED,
                           "the table of %llu blocks that came is not its manifest's",
                           (unsigned long long)blocks);
        }
        made->record.blocks = blocks;
        made->record.have = calloc(1, (size_t)(blocks + 7) / 8 + 1);
        ASSERT(made->record.have != NULL);
    }
    (void)snprintf(fresh, sizeof(fresh), "%s.importing-%016llx", made->folder,
                   (unsigned long long)rand_entropy());
    if (code == 0 && mkdir(fresh, 0750) != 0) {
        code = err_set(err, ERR_DISK, "%s: %s", fresh, err_errno(errno));
    }
    if (code != 0) {
        dataset_copy_close(made);
        return code;
    }
    for (size_t i = 0; i < made->manifest.files_count && code == 0; i++) {
        code = make_holes(fresh, &made->manifest.files[i], err);
    }
    buf_put(&made->table, table, table_size);
    data_manifest_write(&made->manifest, &text);
    code = code == 0 ? folder_write(fresh, "manifest.json", &text, err) : code;
    code = code == 0 ? folder_write(fresh, "blocks.bin", &made->table, err) : code;
    code = code == 0 ? write_record(made, fresh, err) : code;
    code = code == 0 ? folder_publish(fresh, folder, err) : code;
    buf_done(&text);
    if (code != 0) {
        folder_remove(fresh);
    }
    code = code == 0 ? open_files(made, err) : code;
    if (code != 0) {
        dataset_copy_close(made);
        return code;
    }
    *ret_copy = made;
    return 0;
}

static int read_small(const char *folder, const char *name, uint64_t size_max, struct buf *bytes,
                      struct err *err)
{
    struct fs *fs = NULL;
    int code = fs_posix_open(folder, &fs, err);
    code = code == 0 ? fs_read_all(fs, name, size_max, bytes, err) : code;
    fs_posix_close(fs);
    return code;
}

int dataset_copy_open(const char *folder, const uint8_t digest[SHA256_SIZE],
                      struct dataset_copy **ret_copy, struct err *err)
{
    struct stat status;
    struct buf text = BUF_NONE;
    uint8_t got[SHA256_SIZE];
    if (lstat(folder, &status) != 0) {
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK, "%s: %s", folder,
                       err_errno(errno));
    }
    struct dataset_copy *made = copy_new(folder);
    int code = read_small(folder, "manifest.json", SHARE_MANIFEST_SIZE_MAX, &text, err);
    code = code == 0 ? take_manifest(text.bytes, text.size, digest, &made->manifest, err) : code;
    code = code == 0 ? read_small(folder, "blocks.bin", SHARE_TABLE_SIZE_MAX, &made->table, err)
                     : code;
    if (code == 0) {
        sha256_of(made->table.bytes, made->table.size, got);
        if (made->table.size != manifest_blocks(&made->manifest) * SHA256_SIZE ||
            memcmp(got, made->manifest.blocks_digest, sizeof(got)) != 0) {
            code = err_set(err, ERR_DAMAGED, "blocks.bin is not the manifest's");
        }
    }
    code = code == 0 ? copy_record_read(folder, &made->manifest, &made->record, err) : code;
    code = code == 0 ? open_files(made, err) : code;
    buf_done(&text);
    if (code != 0) {
        dataset_copy_close(made);
        /* A folder without its files is broken, not absent. */
        err->code = code == ERR_NOT_FOUND ? ERR_DAMAGED : code;
        return err_prefix(err, "the copy in %s: ", folder);
    }
    *ret_copy = made;
    return 0;
}

void dataset_copy_close(struct dataset_copy *copy)
{
    if (copy == NULL) {
        return;
    }
    for (size_t i = 0; i < MANIFEST_FILES_MAX; i++) {
        if (copy->files[i] >= 0) {
            (void)close(copy->files[i]);
        }
    }
    copy_record_done(&copy->record);
    buf_done(&copy->table);
    free(copy);
}

/* ---- growing ---- */

struct plan {
    struct dataset_piece *pieces;
    size_t count, capacity;
};

static void plan_add(struct plan *plan, const struct dataset_piece *piece)
{
    if (plan->count == plan->capacity) {
        plan->capacity = plan->capacity > 0 ? plan->capacity * 2 : 64;
        plan->pieces = realloc(plan->pieces, plan->capacity * sizeof(*plan->pieces));
        ASSERT(plan->pieces != NULL);
    }
    plan->pieces[plan->count++] = *piece;
}

/* The missing blocks that bytes offset .. offset+size-1 of the file lie in. */
static void plan_range(struct dataset_copy *copy, size_t file, uint64_t offset, uint64_t size,
                       struct plan *plan)
{
    const struct manifest_file *of = &copy->manifest.files[file];
    uint64_t end = offset + size < of->bytes ? offset + size : of->bytes;
    uint64_t first_block = copy_first_block(&copy->manifest, of->name);
    for (uint64_t block = offset / SHARE_BLOCK_SIZE; block * SHARE_BLOCK_SIZE < end; block++) {
        uint64_t at = block * SHARE_BLOCK_SIZE;
        uint64_t left = of->bytes - at;
        struct dataset_piece piece = {.part = SHARE_FILES + (uint32_t)file,
                                      .size = left < SHARE_BLOCK_SIZE ? (uint32_t)left
                                                                      : SHARE_BLOCK_SIZE,
                                      .offset = at,
                                      .block = first_block + block};
        if (!copy_record_has(&copy->record, piece.block)) {
            plan_add(plan, &piece);
        }
    }
}

static size_t file_of(const struct dataset_copy *copy, const char *name)
{
    size_t file = 0;
    while (file < copy->manifest.files_count &&
           strcmp(copy->manifest.files[file].name, name) != 0) {
        file++;
    }
    return file;
}

/* Headers, targets and names. */
static void plan_front(struct dataset_copy *copy, struct plan *plan)
{
    for (size_t i = 0; i < copy->manifest.files_count; i++) {
        const struct manifest_file *file = &copy->manifest.files[i];
        bool whole = strcmp(file->name, "y.npy") == 0 || strcmp(file->name, "columns.txt") == 0;
        plan_range(copy, i, 0, whole ? file->bytes : 1, plan);
    }
}

static void plan_ranges(struct dataset_copy *copy, const struct dataset_range *ranges, size_t count,
                        struct plan *plan)
{
    for (size_t i = 0; i < count; i++) {
        size_t file = file_of(copy, ranges[i].name);
        ASSERT(file < copy->manifest.files_count); /* dataset_open has seen it. */
        plan_range(copy, file, ranges[i].offset, ranges[i].size, plan);
    }
}

/* indptr's range alone: the others are known by it. */
static void plan_bounds(struct dataset_copy *copy, const struct dataset *dataset, uint64_t first,
                        uint64_t end, struct plan *plan)
{
    const struct npy *npy = &dataset->indptr.npy;
    size_t file = file_of(copy, "indptr.npy");
    ASSERT(file < copy->manifest.files_count);
    plan_range(copy, file, npy->offset + first * npy->item, (end - first + 1) * npy->item, plan);
}

static int plan_columns(struct dataset_copy *copy, uint64_t first, uint64_t end, struct plan *plan,
                        struct err *err)
{
    struct dataset *dataset = NULL;
    struct dataset_range ranges[DATASET_RANGES_MAX];
    size_t count = 0;
    /* The open reads the record that is on the disk. */
    int code = dataset_copy_save(copy, err);
    code = code == 0 ? dataset_open(copy->folder, &dataset, err) : code;
    if (code != 0) {
        return code;
    }
    uint64_t features = dataset->info.features;
    end = end < features ? end : features;
    first = first < end ? first : end;
    if (dataset->info.sparse && first < end) {
        plan_bounds(copy, dataset, first, end, plan);
    }
    if (plan->count == 0 && first < end) {
        code = dataset_ranges(dataset, first, end, ranges, &count, err);
        if (code == 0) {
            plan_ranges(copy, ranges, count, plan);
        }
    }
    dataset_close(dataset);
    return code;
}

int dataset_copy_plan(struct dataset_copy *copy, uint64_t first, uint64_t end,
                      struct dataset_piece **ret_pieces, size_t *ret_count, struct err *err)
{
    struct plan plan = {.pieces = NULL};
    int code = 0;
    plan_front(copy, &plan);
    if (plan.count == 0) {
        code = plan_columns(copy, first, end, &plan, err);
    }
    if (code != 0) {
        free(plan.pieces);
        return code;
    }
    *ret_pieces = plan.pieces;
    *ret_count = plan.count;
    return 0;
}

int dataset_copy_put(struct dataset_copy *copy, const struct dataset_piece *piece,
                     const void *bytes, struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    size_t file = piece->part - SHARE_FILES;
    ASSERT(file < copy->manifest.files_count);
    ASSERT(piece->block < copy->record.blocks);
    ASSERT(piece->offset + piece->size <= copy->manifest.files[file].bytes);
    sha256_of(bytes, piece->size, digest);
    if (memcmp(digest, copy->table.bytes + piece->block * SHA256_SIZE, sizeof(digest)) != 0) {
        return err_set(
            err, ERR_DAMAGED, "bytes %llu to %llu of %s do not have the SHA-256 that they should",
            (unsigned long long)piece->offset, (unsigned long long)(piece->offset + piece->size),
            copy->manifest.files[file].name);
    }
    if (spill_write(copy->files[file], piece->offset, bytes, piece->size, err) != 0) {
        return err_prefix(err, "%s/%s: ", copy->folder, copy->manifest.files[file].name);
    }
    /* Its writing begins now, so that save finds little to wait for, nor does the log's disk. */
    (void)sync_file_range(copy->files[file], (off_t)piece->offset, (off_t)piece->size,
                          SYNC_FILE_RANGE_WRITE);
    copy->record.have[piece->block / 8] |= (uint8_t)(1U << (piece->block % 8));
    copy->written[file] = true;
    return 0;
}

int dataset_copy_save(struct dataset_copy *copy, struct err *err)
{
    bool any = false;
    for (size_t i = 0; i < copy->manifest.files_count; i++) {
        if (copy->written[i] && fdatasync(copy->files[i]) != 0) {
            return err_set(err, ERR_DISK, "syncing %s/%s: %s", copy->folder,
                           copy->manifest.files[i].name, err_errno(errno));
        }
        any = any || copy->written[i];
        copy->written[i] = false;
    }
    return any ? write_record(copy, copy->folder, err) : 0;
}

int dataset_copy_check(struct dataset_copy *copy, struct err *err)
{
    for (size_t i = 0; i < copy->manifest.files_count; i++) {
        const struct manifest_file *file = &copy->manifest.files[i];
        struct plan missing = {.pieces = NULL};
        char path[PATH_SIZE];
        uint8_t digest[SHA256_SIZE];
        uint64_t size = 0;
        plan_range(copy, i, 0, file->bytes, &missing);
        free(missing.pieces);
        if (missing.count > 0 || copy->checked[i]) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/%s", copy->folder, file->name);
        if (digest_file(path, NULL, digest, NULL, &size, err) != 0) {
            return err->code;
        }
        if (size != file->bytes || memcmp(digest, file->digest, sizeof(digest)) != 0) {
            return err_set(err, ERR_DAMAGED,
                           "%s is whole and does not have the SHA-256 of the manifest: the table "
                           "of blocks was wrong",
                           path);
        }
        copy->checked[i] = true;
    }
    return 0;
}

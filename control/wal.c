#include "control/wal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "control/wal_core.h"

void wal_path(const struct wal *wal, const char *kind, uint64_t number, char path[WAL_PATH_SIZE])
{
    int size = snprintf(path, WAL_PATH_SIZE, "%s/%s-%020" PRIu64, wal->folder, kind, number);
    ASSERT(size > 0);
    ASSERT((size_t)size < WAL_PATH_SIZE);
}

void wal_add_file(struct wal *wal, uint64_t number, uint64_t base_index)
{
    if (wal->files_count == wal->files_capacity) {
        wal->files_capacity = wal->files_capacity == 0 ? 8 : 2 * wal->files_capacity;
        wal->files = realloc(wal->files, wal->files_capacity * sizeof(*wal->files));
        ASSERT(wal->files != NULL);
    }
    wal->files[wal->files_count++] = (struct wal_file){number, base_index};
}

static int fail(struct wal *wal, int code)
{
    wal->failed = wal->failed || code != 0;
    return code;
}

void wal_format_text(const struct wal *wal, struct buf *text)
{
    buf_print(text, "coppelius-log %u node %u voters", WAL_FORMAT, wal->node);
    for (uint32_t i = 0; i < wal->first.count; i++) {
        buf_print(text, " %u", wal->first.items[i].id);
    }
    buf_print(text, "\n");
}

int wal_write_format(struct wal *wal, struct err *err)
{
    char path[WAL_PATH_SIZE];
    struct buf text = BUF_NONE;
    (void)snprintf(path, sizeof(path), "%s/format", wal->folder);
    wal_format_text(wal, &text);
    int code = fs_replace(wal->fs, path, text.bytes, text.size, err);
    buf_done(&text);
    return fail(wal, code);
}

int wal_roll(struct wal *wal, struct err *err)
{
    uint64_t number = wal->files_count == 0 ? 1 : wal->files[wal->files_count - 1].number + 1;
    if (wal->file != NULL) {
        int code = wal->fs->ops->close(wal->file, err);
        wal->file = NULL;
        if (code != 0) {
            return fail(wal, code);
        }
    }
    struct wal_segment segment = {wal->node, number, wal->last_index, wal->last_term};
    struct wal_record hard = {
        .kind = WAL_HARD,
        .segment = number,
        .position = WAL_SEGMENT_SIZE,
        .batch = wal->batch + 1,
        .vote = wal->vote,
        .term = wal->term,
    };
    char path[WAL_PATH_SIZE];
    wal_path(wal, "segment", number, path);
    buf_clear(&wal->scratch);
    wal_put_segment(&wal->scratch, &segment);
    wal_put_record(&wal->scratch, &hard);
    int code = fs_replace(wal->fs, path, wal->scratch.bytes, wal->scratch.size, err);
    if (code == 0) {
        code = fs_open(wal->fs, path, FS_APPEND, &wal->file, err);
    }
    if (code != 0) {
        return fail(wal, code);
    }
    wal->position = wal->scratch.size;
    wal->batch++;
    wal_add_file(wal, number, wal->last_index);
    return 0;
}

/* One write's records, at their places; the state of the log moves with them. */
static void put_write(struct wal *wal, const struct control_write *write, struct wal_record *record)
{
    if (write->hard) {
        ASSERT(write->term >= wal->term);
        wal->term = write->term;
        wal->vote = write->vote;
        record->kind = WAL_HARD;
        record->position = wal->position + wal->scratch.size;
        record->vote = write->vote;
        record->term = write->term;
        record->bytes = NULL;
        record->size = 0;
        record->left--;
        wal_put_record(&wal->scratch, record);
    }
    struct reader reader = {write->entries.bytes, write->entries.size, false};
    for (size_t i = 0; i < write->entries_count; i++) {
        struct message_entry entry;
        ASSERT(message_read_entry(&reader, &entry, NULL) == 0); /* our own bytes */
        record->kind = WAL_ENTRY;
        record->position = wal->position + wal->scratch.size;
        record->left--;
        record->index = write->append_first + i;
        ASSERT(record->index > 0);
        ASSERT(record->index <= wal->last_index + 1);
        record->term = entry.term;
        record->entry_kind = entry.kind;
        record->bytes = entry.bytes;
        record->size = entry.size;
        wal_put_record(&wal->scratch, record);
        wal->last_index = record->index;
        wal->last_term = record->term;
    }
    ASSERT(reader.size == 0);
}

int wal_write(struct wal *wal, const struct control_write *first, size_t count, struct err *err)
{
    ASSERT(!wal->failed);
    if (wal->position >= wal->segment_size) {
        int code = wal_roll(wal, err);
        if (code != 0) {
            return code;
        }
    }
    struct wal_record record = {
        .segment = wal->files[wal->files_count - 1].number,
        .batch = ++wal->batch,
    };
    const struct control_write *write = first;
    for (size_t i = 0; i < count; i++, write = write->next) {
        record.left += (uint32_t)write->entries_count + (write->hard ? 1U : 0U);
    }
    buf_clear(&wal->scratch);
    write = first;
    for (size_t i = 0; i < count; i++, write = write->next) {
        put_write(wal, write, &record);
    }
    ASSERT(record.left == 0);
    int code = wal->fs->ops->write(wal->file, wal->scratch.bytes, wal->scratch.size, err);
    if (code == 0 && !MUTANT(MUTANT_WAL_NO_SYNC)) {
        code = wal->fs->ops->sync(wal->file, err);
    }
    wal->position += wal->scratch.size;
    return fail(wal, code);
}

/* --- snapshots ------------------------------------------------------------------------------- */
static const char snapshot_magic[8] = {'C', 'O', 'P', 'P', 'S', 'N', 'A', '\n'};
#define SNAPSHOT_HEADER_SIZE 48U /* then the group, XXH3 of all that, the state */

static void put_snapshot(const struct buf *group, uint64_t index, uint64_t term,
                         const struct buf *bytes, struct buf *file)
{
    buf_put(file, snapshot_magic, sizeof(snapshot_magic));
    buf_put_u32(file, WAL_FORMAT);
    buf_put_u32(file, (uint32_t)group->size);
    buf_put_u64(file, index);
    buf_put_u64(file, term);
    buf_put_u64(file, bytes->size);
    buf_put_u64(file, hash_xxh3(bytes->bytes, bytes->size));
    ASSERT(file->size == SNAPSHOT_HEADER_SIZE);
    buf_put(file, group->bytes, group->size);
    buf_put_u64(file, hash_xxh3(file->bytes, file->size));
    buf_put(file, bytes->bytes, bytes->size);
}

int wal_parse_snapshot(const uint8_t *file, size_t size, struct raft_snapshot *ret_snapshot,
                       const uint8_t **ret_bytes, size_t *ret_size, struct err *err)
{
    struct reader reader = {file, size, false};
    char magic[8];
    read_bytes(&reader, magic, sizeof(magic));
    uint32_t format = read_u32(&reader);
    if (reader.failed || memcmp(magic, snapshot_magic, sizeof(magic)) != 0) {
        return err_set(err, ERR_DAMAGED, "it does not begin as a snapshot does");
    }
    if (format != WAL_FORMAT) {
        return err_set(err, ERR_DAMAGED, "it has format %u; this program reads %u", format,
                       WAL_FORMAT);
    }
    struct raft_snapshot snapshot = {0};
    uint32_t group_size = read_u32(&reader);
    snapshot.index = read_u64(&reader);
    snapshot.term = read_u64(&reader);
    uint64_t bytes_size = read_u64(&reader);
    snapshot.hash = read_u64(&reader);
    const uint8_t *group = reader.bytes;
    if (reader.failed || group_size > GROUP_SIZE_MAX || group_size > reader.size) {
        return err_set(err, ERR_DAMAGED, "it is damaged");
    }
    reader.bytes += group_size;
    reader.size -= group_size;
    uint64_t hash = read_u64(&reader);
    if (reader.failed || hash != hash_xxh3(file, SNAPSHOT_HEADER_SIZE + group_size) ||
        !group_parse(group, group_size, &snapshot.group) || snapshot.index == 0 ||
        snapshot.term == 0 || bytes_size != reader.size ||
        snapshot.hash != hash_xxh3(reader.bytes, reader.size)) {
        return err_set(err, ERR_DAMAGED, "it is damaged");
    }
    *ret_snapshot = snapshot;
    *ret_bytes = reader.bytes;
    *ret_size = reader.size;
    return 0;
}

int wal_snapshot(struct wal *wal, uint64_t index, uint64_t term, const struct buf *group,
                 const struct buf *bytes, struct err *err)
{
    ASSERT(!wal->failed);
    ASSERT(index > wal->snapshot_index);
    char path[WAL_PATH_SIZE];
    wal_path(wal, "snapshot", index, path);
    buf_clear(&wal->scratch);
    put_snapshot(group, index, term, bytes, &wal->scratch);
    int code = 0;
    if (MUTANT(MUTANT_SNAPSHOT_NO_SYNC)) {
        struct fs_file *file = NULL;
        code = fs_open(wal->fs, path, FS_CREATE, &file, err);
        if (code == 0) {
            code = wal->fs->ops->write(file, wal->scratch.bytes, wal->scratch.size, err);
            (void)wal->fs->ops->close(file, NULL);
        }
        if (code == 0) {
            code = wal->fs->ops->sync_folder(wal->fs, wal->folder, err);
        }
    } else {
        code = fs_replace(wal->fs, path, wal->scratch.bytes, wal->scratch.size, err);
    }
    if (code == 0 && wal->snapshot_index != 0) {
        wal_path(wal, "snapshot", wal->snapshot_index, path);
        code = wal->fs->ops->unlink(wal->fs, path, err);
    }
    wal->snapshot_index = index;
    return fail(wal, code);
}

int wal_restart(struct wal *wal, uint64_t index, uint64_t term, struct err *err)
{
    ASSERT(!wal->failed);
    ASSERT(index == wal->snapshot_index);
    wal->last_index = index;
    wal->last_term = term;
    return wal_roll(wal, err);
}

int wal_release(struct wal *wal, uint64_t before, struct err *err)
{
    ASSERT(!wal->failed);
    char path[WAL_PATH_SIZE];
    size_t gone = 0;
    int code = 0;
    while (code == 0 && gone + 1 < wal->files_count && wal->files[gone + 1].base_index < before) {
        wal_path(wal, "segment", wal->files[gone].number, path);
        code = wal->fs->ops->unlink(wal->fs, path, err);
        gone++;
        /* Oldest first, each durably: a hole in the numbers is damage to the next start. */
        if (code == 0) {
            code = wal->fs->ops->sync_folder(wal->fs, wal->folder, err);
        }
    }
    memmove(wal->files, wal->files + gone, (wal->files_count - gone) * sizeof(*wal->files));
    wal->files_count -= gone;
    return fail(wal, code);
}

void wal_close(struct wal *wal)
{
    if (wal == NULL) {
        return;
    }
    if (wal->file != NULL) {
        (void)wal->fs->ops->close(wal->file, NULL); /* All that counts was synced. */
    }
    free(wal->files);
    buf_done(&wal->scratch);
    free(wal);
}

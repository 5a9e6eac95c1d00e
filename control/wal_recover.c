/* Reading the log back: protocol-aware recovery (Alagappan et al., FAST'18). What may be missing is
 * only what was never promised: the invalid tail of the last batch. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "control/wal_core.h"

#define HINT                                                                                      \
    "; do not start this node on it: put the folder back from a copy, or let the node join anew " \
    "with another identity"

struct found {
    struct wal *wal;
    uint64_t *segments;
    size_t segments_count;
    size_t segments_capacity;
    uint64_t snapshot;   /* the newest */
    uint64_t *snapshots; /* all */
    size_t snapshots_count;
    size_t snapshots_capacity;
    bool format;
};

struct recovery {
    struct wal *wal;
    struct raft_recovered *made;
    bool begun;
    uint64_t jump_base; /* the log was begun anew behind this index */
    bool any_entries;
    bool cut;
    bool dropped;
    size_t last_records; /* in the last segment */
};

static void add_number(uint64_t **numbers, size_t *count, size_t *capacity, uint64_t number)
{
    if (*count == *capacity) {
        *capacity = *capacity == 0 ? 16 : 2 * *capacity;
        *numbers = realloc(*numbers, *capacity * sizeof(**numbers));
        ASSERT(*numbers != NULL);
    }
    (*numbers)[(*count)++] = number;
}

static bool name_number(const char *name, const char *kind, uint64_t *ret_number)
{
    size_t kind_size = strlen(kind);
    if (strncmp(name, kind, kind_size) != 0 || strlen(name) != kind_size + 20) {
        return false;
    }
    uint64_t number = 0;
    for (const char *at = name + kind_size; *at != '\0'; at++) {
        if (*at < '0' || *at > '9') {
            return false;
        }
        number = number * 10 + (uint64_t)(*at - '0');
    }
    *ret_number = number;
    return true;
}

static void on_name(void *context, const char *name, bool is_folder)
{
    struct found *found = context;
    uint64_t number = 0;
    if (is_folder) {
        return;
    }
    if (name_number(name, "segment-", &number)) {
        add_number(&found->segments, &found->segments_count, &found->segments_capacity, number);
    } else if (name_number(name, "snapshot-", &number)) {
        add_number(&found->snapshots, &found->snapshots_count, &found->snapshots_capacity, number);
        found->snapshot = number > found->snapshot ? number : found->snapshot;
    } else if (strcmp(name, "format") == 0) {
        found->format = true;
    }
}

static int compare_numbers(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b ? 1 : 0;
}

/* "coppelius-log 2 node 3 voters 1 2 3": the voters count, whatever the configuration says now. */
static bool parse_format(struct wal *wal, const char *text)
{
    unsigned format = 0;
    unsigned node = 0;
    int used = 0;
    if (sscanf(text, "coppelius-log %u node %u voters%n", &format, &node, &used) != 2 ||
        used == 0 || format != WAL_FORMAT || node != wal->node) {
        return false;
    }
    wal->first.count = 0;
    for (const char *at = text + used; *at != '\0';) {
        char *end = NULL;
        unsigned long id = strtoul(at, &end, 10);
        if (*at != ' ' || end == at || id == 0 || id > UINT32_MAX ||
            wal->first.count == CONTROL_VOTERS_MAX) {
            return false;
        }
        group_set(&wal->first, (uint32_t)id, true);
        at = end;
    }
    return true;
}

static int check_format(struct wal *wal, struct err *err)
{
    char path[WAL_PATH_SIZE];
    struct buf have = BUF_NONE;
    (void)snprintf(path, sizeof(path), "%s/format", wal->folder);
    int code = fs_read_all(wal->fs, path, 512, &have, err);
    if (code == 0) {
        buf_put_u8(&have, 0);
        have.bytes[strcspn((char *)have.bytes, "\n")] = '\0';
        if (!parse_format(wal, (const char *)have.bytes)) {
            code = err_set(err, ERR_DAMAGED,
                           "the log in '%s' is '%.200s', but this program and node are "
                           "'coppelius-log %u node %u'; give this node its own state folder",
                           wal->folder, (char *)have.bytes, WAL_FORMAT, wal->node);
        }
    }
    buf_done(&have);
    return code;
}

/* --- snapshots ------------------------------------------------------------------------------- */
static int read_snapshot(struct wal *wal, const struct found *found, struct raft_snapshot *made,
                         struct err *err)
{
    char path[WAL_PATH_SIZE];
    for (size_t i = 0; i < found->snapshots_count; i++) {
        wal_path(wal, "snapshot", found->snapshots[i], path);
        if (found->snapshots[i] != found->snapshot) { /* A crash came before its deletion. */
            int code = wal->fs->ops->unlink(wal->fs, path, err);
            if (code != 0) {
                return code;
            }
        }
    }
    if (found->snapshot == 0) {
        return 0;
    }
    wal_path(wal, "snapshot", found->snapshot, path);
    struct buf file = BUF_NONE;
    const uint8_t *bytes = NULL;
    size_t size = 0;
    int code = fs_read_all(wal->fs, path, (uint64_t)CONTROL_SNAPSHOT_SIZE + 4096, &file, err);
    if (code == 0) {
        code = wal_parse_snapshot(file.bytes, file.size, made, &bytes, &size, err);
        if (code == 0 && made->index != found->snapshot) {
            code = err_set(err, ERR_DAMAGED, "it is the one of index %" PRIu64, made->index);
        }
        if (code == 0) {
            buf_put(&made->bytes, bytes, size);
            wal->snapshot_index = made->index;
        } else {
            (void)err_prefix(err, "snapshot '%s': ", path);
        }
    }
    buf_done(&file);
    return code;
}

/* --- records --------------------------------------------------------------------------------- */
static int take_entry(struct recovery *recovery, const struct wal_record *record, struct err *err)
{
    struct raft_log *log = &recovery->made->log;
    recovery->any_entries = true;
    if (record->index > raft_log_last(log) + 1) {
        return err_set(err, ERR_DAMAGED, "entry %" PRIu64 " follows entry %" PRIu64, record->index,
                       raft_log_last(log));
    }
    if (record->index <= log->base_index) {
        /* It replaces what an older segment held, which a snapshot covers by now. */
        raft_log_reset(log, record->index - 1, 0);
    } else if (record->index <= raft_log_last(log)) {
        raft_log_truncate(log, record->index);
    }
    if (record->term < raft_log_last_term(log)) {
        return err_set(err, ERR_DAMAGED, "entry %" PRIu64 " has an older term than the one before",
                       record->index);
    }
    struct message_entry entry = {record->term, record->entry_kind, record->bytes, record->size};
    raft_log_append(log, &entry, 0);
    return 0;
}

static int take_record(struct recovery *recovery, const struct wal_record *record, struct err *err)
{
    recovery->last_records++;
    recovery->wal->batch =
        record->batch > recovery->wal->batch ? record->batch : recovery->wal->batch;
    if (record->kind == WAL_ENTRY) {
        return take_entry(recovery, record, err);
    }
    if (record->term < recovery->wal->term) {
        return err_set(err, ERR_DAMAGED, "the term falls from %" PRIu64 " to %" PRIu64,
                       recovery->wal->term, record->term);
    }
    recovery->wal->term = record->term;
    recovery->wal->vote = record->vote;
    return 0;
}

static void take_segment(struct recovery *recovery, const struct wal_segment *segment)
{
    struct raft_log *log = &recovery->made->log;
    uint64_t base = segment->base_index;
    bool continues = recovery->begun && base == raft_log_last(log) &&
                     (raft_log_last_term(log) == segment->base_term);
    if (!continues) {
        recovery->jump_base = recovery->begun ? base : recovery->jump_base;
        raft_log_reset(log, base, segment->base_term);
        recovery->begun = true;
    }
}

/* Behind damage at `from`: is there a record of a batch later than the damaged one's? */
static bool is_followed_by_later_batch(const struct buf *file, uint64_t number, uint64_t from,
                                       uint64_t damaged_batch)
{
    for (uint64_t at = (from + 7) / 8 * 8; at + WAL_RECORD_SIZE <= file->size; at += 8) {
        struct wal_record record;
        size_t used = 0;
        if (wal_parse_record(file->bytes, file->size, number, at, &record, &used, NULL) == 0 &&
            record.batch > damaged_batch) {
            return true;
        }
    }
    return false;
}

static int cut_tail(struct recovery *recovery, const char *path, uint64_t size, struct err *err)
{
    struct fs *fs = recovery->wal->fs;
    struct fs_file *file = NULL;
    int code = fs_open(fs, path, FS_APPEND, &file, err);
    if (code != 0) {
        return code;
    }
    code = fs->ops->truncate(file, size, err);
    if (code == 0) {
        code = fs->ops->sync(file, err);
    }
    int close_code = fs->ops->close(file, code == 0 ? err : NULL);
    recovery->cut = true;
    return code != 0 ? code : close_code;
}

static int read_records(struct recovery *recovery, const struct buf *file, const char *path,
                        uint64_t number, bool last, struct err *err)
{
    struct wal_record record = {0};
    recovery->last_records = 0;
    for (uint64_t at = WAL_SEGMENT_SIZE; at < file->size;) {
        size_t used = 0;
        uint64_t damaged_batch = record.left > 0 ? record.batch : record.batch + 1;
        int code = wal_parse_record(file->bytes, file->size, number, at, &record, &used, err);
        if (code == 0) {
            code = take_record(recovery, &record, err);
            if (code != 0) {
                return err_prefix(err, "byte %" PRIu64 ": ", at);
            }
            at += used;
            continue;
        }
        (void)err_prefix(err, "byte %" PRIu64 ": ", at);
        if (recovery->last_records == 0) {
            return err_prefix(err, "the term and vote that it begins with are gone: ");
        }
        if (!last) {
            return code;
        }
        if (is_followed_by_later_batch(file, number, at + 8, damaged_batch)) {
            return err_prefix(err, "whole records follow the damage, so it is no torn tail: ");
        }
        return cut_tail(recovery, path, at, err);
    }
    if (recovery->last_records == 0) {
        return err_set(err, ERR_DAMAGED, "the term and vote that it begins with are missing");
    }
    return 0;
}

static int read_segment(struct recovery *recovery, uint64_t number, bool last, struct err *err)
{
    struct wal *wal = recovery->wal;
    char path[WAL_PATH_SIZE];
    struct buf file = BUF_NONE;
    struct wal_segment segment;
    wal_path(wal, "segment", number, path);
    int code = fs_read_all(wal->fs, path, WAL_FILE_SIZE_MAX, &file, err);
    if (code == 0) {
        code = wal_parse_segment(file.bytes, file.size, &segment, err);
        if (code == 0 && (segment.number != number || segment.node != wal->node)) {
            code = err_set(err, ERR_DAMAGED, "it is segment %" PRIu64 " of node %u", segment.number,
                           segment.node);
        }
        if (code == 0) {
            take_segment(recovery, &segment);
            wal_add_file(wal, number, segment.base_index);
            wal->position = file.size;
            code = read_records(recovery, &file, path, number, last, err);
        }
        if (code == ERR_DAMAGED) {
            (void)err_prefix(err, "log file '%s': ", path);
        }
    }
    buf_done(&file);
    return code;
}

/* The log behind the snapshot; what the snapshot covers is dropped. */
static int join_snapshot(struct recovery *recovery, struct err *err)
{
    struct raft_log *log = &recovery->made->log;
    const struct raft_snapshot *snapshot = &recovery->made->snapshot;
    if (recovery->jump_base > snapshot->index || log->base_index > snapshot->index) {
        uint64_t base =
            recovery->jump_base > log->base_index ? recovery->jump_base : log->base_index;
        return err_set(err, ERR_DAMAGED,
                       "the log in '%s' goes on behind entry %" PRIu64
                       ", but the snapshot of that is missing",
                       recovery->wal->folder, base);
    }
    bool covers = snapshot->index <= raft_log_last(log);
    if (covers && snapshot->index > 0) {
        uint64_t term = raft_log_term(log, snapshot->index);
        covers = term == snapshot->term || (snapshot->index == log->base_index && term == 0);
    }
    if (covers) {
        raft_log_compact(log, snapshot->index);
        log->base_term = snapshot->term;
    } else { /* A crash came between an installed snapshot and the log's new beginning. */
        raft_log_reset(log, snapshot->index, snapshot->term);
        recovery->dropped = true;
    }
    if (raft_log_last_term(log) > recovery->wal->term) {
        return err_set(err, ERR_DAMAGED,
                       "the log in '%s' has entries of term %" PRIu64
                       ", but the last term written is %" PRIu64 ": the hard state is lost",
                       recovery->wal->folder, raft_log_last_term(log), recovery->wal->term);
    }
    return 0;
}

static int recover(struct recovery *recovery, struct found *found, struct err *err)
{
    struct wal *wal = recovery->wal;
    int code = found->format ? check_format(wal, err) : 0;
    if (code != 0) {
        return code;
    }
    qsort(found->segments, found->segments_count, sizeof(found->segments[0]), compare_numbers);
    code = read_snapshot(wal, found, &recovery->made->snapshot, err);
    for (size_t i = 0; code == 0 && i < found->segments_count; i++) {
        if (i > 0 && found->segments[i] != found->segments[i - 1] + 1) {
            return err_set(err, ERR_DAMAGED, "log file %" PRIu64 " in '%s' is missing",
                           found->segments[i - 1] + 1, wal->folder);
        }
        code = read_segment(recovery, found->segments[i], i + 1 == found->segments_count, err);
    }
    if (code == 0) {
        code = join_snapshot(recovery, err);
    }
    if (code == 0 && !found->format) {
        /* A crash in the very first start, before anything was promised; or it was taken away. */
        if (recovery->any_entries || wal->term != 0) {
            return err_set(err, ERR_DAMAGED, "the file '%s/format' is missing", wal->folder);
        }
        code = wal_write_format(wal, err);
    }
    return code;
}

/* Goes on writing where recovery ended. */
static int resume(struct recovery *recovery, struct err *err)
{
    struct wal *wal = recovery->wal;
    wal->last_index = raft_log_last(&recovery->made->log);
    wal->last_term = raft_log_last_term(&recovery->made->log);
    if (recovery->cut || recovery->dropped || recovery->last_records > 1) {
        return wal_roll(wal, err);
    }
    char path[WAL_PATH_SIZE];
    wal_path(wal, "segment", wal->files[wal->files_count - 1].number, path);
    return fs_open(wal->fs, path, FS_APPEND, &wal->file, err);
}

static int begin(struct wal *wal, const struct found *found, struct err *err)
{
    if (found->format || found->snapshots_count > 0) {
        return err_set(err, ERR_DAMAGED,
                       "'%s' had a log, and its files are gone: a voter that forgets its votes "
                       "endangers the others" HINT,
                       wal->folder);
    }
    char parent[WAL_PATH_SIZE];
    fs_folder_of(wal->folder, parent, sizeof(parent));
    int code = wal->fs->ops->sync_folder(wal->fs, parent, err);
    if (code == 0) {
        code = wal_roll(wal, err);
    }
    return code != 0 ? code : wal_write_format(wal, err);
}

void raft_recovered_done(struct raft_recovered *recovered)
{
    buf_done(&recovered->snapshot.bytes);
    raft_log_done(&recovered->log);
}

int wal_open(struct fs *fs, const struct control_settings *settings, struct wal **ret_wal,
             struct raft_recovered *ret_recovered, bool *ret_fresh, struct err *err)
{
    struct err own = {0};
    err = err != NULL ? err : &own;
    struct wal *wal = calloc(1, sizeof(*wal));
    ASSERT(wal != NULL);
    ASSERT(strlen(settings->folder) < sizeof(wal->folder));
    memcpy(wal->folder, settings->folder, strlen(settings->folder) + 1);
    wal->fs = fs;
    wal->node = settings->self;
    for (size_t i = 0; i < settings->voters_count; i++) {
        group_set(&wal->first, settings->voters[i], true);
    }
    wal->segment_size = settings->segment_size;
    struct raft_recovered made = {0};
    struct found found = {.wal = wal};
    struct recovery recovery = {.wal = wal, .made = &made};
    int code = fs_mkdir_all(fs, wal->folder, err);
    if (code == 0) {
        code = fs->ops->list(fs, wal->folder, on_name, &found, err);
    }
    if (code == 0 && found.segments_count == 0) {
        code = begin(wal, &found, err);
    } else if (code == 0) {
        code = recover(&recovery, &found, err);
        code = code != 0 ? code : resume(&recovery, err);
        size_t size = strlen(err->text);
        if (code == ERR_DAMAGED && size + sizeof(HINT) <= ERR_TEXT_SIZE) {
            memcpy(err->text + size, HINT, sizeof(HINT));
        }
    }
    free(found.segments);
    free(found.snapshots);
    if (code != 0) {
        raft_recovered_done(&made);
        wal_close(wal);
        return code;
    }
    made.term = wal->term;
    made.vote = wal->vote;
    made.first = wal->first;
    *ret_fresh = found.segments_count == 0;
    *ret_wal = wal;
    *ret_recovered = made;
    return 0;
}

/* The file work on shards that lie here: compared, put aside where they are damaged, fetched from
 * another node, let go. SHA256SUMS never names what is not there: it is written before a file goes,
 * and after one has come. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/execute_room.h"
#include "checkpoint/pipeline.h"
#include "checkpoint/shard_format.h"

#define PIECE_SIZE (1U << 20)

static bool has(uint64_t ranks, uint32_t rank)
{
    return (ranks >> rank & 1) != 0;
}

/* ---- manifest.json and SHA256SUMS ---- */

static bool is_written(struct work *w, const char *path, const struct buf *bytes)
{
    struct buf old = BUF_NONE;
    struct err err = {0};
    bool same = fs_read_all(w->fs, path, MANIFEST_SIZE_MAX, &old, &err) == 0 &&
                old.size == bytes->size && memcmp(old.bytes, bytes->bytes, old.size) == 0;
    buf_done(&old);
    return same;
}

/* Written under another name, fsynced, renamed; the folder is not fsynced here. What a published
 * epoch says already is left alone. */
static int put_file(struct work *w, const char *folder, const char *name, const struct buf *bytes)
{
    char path[FOLDER_PATH_SIZE];
    char fresh[FOLDER_PATH_SIZE + 8];
    struct err *err = &w->result->err;
    (void)work_join(path, folder, name);
    (void)snprintf(fresh, sizeof(fresh), "%s.new", path);
    if (strcmp(folder, w->epoch) == 0 && is_written(w, path, bytes)) {
        return 0;
    }
    int code = w->fs->ops->unlink(w->fs, fresh, err); /* A crash may have left a part. */
    code = code != 0 ? code : fs_create(w->fs, fresh, bytes->bytes, bytes->size, err);
    return code != 0 ? code : w->fs->ops->rename(w->fs, fresh, path, err);
}

int work_put_manifest(struct work *w, const char *folder)
{
    struct buf bytes = BUF_NONE;
    manifest_write(&w->action->manifest, &bytes);
    int code = put_file(w, folder, "manifest.json", &bytes);
    buf_done(&bytes);
    return code;
}

int work_put_sums(struct work *w, const char *folder, uint64_t ranks)
{
    const struct manifest *m = &w->action->manifest;
    struct buf manifest = BUF_NONE;
    struct buf sums = BUF_NONE;
    uint8_t digest[SHA256_SIZE];
    manifest_write(m, &manifest);
    sha256_of(manifest.bytes, manifest.size, digest);
    sums_put(&sums, "manifest.json", digest);
    for (uint32_t i = 0; i < m->shards_count; i++) {
        if (has(ranks, i)) {
            sums_put(&sums, m->shards[i].file, m->shards[i].sha256);
        }
    }
    int code = put_file(w, folder, "SHA256SUMS", &sums);
    buf_done(&manifest);
    buf_done(&sums);
    return code != 0 ? code : work_sync(w, folder);
}

/* ---- compare ---- */

static int put_aside(struct work *w, const char *path)
{
    char aside[FOLDER_PATH_SIZE + 16];
    struct err taken = {0};
    (void)snprintf(aside, sizeof(aside), "%s.damaged", path);
    if (w->fs->ops->rename(w->fs, path, aside, &taken) == 0) {
        return 0;
    }
    /* A folder goes over no file, nor a file over a folder: what was put aside before makes way. */
    if (w->fs->ops->unlink(w->fs, aside, &taken) != 0) {
        (void)fs_remove_tree(w->fs, aside, &taken);
    }
    return w->fs->ops->rename(w->fs, path, aside, &w->result->err);
}

static void note_bad(struct agent_result *r, uint32_t rank, const struct err *err)
{
    if (r->bad == 0) {
        (void)snprintf(r->bad_text, sizeof(r->bad_text), "%.255s", err->text);
    }
    r->bad |= UINT64_C(1) << rank;
}

void work_compare(struct work *w, const char *folder, uint64_t ranks)
{
    const struct manifest *m = &w->action->manifest;
    struct agent_result *r = w->result;
    for (uint32_t i = 0; i < m->shards_count; i++) {
        char path[FOLDER_PATH_SIZE];
        struct err err = {0};
        if (!has(ranks, i)) {
            continue;
        }
        (void)work_join(path, folder, m->shards[i].file);
        int code = files_check(w->fs, path, m->shards[i].sha256, m->shards[i].size, &err);
        if (code == 0) {
            r->good |= UINT64_C(1) << i;
            continue;
        }
        note_bad(r, i, &err); /* What cannot be read is no copy either. */
    }
}

/* The damaged ones go out of sight, those that are whole stay named. */
int work_set_aside(struct work *w, const char *folder)
{
    const struct manifest *m = &w->action->manifest;
    uint64_t bad = w->result->bad;
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < m->shards_count; i++) {
        char path[FOLDER_PATH_SIZE];
        bool there = false;
        (void)work_join(path, folder, m->shards[i].file);
        if (has(bad, i)) {
            code = w->fs->ops->exists(w->fs, path, &there, &w->result->err);
            code = code == 0 && there ? put_aside(w, path) : code;
        }
    }
    return code != 0 || bad == 0 ? code : work_sync(w, folder);
}

int work_verify(struct work *w)
{
    const struct agent_action *action = w->action;
    work_compare(w, w->epoch, action->ranks);
    int code = work_put_manifest(w, w->epoch); /* It follows from what is agreed. */
    code = code != 0 ? code : work_put_sums(w, w->epoch, action->keep & ~w->result->bad);
    return code != 0 ? code : work_set_aside(w, w->epoch);
}

int work_trim(struct work *w)
{
    const struct manifest *m = &w->action->manifest;
    int code = work_put_sums(w, w->epoch, w->action->keep);
    for (uint32_t i = 0; code == 0 && i < m->shards_count; i++) {
        char path[FOLDER_PATH_SIZE];
        (void)work_join(path, w->epoch, m->shards[i].file);
        if (has(w->action->ranks, i)) {
            code = w->fs->ops->unlink(w->fs, path, &w->result->err);
        }
    }
    return code != 0 ? code : work_sync(w, w->epoch);
}

/* ---- copy ---- */

struct copying {
    struct work *work;
    const struct agent_source *source;
    struct fs_file *file;
    struct sha256 sha;
    uint64_t at;
    uint8_t *piece;
    struct err write_err; /* of the thread that writes */
};

static size_t step_size(uint64_t at, uint64_t end)
{
    return end - at < PIECE_SIZE ? (size_t)(end - at) : PIECE_SIZE;
}

/* What an earlier try left is hashed and gone on with; more than there can be is begun anew. */
static int open_part(struct copying *c, const char *part)
{
    struct work *w = c->work;
    struct err *err = &w->result->err;
    struct fs_file *old = NULL;
    struct err none = {0};
    uint64_t size = 0;
    int code = fs_open(w->fs, part, FS_READ, &old, &none);
    if (code == 0) {
        code = w->fs->ops->size(old, &size, err);
        if (code == 0 && size > w->action->size) {
            size = 0;
        }
        while (code == 0 && c->at < size) {
            size_t step = step_size(c->at, size);
            code = w->fs->ops->read(old, c->at, c->piece, step, err);
            if (code == 0) {
                sha256_update(&c->sha, c->piece, step);
                c->at += step;
            }
        }
        (void)w->fs->ops->close(old, NULL); /* Only read: nothing can be lost. */
        if (code != 0 || size == 0) {
            code = w->fs->ops->unlink(w->fs, part, err);
            sha256_done(&c->sha);
            sha256_init(&c->sha);
            c->at = 0;
        }
    } else {
        code = 0;
    }
    code = code != 0 ? code : fs_open(w->fs, part, FS_APPEND, &c->file, err);
    if (code != 0) {
        return code;
    }
    code = fs_reserve(w->fs, c->file, w->action->size - c->at, err);
    if (code != 0) {
        (void)w->fs->ops->close(c->file, NULL);
        if (c->at == 0) { /* Nothing of it is here. */
            (void)w->fs->ops->unlink(w->fs, part, NULL);
        }
        return code;
    }
    fs_expect(w->fs, c->file, w->action->size - c->at);
    return 0;
}

static int pull(struct copying *c)
{
    struct work *w = c->work;
    int code = 0;
    while (code == 0 && c->at < w->action->size) {
        size_t step = step_size(c->at, w->action->size);
        code = c->source->read(c->source->context, c->at, c->piece, step, &w->result->err);
        code = code != 0 ? code : w->fs->ops->write(c->file, c->piece, step, &w->result->err);
        if (code == 0) {
            sha256_update(&c->sha, c->piece, step);
            c->at += step;
        }
    }
    return code;
}

static int write_piece(void *context, const uint8_t *bytes, size_t size)
{
    struct copying *c = context;
    return c->work->fs->ops->write(c->file, bytes, size, &c->write_err);
}

static int hash_piece(void *context, const uint8_t *bytes, size_t size)
{
    struct copying *c = context;
    sha256_update(&c->sha, bytes, size);
    return 0;
}

/* Large ones: written and hashed by a thread each while this one listens for more. */
static int pull_beside(struct copying *c)
{
    static pipeline_use_fn *const users[PIPELINE_USERS] = {write_piece, hash_piece};
    struct work *w = c->work;
    struct pipeline pipeline;
    if (w->action->size - c->at < SHARD_BESIDE_SIZE ||
        !pipeline_begin(&pipeline, PIECE_SIZE, users, c)) {
        return pull(c);
    }
    int code = 0;
    while (code == 0 && c->at < w->action->size) {
        size_t step = step_size(c->at, w->action->size);
        code = c->source->read(c->source->context, c->at, pipeline_piece(&pipeline), step,
                               &w->result->err);
        c->at += step;
        if (code == 0 && pipeline_put(&pipeline, step) != 0) {
            break;
        }
    }
    int used = pipeline_end(&pipeline);
    if (code == 0 && used != 0) {
        w->result->err = c->write_err;
        code = used;
    }
    return code;
}

/* The part, whole, compared and durable under its own name. */
static int copy_file(struct work *w, const struct agent_source *source, const char *part)
{
    struct agent_result *r = w->result;
    uint8_t digest[SHA256_SIZE];
    struct copying c = {.work = w, .source = source, .piece = malloc(PIECE_SIZE)};
    ASSERT(c.piece != NULL);
    sha256_init(&c.sha);
    int code = open_part(&c, part);
    if (code == 0) {
        code = pull_beside(&c);
        bool pulled = code == 0;
        code = pulled ? w->fs->ops->sync(c.file, &r->err) : code;
        int close_code = w->fs->ops->close(c.file, code == 0 ? &r->err : NULL);
        code = code != 0 ? code : close_code;
        if (pulled && code != 0) { /* After a failed sync nothing is known of its bytes. */
            (void)w->fs->ops->unlink(w->fs, part, NULL);
        }
    }
    if (code == 0) {
        sha256_finish(&c.sha, digest);
        if (memcmp(digest, w->action->sha256, SHA256_SIZE) != 0) {
            (void)w->fs->ops->unlink(w->fs, part, NULL);
            code =
                err_set(&r->err, ERR_DAMAGED,
                        "the copy of '%s' of epoch %" PRIu64 " has another SHA-256 than was told",
                        w->action->shard, w->action->epoch);
        }
    }
    sha256_done(&c.sha);
    free(c.piece);
    return code;
}

/* An earlier process may have stored it: then it is compared and nothing is fetched. */
static bool is_there(struct work *w, const char *path)
{
    bool there = false;
    struct err err = {0};
    if (w->fs->ops->exists(w->fs, path, &there, &err) != 0 || !there) {
        return false;
    }
    if (files_check(w->fs, path, w->action->sha256, w->action->size, &err) == 0) {
        return true;
    }
    (void)w->fs->ops->unlink(w->fs, path, &err);
    return false;
}

/* Over what lies there; a folder is put aside first. */
static int put_in_place(struct work *w, const char *staged, const char *target)
{
    struct err *err = &w->result->err;
    struct err first = {0};
    bool there = false;
    if (w->fs->ops->rename(w->fs, staged, target, &first) == 0) {
        return 0;
    }
    if (w->fs->ops->exists(w->fs, target, &there, err) != 0 || !there ||
        put_aside(w, target) != 0) {
        *err = first;
        return first.code;
    }
    return w->fs->ops->rename(w->fs, staged, target, err);
}

static int copy(struct work *w, const struct agent_source *source)
{
    const struct agent_action *action = w->action;
    char part[FOLDER_PATH_SIZE + 8];
    char staged[FOLDER_PATH_SIZE];
    char target[FOLDER_PATH_SIZE];
    (void)work_join(staged, w->staged, action->shard);
    (void)work_join(target, action->published ? w->epoch : w->staged, action->shard);
    (void)snprintf(part, sizeof(part), "%s.part", staged);
    int code = work_make_folders(w);
    if (code == 0 && !is_there(w, staged)) {
        code = copy_file(w, source, part);
        code = code != 0 ? code : w->fs->ops->rename(w->fs, part, staged, &w->result->err);
    }
    code = code != 0 ? code : work_sync(w, w->staged);
    if (code == 0 && action->published) {
        code = put_in_place(w, staged, target);
        code = code != 0 ? code : work_sync(w, w->epoch);
        code = code != 0 ? code
                         : work_put_sums(w, w->epoch, action->keep | UINT64_C(1) << action->rank);
        code = code != 0 ? code : work_sync(w, w->staged);
    }
    if (code == 0) {
        w->result->good |= UINT64_C(1) << action->rank;
    }
    return code;
}

void agent_execute_copy(struct fs *fs, const struct agent_action *action,
                        const struct agent_source *source, struct agent_result *ret_result)
{
    struct work w;
    ASSERT(action->kind == AGENT_COPY);
    work_begin(&w, fs, action, ret_result);
    work_end(&w, copy(&w, source));
}

/* The file work of the agent's actions, in the order of agent.h: what is fsynced before what. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/agent.h"
#include "checkpoint/files.h"

struct work {
    struct fs *fs;
    const struct agent_action *action;
    struct agent_result *result;
    char staging[FOLDER_PATH_SIZE]; /* <folder>/staging */
    char staged[FOLDER_PATH_SIZE];  /* <folder>/staging/epoch-N */
    char epoch[FOLDER_PATH_SIZE];   /* <folder>/epoch-N */
};

static int join(char *path, const char *folder, const char *name)
{
    int size = snprintf(path, FOLDER_PATH_SIZE, "%s/%s", folder, name);
    ASSERT(size > 0 && size < FOLDER_PATH_SIZE);
    return 0;
}

static int sync_folder(struct work *w, const char *path)
{
    return files_sync_folder(w->fs, path, &w->result->fatal, &w->result->err);
}

/* Every folder down to staging/epoch-N, each durable in the one above. */
static int make_folders(struct work *w)
{
    char above[FOLDER_PATH_SIZE];
    int code = fs_mkdir_all(w->fs, w->staged, &w->result->err);
    (void)snprintf(above, sizeof(above), "%s", w->staged);
    while (code == 0 && strcmp(above, ".") != 0) {
        char *slash = strrchr(above, '/');
        if (slash != NULL) {
            *slash = '\0';
        } else {
            (void)snprintf(above, sizeof(above), ".");
        }
        code = sync_folder(w, above);
    }
    return code;
}

static int stage(struct work *w, const struct shard_content *content)
{
    ASSERT(content != NULL);
    struct agent_result *r = w->result;
    char part[FOLDER_PATH_SIZE + 8];
    char shard[FOLDER_PATH_SIZE];
    (void)join(shard, w->staged, w->action->shard);
    (void)snprintf(part, sizeof(part), "%s.part", shard);
    int code = make_folders(w);
    if (code == 0) {
        code = w->fs->ops->unlink(w->fs, part, &r->err);
    }
    if (code == 0) {
        code = shard_write(w->fs, part, content, r->sha256, &r->size, &r->err);
    }
    if (code == 0) {
        code = w->fs->ops->rename(w->fs, part, shard, &r->err);
    }
    if (code == 0) {
        code = sync_folder(w, w->staged);
    }
    if (code != 0 && !r->fatal) { /* Room for others; what stays is a leftover. */
        (void)fs_remove_tree(w->fs, w->staged, NULL);
    }
    return code;
}

/* manifest.json and SHA256SUMS into the staged folder; the whole of it is durable then. */
static int complete(struct work *w)
{
    struct agent_result *r = w->result;
    const struct manifest *m = &w->action->manifest;
    const struct manifest_shard *own = NULL;
    for (uint32_t i = 0; i < m->shards_count; i++) {
        if (strcmp(m->shards[i].file, w->action->shard) == 0) {
            own = &m->shards[i];
        }
    }
    ASSERT(own != NULL);
    char path[FOLDER_PATH_SIZE];
    (void)join(path, w->staged, own->file);
    int code = 0;
    if (w->action->verify) {
        code = files_check(w->fs, path, own->sha256, own->size, &r->err);
    }
    struct buf manifest = BUF_NONE;
    struct buf sums = BUF_NONE;
    uint8_t digest[SHA256_SIZE];
    manifest_write(m, &manifest);
    sha256_of(manifest.bytes, manifest.size, digest);
    sums_put(&sums, "manifest.json", digest);
    sums_put(&sums, own->file, own->sha256);
    const struct {
        const char *name;
        const struct buf *bytes;
    } made[2] = {{"manifest.json", &manifest}, {"SHA256SUMS", &sums}};
    for (int i = 0; code == 0 && i < 2; i++) {
        (void)join(path, w->staged, made[i].name);
        code = w->fs->ops->unlink(w->fs, path, &r->err); /* A crash may have left a part. */
        if (code == 0) {
            code = fs_create(w->fs, path, made[i].bytes->bytes, made[i].bytes->size, &r->err);
        }
    }
    buf_done(&manifest);
    buf_done(&sums);
    return code != 0 ? code : sync_folder(w, w->staged);
}

static int publish(struct work *w)
{
    struct agent_result *r = w->result;
    bool there = false;
    int code = w->fs->ops->exists(w->fs, w->epoch, &there, &r->err);
    if (code == 0 && !there) {
        code = w->fs->ops->exists(w->fs, w->staged, &there, &r->err);
        if (code == 0 && !there) {
            return err_set(&r->err, ERR_NOT_FOUND,
                           "'%s' was prepared here and is gone: restore it from another node's "
                           "copy, or let the job go on to its next checkpoint",
                           w->staged);
        }
        code = code != 0 ? code : complete(w);
        code = code != 0 ? code : w->fs->ops->rename(w->fs, w->staged, w->epoch, &r->err);
    }
    /* The rename may be an earlier process's, and not durable yet. */
    code = code != 0 ? code : sync_folder(w, w->action->folder);
    code = code != 0 ? code : sync_folder(w, w->staging);
    return code != 0 ? code
                     : files_current_replace(w->fs, w->action->folder, w->action->epoch, &r->fatal,
                                             &r->err);
}

static int discard(struct work *w)
{
    int code = fs_remove_tree(w->fs, w->staged, &w->result->err);
    return code != 0 ? code : sync_folder(w, w->staging);
}

/* Out of sight first, then deleted: nobody sees half an epoch. */
static int delete_epoch(struct work *w)
{
    struct agent_result *r = w->result;
    uint64_t current = 0;
    int code = current_read(w->fs, w->action->folder, &current, &r->err);
    if (code == 0 && w->action->epoch >= current) {
        return err_set(&r->err, ERR_STATE, "'%s' is what CURRENT names, it is not deleted",
                       w->epoch);
    }
    code = code != 0 ? code : fs_remove_tree(w->fs, w->staged, &r->err);
    code = code != 0 ? code : w->fs->ops->rename(w->fs, w->epoch, w->staged, &r->err);
    code = code != 0 ? code : sync_folder(w, w->action->folder);
    return code != 0 ? code : discard(w);
}

void agent_execute(struct fs *fs, const struct agent_action *action,
                   const struct shard_content *content, struct agent_result *ret_result)
{
    *ret_result = (struct agent_result){0};
    struct work w = {.fs = fs, .action = action, .result = ret_result};
    (void)join(w.staging, action->folder, "staging");
    if (action->epoch != 0) {
        checkpoint_staging_folder(action->folder, action->epoch, w.staged);
        checkpoint_epoch_folder(action->folder, action->epoch, w.epoch);
    }
    int code = 0;
    switch (action->kind) {
    case AGENT_SCAN:
        code = files_current_repair(fs, action->folder, &ret_result->repaired, &ret_result->fatal,
                                    &ret_result->err);
        break;
    case AGENT_STAGE:
        code = stage(&w, content);
        break;
    case AGENT_PUBLISH:
        code = publish(&w);
        break;
    case AGENT_DISCARD:
        code = discard(&w);
        break;
    case AGENT_DELETE:
        code = delete_epoch(&w);
        break;
    case AGENT_IDLE:
    case AGENT_PROPOSE:
    default:
        ASSERT(false && "no file work in this action");
    }
    struct err scan = {0};
    int scan_code =
        ret_result->fatal ? ERR_DISK : folder_scan(fs, action->folder, &ret_result->view, &scan);
    /* What a failed repair left must not be believed. */
    ret_result->scanned = scan_code == 0 && (action->kind != AGENT_SCAN || code == 0);
    if (code == 0 && scan_code != 0 && !ret_result->fatal) {
        code = scan_code;
        ret_result->err = scan;
    }
    ret_result->code = code;
}

/* The file work of the agent's actions, in the order of agent.h: what is fsynced before what. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/execute_room.h"

int work_join(char *path, const char *folder, const char *name)
{
    int size = snprintf(path, FOLDER_PATH_SIZE, "%s/%s", folder, name);
    ASSERT(size > 0 && size < FOLDER_PATH_SIZE);
    return 0;
}

int work_sync(struct work *w, const char *path)
{
    return files_sync_folder(w->fs, path, &w->result->fatal, &w->result->err);
}

/* Every folder down to staging/epoch-N, each durable in the one above. */
int work_make_folders(struct work *w)
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
        code = work_sync(w, above);
        if (w->action->rooted && strcmp(above, w->staging) == 0) {
            break;
        }
    }
    return code;
}

static int stage(struct work *w, const struct shard_content *content)
{
    ASSERT(content != NULL);
    struct agent_result *r = w->result;
    char part[FOLDER_PATH_SIZE + 8];
    char shard[FOLDER_PATH_SIZE];
    (void)work_join(shard, w->staged, w->action->shard);
    (void)snprintf(part, sizeof(part), "%s.part", shard);
    int code = work_make_folders(w);
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
        code = work_sync(w, w->staged);
    }
    if (code != 0 && !r->fatal) { /* Room for others; what stays is a leftover. */
        (void)fs_remove_tree(w->fs, w->staged, NULL);
    }
    return code;
}

/* manifest.json and SHA256SUMS into the staged folder; the whole of it is durable then. What
 * another process left is compared first; what is not right is not published. */
static int complete(struct work *w)
{
    struct agent_result *r = w->result;
    uint64_t ranks = w->action->ranks;
    work_compare(w, w->staged, ranks & ~w->action->trusted);
    ranks &= ~r->bad;
    r->good |= ranks;
    int code = 0;
    if (ranks != 0) {
        code = work_put_manifest(w, w->staged);
        code = code != 0 ? code : work_put_sums(w, w->staged, ranks);
    }
    code = code != 0 ? code : work_set_aside(w, w->staged);
    if (code == 0 && ranks == 0) {
        return err_set(&r->err, ERR_DAMAGED, "%s: nothing is left to publish in '%s'", r->bad_text,
                       w->staged);
    }
    return code;
}

static int publish(struct work *w)
{
    struct agent_result *r = w->result;
    bool there = false;
    int code = w->fs->ops->exists(w->fs, w->epoch, &there, &r->err);
    if (code == 0 && !there) {
        code = code != 0 ? code : complete(w);
        code = code != 0 ? code : w->fs->ops->rename(w->fs, w->staged, w->epoch, &r->err);
    }
    /* The rename may be an earlier process's, and not durable yet. */
    code = code != 0 ? code : work_sync(w, w->action->folder);
    code = code != 0 ? code : work_sync(w, w->staging);
    uint64_t current = 0;
    code = code != 0 ? code : current_read(w->fs, w->action->folder, &current, &r->err);
    if (code != 0 || current > w->action->epoch) {
        return code; /* Its copies came late: a newer one is published here already. */
    }
    return files_current_replace(w->fs, w->action->folder, w->action->epoch, &r->fatal, &r->err);
}

static int discard(struct work *w)
{
    int code = fs_remove_tree(w->fs, w->staged, &w->result->err);
    return code != 0 ? code : work_sync(w, w->staging);
}

/* Out of sight first, then deleted: nobody sees half an epoch. */
static int delete_epoch(struct work *w)
{
    struct agent_result *r = w->result;
    uint64_t current = 0;
    int code = current_read(w->fs, w->action->folder, &current, &r->err);
    if (code == 0 && w->action->epoch == current) {
        return err_set(&r->err, ERR_STATE, "'%s' is what CURRENT names, it is not deleted",
                       w->epoch);
    }
    code = code != 0 ? code : fs_remove_tree(w->fs, w->staged, &r->err);
    code = code != 0 ? code : w->fs->ops->rename(w->fs, w->epoch, w->staged, &r->err);
    code = code != 0 ? code : work_sync(w, w->action->folder);
    return code != 0 ? code : discard(w);
}

/* The lost one goes once CURRENT does not name it any more. */
static int retract(struct work *w)
{
    struct agent_result *r = w->result;
    char path[FOLDER_PATH_SIZE];
    int code = 0;
    if (w->action->current != 0) {
        code = files_current_back(w->fs, w->action->folder, w->action->current, &r->fatal, &r->err);
    } else {
        (void)work_join(path, w->action->folder, "CURRENT");
        code = w->fs->ops->unlink(w->fs, path, &r->err);
        code = code != 0 ? code : work_sync(w, w->action->folder);
    }
    return code != 0 ? code : delete_epoch(w);
}

void work_begin(struct work *w, struct fs *fs, const struct agent_action *action,
                struct agent_result *result)
{
    *result = (struct agent_result){0};
    *w = (struct work){.fs = fs, .action = action, .result = result};
    (void)work_join(w->staging, action->folder, "staging");
    if (action->epoch != 0) {
        checkpoint_staging_folder(action->folder, action->epoch, w->staged);
        checkpoint_epoch_folder(action->folder, action->epoch, w->epoch);
    }
}

void work_end(struct work *w, int code)
{
    struct agent_result *r = w->result;
    struct err scan = {0};
    int scan_code = r->fatal ? ERR_DISK : folder_scan(w->fs, w->action->folder, &r->view, &scan);
    /* What a failed repair left must not be believed. */
    r->scanned = scan_code == 0 && (w->action->kind != AGENT_SCAN || code == 0);
    if (code == 0 && scan_code != 0 && !r->fatal) {
        code = scan_code;
        r->err = scan;
    }
    r->code = code;
}

void agent_execute(struct fs *fs, const struct agent_action *action,
                   const struct shard_content *content, struct agent_result *ret_result)
{
    struct work w;
    work_begin(&w, fs, action, ret_result);
    int code = 0;
    if (action->kind == AGENT_PUBLISH || action->kind == AGENT_DISCARD ||
        action->kind == AGENT_DELETE || action->kind == AGENT_RETRACT) {
        /* Somebody may have taken it away: that is no failed disk. */
        code = fs_mkdir_all(fs, w.staging, &ret_result->err);
        if (code != 0) {
            work_end(&w, code);
            return;
        }
    }
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
    case AGENT_VERIFY:
        code = work_verify(&w);
        break;
    case AGENT_TRIM:
        code = work_trim(&w);
        break;
    case AGENT_RETRACT:
        code = retract(&w);
        break;
    case AGENT_IDLE:
    case AGENT_COPY:
    case AGENT_PROPOSE:
    default:
        ASSERT(false && "no file work in this action");
    }
    work_end(&w, code);
}

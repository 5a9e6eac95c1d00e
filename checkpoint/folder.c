#include "checkpoint/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"

void checkpoint_job_folder(const struct state_job *job, char path[FOLDER_PATH_SIZE])
{
    char name[COMMAND_NAME_SIZE];
    (void)snprintf(name, sizeof(name), "%s", job->name);
    for (char *at = name; *at != '\0'; at++) { /* A name is for people; a path is plain. */
        char one[2] = {*at, '\0'};
        if (!checkpoint_name_is_plain(one) && *at != '.') {
            *at = '_';
        }
    }
    (void)snprintf(path, FOLDER_PATH_SIZE, "jobs/%" PRIu64 "-%s", job->id, name);
}

void checkpoint_epoch_folder(const char *folder, uint64_t epoch, char path[FOLDER_PATH_SIZE])
{
    char name[MANIFEST_TEXT_SIZE];
    checkpoint_epoch_name(epoch, name);
    int size = snprintf(path, FOLDER_PATH_SIZE, "%s/%s", folder, name);
    ASSERT(size > 0 && size < FOLDER_PATH_SIZE);
}

void checkpoint_staging_folder(const char *folder, uint64_t epoch, char path[FOLDER_PATH_SIZE])
{
    char name[MANIFEST_TEXT_SIZE];
    checkpoint_epoch_name(epoch, name);
    int size = snprintf(path, FOLDER_PATH_SIZE, "%s/staging/%s", folder, name);
    ASSERT(size > 0 && size < FOLDER_PATH_SIZE);
}

struct found {
    uint64_t *epochs;
    uint32_t count;
};

/* Keeps the smallest ones, ascending: what is left out is looked at when these are gone. */
static void on_entry(void *context, const char *name, bool is_folder)
{
    struct found *found = context;
    uint64_t epoch = is_folder ? checkpoint_epoch_of_name(name) : 0;
    if (epoch == 0) {
        return;
    }
    uint32_t at = found->count;
    while (at > 0 && found->epochs[at - 1] > epoch) {
        at--;
    }
    if (at == FOLDER_ENTRIES_MAX) {
        return;
    }
    uint32_t last = found->count < FOLDER_ENTRIES_MAX ? found->count : FOLDER_ENTRIES_MAX - 1;
    memmove(&found->epochs[at + 1], &found->epochs[at], (last - at) * sizeof(found->epochs[0]));
    found->epochs[at] = epoch;
    found->count = last + 1;
}

static int list_epochs(struct fs *fs, const char *path, uint64_t *epochs, uint32_t *ret_count,
                       struct err *err)
{
    struct found found = {epochs, 0};
    int code = fs->ops->list(fs, path, on_entry, &found, err);
    if (code != 0 && code != ERR_NOT_FOUND) {
        return code;
    }
    *ret_count = found.count;
    return 0;
}

static void on_file(void *context, const char *name, bool is_folder)
{
    uint64_t *shards = context;
    int rank = is_folder ? -1 : checkpoint_shard_of_name(name);
    *shards |= rank < 0 ? 0 : UINT64_C(1) << rank;
}

/* Which shards lie in each of the epochs' folders below `path`. */
static int list_shards(struct fs *fs, const char *path, const uint64_t *epochs, uint32_t count,
                       uint64_t *shards, struct err *err)
{
    char folder[FOLDER_PATH_SIZE];
    int code = 0;
    for (uint32_t i = 0; i < count && code == 0; i++) {
        checkpoint_epoch_folder(path, epochs[i], folder);
        shards[i] = 0;
        code = fs->ops->list(fs, folder, on_file, &shards[i], err);
        code = code == ERR_NOT_FOUND ? 0 : code;
    }
    return code;
}

int folder_scan(struct fs *fs, const char *folder, struct folder_view *ret_view, struct err *err)
{
    char path[FOLDER_PATH_SIZE];
    struct folder_view *made = calloc(1, sizeof(*made));
    ASSERT(made != NULL);
    int code = current_read(fs, folder, &made->current, err);
    if (code == 0) {
        code = list_epochs(fs, folder, made->published, &made->published_count, err);
    }
    if (code == 0) {
        (void)snprintf(path, sizeof(path), "%s/staging", folder);
        code = list_epochs(fs, path, made->staged, &made->staged_count, err);
    }
    if (code == 0) {
        code = list_shards(fs, path, made->staged, made->staged_count, made->staged_shards, err);
    }
    if (code == 0) {
        code = list_shards(fs, folder, made->published, made->published_count,
                           made->published_shards, err);
    }
    if (code == 0) {
        *ret_view = *made;
        if (err != NULL) {
            *err = (struct err){0}; /* An absent folder is no error. */
        }
    }
    free(made);
    return code;
}

int current_read(struct fs *fs, const char *folder, uint64_t *ret_epoch, struct err *err)
{
    char path[FOLDER_PATH_SIZE];
    char name[MANIFEST_TEXT_SIZE];
    struct buf bytes = BUF_NONE;
    struct err local = {0};
    (void)snprintf(path, sizeof(path), "%s/CURRENT", folder);
    int code = fs_read_all(fs, path, sizeof(name) - 1, &bytes, &local);
    uint64_t epoch = 0;
    if (code == 0 && bytes.size > 0 && bytes.bytes[bytes.size - 1] == '\n') {
        memcpy(name, bytes.bytes, bytes.size - 1);
        name[bytes.size - 1] = '\0';
        epoch = strlen(name) == bytes.size - 1 ? checkpoint_epoch_of_name(name) : 0;
    }
    buf_done(&bytes);
    if (code == ERR_NOT_FOUND) {
        *ret_epoch = 0;
        return 0;
    }
    if (code != 0) {
        return err_set(err, code, "%s", local.text);
    }
    if (epoch == 0) {
        return err_set(err, ERR_DAMAGED, "'%s' names no epoch", path);
    }
    *ret_epoch = epoch;
    return 0;
}

static int write_current(struct fs *fs, const char *folder, uint64_t epoch, bool *ret_fatal,
                         struct err *err)
{
    char path[FOLDER_PATH_SIZE];
    char fresh[FOLDER_PATH_SIZE];
    char text[MANIFEST_TEXT_SIZE + 1];
    checkpoint_epoch_name(epoch, text);
    (void)strcat(text, "\n");
    (void)snprintf(path, sizeof(path), "%s/CURRENT", folder);
    (void)snprintf(fresh, sizeof(fresh), "%s/CURRENT.new", folder);
    int code = fs->ops->unlink(fs, fresh, err); /* A crash may have left one. */
    if (code == 0) {
        code = fs_create(fs, fresh, text, strlen(text), err);
    }
    if (code == 0) {
        code = fs->ops->rename(fs, fresh, path, err);
    }
    return code != 0 ? code : files_sync_folder(fs, folder, ret_fatal, err);
}

static void on_newest(void *context, const char *name, bool is_folder)
{
    uint64_t *newest = context;
    uint64_t epoch = is_folder ? checkpoint_epoch_of_name(name) : 0;
    *newest = epoch > *newest ? epoch : *newest;
}

int files_current_repair(struct fs *fs, const char *folder, bool *ret_repaired, bool *ret_fatal,
                         struct err *err)
{
    char path[FOLDER_PATH_SIZE];
    uint64_t current = 0;
    uint64_t newest = 0;
    bool there = true;
    int code = current_read(fs, folder, &current, err);
    if (code == 0 && current != 0) {
        checkpoint_epoch_folder(folder, current, path);
        code = fs->ops->exists(fs, path, &there, err);
    }
    if ((code == 0 && there) || (code != 0 && code != ERR_DAMAGED)) {
        return code;
    }
    if (err != NULL) {
        *err = (struct err){0};
    }
    code = fs->ops->list(fs, folder, on_newest, &newest, err);
    if (code == 0 && newest != 0) {
        code = write_current(fs, folder, newest, ret_fatal, err);
    } else if (code == 0) {
        (void)snprintf(path, sizeof(path), "%s/CURRENT", folder);
        code = fs->ops->unlink(fs, path, err);
        code = code != 0 ? code : files_sync_folder(fs, folder, ret_fatal, err);
    }
    *ret_repaired = code == 0;
    return code;
}

int files_current_replace(struct fs *fs, const char *folder, uint64_t epoch, bool *ret_fatal,
                          struct err *err)
{
    uint64_t before = 0;
    int code = current_read(fs, folder, &before, err);
    if (code != 0) {
        return code;
    }
    if (before > epoch) {
        return err_set(err, ERR_STATE,
                       "'%s/CURRENT' is at epoch %" PRIu64 " and does not go back to %" PRIu64,
                       folder, before, epoch);
    }
    return write_current(fs, folder, epoch, ret_fatal, err);
}

int files_current_back(struct fs *fs, const char *folder, uint64_t epoch, bool *ret_fatal,
                       struct err *err)
{
    return write_current(fs, folder, epoch, ret_fatal, err);
}

int current_write(struct fs *fs, const char *folder, uint64_t epoch, struct err *err)
{
    bool fatal = false;
    return files_current_replace(fs, folder, epoch, &fatal, err);
}

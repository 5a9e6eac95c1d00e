/* Verdicts as files below the state folder, and as a list in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/core.h"
#include "daemon/verdict.h"

#define FOLDER "verdicts"

static void path_of(uint64_t job, uint64_t generation, char path[FOLDER_PATH_SIZE])
{
    (void)snprintf(path, FOLDER_PATH_SIZE, FOLDER "/job-%08llu-g%llu.json", (unsigned long long)job,
                   (unsigned long long)generation);
}

struct verdict_work {
    uv_work_t work;
    struct daemon *daemon;
    uint64_t job, generation;
    char path[FOLDER_PATH_SIZE];
    char remove[FOLDER_PATH_SIZE]; /* "": nothing */
    struct buf text;
    struct err err;
};

static void on_work(uv_work_t *work)
{
    struct verdict_work *file = OWNER_OF(work, struct verdict_work, work);
    struct fs *fs = file->daemon->fs;
    if (fs->ops->mkdir(fs, FOLDER, &file->err) == 0 &&
        fs_replace(fs, file->path, file->text.bytes, file->text.size, &file->err) == 0 &&
        file->remove[0] != '\0') {
        (void)fs->ops->unlink(fs, file->remove, &file->err);
    }
}

struct facts_verdict *verdict_find(const struct verdicts *v, uint64_t job, uint64_t generation)
{
    for (size_t i = 0; i < v->count; i++) {
        if (v->told[i]->job == job && v->told[i]->generation == generation) {
            return v->told[i];
        }
    }
    return NULL;
}

/* People are told of the file when it is there. */
static void show_file(const struct daemon *daemon, struct facts_verdict *told)
{
    char path[FOLDER_PATH_SIZE];
    path_of(told->job, told->generation, path);
    (void)snprintf(told->file, sizeof(told->file), "%.480s/%s", daemon->state_dir, path);
}

static void on_worked(uv_work_t *work, int status)
{
    struct verdict_work *file = OWNER_OF(work, struct verdict_work, work);
    struct daemon *daemon = file->daemon;
    (void)status;
    if (file->err.code != 0) {
        log_warning("verdict.file", "file=\"%s\" error=\"%s\" next=ignored", file->path,
                    file->err.text);
    }
    struct facts_verdict *told = verdict_find(daemon->verdicts, file->job, file->generation);
    if (file->err.code == 0 && told != NULL) {
        show_file(daemon, told);
    }
    buf_done(&file->text);
    free(file);
    daemon_work_ended(daemon);
}

/* Into the list; what gives way for it has its path in `remove`. */
static void remember(struct daemon *daemon, const struct facts_verdict *told,
                     char remove[FOLDER_PATH_SIZE])
{
    struct verdicts *v = daemon->verdicts;
    struct facts_verdict *place = verdict_find(v, told->job, told->generation);
    remove[0] = '\0';
    if (place == NULL && v->count == VERDICT_FILES_MAX) {
        place = v->told[0];
        path_of(place->job, place->generation, remove);
        memmove(v->told, v->told + 1, (v->count - 1) * sizeof(v->told[0]));
        v->told[v->count - 1] = place;
    } else if (place == NULL) {
        place = calloc(1, sizeof(*place));
        ASSERT(place != NULL);
        v->told[v->count++] = place;
    }
    *place = *told;
    for (size_t i = v->count; i > 1 && v->told[i - 1]->at_ms < v->told[i - 2]->at_ms; i--) {
        struct facts_verdict *older = v->told[i - 1];
        v->told[i - 1] = v->told[i - 2];
        v->told[i - 2] = older;
    }
}

void verdict_keep(struct daemon *daemon, const struct facts_verdict *told, const uint8_t *bytes,
                  size_t size)
{
    struct verdicts *v = daemon->verdicts;
    struct verdict_work *file = calloc(1, sizeof(*file));
    ASSERT(file != NULL);
    file->daemon = daemon;
    file->job = told->job;
    file->generation = told->generation;
    path_of(told->job, told->generation, file->path);
    buf_put(&file->text, bytes, size);
    buf_clear(&v->newest);
    buf_put(&v->newest, bytes, size);
    remember(daemon, told, file->remove);
    log_notice("job.verdict",
               "job=%llu generation=%llu state=%s who=%s step=%llu phase=%s bytes=%llu "
               "answered=%u/%u by=%s why=\"%s\"",
               (unsigned long long)told->job, (unsigned long long)told->generation, told->state,
               told->who[0] != '\0' ? told->who : "-", (unsigned long long)told->step,
               told->phase[0] != '\0' ? told->phase : "-", (unsigned long long)told->sent_bytes,
               told->answered, told->nodes_count, told->by, told->why);
    daemon_work_begun(daemon);
    ASSERT(uv_queue_work(daemon->loop, &file->work, on_work, on_worked) == 0);
}

struct listing {
    struct fs *fs;
    struct daemon *daemon;
};

static void on_file(void *context, const char *name, bool is_folder)
{
    struct listing *listing = context;
    struct facts_verdict *told = NULL;
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    char path[FOLDER_PATH_SIZE];
    char remove[FOLDER_PATH_SIZE];
    size_t size = strlen(name);
    if (is_folder || size < 6 || size > 64 || strcmp(name + size - 5, ".json") != 0) {
        return;
    }
    (void)snprintf(path, sizeof(path), FOLDER "/%s", name);
    told = calloc(1, sizeof(*told));
    ASSERT(told != NULL);
    if (fs_read_all(listing->fs, path, VERDICT_TEXT_MAX + 1, &bytes, &err) == 0 &&
        verdict_parse(bytes.bytes, bytes.size, told, &err) == 0) {
        show_file(listing->daemon, told);
        remember(listing->daemon, told, remove);
        if (remove[0] != '\0') {
            (void)listing->fs->ops->unlink(listing->fs, remove, &err);
        }
    } else {
        log_warning("verdict.file", "file=\"%s\" error=\"%s\" next=ignored", path, err.text);
    }
    free(told);
    buf_done(&bytes);
}

int verdict_open(struct daemon *daemon, struct err *err)
{
    struct listing listing = {daemon->fs, daemon};
    daemon->verdicts = calloc(1, sizeof(*daemon->verdicts));
    if (daemon->verdicts == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for verdicts");
    }
    if (recorder_init(&daemon->recorder, RECORDER_RECORDS, err) != 0) {
        return err->code;
    }
    int code = daemon->fs->ops->list(daemon->fs, FOLDER, on_file, &listing, err);
    return code == ERR_NOT_FOUND ? 0 : code;
}

void verdict_files_close(struct daemon *daemon)
{
    struct verdicts *v = daemon->verdicts;
    for (size_t i = 0; v != NULL && i < v->count; i++) {
        free(v->told[i]);
    }
    if (v != NULL) {
        buf_done(&v->newest);
    }
    free(v);
    daemon->verdicts = NULL;
}

bool verdict_tell(void *context, uint64_t job, struct facts_verdict *ret)
{
    const struct daemon *daemon = context;
    const struct verdicts *v = daemon->verdicts;
    for (size_t i = v->count; i > 0; i--) {
        if (v->told[i - 1]->job == job) {
            *ret = *v->told[i - 1];
            return true;
        }
    }
    return false;
}

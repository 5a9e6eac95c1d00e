/* The data of a job on this node: imported once into the cache, by the digest of source and
 * settings, then opened. Compute thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/run.h"
#include "data/cache.h"

static bool is_number(const char *text)
{
    return text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
}

int run_data_settings(const struct job_data *data, struct data_settings *ret_settings,
                      struct err *err)
{
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.paths = (const char *const *)data->path.items;
    settings.paths_count = data->path.count;
    settings.format = (enum data_format)data->format;
    settings.header = data->header;
    settings.separator = data->separator != NULL ? data->separator[0] : ',';
    settings.decimal = data->decimal != NULL ? data->decimal[0] : '.';
    const char *target = data->target != NULL ? data->target : "last";
    if (strcmp(target, "last") == 0) {
        settings.target = DATA_TARGET_LAST;
    } else if (strcmp(target, "first") == 0) {
        settings.target = DATA_TARGET_FIRST;
    } else if (is_number(target)) {
        settings.target = DATA_TARGET_COLUMN;
        errno = 0;
        settings.target_column = strtoull(target, NULL, 10);
        if (errno != 0 || settings.target_column == 0) {
            return err_set(err, ERR_JOB, "data.target: columns are numbered from 1, got '%s'",
                           target);
        }
    } else {
        settings.target = DATA_TARGET_NAME;
        settings.target_name = target;
    }
    settings.drop = (const char *const *)data->drop.items;
    settings.drop_count = data->drop.count;
    settings.missing = (enum data_missing)data->missing;
    settings.missing_values = (const char *const *)data->missing_values.items;
    settings.missing_values_count = data->missing_values.count;
    settings.storage = (enum data_storage)data->storage;
    settings.features = data->features;
    *ret_settings = settings;
    return 0;
}

void run_data_view(const struct run *run, struct dataset_view *ret_view)
{
    *ret_view = (struct dataset_view){
        .test = run->spec.data.test,
        .shuffle = run->spec.data.shuffle_given,
        .shuffle_seed = run->spec.data.shuffle,
        .standardize = run->spec.data.standardize,
        .memory_max = run->daemon->memory_bytes,
    };
}

static bool on_progress(void *context, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
    struct run *run = context;
    work_meter_set(&run->meter, phase, done_bytes, total_bytes);
    atomic_fetch_add(&run->ticks, 1);
    return !atomic_load(&run->cancel);
}

void run_data_more(const struct data_faults *faults, const char *where, int code, struct err *err)
{
    if (code != ERR_DATA || faults->count < 2) {
        return;
    }
    char more[96];
    bool full = faults->count == DATA_FAULTS_MAX;
    int size = snprintf(more, sizeof(more), " (and %zu more place%s%s%s)", faults->count - 1,
                        faults->count == 2 ? "" : "s", full ? ", perhaps others" : "", where);
    size_t used = strlen(err->text);
    size_t most = sizeof(err->text) - 1 - (size_t)size; /* A long sentence gives way at its end. */
    used = used < most ? used : most;
    memcpy(err->text + used, more, (size_t)size + 1);
}

/* A guess at what the import takes: text has more bytes than its numbers. */
static uint64_t source_bytes(const struct data_settings *settings)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < settings->paths_count; i++) {
        struct stat status;
        bytes += stat(settings->paths[i], &status) == 0 ? (uint64_t)status.st_size : 0;
    }
    return bytes;
}

/* Another daemon of this machine or an earlier run may have imported it meanwhile: then its folder
 * is there, whole, and serves. */
static int import_into(struct run *run, const struct data_settings *settings, const char *folder,
                       const struct data_progress *progress, struct err *err)
{
    struct stat status;
    if (stat(folder, &status) == 0) {
        return 0;
    }
    if (data_cache_room(run->daemon->cache, source_bytes(settings), err) != 0) {
        return err->code;
    }
    struct data_report report = {0};
    struct data_faults *faults = calloc(1, sizeof(*faults));
    if (faults == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for an import");
    }
    int code = data_import(settings, folder, progress, &report, faults, err);
    for (size_t i = 0; code == ERR_DATA && i < faults->count; i++) {
        log_error("data.fault", "run=%s fault=\"%s\"", run->name, faults->list[i].text);
    }
    run_data_more(faults, "; 'coppeliusctl logs' has them", code, err);
    free(faults);
    if (code == ERR_USAGE && stat(folder, &status) == 0) {
        return 0;
    }
    if (code == 0) {
        log_info("data.import",
                 "run=%s rows=%llu dropped=%llu features=%llu nonzeros=%llu storage=%s", run->name,
                 (unsigned long long)report.rows, (unsigned long long)report.rows_dropped,
                 (unsigned long long)report.features, (unsigned long long)report.nonzeros,
                 report.sparse ? "sparse" : "dense");
    }
    return code;
}

void run_data_missing(const struct run *run, char *text, size_t size)
{
    const struct job_data *data = &run->spec.data;
    text[0] = '\0';
    for (size_t i = 0; i < data->path.count; i++) {
        if (access(data->path.items[i], R_OK) != 0) {
            (void)snprintf(text, size, "'%s': %s", data->path.items[i], err_errno(errno));
            return;
        }
    }
}

void run_data_hold(struct run *run, const char *name)
{
    ASSERT(run->held_count < RUN_HELD_MAX);
    (void)snprintf(run->held[run->held_count++], RUN_CACHE_NAME_SIZE, "%s", name);
    data_cache_hold(run->daemon->cache, name);
}

void run_data_release(struct run *run)
{
    while (run->held_count > 0) {
        data_cache_release(run->daemon->cache, run->held[--run->held_count]);
    }
}

int run_data_open(struct run *run, struct dataset **ret_dataset, struct err *err)
{
    struct data_progress progress = {on_progress, run};
    const struct job_data *data = &run->spec.data;
    if (data->format == JOB_NATIVE) {
        return dataset_open(data->path.items[0], ret_dataset, err);
    }
    struct data_settings settings;
    uint8_t key[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];
    char folder[DAEMON_PATH_SIZE + SHA256_HEX_SIZE];
    if (run_data_settings(data, &settings, err) != 0 ||
        data_cache_key(&settings, &progress, key, err) != 0) {
        return err->code;
    }
    sha256_hex(key, hex);
    run_data_hold(run, hex);
    (void)snprintf(folder, sizeof(folder), "%s/%s", run->cache_dir, hex);
    int code = import_into(run, &settings, folder, &progress, err);
    work_meter_set(&run->meter, NULL, 0, 0);
    if (code != 0) {
        return code;
    }
    return dataset_open(folder, ret_dataset, err);
}

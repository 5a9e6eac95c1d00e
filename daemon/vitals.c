#include "daemon/vitals.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"

static void closed_when_all_is(struct vitals *vitals)
{
    if (vitals->closing && vitals->handle_closed && !vitals->statfs_busy &&
        vitals->on_closed != NULL) {
        vitals->on_closed(vitals); /* The owner may free it in here: touch nothing after. */
    }
}

static void on_statfs(uv_fs_t *request)
{
    struct vitals *vitals = OWNER_OF(request, struct vitals, statfs);
    vitals->statfs_busy = false;
    if (request->result == 0) {
        const uv_statfs_t *stat = request->ptr;
        vitals->storage_free_bytes = stat->f_bavail * stat->f_bsize;
    }
    uv_fs_req_cleanup(request);
    closed_when_all_is(vitals);
}

static void on_timer(uv_timer_t *timer)
{
    struct vitals *vitals = OWNER_OF(timer, struct vitals, timer);
    uint64_t now_ns = uv_hrtime();
    uint64_t late_ns = now_ns > vitals->due_ns ? now_ns - vitals->due_ns : 0;
    histogram_observe(&vitals->loop_lag, (double)late_ns / 1e9);
    if (late_ns > vitals->loop_lag_most_ns) {
        vitals->loop_lag_most_ns = late_ns;
    }
    uint64_t now_ms = clock_now_ms();
    if (!vitals->statfs_busy && now_ms >= vitals->storage_due_ms) {
        vitals->storage_due_ms = now_ms + VITALS_STORAGE_MS;
        vitals->statfs_busy =
            uv_fs_statfs(timer->loop, &vitals->statfs, vitals->path, on_statfs) == 0;
    }
    uv_update_time(
        timer->loop); /* Else the next period would start when this turn of the loop did. */
    vitals->due_ns = uv_hrtime() + VITALS_PERIOD_MS * UINT64_C(1000000);
    (void)uv_timer_start(timer, on_timer, VITALS_PERIOD_MS, /* repeat= */ 0);
}

int vitals_open(struct vitals *vitals, uv_loop_t *loop, const char *path, struct err *err)
{
    *vitals = (struct vitals){.loop_lag = HISTOGRAM_LATENCY, .storage_free_bytes = UINT64_MAX};
    if (strlen(path) >= sizeof(vitals->path)) {
        return err_set(err, ERR_CONFIG, "state_dir: a path of %zu bytes; the most is %zu",
                       strlen(path), sizeof(vitals->path) - 1);
    }
    memcpy(vitals->path, path, strlen(path) + 1);
    int status = uv_timer_init(loop, &vitals->timer);
    ASSERT(status == 0); /* It cannot fail. */
    uv_update_time(loop);
    vitals->due_ns = uv_hrtime() + VITALS_PERIOD_MS * UINT64_C(1000000);
    status = uv_timer_start(&vitals->timer, on_timer, VITALS_PERIOD_MS, /* repeat= */ 0);
    ASSERT(status == 0);
    return 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct vitals *vitals = OWNER_OF(handle, struct vitals, timer);
    vitals->handle_closed = true;
    closed_when_all_is(vitals);
}

void vitals_close(struct vitals *vitals, void (*on_closed)(struct vitals *vitals))
{
    ASSERT(!vitals->closing);
    vitals->closing = true;
    vitals->on_closed = on_closed;
    if (vitals->statfs_busy) {
        (void)uv_cancel((uv_req_t *)&vitals->statfs); /* Its callback comes either way. */
    }
    uv_close((uv_handle_t *)&vitals->timer, on_handle_closed);
}

/* The field of /proc/self/stat with the number that proc(5) gives it, from 3 on; 0 where
 * unreadable. */
static uint64_t stat_field(const char *text, unsigned field)
{
    const char *at = strrchr(text, ')'); /* The name before it may hold anything. */
    for (unsigned i = 2; at != NULL && i < field; i++) {
        at = strchr(at + 1, ' ');
    }
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

static size_t read_small(const char *path, char *text, size_t capacity)
{
    FILE *file = fopen(path, "re");
    size_t size = file == NULL ? 0 : fread(text, 1, capacity - 1, file);
    text[size] = '\0';
    if (file != NULL) {
        (void)fclose(file); /* Opened for reading: nothing can be lost. */
    }
    return size;
}

static double boot_s(void)
{
    struct timespec wall;
    struct timespec boot;
    (void)clock_gettime(CLOCK_REALTIME, &wall);
    (void)clock_gettime(CLOCK_BOOTTIME, &boot);
    return (double)(wall.tv_sec - boot.tv_sec) + (double)(wall.tv_nsec - boot.tv_nsec) / 1e9;
}

void vitals_process(struct vitals_process *ret_process)
{
    *ret_process = (struct vitals_process){0};
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        ret_process->cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                             (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        ret_process->fds_max = limit.rlim_cur;
    }
    char text[1024];
    if (read_small("/proc/self/stat", text, sizeof(text)) > 0) {
        ret_process->virtual_bytes = stat_field(text, 23);
        ret_process->resident_bytes = stat_field(text, 24) * (uint64_t)sysconf(_SC_PAGESIZE);
        ret_process->start_s =
            boot_s() + (double)stat_field(text, 22) / (double)sysconf(_SC_CLK_TCK);
    }
    DIR *folder = opendir("/proc/self/fd");
    if (folder != NULL) {
        uint64_t count = 0;
        while (readdir(folder) != NULL) {
            count++;
        }
        (void)closedir(folder);
        ret_process->fds_open = count > 3 ? count - 3 : 0; /* ".", ".." and the folder itself. */
    }
}

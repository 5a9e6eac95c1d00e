/* The daemon's own pulse: how late its loop is, how full its disk, what the process uses.
 *
 * Loop thread. A timer of VITALS_PERIOD_MS measures by how much the loop came late; the disk's free
 * bytes are asked for on the libuv pool every VITALS_STORAGE_MS, since a network disk may take its
 * time. */
#ifndef COPPELIUS_DAEMON_VITALS_H
#define COPPELIUS_DAEMON_VITALS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "daemon/histogram.h"

#define VITALS_PERIOD_MS  100
#define VITALS_STORAGE_MS 10000

struct vitals {
    uv_timer_t timer;
    uv_fs_t statfs;
    bool statfs_busy;
    bool closing;
    bool handle_closed;
    uint64_t due_ns;         /* when the timer should have come */
    uint64_t storage_due_ms; /* when the disk is asked again */
    void (*on_closed)(struct vitals *vitals);
    char path[1024]; /* whose file system's free bytes are told */
    /* To be read by others on the loop. */
    struct histogram loop_lag; /* HISTOGRAM_LATENCY */
    uint64_t loop_lag_most_ns;
    uint64_t storage_free_bytes; /* UINT64_MAX: not known yet */
};

struct vitals_process {
    double cpu_s;
    double start_s; /* wall time, seconds since 1970 */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t fds_open;
    uint64_t fds_max;
};

int vitals_open(struct vitals *vitals, uv_loop_t *loop, const char *path, struct err *err);
void vitals_close(struct vitals *vitals, void (*on_closed)(struct vitals *vitals));

/* Read from /proc at once; what cannot be read is 0. */
void vitals_process(struct vitals_process *ret_process);

#endif

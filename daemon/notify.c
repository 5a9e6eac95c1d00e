#include "daemon/notify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"

static struct facts_cluster cluster;
static struct facts_job job;

static bool advances(struct notify *notify)
{
    struct facts_pulse pulse;
    notify->facts->pulse(notify->facts->daemon, &pulse);
    uint64_t now_ms = clock_now_ms();
    if (!pulse.busy || pulse.ticks != notify->ticks) {
        notify->ticks = pulse.ticks;
        notify->moved_ms = now_ms;
    }
    bool moves = now_ms - notify->moved_ms < notify->watchdog_ms;
    if (!moves && !notify->starved) {
        log_error("watchdog.starved",
                  "compute has not advanced for %" PRIu64
                  " s, the watchdog is not fed: the service manager will restart this daemon",
                  (now_ms - notify->moved_ms) / 1000);
    }
    notify->starved = !moves;
    return moves;
}

/* The job to speak of: the newest that is not at its end. */
static bool find_job(const struct facts *facts)
{
    static uint64_t ids[FACTS_JOBS_MAX];
    size_t count = facts->job_ids(facts->daemon, ids, FACTS_JOBS_MAX);
    ASSERT(count <= FACTS_JOBS_MAX);
    for (size_t i = count; i > 0; i--) {
        if (facts->job(facts->daemon, ids[i - 1], &job) && !job.ended) {
            return true;
        }
    }
    return false;
}

void notify_status_text(const struct facts *facts, char *text, size_t text_size)
{
    static const char *const roles[] = {
        [FACTS_FOLLOWER] = "Follower", [FACTS_CANDIDATE] = "Candidate", [FACTS_LEADER] = "Leader"};
    facts->cluster(facts->daemon, &cluster);
    ASSERT(cluster.role <= FACTS_LEADER);
    struct buf line = BUF_NONE;
    buf_print(&line, "%s, %" PRIu32 " of %" PRIu32 " voters alive%s", roles[cluster.role],
              cluster.voters_alive, cluster.voters, cluster.leader_id == 0 ? ", no leader" : "");
    if (find_job(facts)) {
        buf_print(&line, "; job %" PRIu64 " %s %s", job.id, job.name, job.state);
        if (job.steps > 0) {
            buf_print(&line, ", step %" PRIu64 " of %" PRIu64, job.step, job.steps);
        }
        if (job.has_loss) {
            buf_print(&line, ", loss %.6g", job.loss);
        }
        if (job.has_epoch && job.epoch_ms > 0) {
            int64_t age_ms = clock_wall_ms() - job.epoch_ms;
            buf_print(&line, "; last checkpoint %" PRId64 " s ago",
                      age_ms > 0 ? age_ms / 1000 : INT64_C(0));
        }
    } else {
        buf_print(&line, "; no job");
    }
    (void)snprintf(text, text_size, "%.*s", (int)line.size, (const char *)line.bytes);
    for (char *at = text; *at != '\0'; at++) {
        *at = *at == '\n' ? ' ' : *at; /* A line of its own would be another command. */
    }
    buf_done(&line);
}

static void on_timer(uv_timer_t *timer)
{
    struct notify *notify = OWNER_OF(timer, struct notify, timer);
    uint64_t now_ms = clock_now_ms();
    if (notify->watchdog_ms > 0 && (notify->stopping || advances(notify))) {
        (void)sd_notify(/* unset_environment= */ 0, "WATCHDOG=1");
    }
    if (notify->ready && !notify->stopping && now_ms >= notify->status_due_ms) {
        char text[sizeof(notify->status)];
        notify->status_due_ms = now_ms + NOTIFY_STATUS_MS;
        notify_status_text(notify->facts, text, sizeof(text));
        if (strcmp(text, notify->status) != 0) {
            memcpy(notify->status, text, sizeof(text));
            (void)sd_notifyf(/* unset_environment= */ 0, "STATUS=%s", text);
        }
    }
}

void notify_open(struct notify *notify, uv_loop_t *loop, const struct facts *facts)
{
    *notify = (struct notify){.facts = facts, .moved_ms = clock_now_ms()};
    uint64_t watchdog_us = 0;
    if (sd_watchdog_enabled(/* unset_environment= */ 0, &watchdog_us) > 0) {
        notify->watchdog_ms = watchdog_us / 1000;
    }
    uint64_t period_ms = NOTIFY_STATUS_MS;
    if (notify->watchdog_ms > 0 && notify->watchdog_ms / 3 < period_ms) {
        period_ms = notify->watchdog_ms / 3 > 0 ? notify->watchdog_ms / 3 : 1;
    }
    int status = uv_timer_init(loop, &notify->timer);
    ASSERT(status == 0);
    status = uv_timer_start(&notify->timer, on_timer, 0, period_ms);
    ASSERT(status == 0);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct notify *notify = OWNER_OF(handle, struct notify, timer);
    if (notify->on_closed != NULL) {
        notify->on_closed(notify);
    }
}

void notify_close(struct notify *notify, void (*on_closed)(struct notify *notify))
{
    notify->on_closed = on_closed;
    uv_close((uv_handle_t *)&notify->timer, on_handle_closed);
}

void notify_ready(struct notify *notify)
{
    notify->ready = true;
    (void)sd_notify(/* unset_environment= */ 0, "READY=1");
}

void notify_stopping(struct notify *notify, const char *why)
{
    notify->stopping = true;
    (void)sd_notifyf(/* unset_environment= */ 0, "STOPPING=1\nSTATUS=%s", why);
}

void notify_reloading(struct notify *notify)
{
    (void)notify;
    (void)sd_notifyf(/* unset_environment= */ 0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
                     clock_now_ns() / 1000);
}

void notify_reloaded(struct notify *notify)
{
    if (notify->ready) {
        (void)sd_notify(/* unset_environment= */ 0, "READY=1");
    }
}

/* A lost node is named once for each loss. */
#include <stdio.h>
#include <string.h>

#include "daemon/core.h"

void lost_name(struct daemon *daemon, struct member *member, const char *what, const char *reason)
{
    const struct progress *progress = &member->progress;
    struct lost *lost = &member->lost;
    lost->times++;
    lost->wall_ms = daemon_wall_ms();
    lost->job = progress->job;
    lost->generation = progress->generation;
    lost->step = progress->step;
    lost->sent_bytes = progress->sent_bytes;
    lost->received_bytes = progress->received_bytes;
    (void)snprintf(lost->phase, sizeof(lost->phase), "%s", progress->phase);
    if (progress->job != 0) {
        (void)snprintf(member->reason, sizeof(member->reason),
                       "%.320s; last heard in job %llu, step %llu, phase %s, %llu bytes sent",
                       reason, (unsigned long long)progress->job,
                       (unsigned long long)progress->step, progress->phase,
                       (unsigned long long)progress->sent_bytes);
    } else {
        (void)snprintf(member->reason, sizeof(member->reason), "%s", reason);
    }
    /* Before the event, which is recorded when it is in the log: records are in order of time. */
    struct record record = {.wall_ms = lost->wall_ms,
                            .job = lost->job,
                            .generation = lost->generation,
                            .step = lost->step,
                            .sent_bytes = lost->sent_bytes,
                            .received_bytes = lost->received_bytes,
                            .event = "lost"};
    memcpy(record.phase, lost->phase, sizeof(record.phase));
    (void)snprintf(record.text, sizeof(record.text), "node %s %s: %.160s", member->name, what,
                   reason);
    recorder_put(&daemon->recorder, &record);
    daemon_event(daemon, "node %s %s: %s", member->name, what, member->reason);
    daemon_soon(daemon);
}

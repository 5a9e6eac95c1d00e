/* What systemd is told: READY=1 after the self-test, a STATUS line, the watchdog's food, STOPPING
 * and RELOADING. Where nobody listens (no NOTIFY_SOCKET) all of it does nothing.
 *
 * The watchdog is fed by a timer of the loop, so only while the loop turns, and only while compute
 * advances: when the facts say that it is busy and its ticks have not changed for a whole watchdog
 * period, no more food is given. Loop thread. */
#ifndef COPPELIUS_DAEMON_NOTIFY_H
#define COPPELIUS_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/facts.h"

#define NOTIFY_STATUS_MS 2000

struct notify {
    uv_timer_t timer;
    const struct facts *facts;
    bool ready;
    bool stopping;
    uint64_t watchdog_ms; /* 0: nobody watches */
    uint64_t status_due_ms;
    uint64_t ticks;    /* of compute, as last seen */
    uint64_t moved_ms; /* when it was last idle or seen to advance */
    bool starved;      /* compute stands still: said once */
    char status[256];
    void (*on_closed)(struct notify *notify);
};

void notify_open(struct notify *notify, uv_loop_t *loop, const struct facts *facts);
void notify_close(struct notify *notify, void (*on_closed)(struct notify *notify));

/* The self-test has passed, the services are open. */
void notify_ready(struct notify *notify);
void notify_stopping(struct notify *notify, const char *why);
/* Around a reload. */
void notify_reloading(struct notify *notify);
void notify_reloaded(struct notify *notify);
/* The line of `systemctl status`: "Leader of 3; job 1 california step 30 of 400, loss 3.214; …". */
void notify_status_text(const struct facts *facts, char *text, size_t text_size);

#endif

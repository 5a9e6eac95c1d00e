/* What a daemon offers to people and programs, over one table of facts: HTTP, the admin socket, the
 * service manager's line, its own pulse. Built in order, taken down in reverse; loop thread. */
#ifndef COPPELIUS_DAEMON_SERVICES_H
#define COPPELIUS_DAEMON_SERVICES_H

#include <stdbool.h>
#include <uv.h>

#include "base/err.h"
#include "daemon/api.h"
#include "daemon/config.h"
#include "daemon/doctor.h"
#include "daemon/facts.h"
#include "daemon/http.h"
#include "daemon/logring.h"
#include "daemon/metrics.h"
#include "daemon/notify.h"
#include "daemon/vitals.h"

struct services {
    const struct config *config;
    const struct facts *facts;
    struct vitals vitals;
    struct notify notify;
    struct http *http; /* NULL: off */
    struct api *api;
    struct doctor_settings doctor;
    struct metrics metrics;
    unsigned open; /* parts whose on_closed is to come */
    bool closing;
    void (*on_closed)(void *context);
    void *context;
};

/* config and ring are borrowed for the services' life, selftest (NULL: no device) is for doctor. On
 * failure what was opened is being closed on the loop: run it to its end. */
int services_open(struct services *services, uv_loop_t *loop, const struct config *config,
                  const struct facts *facts, struct log_ring *ring, uint64_t incarnation,
                  int (*selftest)(void *context, char *sentence, size_t sentence_size,
                                  struct err *err),
                  void *selftest_context, struct err *err);
/* From now on no fact is asked for. on_closed comes on the loop when all is closed. */
void services_close(struct services *services, void (*on_closed)(void *context), void *context);
/* Another configuration (SIGHUP): token and limits are taken over; borrowed for the call. */
int services_reload(struct services *services, const struct config *config, struct err *err);

#endif

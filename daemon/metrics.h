/* All that Prometheus is told: the one place that knows both the facts and the text format.
 *
 * Loop thread; reads, writes into the caller's buf, keeps nothing. Names are those of
 * docs/operations.md; series of a job are dropped METRICS_ENDED_MS after its end. */
#ifndef COPPELIUS_DAEMON_METRICS_H
#define COPPELIUS_DAEMON_METRICS_H

#include <stdbool.h>

#include "base/buf.h"
#include "daemon/facts.h"
#include "daemon/http.h"
#include "daemon/vitals.h"

#define METRICS_ENDED_MS (15 * 60 * 1000)
#define METRICS_JOBS_MAX 32 /* jobs with series of their own, the newest ones */

struct metrics {
    const struct facts *facts;
    const struct vitals *vitals;
    const struct http_stats *http;
    const char *version;
    const char *revision;
    bool reload_failed; /* the last SIGHUP's configuration was refused */
};

void metrics_write(const struct metrics *metrics, bool openmetrics, struct buf *out);

#endif

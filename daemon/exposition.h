/* The text that Prometheus reads: families of samples, in the text format 0.0.4 or OpenMetrics 1.0.
 *
 * Writes into a buf; no state but that. A family is opened once, then come its samples. Names are
 * given without the prefix coppelius_ where they are ours; a counter's name ends in _total. */
#ifndef COPPELIUS_DAEMON_EXPOSITION_H
#define COPPELIUS_DAEMON_EXPOSITION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "daemon/histogram.h"

struct exposition {
    struct buf *out;
    bool openmetrics;
    char name[128]; /* of the open family, prefix included */
};

enum exposition_type { EXPOSITION_GAUGE, EXPOSITION_COUNTER, EXPOSITION_HISTOGRAM };

#define EXPOSITION_LABELS_SIZE 1024

/* Labels of a sample: `peer="b",direction="sent"`, values escaped; "" for none. */
struct exposition_labels {
    char text[EXPOSITION_LABELS_SIZE];
};

/* Pairs of name and value, then NULL. */
struct exposition_labels exposition_labels(const char *name, ...) __attribute__((sentinel));

void exposition_init(struct exposition *exposition, struct buf *out, bool openmetrics);
void exposition_family(struct exposition *exposition, const char *name, enum exposition_type type,
                       const char *help);
void exposition_u64(struct exposition *exposition, const struct exposition_labels *labels,
                    uint64_t value);
void exposition_f64(struct exposition *exposition, const struct exposition_labels *labels,
                    double value);
void exposition_histogram(struct exposition *exposition, const struct exposition_labels *labels,
                          const struct histogram *histogram);
/* After the last family. */
void exposition_end(struct exposition *exposition);

#endif

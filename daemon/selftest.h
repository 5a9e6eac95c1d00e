/* The golden step: three steps of a small regression on this node's device, held against the bits
 * that NUMERICS.md's independent reference gave. A node that computes others must not train.
 *
 * Blocks for well under a second; any thread but a loop. Binds the device for that time. */
#ifndef COPPELIUS_DAEMON_SELFTEST_H
#define COPPELIUS_DAEMON_SELFTEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gpu/gpu.h"

/* sentence gets what was done, for people; ret_binding (may be NULL) what it was done on.
 * ERR_DEVICE where the device cannot be had (backend NULL: the one that settings ask for),
 * ERR_UNHEALTHY where the bits are wrong. */
int selftest_run(const struct session_settings *settings, const struct session_backend *backend,
                 char *sentence, size_t sentence_size, struct session_binding *ret_binding,
                 struct err *err);

/* The numbers that it trains on, for the test that hands them to the reference. */
float selftest_feature(uint32_t row, uint32_t column);
double selftest_target(uint32_t row);

#endif

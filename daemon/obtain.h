/* The certificates of a start: opened, or got first where a token is in the environment and there
 * is none yet (containers): COPPELIUSD_TOKEN with the addresses of `join`. Before the loop runs;
 * blocks. */
#ifndef COPPELIUS_DAEMON_OBTAIN_H
#define COPPELIUS_DAEMON_OBTAIN_H

#include "daemon/config.h"
#include "trust/trust.h"

#define OBTAIN_MS 60000

/* *ret_trust NULL: tls: off. ERR_CONFIG, ERR_AUTH, ERR_REACH: which file or address, and why. */
int obtain_trust(const struct config *config, struct trust **ret_trust, struct err *err);

#endif

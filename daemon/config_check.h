/* What holds between the keys of the daemon's file: addresses, peers, TLS. Private to config.
 *
 * config_look adds every fault that it finds and leaves the config as it is, where texts that are
 * wrong in themselves are NULL. config_complete follows where there is none: defaults that depend
 * on the machine, node id, advertised address; warnings. */
#ifndef COPPELIUS_DAEMON_CONFIG_CHECK_H
#define COPPELIUS_DAEMON_CONFIG_CHECK_H

#include "daemon/config.h"

struct config_checking {
    struct config *config;
    const struct yaml_places *places;
    const char *file_name;
    const char *const *environment;
    struct faults *faults;
    struct buf *warnings;
    /* Theirs. */
    bool looking;
    char *made[16]; /* while looking: to be freed */
    size_t made_count;
};

void config_look(struct config_checking *checking);
void config_complete(struct config_checking *checking);

#endif

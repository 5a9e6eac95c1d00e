/* A node that is in no cluster yet asks one of its members to let it in.
 *
 * Blocks, before the loop runs. Over the peer port, as coppeliusctl asks; with certificates where
 * there are some. Who is let in the members decide (daemon/membership.c). */
#ifndef COPPELIUS_DAEMON_JOIN_H
#define COPPELIUS_DAEMON_JOIN_H

#include "daemon/roll.h"

struct trust;

struct join_settings {
    const char *cluster;
    const char *name;
    const char *address; /* that others dial */
    const char *role;
    uint8_t uuid[16]; /* of the state folder */
    struct trust *trust;
    const char *const *members; /* "IP:PORT" each, asked in this order */
    size_t members_count;
    bool wait; /* ask again and again until it is let in or refused by a member; else once */
};

/* ERR_AUTH: refused, with the member's sentence. ERR_REACH: none answered. */
int join_cluster(const struct join_settings *settings, struct roll *ret_roll, struct err *err);

#endif

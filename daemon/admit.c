/* Whoever comes with a token: who may become a member. */
#include <stdio.h>
#include <string.h>

#include "daemon/core.h"
#include "daemon/joins.h"

/* A token is as good as `cluster add`: the node is expected from now on, and comes in when its
 * daemon asks with its certificate. One of the first nodes that has never come needs no entry. */
static int expect(struct daemon *daemon, const struct join_wish *wish, struct err *err)
{
    struct command command;
    const struct facts_member ask = {
        .how = FACTS_ADD, .name = wish->name, .address = wish->address, .role = wish->role};
    const struct state_node *known = state_node_named(&daemon->state, wish->name);
    if (known != NULL && known->standing == STANDING_EXPECTED) {
        return 1;
    }
    if (state_node_in(known)) {
        return err_set(
            err, ERR_STATE,
            "the cluster has a node '%s' already; give another --name, or remove that one "
            "first",
            wish->name);
    }
    for (uint32_t i = 0; known == NULL && i < daemon->members_count; i++) {
        if (strcmp(daemon->members[i].name, wish->name) == 0) {
            if (daemon->members[i].self) {
                return err_set(err, ERR_STATE,
                               "node '%s' is the one that you ask; give another --name",
                               wish->name);
            }
            return 1;
        }
    }
    if (membership_command(daemon, &ask, &command, err) != 0) {
        return err->code;
    }
    membership_name(daemon, &command);
    daemon_propose(daemon, &command);
    return 0;
}

int members_admit(void *context, const struct join_wish *wish, struct buf *lines, struct err *err)
{
    static const char *const roles[] = {
        [DAEMON_TRAINER] = "trainer", [DAEMON_ARBITER] = "arbiter", [DAEMON_SPARE] = "spare"};
    struct daemon *daemon = context;
    int code = expect(daemon, wish, err);
    for (uint32_t i = 0; code > 0 && i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        buf_print(lines, "%u %s %s %s\n", member->id, member->name, member->address,
                  roles[member->role]);
    }
    return code;
}

void admit_on_join(void *context, const struct peer_incoming *incoming)
{
    struct daemon *daemon = context;
    if (daemon->joins == NULL || daemon->stopping) {
        struct peer_incoming copy = *incoming;
        transport_close(&copy.transport);
        return;
    }
    joins_take(daemon->joins, incoming);
}

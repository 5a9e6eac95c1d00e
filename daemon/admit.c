/* Whoever comes with a token: who may become a member. */
#include <stdio.h>
#include <string.h>

#include "daemon/core.h"
#include "daemon/joins.h"

int members_admit(void *context, const struct join_wish *wish, struct buf *lines, struct err *err)
{
    static const char *const roles[] = {
        [DAEMON_TRAINER] = "trainer", [DAEMON_ARBITER] = "arbiter", [DAEMON_SPARE] = "spare"};
    struct daemon *daemon = context;
    bool found = false;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        found |= strcmp(member->name, wish->name) == 0;
        buf_print(lines, "%u %s %s %s\n", member->id, member->name, member->address,
                  roles[member->role]);
    }
    if (!found) {
        return err_set(err, ERR_STATE,
                       "node '%s' is not among the members of cluster '%s'; list it in `peers` of "
                       "every config first",
                       wish->name, daemon->cluster);
    }
    return 1;
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

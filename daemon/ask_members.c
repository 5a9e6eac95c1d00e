/* The question `member`: a change of who is in the cluster. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/api_room.h"
#include "daemon/ask_room.h"
#include "daemon/connection.h"
#include "daemon/documents.h"

static void on_member(void *context, const struct facts_result *result)
{
    struct connection *connection = context;
    ASSERT(connection->ask.busy);
    connection->ask.busy = false;
    if (connection->state == CONNECTION_CLOSED) {
        connection_release(connection);
        return;
    }
    if (result->err.code != 0) {
        ask_fail(connection, result->err.code, result->err.text, result->hint);
        return;
    }
    ask_answer(connection,
               document_members(connection->api->settings.facts, connection->ask.member));
}

/* A node that knows no leader asks whether it is still one of us. */
static void ask_standing(struct connection *connection, const struct facts *facts,
                         const Ctl__Member *request)
{
    struct facts_member wish = {
        .name = request->name, .node = request->node, .life = request->life};
    struct err err = {0};
    if (facts->standing == NULL || wish.node == 0) {
        ask_fail(connection, ERR_PROTO, "a question that this daemon does not know", "");
    } else if (facts->standing(facts->daemon, &wish, &err) != 0) {
        ask_fail(connection, err.code, err.text, "");
    } else {
        ask_answer(connection, json_pack("{s:i, s:b}", "schema", 1, "removed", 0));
    }
}

void ask_member(struct connection *connection, const Ctl__Member *request)
{
    static const char *const hows[] = {[FACTS_ADD] = "add",
                                       [FACTS_REMOVE] = "remove",
                                       [FACTS_DRAIN] = "drain",
                                       [FACTS_UNDRAIN] = "undrain",
                                       [FACTS_JOIN] = "join"};
    const struct facts *facts = connection->api->settings.facts;
    struct facts_member wish = {
        .name = request->name, .address = request->address, .role = request->role};
    if (strcmp(request->how, "standing") == 0) {
        ask_standing(connection, facts, request);
        return;
    }
    size_t how = 0;
    while (how < sizeof(hows) / sizeof(hows[0]) && strcmp(hows[how], request->how) != 0) {
        how++;
    }
    bool joins = how == FACTS_JOIN;
    if (how == sizeof(hows) / sizeof(hows[0]) || facts->member == NULL ||
        (joins && request->uuid.len != sizeof(wish.uuid))) {
        ask_fail(connection, ERR_PROTO, "a change of the members that this daemon does not know",
                 "use the coppeliusctl of this daemon's version");
        return;
    }
    wish.how = (enum facts_member_how)how;
    if (joins) {
        memcpy(wish.uuid, request->uuid.data, sizeof(wish.uuid));
        if (connection->node[0] != '\0' && strcmp(connection->node, wish.name) != 0) {
            ask_fail(connection, ERR_AUTH, "the certificate is of a node of another name", "");
            return;
        }
    }
    (void)snprintf(connection->ask.member, sizeof(connection->ask.member), "%s", wish.name);
    struct err err = {0};
    ask_began(connection, facts->member(facts->daemon, &wish, on_member, connection, &err), &err);
}

bool ask_for_itself(const struct connection *connection, const Ctl__Request *request)
{
    return request->ask_case == CTL__REQUEST__ASK_MEMBER && connection->node[0] != '\0' &&
           (strcmp(request->member->how, "join") == 0 ||
            strcmp(request->member->how, "standing") == 0);
}

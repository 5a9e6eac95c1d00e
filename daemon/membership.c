/* Who is in the cluster, as agreed: what a person or a node that joins asks for becomes an entry,
 * and the leader moves the consensus group after the state, a member at a time. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/core.h"

static const char *const role_names[] = {
    [ROLE_TRAINER] = "trainer", [ROLE_ARBITER] = "arbiter", [ROLE_SPARE] = "spare"};

static uint8_t role_of(const char *name)
{
    for (uint8_t role = ROLE_TRAINER; role <= ROLE_SPARE; role++) {
        if (strcmp(name, role_names[role]) == 0) {
            return role;
        }
    }
    return 0;
}

/* THE SEAM for who may come in. Today, without certificates: a node whose name a person expects
 * (`cluster add`), which binds the name to the first identity that asks. A token or a certificate
 * sets ask->authorised where it was checked, before anybody has to expect the name. */
static int authorise(const struct daemon *daemon, const struct facts_member *ask, struct err *err)
{
    const struct state_node *known = state_node_named(&daemon->state, ask->name);
    if (ask->authorised || (known != NULL && known->standing == STANDING_EXPECTED)) {
        return 0;
    }
    for (uint32_t i = 0; i < daemon->state.nodes_count; i++) {
        const struct state_node *node = &daemon->state.nodes[i];
        if (memcmp(node->uuid, ask->uuid, sizeof(node->uuid)) == 0) {
            return node->standing == STANDING_REMOVED
                       ? err_set(err, ERR_AUTH,
                                 "node '%s' was removed from the cluster; its state folder is of "
                                 "no use any more: empty it, and add the node anew with "
                                 "'coppeliusctl cluster add %s'",
                                 node->name, node->name)
                       : 0; /* It is in already and asks again. */
        }
    }
    if (state_node_in(known)) {
        return err_set(
            err, ERR_AUTH,
            "the cluster has a node '%s' with another identity; where its disk was lost, "
            "'coppeliusctl cluster add %s' lets the new one take its place",
            ask->name, ask->name);
    }
    return err_set(err, ERR_AUTH,
                   "nobody expects a node '%s'; let it in with 'coppeliusctl cluster add %s'",
                   ask->name, ask->name);
}

static int check_name(const struct facts_member *ask, struct err *err)
{
    size_t size = strlen(ask->name);
    if (size == 0 || size >= COMMAND_NAME_SIZE || strlen(ask->address) >= COMMAND_ADDRESS_SIZE) {
        return err_set(err, ERR_USAGE,
                       "a node's name has 1 to %d characters, its address is "
                       "IP:PORT",
                       COMMAND_NAME_SIZE - 1);
    }
    struct sockaddr_in address;
    if (ask->address[0] != '\0' && peer_address_parse(ask->address, &address, err) != 0) {
        return err_prefix(err, "node '%s': ", ask->name);
    }
    return 0;
}

static int member_command(const struct daemon *daemon, const struct facts_member *ask,
                          struct command *ret_command, struct err *err)
{
    struct command_member *member = &ret_command->member;
    if (check_name(ask, err) != 0) {
        return err->code;
    }
    if (ask->how == FACTS_JOIN && authorise(daemon, ask, err) != 0) {
        return err->code;
    }
    ret_command->kind = COMMAND_MEMBER;
    member->how = ask->how == FACTS_ADD ? MEMBER_EXPECT
                  : ask->authorised     ? MEMBER_ADMIT
                                        : MEMBER_JOIN;
    member->role = ask->role[0] == '\0' ? ROLE_TRAINER : role_of(ask->role);
    if (member->role == 0) {
        return err_set(err, ERR_USAGE, "role '%.32s': trainer, arbiter or spare", ask->role);
    }
    memcpy(member->uuid, ask->uuid, sizeof(member->uuid));
    (void)snprintf(member->name, sizeof(member->name), "%s", ask->name);
    (void)snprintf(member->address, sizeof(member->address), "%s", ask->address);
    const struct state_node *known = state_node_named(&daemon->state, ask->name);
    if (ask->how == FACTS_ADD && state_node_in(known) && known->id == daemon->node_id) {
        return err_set(err, ERR_STATE,
                       "node '%s' is this node, which answers you: ask another one to replace it",
                       ask->name);
    }
    return 0;
}

/* The node as the state has it; one of the first that has not come yet has an id only. */
static int find_node(const struct daemon *daemon, const char *name, uint32_t *ret_node,
                     uint32_t *ret_life, struct err *err)
{
    const struct state_node *known = state_node_named(&daemon->state, name);
    if (known != NULL && known->standing != STANDING_REMOVED) {
        *ret_node = known->id;
        *ret_life = known->life;
        return 0;
    }
    if (known != NULL) {
        return err_set(err, ERR_STATE, "node '%s' was removed already", name);
    }
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        if (strcmp(daemon->members[i].name, name) == 0) {
            *ret_node = daemon->members[i].id;
            *ret_life = daemon->members[i].life;
            return 0;
        }
    }
    return err_set(err, ERR_NOT_FOUND,
                   "no node '%.63s': 'coppeliusctl cluster status' lists those that there are",
                   name);
}

int membership_command(const struct daemon *daemon, const struct facts_member *ask,
                       struct command *ret_command, struct err *err)
{
    memset(ret_command, 0, sizeof(*ret_command));
    if (ask->how == FACTS_ADD || ask->how == FACTS_JOIN) {
        return member_command(daemon, ask, ret_command, err);
    }
    uint32_t node = 0;
    uint32_t life = 0;
    if (find_node(daemon, ask->name, &node, &life, err) != 0) {
        return err->code;
    }
    if (ask->how == FACTS_REMOVE) {
        uint32_t others = 0;
        for (uint32_t i = 0; i < daemon->state.nodes_count; i++) {
            const struct state_node *other = &daemon->state.nodes[i];
            others += other->id != node && state_node_in(other) && other->role != ROLE_SPARE;
        }
        if (others == 0) {
            return err_set(err, ERR_STATE, "node '%s' is the last one that votes", ask->name);
        }
        ret_command->kind = COMMAND_REMOVE;
        ret_command->remove.node = node;
        ret_command->remove.life = life;
        (void)snprintf(ret_command->remove.name, sizeof(ret_command->remove.name), "%s", ask->name);
        (void)snprintf(ret_command->remove.reason, sizeof(ret_command->remove.reason),
                       "node '%s' was removed", ask->name);
        return 0;
    }
    const struct state_node *known = state_node(&daemon->state, node);
    if (!state_node_in(known)) {
        return err_set(err, ERR_STATE, "node '%s' is not in yet", ask->name);
    }
    ret_command->kind = COMMAND_DRAIN;
    ret_command->drain.node = node;
    ret_command->drain.life = life;
    ret_command->drain.drained = ask->how == FACTS_DRAIN;
    return 0;
}

void membership_name(const struct daemon *daemon, struct command *command)
{
    if (command->kind != COMMAND_MEMBER || command->member.how == MEMBER_JOIN) {
        return;
    }
    uint64_t taken = 0; /* The first nodes that have not come yet. */
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        if (state_node(&daemon->state, member->id) == NULL) {
            taken |= UINT64_C(1) << (member->id - 1);
        }
    }
    uint32_t node = 0;
    uint32_t life = 0;
    if (state_free_place(&daemon->state, taken, &node, &life)) {
        command->member.node = node;
        command->member.life = life;
    }
}

bool membership_settled(const struct daemon *daemon, const struct command *command)
{
    const struct state *state = &daemon->state;
    if (command->kind == COMMAND_REMOVE) {
        const struct state_node *node = state_node(state, command->remove.node);
        return node != NULL &&
               (node->life != command->remove.life || node->standing == STANDING_REMOVED);
    }
    if (command->kind == COMMAND_DRAIN) {
        const struct state_node *node = state_node(state, command->drain.node);
        return node == NULL || node->life != command->drain.life || !state_node_in(node) ||
               node->drained == command->drain.drained;
    }
    ASSERT(command->kind == COMMAND_MEMBER);
    if (command->member.how == MEMBER_EXPECT) {
        const struct state_node *node = state_node_named(state, command->member.name);
        return node != NULL && node->standing == STANDING_EXPECTED &&
               node->role == command->member.role;
    }
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        if (memcmp(state->nodes[i].uuid, command->member.uuid, COMMAND_UUID_SIZE) == 0) {
            return true;
        }
    }
    return false;
}

/* The leader moves the group after the state. */
void membership_turn(struct daemon *daemon)
{
    struct control_group wanted;
    if (!control_leads(daemon->control)) {
        return;
    }
    state_wanted_group(&daemon->state, control_group(daemon->control, NULL), &wanted);
    if (control_converge(daemon->control, &wanted)) {
        const struct control_group *now = control_group(daemon->control, NULL);
        daemon_event(daemon, "the group has %u members, %u of them vote", now->count,
                     group_voters(now));
    }
}

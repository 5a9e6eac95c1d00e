/* Who is in the cluster, as agreed: what a person or a node that joins asks for becomes an entry,
 * and the leader moves the consensus group after the state, a member at a time. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/core.h"
#include "daemon/roll.h"

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

/* Who may come in: a node whose name a person expects (`cluster add`, or a token: admit.c), which
 * binds the name to the first identity that asks. A certificate of that name is needed as well
 * where there is TLS, and is no leave of its own: it lives on when its name was removed and
 * forgotten. */
static int authorise(const struct daemon *daemon, const struct facts_member *ask, struct err *err)
{
    const struct state_node *known = state_node_named(&daemon->state, ask->name);
    for (uint32_t i = 0; known == NULL && i < daemon->members_count; i++) {
        if (strcmp(daemon->members[i].name, ask->name) == 0) {
            return err_set(err, ERR_STATE,
                           "node '%s' is one of the first and has its place among the peers",
                           ask->name);
        }
    }
    if (known != NULL && known->standing == STANDING_EXPECTED) {
        return 0;
    }
    for (uint32_t i = 0; i < daemon->state.nodes_count; i++) {
        const struct state_node *node = &daemon->state.nodes[i];
        if (memcmp(node->uuid, ask->uuid, sizeof(node->uuid)) == 0 &&
            strcmp(node->name, ask->name) == 0) {
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

/* Two nodes at one address, or one on loopback beside one that is not, cannot meet. */
static int check_pairs(const struct daemon *daemon, const struct facts_member *ask, struct err *err)
{
    struct sockaddr_in address;
    if (ask->address[0] == '\0' || peer_address_parse(ask->address, &address, NULL) != 0) {
        return 0;
    }
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        struct sockaddr_in other;
        if (strcmp(member->name, ask->name) == 0 ||
            peer_address_parse(member->address, &other, NULL) != 0) {
            continue;
        }
        if (memcmp(&address, &other, sizeof(address)) == 0) {
            return err_set(err, ERR_USAGE,
                           "nodes '%s' and '%s' have the same address %s; set `advertise` in the "
                           "config of '%s' to its own",
                           member->name, ask->name, ask->address, ask->name);
        }
        bool near = ntohl(address.sin_addr.s_addr) >> 24 == 127;
        bool other_near = ntohl(other.sin_addr.s_addr) >> 24 == 127;
        if (near != other_near) {
            return err_set(err, ERR_USAGE,
                           "nodes '%s' (%s) and '%s' (%s) cannot reach each other: one address is "
                           "loopback, the other is not; set `advertise` of the one that is",
                           member->name, member->address, ask->name, ask->address);
        }
    }
    return 0;
}

static int member_command(const struct daemon *daemon, const struct facts_member *ask,
                          struct command *ret_command, struct err *err)
{
    struct command_member *member = &ret_command->member;
    if (check_name(ask, err) != 0 || check_pairs(daemon, ask, err) != 0) {
        return err->code;
    }
    if (ask->how == FACTS_JOIN && authorise(daemon, ask, err) != 0) {
        return err->code;
    }
    ret_command->kind = COMMAND_MEMBER;
    member->how = ask->how == FACTS_ADD ? MEMBER_EXPECT : MEMBER_JOIN;
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

/* ---- what follows from the state ---- */

static void tell_mesh(struct daemon *daemon, const struct member *member)
{
    struct mesh_peer peer = {member->id, member->life, member->name, member->address};
    struct err err = {0};
    if (daemon->mesh != NULL && mesh_add_peer(daemon->mesh, &peer, &err) != 0) {
        log_error("members.peer", "node=%s error=\"%s\" next=\"it is not dialled\"", member->name,
                  err.text);
    }
}

static void let_go(struct daemon *daemon, uint32_t id, const char *reason)
{
    if (daemon->mesh != NULL) {
        mesh_remove_peer(daemon->mesh, id, reason);
    }
    members_drop(daemon, id);
}

/* The member is as the state says; true: it was not. */
static bool follow(struct daemon *daemon, const struct state_node *node)
{
    struct member *member = members_get(daemon, node->id);
    bool same = member != NULL && member->life == node->life &&
                strcmp(member->name, node->name) == 0 &&
                (node->address[0] == '\0' || strcmp(member->address, node->address) == 0);
    if (!state_node_in(node)) {
        if (member == NULL || member->life > node->life || member->self ||
            (node->standing == STANDING_EXPECTED && member->life == node->life)) {
            return false;
        }
        daemon_event(daemon, "node %s is no member any more", member->name);
        if (node->standing == STANDING_REMOVED && node->life == member->life &&
            state_node_named(&daemon->state, member->name) == node) {
            standing_say_out(daemon, member);
        }
        let_go(daemon, node->id, "it was removed from the cluster");
        return true;
    }
    if (same || node->address[0] == '\0' || (member != NULL && member->self)) {
        return false;
    }
    if (member != NULL) {
        let_go(daemon, node->id, "it has another identity or address now");
    }
    member = members_put(daemon, node->id);
    member->life = node->life;
    member->role = (enum daemon_role)node->role;
    (void)snprintf(member->name, sizeof(member->name), "%s", node->name);
    (void)snprintf(member->address, sizeof(member->address), "%s", node->address);
    (void)snprintf(member->reason, sizeof(member->reason), "not yet connected");
    tell_mesh(daemon, member);
    daemon_event(daemon, "node %s is a member", member->name);
    return true;
}

void members_out(struct daemon *daemon, const char *by)
{
    struct err err = {0};
    (void)err_set(&err, ERR_STATE,
                  "node '%s' was removed from the cluster%s%s%s; where it shall come back, empty "
                  "its state_dir '%s', say 'coppeliusctl cluster add %s' on a member, and start it",
                  daemon->name, by[0] != '\0' ? " while it was away, as node '" : "", by,
                  by[0] != '\0' ? "' says" : "", daemon->state_dir, daemon->name);
    daemon->log_failed = true; /* It decides nothing any more. */
    daemon->hooks.on_failed(daemon->hooks.context, &err);
}

/* This node is out, or somebody else is what it thinks that it is. */
static void check_self(struct daemon *daemon)
{
    const struct state_node *self = state_node(&daemon->state, daemon->node_id);
    static const uint8_t none[COMMAND_UUID_SIZE];
    if (self == NULL || daemon->log_failed || !control_caught_up(daemon->control)) {
        return;
    }
    bool other =
        self->life != daemon->life || (memcmp(self->uuid, none, sizeof(none)) != 0 &&
                                       memcmp(self->uuid, daemon->uuid, sizeof(self->uuid)) != 0);
    if (!other && self->standing != STANDING_REMOVED) {
        return;
    }
    members_out(daemon, "");
}

static void keep_roll(struct daemon *daemon)
{
    static const char *const roles[] = {"", "trainer", "arbiter", "spare"};
    struct roll *roll = calloc(1, sizeof(*roll));
    struct err err = {0};
    ASSERT(roll != NULL);
    roll->node = daemon->node_id;
    roll->life = daemon->life;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        struct roll_entry *entry = &roll->entries[roll->count++];
        entry->node = member->id;
        entry->life = member->life;
        (void)snprintf(entry->name, sizeof(entry->name), "%s", member->name);
        (void)snprintf(entry->address, sizeof(entry->address), "%s", member->address);
        (void)snprintf(entry->role, sizeof(entry->role), "%s", roles[member->role]);
    }
    if (roll_write(daemon->fs, roll, &err) != 0) {
        log_error("members.roll", "error=\"%s\" next=\"written at the next change\"", err.text);
        daemon->members_seen = 0;
    }
    free(roll);
}

static void follow_all(struct daemon *daemon)
{
    bool changed = false;
    if (daemon->members_seen == daemon->state.changes) {
        return;
    }
    daemon->members_seen = daemon->state.changes;
    for (int turn = 0; turn < 2; turn++) { /* who is out first: another one may have its name */
        for (uint32_t i = 0; i < daemon->state.nodes_count; i++) {
            const struct state_node *node = &daemon->state.nodes[i];
            if (state_node_in(node) == (turn == 1)) {
                changed = follow(daemon, node) || changed;
            }
        }
    }
    members_tell_trust(daemon);
    if (changed) {
        keep_roll(daemon);
    }
    check_self(daemon);
}

/* The list here, the mesh and the roll follow the state; the leader moves the group after it. */
void membership_turn(struct daemon *daemon)
{
    struct control_group wanted;
    follow_all(daemon);
    if (daemon->log_failed || !control_leads(daemon->control)) {
        return;
    }
    state_wanted_group(&daemon->state, control_group(daemon->control, NULL), &wanted);
    for (uint32_t i = 0; i < daemon->members_count; i++) { /* a spare among the first nodes */
        const struct member *member = &daemon->members[i];
        uint32_t id = member_id(member->id, member->life);
        if (state_node(&daemon->state, member->id) == NULL && group_get(&wanted, id) == NULL) {
            group_set(&wanted, id, false);
        }
    }
    if (control_converge(daemon->control, &wanted)) {
        const struct control_group *now = control_group(daemon->control, NULL);
        daemon_event(daemon, "the group has %u members, %u of them vote", now->count,
                     group_voters(now));
    }
}

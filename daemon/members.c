/* Who is there: heartbeats that carry progress, and the view that the coordinator decides on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include <peer.pb-c.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/core.h"
#include "daemon/preflight.h"
#include "gpu/gpu.h"
#include "proto/message.h"

#define PULSE_MS 1000U /* of the flight recorder */

int members_init(struct daemon *daemon, const struct daemon_settings *settings, struct err *err)
{
    if (settings->peers_count == 0 || settings->peers_count > STATE_NODES_MAX) {
        return err_set(err, ERR_CONFIG, "peers: %zu nodes; 1 to %d are possible",
                       settings->peers_count, STATE_NODES_MAX);
    }
    for (size_t i = 0; i < settings->peers_count; i++) {
        const struct daemon_peer *peer = &settings->peers[i];
        struct member *member = &daemon->members[i];
        ASSERT(i == 0 || peer->id > settings->peers[i - 1].id);
        member->id = peer->id;
        member->life = peer->life;
        member->role = peer->role;
        member->self = peer->id == daemon->node_id;
        (void)snprintf(member->name, sizeof(member->name), "%s", peer->name);
        (void)snprintf(member->address, sizeof(member->address), "%s", peer->address);
        if (!member->self) {
            (void)snprintf(member->reason, sizeof(member->reason), "not yet connected");
        }
    }
    daemon->members_count = (uint32_t)settings->peers_count;
    struct member *self = members_self(daemon);
    self->incarnation = daemon->incarnation;
    self->heard = true;
    (void)snprintf(self->progress.version, sizeof(self->progress.version), "%s", DAEMON_VERSION);
    self->progress.threads = daemon->threads;
    members_tell_trust(daemon);
    standing_init(daemon);
    return 0;
}

/* Members, and who may come and join: their certificates are let in. */
void members_tell_trust(struct daemon *daemon)
{
    const char *names[2 * STATE_NODES_MAX];
    size_t count = 0;
    const char *removed[STATE_NODES_MAX];
    size_t removed_count = 0;
    if (daemon->trust == NULL) {
        return;
    }
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        names[count++] = daemon->members[i].name;
    }
    for (uint32_t i = 0; i < daemon->state.nodes_count; i++) {
        const struct state_node *node = &daemon->state.nodes[i];
        const struct state_node *now = state_node_named(&daemon->state, node->name);
        if (node->standing == STANDING_EXPECTED) {
            names[count++] = node->name;
        }
        if (node->standing == STANDING_REMOVED && now != NULL &&
            now->standing == STANDING_REMOVED) {
            removed[removed_count++] = node->name;
        }
    }
    trust_set_removed(daemon->trust, removed, removed_count);
    size_t cut = trust_set_members(daemon->trust, names, count);
    if (cut > 0) {
        log_notice("trust.cut", "connections=%zu reason=\"their nodes are no members any more\"",
                   cut);
    }
}

struct member *members_get(struct daemon *daemon, uint32_t id)
{
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        if (daemon->members[i].id == id) {
            return &daemon->members[i];
        }
    }
    return NULL;
}

/* Whoever is named in the state may have been removed since: then somebody who is not there. */
struct member *members_find(struct daemon *daemon, uint32_t id)
{
    struct member *member = members_get(daemon, id);
    if (member != NULL) {
        return member;
    }
    struct member *nobody = &daemon->nobody;
    *nobody = (struct member){.id = id, .role = DAEMON_TRAINER};
    (void)snprintf(nobody->name, sizeof(nobody->name), "%s", state_node_name(&daemon->state, id));
    (void)snprintf(nobody->reason, sizeof(nobody->reason), "it is no member any more");
    return nobody;
}

struct member *members_put(struct daemon *daemon, uint32_t id)
{
    ASSERT(daemon->members_count < STATE_NODES_MAX);
    uint32_t at = daemon->members_count++;
    for (; at > 0 && daemon->members[at - 1].id > id; at--) {
        daemon->members[at] = daemon->members[at - 1];
    }
    daemon->members[at] = (struct member){.id = id};
    return &daemon->members[at];
}

void members_drop(struct daemon *daemon, uint32_t id)
{
    struct member *member = members_get(daemon, id);
    ASSERT(member != NULL);
    uint32_t at = (uint32_t)(member - daemon->members);
    daemon->members_count--;
    for (; at < daemon->members_count; at++) {
        daemon->members[at] = daemon->members[at + 1];
    }
}

struct member *members_self(struct daemon *daemon)
{
    return members_find(daemon, daemon->node_id);
}

void members_on_up(struct daemon *daemon, uint32_t id, uint64_t incarnation)
{
    struct member *member = members_find(daemon, id);
    member->incarnation = incarnation;
    member->heard = true;
    member->heard_ms = clock_now_ms();
    member->reason[0] = '\0';
    memset(&member->progress, 0, sizeof(member->progress));
    memset(&member->data, 0, sizeof(member->data));
    member->log_empty = false;
    member->caught_up = false;
    member->knows_self = 0;
    member->unfit[0] = '\0';
    daemon_event(daemon, "node %s is connected", member->name);
    members_heartbeat(daemon, true);
    daemon_soon(daemon);
}

void members_on_down(struct daemon *daemon, uint32_t id, const char *reason)
{
    struct member *member = members_find(daemon, id);
    lost_name(daemon, member, "is gone",
              member->progress.stopping ? "it was asked to stop" : reason);
}

static void take_text(char *text, size_t capacity, const char *value)
{
    (void)snprintf(text, capacity, "%s", value != NULL ? value : "");
}

void members_on_progress(struct daemon *daemon, uint32_t id, const uint8_t *bytes, size_t size)
{
    struct err err = {0};
    ProtobufCMessage *message = NULL;
    if (message_unpack(&peer__progress__descriptor, bytes, size, &message, &err) != 0) {
        log_warning("mesh.progress", "from=%u error=\"%s\" next=\"dropped\"", id, err.text);
        return;
    }
    const Peer__Progress *said = (const Peer__Progress *)message;
    struct member *member = members_find(daemon, id);
    struct progress *progress = &member->progress;
    struct coordinator_report before = progress->captured;
    bool failed_before = progress->failed_here && progress->generation == said->generation;
    member->heard = true;
    member->heard_ms = clock_now_ms();
    member->incarnation = said->incarnation;
    progress->job = said->job;
    progress->generation = said->generation;
    progress->step = said->step;
    progress->has_loss = said->has_loss;
    progress->loss = said->loss;
    progress->first_loss = said->first_loss;
    progress->rows = said->rows;
    progress->elapsed_ns = said->elapsed_ns;
    progress->compute_ns = said->compute_ns;
    progress->exchange_ns = said->exchange_ns;
    progress->publication_ns = said->publication_ns;
    progress->sent_bytes = said->sent_bytes;
    progress->received_bytes = said->received_bytes;
    progress->storage_free_bytes = said->storage_free_bytes;
    progress->threads = said->threads;
    take_text(progress->phase, sizeof(progress->phase), said->phase);
    take_text(progress->trouble, sizeof(progress->trouble), said->trouble);
    progress->failed_here = said->failed_here;
    progress->stopping = said->stopping;
    if (member->unfit[0] != '\0' && said->unfit[0] == '\0') {
        member->reason[0] = '\0';
        daemon_event(daemon, "node %s can work again", member->name);
    }
    take_text(member->unfit, sizeof(member->unfit), said->unfit);
    if (said->failed_here && !failed_before) {
        lost_name(daemon, member, "has failed", progress->trouble);
    }
    take_text(progress->version, sizeof(progress->version), said->version);
    take_text(progress->backend, sizeof(progress->backend), said->backend);
    progress->captured = (struct coordinator_report){said->captured_job, said->captured_generation,
                                                     said->captured_step, said->captured_ends};
    member->log_empty = said->log_empty;
    member->caught_up = said->caught_up;
    member->data.job = said->data_job;
    member->data.has = said->data_job != 0 && said->dataset.len == sizeof(member->data.dataset);
    if (member->data.has) {
        memcpy(member->data.dataset, said->dataset.data, sizeof(member->data.dataset));
    }
    take_text(member->data.missing, sizeof(member->data.missing), said->data_missing);
    member->knows_self = said->n_known >= daemon->node_id ? said->known[daemon->node_id - 1] : 0;
    if (memcmp(&before, &progress->captured, sizeof(before)) != 0 || daemon->newcomer) {
        daemon_soon(daemon);
    }
    message_free(message);
}

static void measure_self(struct daemon *daemon)
{
    struct member *self = members_self(daemon);
    struct statvfs status;
    self->progress.storage_free_bytes = UINT64_MAX;
    if (statvfs(daemon->state_dir, &status) == 0) {
        self->progress.storage_free_bytes = (uint64_t)status.f_bavail * (uint64_t)status.f_frsize;
    }
    publish_report(daemon, &self->progress.captured);
    take_text(self->progress.backend, sizeof(self->progress.backend), daemon->backend);
}

void members_heartbeat(struct daemon *daemon, bool now)
{
    uint64_t now_ms = clock_now_ms();
    struct member *self = members_self(daemon);
    self->heard_ms = now_ms;
    if (daemon->mesh == NULL || daemon->control == NULL ||
        (!now && now_ms - daemon->heartbeat_ms < DAEMON_HEARTBEAT_MS)) {
        return;
    }
    daemon->heartbeat_ms = now_ms;
    measure_self(daemon);
    struct progress *progress = &self->progress;
    if (progress->job != 0 && now_ms - daemon->pulse_ms >= PULSE_MS) {
        daemon->pulse_ms = now_ms;
        daemon_record(daemon, "pulse", "%s", "");
    }
    Peer__Progress said;
    peer__progress__init(&said);
    said.node_id = daemon->node_id;
    said.incarnation = daemon->incarnation;
    said.job = progress->job;
    said.generation = progress->generation;
    said.step = progress->step;
    said.phase = progress->phase;
    said.has_loss = progress->has_loss;
    said.loss = progress->loss;
    said.first_loss = progress->first_loss;
    said.rows = progress->rows;
    said.elapsed_ns = progress->elapsed_ns;
    said.compute_ns = progress->compute_ns;
    said.exchange_ns = progress->exchange_ns;
    said.publication_ns = progress->publication_ns;
    said.sent_bytes = progress->sent_bytes;
    said.received_bytes = progress->received_bytes;
    said.captured_job = progress->captured.job;
    said.captured_generation = progress->captured.generation;
    said.captured_step = progress->captured.step;
    said.captured_ends = progress->captured.ends;
    said.storage_free_bytes = progress->storage_free_bytes;
    said.trouble = progress->trouble;
    said.failed_here = progress->failed_here;
    said.stopping = daemon->stopping;
    said.unfit = self->unfit;
    said.version = progress->version;
    said.threads = progress->threads;
    said.backend = progress->backend;
    struct control_stats log;
    said.data_job = self->data.job;
    said.data_missing = self->data.missing;
    if (self->data.has) {
        said.dataset.data = self->data.dataset;
        said.dataset.len = sizeof(self->data.dataset);
    }
    uint64_t known[STATE_NODES_MAX];
    control_stats(daemon->control, &log);
    said.log_empty = log.last_index == 0;
    said.caught_up = control_caught_up(daemon->control);
    said.n_known = daemon->members[daemon->members_count - 1].id;
    said.known = known;
    for (uint32_t i = 0; i < said.n_known; i++) {
        const struct state_node *node = state_node(&daemon->state, i + 1);
        known[i] = node != NULL ? node->incarnation : 0;
    }
    size_t size = peer__progress__get_packed_size(&said);
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    ASSERT(bytes != NULL);
    (void)peer__progress__pack(&said, bytes);
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        struct err err = {0};
        if (!daemon->members[i].self && mesh_is_up(daemon->mesh, daemon->members[i].id)) {
            (void)mesh_send(daemon->mesh, daemon->members[i].id, FRAME_PROGRESS, bytes, size,
                            &err); /* The next one says it again. */
        }
    }
    free(bytes);
}

void members_view(struct daemon *daemon, struct coordinator_view *ret_view)
{
    memset(ret_view, 0, sizeof(*ret_view));
    ret_view->now_ms = clock_now_ms();
    ret_view->wall_ms = daemon_wall_ms();
    ret_view->leading = daemon->control != NULL && control_leads(daemon->control);
    ret_view->nodes_count = daemon->members_count;
    ret_view->reach = preflight_reach(daemon);
    publish_report(daemon, &members_self(daemon)->progress.captured);
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        struct coordinator_node *node = &ret_view->nodes[i];
        node->id = member->id;
        node->role = (uint8_t)member->role;
        node->name = member->name;
        node->heard = member->heard;
        node->heard_ms = member->self ? ret_view->now_ms : member->heard_ms;
        node->incarnation = member->incarnation;
        node->captured = member->progress.captured;
        node->unfit = member->unfit;
    }
}

enum facts_node_state members_state(const struct daemon *daemon, const struct member *member)
{
    if (member->self) {
        return FACTS_ALIVE;
    }
    uint64_t now = clock_now_ms();
    if (!member->heard || now - member->heard_ms > COORDINATOR_SUSPECT_MS) {
        return FACTS_DOWN;
    }
    return daemon->mesh != NULL && mesh_is_up(daemon->mesh, member->id) &&
                   now - member->heard_ms < 1000
               ? FACTS_ALIVE
               : FACTS_SUSPECT;
}

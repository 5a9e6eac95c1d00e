/* What comes from other nodes over the mesh goes to whom it is for. */
#include "base/log.h"
#include "daemon/core.h"
#include "daemon/preflight.h"
#include "daemon/run.h"
#include "daemon/serve.h"
#include "daemon/verdict.h"

static void on_up(void *context, uint32_t node_id, uint64_t incarnation)
{
    struct daemon *daemon = context;
    if (daemon->control != NULL && !daemon->log_failed) {
        control_reconnected(daemon->control,
                            member_id(node_id, members_find(daemon, node_id)->life));
    }
    members_on_up(daemon, node_id, incarnation);
    verdict_on_up(daemon, node_id);
    preflight_on_up(daemon, node_id);
}

static void on_down(void *context, uint32_t node_id, const char *reason)
{
    members_on_down(context, node_id, reason);
}

static void on_message(void *context, uint32_t node_id, uint16_t kind, const uint8_t *bytes,
                       size_t size)
{
    struct daemon *daemon = context;
    struct err err = {0};
    switch (kind) {
    case FRAME_RAFT:
        if (daemon->control == NULL || daemon->log_failed || daemon->newcomer) {
            return;
        }
        if (control_receive(daemon->control,
                            member_id(node_id, members_find(daemon, node_id)->life), bytes, size,
                            &err) != 0) {
            log_warning("control.message", "from=%u error=\"%s\" next=\"dropped\"", node_id,
                        err.text);
        }
        return;
    case FRAME_PROGRESS:
        members_on_progress(daemon, node_id, bytes, size);
        return;
    case FRAME_RENEW:
        renew_on_request(daemon, node_id, bytes, size);
        return;
    case FRAME_RENEWED:
        renew_on_answer(daemon, bytes, size);
        return;
    case FRAME_SHARD:
        publish_on_word(daemon, node_id, bytes, size);
        return;
    case FRAME_RECORDS_ASK:
        verdict_on_ask(daemon, node_id, bytes, size);
        return;
    case FRAME_RECORDS:
        verdict_on_records(daemon, node_id, bytes, size);
        return;
    case FRAME_PROBE_ASK:
        preflight_on_ask(daemon, node_id, bytes, size);
        return;
    case FRAME_PROBE_ROW:
        preflight_on_row(daemon, node_id, bytes, size);
        return;
    case FRAME_OUT:
        standing_on_out(daemon, node_id, bytes, size);
        return;
    case FRAME_VERDICT:
        verdict_on_text(daemon, node_id, bytes, size);
        return;
    default:
        log_warning("mesh.message", "from=%u kind=%u next=\"dropped\"", node_id, kind);
        return;
    }
}

static void on_bulk(void *context, const struct peer_incoming *incoming)
{
    run_adopt(context, incoming);
}

static void on_data(void *context, const struct peer_incoming *incoming)
{
    struct daemon *daemon = context;
    serve_take(daemon->serve, incoming);
}

static void on_probe(void *context, const struct peer_incoming *incoming)
{
    preflight_take(context, incoming);
}

static void on_ctl(void *context, const struct peer_incoming *incoming)
{
    struct daemon *daemon = context;
    if (daemon->hooks.on_ctl == NULL || daemon->stopping) {
        struct peer_incoming copy = *incoming;
        peer_refuse(&copy, ERR_BUSY, "this daemon is stopping");
        return;
    }
    daemon->hooks.on_ctl(daemon->hooks.context, incoming);
}

int daemon_open_mesh(struct daemon *daemon, const char *listen, struct err *err)
{
    struct mesh_peer peers[STATE_NODES_MAX];
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        peers[i] = (struct mesh_peer){daemon->members[i].id, daemon->members[i].life,
                                      daemon->members[i].name, daemon->members[i].address};
    }
    struct mesh_settings settings = {
        .cluster = daemon->cluster,
        .name = daemon->name,
        .node_id = daemon->node_id,
        .life = daemon->life,
        .incarnation = daemon->incarnation,
        .listen = listen,
        .peers = peers,
        .peers_count = daemon->members_count,
        .trust = daemon->trust,
        .context = daemon,
        .on_up = on_up,
        .on_down = on_down,
        .on_message = on_message,
        .on_bulk = on_bulk,
        .on_ctl = on_ctl,
        .on_data = on_data,
        .on_probe = on_probe,
        .on_join = daemon->joins != NULL ? admit_on_join : NULL,
    };
    return mesh_open(&settings, daemon->loop, &daemon->mesh, err);
}

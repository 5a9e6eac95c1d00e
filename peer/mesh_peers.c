/* Peers that come and go while the mesh is open. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "peer/mesh_room.h"

/* Its place: that of the peer that had the id before, or a new one. */
static struct peer_state *place_of(struct mesh *mesh, uint32_t node_id)
{
    for (size_t i = 0; i < mesh->peers_count; i++) {
        if (mesh->peers[i].node_id == node_id) {
            ASSERT(mesh->peers[i].removed);
            return &mesh->peers[i];
        }
    }
    return NULL;
}

int mesh_add_peer(struct mesh *mesh, const struct mesh_peer *from, struct err *err)
{
    ASSERT(mesh_find(mesh, from->node_id) == NULL);
    ASSERT(!mesh->closing);
    struct peer_state *peer = place_of(mesh, from->node_id);
    bool fresh = peer == NULL;
    peer = fresh ? &mesh->peers[mesh->peers_count] : peer;
    if (mesh_take_peer(mesh, peer, from, err) != 0) {
        return err->code; /* Ids are below PEER_NODES_MAX, each has one place. */
    }
    if (fresh) {
        ASSERT(uv_timer_init(mesh->loop, &peer->retry) == 0);
        mesh->peers_count++;
        mesh->handles++;
    }
    if (mesh_ours_to_dial(peer)) {
        ASSERT(uv_timer_start(&peer->retry, mesh_on_retry, 0, 0) == 0);
    }
    return 0;
}

void mesh_remove_peer(struct mesh *mesh, uint32_t node_id, const char *reason)
{
    struct peer_state *peer = mesh_find(mesh, node_id);
    if (peer == NULL || mesh->closing) {
        return;
    }
    struct err err = {0};
    (void)err_set(&err, ERR_PEER, "%s", reason);
    peer->removed = true; /* Nobody dials it again. */
    (void)uv_timer_stop(&peer->retry);
    if (peer->connection != NULL) {
        mesh_fail(peer->connection, &err, false);
    }
    peer->incarnation = 0;
}

bool mesh_peer_stats_of(const struct mesh *mesh, uint32_t node_id,
                        struct mesh_peer_stats *ret_stats)
{
    const struct peer_state *peer = mesh_find(mesh, node_id);
    if (peer == NULL) {
        return false;
    }
    mesh_peer_stats(mesh, (size_t)(peer - mesh->peers), ret_stats);
    return true;
}

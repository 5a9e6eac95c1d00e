/* Questions about checkpoints: listing them, a piece of a file, comparing all, keeping fewer. */
#include <string.h>

#include "base/assert.h"
#include "daemon/api_room.h"
#include "daemon/ask_room.h"
#include "daemon/documents.h"
#include "daemon/piece.h"

static struct facts_epoch epoch_read; /* Large: the loop's only copy. */

static void on_piece(void *context, const struct piece *piece)
{
    struct connection *connection = context;
    ASSERT(connection->ask.busy);
    connection->ask.busy = false;
    if (connection->state == CONNECTION_CLOSED) {
        connection_release(connection);
        return;
    }
    if (piece->err.code != 0) {
        ask_fail(connection, piece->err.code, piece->err.text,
                 "`coppeliusctl checkpoint list` says which epochs there are");
        return;
    }
    union {
        const uint8_t *in;
        uint8_t *out;
    } bytes = {piece->bytes};
    Ctl__Reply reply;
    ctl__reply__init(&reply);
    reply.id = connection->ask.id;
    reply.data = (ProtobufCBinaryData){.len = piece->size, .data = bytes.out};
    reply.total = piece->total;
    connection_reply(connection, &reply);
    ask_finish(connection);
}

/* The epoch asked for, or the newest one that is published here; false: there is none. */
static bool find_epoch(const struct facts *facts, uint64_t job, uint64_t wanted)
{
    static uint64_t epochs[FACTS_EPOCHS_MAX];
    size_t count = facts->epoch_ids(facts->daemon, job, epochs, FACTS_EPOCHS_MAX);
    ASSERT(count <= FACTS_EPOCHS_MAX);
    for (size_t i = count; i > 0; i--) {
        if ((wanted == 0 || epochs[i - 1] == wanted) &&
            facts->epoch(facts->daemon, job, epochs[i - 1], &epoch_read) &&
            strcmp(epoch_read.state, "published") == 0 && epoch_read.folder[0] != '\0') {
            return true;
        }
    }
    return false;
}

void ask_checkpoint_file(struct connection *connection, const Ctl__CheckpointFile *request)
{
    const struct facts *facts = ask_facts(connection);
    if (!piece_name_is_good(request->name)) {
        ask_fail(
            connection, ERR_USAGE,
            "checkpoint: a file's name has letters, digits, '-', '_' and '.' only, and does not "
            "begin with '.'",
            "names are in manifest.json");
        return;
    }
    uint64_t job = ask_find_job(connection, request->job);
    if (job == 0) {
        return;
    }
    if (!find_epoch(facts, job, request->epoch)) {
        ask_fail(connection, ERR_NOT_FOUND, "no such published epoch on this node",
                 "`coppeliusctl checkpoint list` says which nodes hold it");
        return;
    }
    struct err err = {0};
    ask_began(connection,
              piece_read(connection->api->loop, epoch_read.folder, request->name, request->offset,
                         API_PIECE_SIZE, on_piece, connection, &err),
              &err);
}

void ask_checkpoint_list(struct connection *connection, const Ctl__CheckpointList *request)
{
    uint64_t job = 0;
    if (request->job[0] != '\0') {
        job = ask_find_job(connection, request->job);
        if (job == 0) {
            return;
        }
    }
    ask_answer(connection, document_checkpoints(ask_facts(connection), job));
}

static void on_verified(void *context, const struct facts_result *result)
{
    struct connection *connection = context;
    ASSERT(connection->ask.busy);
    connection->ask.busy = false;
    if (connection->state == CONNECTION_CLOSED) {
        connection_release(connection); /* It may be gone now: touch nothing after. */
        return;
    }
    if (result->err.code != 0) {
        ask_fail(connection, result->err.code, result->err.text, result->hint);
        return;
    }
    ask_answer(connection, document_checkpoints(ask_facts(connection), result->job));
}

void ask_checkpoint_verify(struct connection *connection, const char *wanted)
{
    const struct facts *facts = ask_facts(connection);
    uint64_t job = ask_find_job(connection, wanted);
    struct err err = {0};
    if (job != 0) {
        ask_began(connection, facts->verify(facts->daemon, job, on_verified, connection, &err),
                  &err);
    }
}

void ask_checkpoint_prune(struct connection *connection, const Ctl__CheckpointPrune *request)
{
    const struct facts *facts = ask_facts(connection);
    uint64_t job = ask_find_job(connection, request->job);
    struct err err = {0};
    if (job != 0) {
        ask_began(connection,
                  facts->prune(facts->daemon, job, request->keep, ask_on_done, connection, &err),
                  &err);
    }
}

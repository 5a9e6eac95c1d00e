/* Does this node still stand in the cluster? One that is removed while it is away comes back to
 * members who have forgotten its address, or who refuse it: nobody sends it an entry, and it would
 * wait for a leader for ever. So a node that has known none for a while asks the members that it
 * knows, over a connection of its own, whether its identity (place and life, control/group.h) was
 * removed.
 *
 *   LED -> ALONE      no leader is known                                [standing_turn]
 *   ALONE -> ASKING   for ALONE_MS, and again every ASK_EVERY_MS        [standing_turn]
 *   ASKING -> ALONE   none knows of it, or none answers                 [on_asked]
 *   ASKING -> out     a member says that it was removed: the node ends  [on_asked]
 *
 * Where its line to a member still stands when that one applies the removal, it is told over it
 * (FRAME_OUT), as far as the socket takes it, and the line is closed in the same turn: nobody waits
 * for it, and who has not heard asks, as above.
 *
 * Whoever answers need not be up to date: a removal is agreed on and for good, and only one that
 * the member's applied state has counts (state_is_removed()). Where there are certificates, a name
 * that was removed is refused in the handshake already; that speaks of the name only, which
 * another identity may bear since: it is shown as the reason, and the node waits on. */
#include <ctl.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/core.h"
#include "proto/message.h"

#define ALONE_MS     5000
#define ASK_EVERY_MS 3000
#define ASK_MS       2000 /* for one member */
#define ASKED_MAX    3    /* members a turn; the others follow */

struct standing {
    uint64_t led_ms, asked_ms;
    uint32_t next; /* whom to ask */
    bool busy;
    char reason[FACTS_TEXT_SIZE]; /* why a member refuses this node; "": none does */
};

/* A question on the pool. */
struct standing_work {
    uv_work_t work;
    struct daemon *daemon;
    char cluster[FACTS_NAME_SIZE];
    uint32_t count;
    char names[ASKED_MAX][FACTS_NAME_SIZE];
    char addresses[ASKED_MAX][FACTS_NAME_SIZE];
    struct buf request;
    bool removed;
    char by[FACTS_NAME_SIZE]; /* who said so, or refused */
    struct err err;           /* ERR_AUTH: refused */
};

void standing_init(struct daemon *daemon)
{
    daemon->standing = calloc(1, sizeof(*daemon->standing));
    ASSERT(daemon->standing != NULL);
    daemon->standing->led_ms = clock_now_ms();
}

void standing_free(struct daemon *daemon)
{
    free(daemon->standing);
    daemon->standing = NULL;
}

const char *standing_reason(const struct daemon *daemon)
{
    return daemon->standing->reason;
}

int standing_answer(void *context, const struct facts_member *ask, struct err *err)
{
    const struct daemon *daemon = context;
    if (!state_is_removed(&daemon->state, ask->node, ask->life)) {
        return 0;
    }
    return err_set(err, ERR_STATE, "node '%s' was removed from the cluster", ask->name);
}

/* ---------------------------------------------------------------- asking */

static void put_request(const struct daemon *daemon, struct buf *bytes)
{
    static char how[] = "standing";
    Ctl__Member member;
    Ctl__Request request;
    char name[FACTS_NAME_SIZE];
    (void)snprintf(name, sizeof(name), "%s", daemon->name);
    ctl__member__init(&member);
    ctl__request__init(&request);
    member.how = how;
    member.name = name;
    member.node = daemon->node_id;
    member.life = daemon->life;
    request.id = 1;
    request.ask_case = CTL__REQUEST__ASK_MEMBER;
    request.member = &member;
    size_t size = ctl__request__get_packed_size(&request);
    buf_reserve(bytes, size);
    bytes->size += ctl__request__pack(&request, bytes->bytes + bytes->size);
}

/* The member's own word, not its handshake's. */
static bool says_removed(const struct buf *bytes)
{
    ProtobufCMessage *message = NULL;
    if (message_unpack(&ctl__reply__descriptor, bytes->bytes, bytes->size, &message, NULL) != 0) {
        return false;
    }
    bool removed = ((const Ctl__Reply *)(const void *)message)->code == ERR_STATE;
    message_free(message);
    return removed;
}

static void on_work(uv_work_t *request)
{
    struct standing_work *work = OWNER_OF(request, struct standing_work, work);
    for (uint32_t i = 0; i < work->count && !work->removed; i++) {
        struct buf reply = BUF_NONE;
        struct err err = {0};
        int code =
            peer_ask(work->cluster, work->addresses[i], work->daemon->trust, work->request.bytes,
                     work->request.size, clock_now_ms() + ASK_MS, &reply, &err);
        work->removed = code == 0 && says_removed(&reply);
        if (work->removed || code == ERR_AUTH) {
            (void)snprintf(work->by, sizeof(work->by), "%s", work->names[i]);
            work->err = err;
        }
        buf_done(&reply);
    }
}

static void on_asked(uv_work_t *request, int status)
{
    struct standing_work *work = OWNER_OF(request, struct standing_work, work);
    struct daemon *daemon = work->daemon;
    struct standing *standing = daemon->standing;
    (void)status;
    standing->busy = false;
    if (work->removed && !daemon->log_failed) {
        members_out(daemon, work->by);
    } else if (work->err.code == ERR_AUTH) {
        bool fresh = standing->reason[0] == '\0';
        (void)snprintf(standing->reason, sizeof(standing->reason), "node '%.63s': %.400s", work->by,
                       work->err.text);
        if (fresh) {
            log_warning("standing.refused", "by=%s reason=\"%s\" next=\"asked again\"", work->by,
                        work->err.text);
        }
    }
    buf_done(&work->request);
    free(work);
    daemon_work_ended(daemon);
}

/* ---------------------------------------------------------------- told */

void standing_say_out(struct daemon *daemon, const struct member *member)
{
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    ASSERT(state_is_removed(&daemon->state, member->id, member->life));
    if (daemon->mesh == NULL || !mesh_is_up(daemon->mesh, member->id)) {
        return;
    }
    buf_put_u32(&bytes, member->id);
    buf_put_u32(&bytes, member->life);
    if (mesh_send(daemon->mesh, member->id, FRAME_OUT, bytes.bytes, bytes.size, &err) != 0) {
        log_debug("standing.out", "to=%s error=\"%s\" next=\"it will ask\"", member->name,
                  err.text);
    }
    buf_done(&bytes);
}

/* What a member has applied is agreed on, and for good: it counts if it speaks of this identity. */
void standing_on_out(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size)
{
    struct reader reader = {bytes, size, false};
    uint32_t place = read_u32(&reader);
    uint32_t life = read_u32(&reader);
    const char *by = members_find(daemon, node)->name;
    if (reader.failed || reader.size != 0 || place != daemon->node_id || life != daemon->life) {
        log_warning("standing.out", "from=%s error=\"it speaks of another node\" next=\"dropped\"",
                    by);
        return;
    }
    if (!daemon->log_failed) {
        log_notice("standing.out", "by=%s", by);
        members_out(daemon, "");
    }
}

/* ---------------------------------------------------------------- turns */

/* The next few members that may be asked. */
static void choose(struct daemon *daemon, struct standing_work *work)
{
    for (uint32_t i = 0; i < daemon->members_count && work->count < ASKED_MAX; i++) {
        const struct member *member =
            &daemon->members[(daemon->standing->next + i) % daemon->members_count];
        if (member->self || member->address[0] == '\0') {
            continue;
        }
        (void)snprintf(work->names[work->count], sizeof(work->names[0]), "%s", member->name);
        (void)snprintf(work->addresses[work->count], sizeof(work->addresses[0]), "%s",
                       member->address);
        work->count++;
    }
    daemon->standing->next += ASKED_MAX;
}

void standing_turn(struct daemon *daemon)
{
    struct standing *standing = daemon->standing;
    uint64_t now = clock_now_ms();
    if (daemon->log_failed || daemon->stopping || daemon->newcomer || daemon_leader(daemon) != 0) {
        standing->led_ms = now;
        standing->reason[0] = '\0';
        return;
    }
    if (standing->busy || now - standing->led_ms < ALONE_MS ||
        now - standing->asked_ms < ASK_EVERY_MS) {
        return;
    }
    struct standing_work *work = calloc(1, sizeof(*work));
    ASSERT(work != NULL);
    standing->asked_ms = now;
    choose(daemon, work);
    if (work->count == 0) {
        free(work);
        return;
    }
    work->daemon = daemon;
    (void)snprintf(work->cluster, sizeof(work->cluster), "%s", daemon->cluster);
    put_request(daemon, &work->request);
    standing->busy = true;
    daemon_work_begun(daemon);
    ASSERT(uv_queue_work(daemon->loop, &work->work, on_work, on_asked) == 0);
}

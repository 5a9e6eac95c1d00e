/* Renewal: a certificate that ends soon is replaced by one for the same key, without a restart. The
 * request goes over the control links, which are authenticated, to whoever has the authority; that
 * one signs for the name of the member that asks, whatever the request says.
 *
 *   IDLE -> ASKED      the certificate ends in renew_days, or less     [renew_turn]
 *   ASKED -> SAVING    a certificate came                              [renew_on_answer]
 *   SAVING -> IDLE     it is on the disk and in use, or refused        [on_saved]
 *   ASKED -> IDLE      nobody answered within a minute                 [renew_turn]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/core.h"
#include "trust/authority.h"

#define LOOK_EVERY_MS 1000
#define ASK_EVERY_MS  60000
#define SIGN_EVERY_MS 5000 /* for one node */
#define DAY_S         86400

enum renewal_state { RENEWAL_IDLE, RENEWAL_ASKED, RENEWAL_SAVING };

struct renewal {
    enum renewal_state state;
    uint64_t looked_ms, asked_ms;
    uint64_t signed_ms[STATE_NODES_MAX + 1]; /* for each node */
};

/* A file operation on the pool. */
struct renewal_work {
    uv_work_t work;
    struct daemon *daemon;
    uint32_t node; /* whom to answer; this node itself: nobody */
    struct trust_identity identity;
    struct buf bytes; /* the request, or the certificate that came */
    struct buf certificate, ca;
    struct err err;
};

void renew_init(struct daemon *daemon)
{
    daemon->renewal = calloc(1, sizeof(*daemon->renewal));
    ASSERT(daemon->renewal != NULL);
}

void renew_free(struct daemon *daemon)
{
    free(daemon->renewal);
}

static struct renewal_work *work_new(struct daemon *daemon, uint32_t node, const void *bytes,
                                     size_t size)
{
    struct renewal_work *work = calloc(1, sizeof(*work));
    ASSERT(work != NULL);
    work->daemon = daemon;
    work->node = node;
    buf_put(&work->bytes, bytes, size);
    return work;
}

static void work_free(struct renewal_work *work)
{
    struct daemon *daemon = work->daemon;
    buf_done(&work->bytes);
    buf_done(&work->certificate);
    buf_done(&work->ca);
    free(work);
    daemon_work_ended(daemon);
}

static void begin_work(struct renewal_work *work, uv_work_cb run, uv_after_work_cb done)
{
    daemon_work_begun(work->daemon);
    ASSERT(uv_queue_work(work->daemon->loop, &work->work, run, done) == 0);
}

/* ---------------------------------------------------------------- saving */

static void save(uv_work_t *request)
{
    struct renewal_work *work = OWNER_OF(request, struct renewal_work, work);
    (void)trust_replace(work->daemon->trust, &work->bytes, &work->err);
}

static void on_saved(uv_work_t *request, int status)
{
    struct renewal_work *work = OWNER_OF(request, struct renewal_work, work);
    struct trust_identity self;
    (void)status;
    if (work->err.code == 0) {
        trust_self(work->daemon->trust, &self);
        log_notice("trust.renewed", "certificate=new days_left=%lld",
                   ((long long)self.not_after - (long long)time(NULL)) / DAY_S);
    } else {
        log_error("trust.renewal", "reason=\"%s\" next=\"tried again in a minute\"",
                  work->err.text);
    }
    work->daemon->renewal->state = RENEWAL_IDLE;
    work_free(work);
}

void renew_on_answer(struct daemon *daemon, const uint8_t *bytes, size_t size)
{
    if (daemon->renewal->state != RENEWAL_ASKED || daemon->trust == NULL) {
        return; /* Another one has answered already. */
    }
    daemon->renewal->state = RENEWAL_SAVING;
    begin_work(work_new(daemon, daemon->node_id, bytes, size), save, on_saved);
}

/* ---------------------------------------------------------------- signing */

static void sign(uv_work_t *request)
{
    struct renewal_work *work = OWNER_OF(request, struct renewal_work, work);
    (void)authority_sign(work->daemon->authority, &work->identity, 0, work->bytes.bytes,
                         work->bytes.size, &work->certificate, &work->ca, &work->err);
}

static void on_signed(uv_work_t *request, int status)
{
    struct renewal_work *work = OWNER_OF(request, struct renewal_work, work);
    struct daemon *daemon = work->daemon;
    struct err err = {0};
    (void)status;
    if (work->err.code != 0) {
        log_warning("trust.renewal", "node=%s reason=\"%s\" next=\"not signed\"",
                    work->identity.name, work->err.text);
    } else if (work->node == daemon->node_id) {
        renew_on_answer(daemon, work->certificate.bytes, work->certificate.size);
    } else {
        log_notice("trust.signed", "node=%s", work->identity.name);
        if (daemon->mesh != NULL &&
            mesh_send(daemon->mesh, work->node, FRAME_RENEWED, work->certificate.bytes,
                      work->certificate.size, &err) != 0) {
            log_warning("trust.renewal", "node=%s reason=\"%s\" next=\"it asks again\"",
                        work->identity.name, err.text);
        }
    }
    work_free(work);
}

void renew_on_request(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size)
{
    uint64_t now_ms = clock_now_ms();
    struct renewal *renewal = daemon->renewal;
    if (daemon->authority[0] == '\0' || daemon->trust == NULL || size > AUTHORITY_REQUEST_MAX ||
        node > STATE_NODES_MAX ||
        (renewal->signed_ms[node] != 0 && now_ms - renewal->signed_ms[node] < SIGN_EVERY_MS)) {
        return; /* Everybody is asked; who has the authority answers. */
    }
    renewal->signed_ms[node] = now_ms;
    struct renewal_work *work = work_new(daemon, node, bytes, size);
    work->identity.kind = TRUST_NODE;
    (void)snprintf(work->identity.cluster, sizeof(work->identity.cluster), "%s", daemon->cluster);
    (void)snprintf(work->identity.name, sizeof(work->identity.name), "%s",
                   members_find(daemon, node)->name);
    begin_work(work, sign, on_signed);
}

/* ---------------------------------------------------------------- asking */

static void ask(struct daemon *daemon)
{
    struct buf request = BUF_NONE;
    struct err err = {0};
    if (trust_request(daemon->trust, &request, &err) != 0) {
        log_error("trust.renewal", "reason=\"%s\" next=\"tried again in a minute\"", err.text);
        buf_done(&request);
        return;
    }
    log_notice("trust.renewal", "next=\"the node with the authority is asked for a certificate\"");
    daemon->renewal->state = RENEWAL_ASKED;
    renew_on_request(daemon, daemon->node_id, request.bytes, request.size);
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        if (!member->self && mesh_is_up(daemon->mesh, member->id)) {
            (void)mesh_send(daemon->mesh, member->id, FRAME_RENEW, request.bytes, request.size,
                            &err); /* Asked again in a minute. */
        }
    }
    buf_done(&request);
}

/* A certificate lets a person in until it ends, also on a connection that lives. */
static void cut_ended(struct daemon *daemon)
{
    size_t cut = trust_cut_ended(daemon->trust, (int64_t)time(NULL));
    if (cut > 0) {
        log_notice("trust.cut",
                   "connections=%zu reason=\"the certificates of who made them ended\"", cut);
    }
}

void renew_turn(struct daemon *daemon)
{
    struct renewal *renewal = daemon->renewal;
    uint64_t now_ms = clock_now_ms();
    int64_t ends = 0;
    int64_t authority_ends = 0;
    if (daemon->trust == NULL || daemon->mesh == NULL || daemon->stopping ||
        now_ms - renewal->looked_ms < LOOK_EVERY_MS) {
        return;
    }
    renewal->looked_ms = now_ms;
    cut_ended(daemon);
    if (daemon->renew_days == 0) {
        return;
    }
    trust_ends(daemon->trust, &ends, &authority_ends);
    bool due = ends - (int64_t)time(NULL) < (int64_t)daemon->renew_days * DAY_S &&
               ends + DAY_S < authority_ends; /* No leaf outlives its authority. */
    bool asked = renewal->asked_ms != 0 && now_ms - renewal->asked_ms < ASK_EVERY_MS;
    if (due && !asked && renewal->state != RENEWAL_SAVING) {
        renewal->asked_ms = now_ms;
        ask(daemon);
    }
}

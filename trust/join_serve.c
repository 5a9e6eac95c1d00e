/* The host's side. Nothing of a joiner is parsed before its proof holds, and no use of a token is
 * taken before all that it sent was checked. */
#include <string.h>

#include "base/clock.h"
#include "trust/identity.h"
#include "trust/join_room.h"

struct visit {
    struct talk talk;
    const struct join_host *host;
    struct trust_identity self;
    char id[TOKEN_ID_SIZE];
    struct token_verifier verifier;
    struct buf request;
};

static int say(const struct talk *talk, const struct err *why, const struct buf *more,
               struct err *err)
{
    struct buf body = BUF_NONE;
    buf_put_u32(&body, (uint32_t)why->code);
    buf_put_text(&body, why->text);
    if (more != NULL) {
        buf_put(&body, more->bytes, more->size);
    }
    int code = talk_put_message(talk, &body, err);
    buf_done(&body);
    return code;
}

/* An error is told to the joiner too. */
static int refuse(const struct talk *talk, const struct err *err)
{
    struct err ignored = {0};
    (void)say(talk, err, NULL, &ignored);
    return err->code;
}

static void fill_scene(const struct visit *visit, struct proof_scene *scene)
{
    memcpy(scene->exporter, visit->talk.tls->exporter, sizeof(scene->exporter));
    scene->id = visit->id;
    scene->cluster = visit->self.cluster;
    scene->host = visit->self.name;
}

/* Which token, and the host's proof that it has what checks it. */
static int show_host(struct visit *visit, struct err *err)
{
    uint8_t first[JOIN_FIRST_SIZE];
    uint8_t proof[PROOF_HOST_SIZE];
    struct proof_scene scene;
    struct err good = {0};
    struct buf more = BUF_NONE;
    int code = talk_shake(&visit->talk, err);
    code = code != 0 ? code : talk_take(&visit->talk, first, sizeof(first), err);
    if (code != 0) {
        return code;
    }
    if (memcmp(first, JOIN_MAGIC, sizeof(JOIN_MAGIC) - 1) != 0) {
        return err_set(err, ERR_PROTO, "no joiner of this version");
    }
    memcpy(visit->id, first + sizeof(JOIN_MAGIC) - 1, TOKEN_ID_SIZE - 1);
    visit->id[TOKEN_ID_SIZE - 1] = '\0';
    if (token_find(visit->host->authority, visit->id, &visit->verifier, err) != 0) {
        return refuse(&visit->talk, err);
    }
    fill_scene(visit, &scene);
    proof_of_host(&visit->verifier, &scene, proof);
    buf_put(&more, proof, sizeof(proof));
    code = say(&visit->talk, &good, &more, err);
    buf_done(&more);
    OPENSSL_cleanse(&scene, sizeof(scene));
    return code;
}

int join_read_wish(const uint8_t *bytes, size_t size, struct join_wish *ret_wish,
                   struct buf *request, struct err *err)
{
    struct reader reader = {bytes, size, false};
    struct join_wish wish = {.name = ""};
    uint32_t request_size = 0;
    read_text(&reader, wish.name, sizeof(wish.name));
    read_text(&reader, wish.address, sizeof(wish.address));
    read_text(&reader, wish.role, sizeof(wish.role));
    const uint8_t *at = join_read_run(&reader, &request_size);
    if (reader.failed || reader.size != 0 || !identity_is_name(wish.name) ||
        (strcmp(wish.role, "trainer") != 0 && strcmp(wish.role, "arbiter") != 0 &&
         strcmp(wish.role, "spare") != 0)) {
        return err_set(
            err, ERR_PROTO,
            "a malformed wish to join came; a name of letters, digits, '-', '_', '.' and "
            "a role (trainer, arbiter, spare) are needed");
    }
    if (authority_check_request(at, request_size, err) != 0) {
        return err->code;
    }
    join_clean(wish.address);
    buf_put(request, at, request_size);
    *ret_wish = wish;
    return 0;
}

static int take_wish(struct visit *visit, struct join_wish *wish, struct err *err)
{
    struct buf body = BUF_NONE;
    struct proof_scene scene;
    int code = talk_take_message(&visit->talk, JOIN_QUESTION_MAX, &body, err);
    if (code != 0) {
        buf_done(&body);
        return code == ERR_PROTO ? refuse(&visit->talk, err) : code; /* else it is gone or slow */
    }
    fill_scene(visit, &scene);
    if (body.size < PROOF_JOINER_SIZE ||
        !proof_check_joiner(&visit->verifier, &scene, body.bytes + PROOF_JOINER_SIZE,
                            body.size - PROOF_JOINER_SIZE, body.bytes)) {
        code = err_set(err, ERR_AUTH,
                       "the proof that the token is known does not hold: the token was changed, or "
                       "somebody is between");
    } else {
        code = join_read_wish(body.bytes + PROOF_JOINER_SIZE, body.size - PROOF_JOINER_SIZE, wish,
                              &visit->request, err);
    }
    OPENSSL_cleanse(&scene, sizeof(scene));
    buf_done(&body);
    return code == 0 ? 0 : refuse(&visit->talk, err);
}

/* A use is given back where nothing was signed for it. */
static int sign(const struct visit *visit, const struct join_wish *wish, struct join_answer *answer,
                struct err *err)
{
    const struct join_host *host = visit->host;
    struct trust_identity identity = {.kind = TRUST_NODE};
    struct err ignored = {0};
    memcpy(identity.name, wish->name, sizeof(identity.name));
    memcpy(identity.cluster, host->cluster, strlen(host->cluster) + 1);
    if (token_take(host->authority, visit->id, &visit->verifier, 1, err) != 0) {
        return err->code;
    }
    int code = host->admit(host->context, wish, &answer->members, err);
    code = code != 0 ? code
                     : authority_sign(host->authority, &identity, 0, visit->request.bytes,
                                      visit->request.size, &answer->certificate, &answer->ca, err);
    if (code != 0) {
        (void)token_take(host->authority, visit->id, &visit->verifier, -1, &ignored);
    }
    return code;
}

static int let_in(const struct visit *visit, const struct join_wish *wish, struct err *err)
{
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct buf more = BUF_NONE;
    struct err good = {0};
    int code = sign(visit, wish, &answer, err);
    if (code != 0) {
        (void)refuse(&visit->talk, err);
    } else {
        buf_put_text(&more, visit->host->cluster);
        join_put_run(&more, answer.certificate.bytes, answer.certificate.size);
        join_put_run(&more, answer.ca.bytes, answer.ca.size);
        join_put_run(&more, answer.members.bytes, answer.members.size);
        code = say(&visit->talk, &good, &more, err);
    }
    buf_done(&more);
    join_answer_done(&answer);
    return code;
}

int join_serve(struct tls *tls, int fd, const struct join_host *host, uint64_t deadline_ms,
               struct join_wish *ret_wish, struct err *err)
{
    struct visit visit = {.talk = {tls, fd, deadline_ms}, .host = host};
    uint64_t proof_ms = clock_now_ms() + JOIN_PROOF_MS;
    *ret_wish = (struct join_wish){.name = ""};
    trust_self(tls->trust, &visit.self);
    visit.talk.deadline_ms = proof_ms < deadline_ms ? proof_ms : deadline_ms;
    int code = show_host(&visit, err);
    code = code != 0 ? code : take_wish(&visit, ret_wish, err);
    visit.talk.deadline_ms = deadline_ms;
    code = code != 0 ? code : let_in(&visit, ret_wish, err);
    OPENSSL_cleanse(&visit.verifier, sizeof(visit.verifier));
    buf_done(&visit.request);
    return code;
}

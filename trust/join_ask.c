/* The joiner's side. */
#include <string.h>

#include "base/hash.h"
#include "trust/identity.h"
#include "trust/issue.h"
#include "trust/join_room.h"
#include "trust/pem.h"

void join_answer_done(struct join_answer *answer)
{
    buf_done(&answer->certificate);
    buf_done(&answer->ca);
    buf_done(&answer->members);
}

/* The code and sentence that begin every answer. */
static int read_verdict(struct reader *reader, struct err *err)
{
    char text[ERR_TEXT_SIZE];
    int code = (int)read_u32(reader);
    read_text(reader, text, sizeof(text));
    if (reader->failed) {
        return err_set(err, ERR_PROTO, "a malformed answer came");
    }
    join_clean(text);
    return code == 0 ? 0 : err_set(err, code < 0 ? code : ERR_PEER, "%s", text);
}

int join_read_answer(struct reader *reader, struct join_answer *answer, struct err *err)
{
    struct buf *runs[3] = {&answer->certificate, &answer->ca, &answer->members};
    read_text(reader, answer->cluster, sizeof(answer->cluster));
    for (int i = 0; i < 3; i++) {
        uint32_t size = 0;
        const uint8_t *bytes = join_read_run(reader, &size);
        if (bytes != NULL) {
            buf_put(runs[i], bytes, size);
        }
    }
    if (reader->failed || reader->size != 0 || !identity_is_name(answer->cluster)) {
        return err_set(err, ERR_PROTO, "a malformed answer came");
    }
    return 0;
}

int join_check_answer(const struct token *token, const struct join_wish *wish, const void *request,
                      size_t request_size, const struct join_answer *answer, struct err *err)
{
    X509 *ca = NULL;
    X509 *certificate = NULL;
    EVP_PKEY *key = NULL;
    struct trust_identity identity = {.kind = TRUST_NOBODY};
    struct err ignored = {0};
    bool good = pem_parse_certificate(answer->ca.bytes, answer->ca.size, &ca) == 0 &&
                pem_parse_certificate(answer->certificate.bytes, answer->certificate.size,
                                      &certificate) == 0 &&
                issue_request_key(request, request_size, &key, &ignored) == 0 &&
                trust_has_pin(ca, token->pin) && trust_is_authority_of(ca, certificate) &&
                X509_check_ca(ca) == 1 && EVP_PKEY_eq(X509_get0_pubkey(certificate), key) == 1 &&
                identity_of(certificate, &identity, &ignored) == 0 && identity.kind == TRUST_NODE &&
                strcmp(identity.name, wish->name) == 0 &&
                strcmp(identity.cluster, answer->cluster) == 0;
    ERR_clear_error();
    X509_free(ca);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return good ? 0
                : err_set(err, ERR_PROTO,
                          "the certificate that came is not of the pinned authority for this "
                          "node's name and key; nothing was written");
}

/* Says which token; learns whether who answers has what checks it. */
static int check_host(const struct talk *talk, const struct token *token,
                      const struct proof_scene *scene, struct err *err)
{
    struct buf body = BUF_NONE;
    struct token_verifier verifier;
    uint8_t shown[PROOF_HOST_SIZE];
    uint8_t wanted[PROOF_HOST_SIZE];
    buf_put(&body, JOIN_MAGIC, sizeof(JOIN_MAGIC) - 1);
    buf_put(&body, token->id, TOKEN_ID_SIZE - 1);
    int code = talk_put(talk, body.bytes, body.size, err);
    code = code != 0 ? code : talk_take_message(talk, JOIN_ANSWER_MAX, &body, err);
    if (code == 0) {
        struct reader reader = {body.bytes, body.size, false};
        code = read_verdict(&reader, err);
        read_bytes(&reader, shown, sizeof(shown));
        proof_verifier(token->secret, &verifier);
        proof_of_host(&verifier, scene, wanted);
        if (code == 0 && (reader.failed || CRYPTO_memcmp(shown, wanted, sizeof(wanted)) != 0)) {
            code = err_set(
                err, ERR_AUTH,
                "node '%s' answers there, of the authority that the token pins, but it cannot "
                "prove "
                "that it knows this token: the token was changed on the way, or another member "
                "stands in for the host; nothing of the secret was sent",
                scene->host);
        }
        OPENSSL_cleanse(&verifier, sizeof(verifier));
        OPENSSL_cleanse(wanted, sizeof(wanted));
    }
    buf_done(&body);
    return code;
}

static int put_wish(const struct talk *talk, const struct token *token,
                    const struct proof_scene *scene, const struct join_wish *wish,
                    const void *request, size_t request_size, struct err *err)
{
    struct buf body = BUF_NONE;
    struct buf message = BUF_NONE;
    uint8_t proof[PROOF_JOINER_SIZE];
    buf_put_text(&body, wish->name);
    buf_put_text(&body, wish->address);
    buf_put_text(&body, wish->role);
    join_put_run(&body, request, request_size);
    proof_of_joiner(token->secret, scene, body.bytes, body.size, proof);
    buf_put(&message, proof, sizeof(proof));
    buf_put(&message, body.bytes, body.size);
    int code = talk_put_message(talk, &message, err);
    buf_done(&body);
    buf_done(&message);
    return code;
}

static int ask(const struct talk *talk, const struct token *token, const struct join_wish *wish,
               const void *request, size_t request_size, struct join_answer *answer,
               struct err *err)
{
    struct buf body = BUF_NONE;
    struct proof_scene scene = {.id = token->id};
    int code = talk_shake(talk, err);
    if (code == 0) {
        memcpy(scene.exporter, talk->tls->exporter, sizeof(scene.exporter));
        scene.cluster = talk->tls->peer.cluster;
        scene.host = talk->tls->peer.name;
        code = check_host(talk, token, &scene, err);
    }
    code = code != 0 ? code : put_wish(talk, token, &scene, wish, request, request_size, err);
    code = code != 0 ? code : talk_take_message(talk, JOIN_ANSWER_MAX, &body, err);
    if (code == 0) {
        struct reader reader = {body.bytes, body.size, false};
        code = read_verdict(&reader, err);
        code = code != 0 ? code : join_read_answer(&reader, answer, err);
        code =
            code != 0 ? code : join_check_answer(token, wish, request, request_size, answer, err);
    }
    OPENSSL_cleanse(&scene, sizeof(scene));
    buf_done(&body);
    return code;
}

int join_ask(int fd, const struct token *token, const struct join_wish *wish, const void *request,
             size_t request_size, uint64_t deadline_ms, struct join_answer *ret_answer,
             struct err *err)
{
    struct talk talk = {.fd = fd, .deadline_ms = deadline_ms};
    struct join_answer answer = JOIN_ANSWER_NONE;
    if (tls_dial_pinned(fd, token->pin, &talk.tls, err) != 0) {
        return err->code;
    }
    int code = ask(&talk, token, wish, request, request_size, &answer, err);
    tls_free(talk.tls);
    if (code != 0) {
        join_answer_done(&answer);
        return code;
    }
    *ret_answer = answer;
    return 0;
}

#include "trust/join.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "trust/identity.h"
#include "trust/openssl.h"

#define SLICE_MS      100
#define READS_AT_ONCE 16

static const char magic[4] = {'c', 'p', 'j', '1'};

struct talk {
    struct tls *tls;
    int fd;
    uint64_t deadline_ms;
};

static int wait_for(const struct talk *talk, short events, struct err *err)
{
    uint64_t now = clock_now_ms();
    struct pollfd polled = {.fd = talk->fd, .events = tls_is_open(talk->tls) ? events : POLLIN};
    if (now >= talk->deadline_ms) {
        return err_set(err, ERR_TIMEOUT, "no answer in time");
    }
    polled.events |= tls_wants_write(talk->tls) ? POLLOUT : 0;
    uint64_t left = talk->deadline_ms - now;
    if (poll(&polled, 1, (int)(left < SLICE_MS ? left : SLICE_MS)) < 0 && errno != EINTR) {
        return err_set(err, ERR_PEER, "poll: %s", err_errno(errno));
    }
    return 0;
}

static int put(const struct talk *talk, const void *bytes, size_t size, struct err *err)
{
    size_t done = 0;
    while (done < size || tls_wants_write(talk->tls)) {
        struct iovec part = {(uint8_t *)(uintptr_t)bytes + done, size - done};
        ssize_t taken = tls_write(talk->tls, &part, size > done ? 1 : 0, err);
        if (taken < 0) {
            return err->code;
        }
        done += (size_t)taken;
        if ((done < size || tls_wants_write(talk->tls)) && taken == 0 &&
            wait_for(talk, POLLOUT, err) != 0) {
            return err->code;
        }
    }
    return 0;
}

static int take(const struct talk *talk, void *bytes, size_t size, struct err *err)
{
    size_t done = 0;
    while (done < size) {
        struct iovec part = {(uint8_t *)bytes + done, size - done};
        unsigned reads = READS_AT_ONCE;
        ssize_t got = tls_read(talk->tls, &part, 1, &reads, err);
        if (got < 0) {
            return err->code;
        }
        done += (size_t)got;
        if (got == 0 && wait_for(talk, POLLIN, err) != 0) {
            return err->code;
        }
    }
    return 0;
}

/* u32 size, body. */
static int put_message(const struct talk *talk, const struct buf *body, struct err *err)
{
    struct buf message = BUF_NONE;
    buf_put_u32(&message, (uint32_t)body->size);
    buf_put(&message, body->bytes, body->size);
    int code = put(talk, message.bytes, message.size, err);
    buf_done(&message);
    return code;
}

static int take_message(const struct talk *talk, size_t most, struct buf *body, struct err *err)
{
    uint8_t bytes[4];
    if (take(talk, bytes, sizeof(bytes), err) != 0) {
        return err->code;
    }
    struct reader reader = {bytes, sizeof(bytes), false};
    uint32_t size = read_u32(&reader);
    if (size > most) {
        return err_set(err, ERR_PROTO, "a message of %u bytes came; the most is %zu", size, most);
    }
    buf_clear(body);
    buf_reserve(body, size + 1);
    int code = take(talk, body->bytes, size, err);
    body->size = code == 0 ? size : 0;
    return code;
}

static void put_bytes(struct buf *body, const void *bytes, size_t size)
{
    buf_put_u32(body, (uint32_t)size);
    buf_put(body, bytes, size);
}

/* What lies behind its u32 size; NULL where the reader failed. */
static const uint8_t *read_run(struct reader *reader, uint32_t *ret_size)
{
    uint32_t size = read_u32(reader);
    if (reader->failed || size > reader->size) {
        reader->failed = true;
        *ret_size = 0;
        return NULL;
    }
    const uint8_t *bytes = reader->bytes;
    reader->bytes += size;
    reader->size -= size;
    *ret_size = size;
    return bytes;
}

/* Printable and for one log line. */
static void clean(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == '"' ? ' ' : *at;
    }
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
    clean(text);
    return code == 0 ? 0 : err_set(err, code < 0 ? code : ERR_PEER, "%s", text);
}

void join_answer_done(struct join_answer *answer)
{
    buf_done(&answer->certificate);
    buf_done(&answer->ca);
    buf_done(&answer->members);
}

/* ---------------------------------------------------------------- joiner */

static int show_token(const struct talk *talk, const struct token *token, struct err *err)
{
    struct buf first = BUF_NONE;
    buf_reserve(&first, JOIN_FIRST_SIZE);
    buf_put(&first, magic, sizeof(magic));
    buf_put(&first, token->id, TOKEN_ID_SIZE - 1);
    buf_put(&first, token->secret, TOKEN_SECRET_SIZE - 1);
    int code = put(talk, first.bytes, first.size, err);
    OPENSSL_cleanse(first.bytes, first.size);
    buf_done(&first);
    return code;
}

static int read_answer(struct reader *reader, struct join_answer *answer, struct err *err)
{
    struct buf *runs[3] = {&answer->certificate, &answer->ca, &answer->members};
    read_text(reader, answer->cluster, sizeof(answer->cluster));
    for (int i = 0; i < 3; i++) {
        uint32_t size = 0;
        const uint8_t *bytes = read_run(reader, &size);
        if (bytes != NULL) {
            buf_put(runs[i], bytes, size);
        }
    }
    if (reader->failed || !identity_is_name(answer->cluster)) {
        return err_set(err, ERR_PROTO, "a malformed answer came");
    }
    return 0;
}

static int ask(const struct talk *talk, const struct token *token, const struct join_wish *wish,
               const void *request, size_t request_size, struct join_answer *answer,
               struct err *err)
{
    struct buf body = BUF_NONE;
    int code = show_token(talk, token, err);
    code = code != 0 ? code : take_message(talk, JOIN_ANSWER_MAX, &body, err);
    if (code == 0) {
        struct reader reader = {body.bytes, body.size, false};
        code = read_verdict(&reader, err);
    }
    if (code == 0) {
        buf_clear(&body);
        buf_put_text(&body, wish->name);
        buf_put_text(&body, wish->address);
        buf_put_text(&body, wish->role);
        put_bytes(&body, request, request_size);
        code = put_message(talk, &body, err);
    }
    code = code != 0 ? code : take_message(talk, JOIN_ANSWER_MAX, &body, err);
    if (code == 0) {
        struct reader reader = {body.bytes, body.size, false};
        code = read_verdict(&reader, err);
        code = code != 0 ? code : read_answer(&reader, answer, err);
    }
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

/* ---------------------------------------------------------------- host */

static int say(const struct talk *talk, const struct err *why, const struct buf *more,
               struct err *err)
{
    struct buf body = BUF_NONE;
    buf_put_u32(&body, (uint32_t)why->code);
    buf_put_text(&body, why->text);
    if (more != NULL) {
        buf_put(&body, more->bytes, more->size);
    }
    int code = put_message(talk, &body, err);
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

static int check_token(const struct talk *talk, const struct join_host *host, struct token *token,
                       struct err *err)
{
    uint8_t first[JOIN_FIRST_SIZE];
    struct err good = {0};
    if (take(talk, first, sizeof(first), err) != 0) {
        return err->code;
    }
    memcpy(token->id, first + sizeof(magic), TOKEN_ID_SIZE - 1);
    memcpy(token->secret, first + sizeof(magic) + TOKEN_ID_SIZE - 1, TOKEN_SECRET_SIZE - 1);
    token->id[TOKEN_ID_SIZE - 1] = '\0';
    token->secret[TOKEN_SECRET_SIZE - 1] = '\0';
    bool ours = memcmp(first, magic, sizeof(magic)) == 0;
    OPENSSL_cleanse(first, sizeof(first));
    if (!ours) {
        return err_set(err, ERR_PROTO, "no joiner of this version");
    }
    if (token_redeem(host->authority, token->id, token->secret, 0, err) != 0) {
        return refuse(talk, err);
    }
    return say(talk, &good, NULL, err);
}

static int read_wish(const struct talk *talk, struct join_wish *wish, struct buf *request,
                     struct err *err)
{
    struct buf body = BUF_NONE;
    uint32_t size = 0;
    if (take_message(talk, JOIN_QUESTION_MAX, &body, err) != 0) {
        buf_done(&body);
        return err->code;
    }
    struct reader reader = {body.bytes, body.size, false};
    read_text(&reader, wish->name, sizeof(wish->name));
    read_text(&reader, wish->address, sizeof(wish->address));
    read_text(&reader, wish->role, sizeof(wish->role));
    const uint8_t *bytes = read_run(&reader, &size);
    int code = 0;
    if (reader.failed || reader.size != 0 || !identity_is_name(wish->name) ||
        (strcmp(wish->role, "trainer") != 0 && strcmp(wish->role, "arbiter") != 0 &&
         strcmp(wish->role, "spare") != 0)) {
        code =
            err_set(err, ERR_PROTO,
                    "a malformed wish to join came; a name of letters, digits, '-', '_', '.' and "
                    "a role (trainer, arbiter, spare) are needed");
        wish->name[0] = '\0';
    } else {
        buf_put(request, bytes, size);
    }
    clean(wish->address);
    buf_done(&body);
    return code;
}

static int let_in(const struct talk *talk, const struct join_host *host, const struct token *token,
                  const struct join_wish *wish, const struct buf *request, struct err *err)
{
    struct trust_identity identity = {.kind = TRUST_NODE};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct buf more = BUF_NONE;
    struct err good = {0};
    memcpy(identity.name, wish->name, sizeof(identity.name));
    memcpy(identity.cluster, host->cluster, strlen(host->cluster) + 1);
    int code = token_redeem(host->authority, token->id, token->secret, 1, err);
    if (code == 0 && host->admit(host->context, wish, &answer.members, err) != 0) {
        struct err ignored = {0};
        code = err->code;
        (void)token_redeem(host->authority, token->id, token->secret, -1, &ignored);
    }
    code = code != 0 ? code
                     : authority_sign(host->authority, &identity, 0, request->bytes, request->size,
                                      &answer.certificate, &answer.ca, err);
    if (code != 0) {
        (void)refuse(talk, err);
    } else {
        buf_put_text(&more, host->cluster);
        put_bytes(&more, answer.certificate.bytes, answer.certificate.size);
        put_bytes(&more, answer.ca.bytes, answer.ca.size);
        put_bytes(&more, answer.members.bytes, answer.members.size);
        code = say(talk, &good, &more, err);
    }
    buf_done(&more);
    join_answer_done(&answer);
    return code;
}

int join_serve(struct tls *tls, int fd, const struct join_host *host, uint64_t deadline_ms,
               struct join_wish *ret_wish, struct err *err)
{
    struct talk talk = {tls, fd, deadline_ms};
    struct token token = {.id = ""};
    struct buf request = BUF_NONE;
    *ret_wish = (struct join_wish){.name = ""};
    uint64_t token_ms = clock_now_ms() + JOIN_TOKEN_MS;
    talk.deadline_ms = token_ms < deadline_ms ? token_ms : deadline_ms;
    int code = check_token(&talk, host, &token, err);
    talk.deadline_ms = deadline_ms;
    if (code == 0 && read_wish(&talk, ret_wish, &request, err) != 0) {
        code = refuse(&talk, err);
    }
    code = code != 0 ? code : let_in(&talk, host, &token, ret_wish, &request, err);
    OPENSSL_cleanse(&token, sizeof(token));
    buf_done(&request);
    return code;
}

#include "ctl/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <peer.pb-c.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rand.h"
#include "ctl/terminal.h"
#include "proto/message.h"
#include "trust/trust.h"

#define WAIT_SLICE_MS 200 /* an interrupt is seen within it */
#define READ_SIZE     65536
#define READS_AT_ONCE 16

struct client {
    int fd;
    struct trust *trust; /* NULL: plain text */
    struct tls *tls;
    char endpoint[160];
    uint64_t timeout_ms;
    uint64_t sequence;
    uint64_t request_id;
    struct buf in;
};

static uint64_t deadline_of(uint64_t wait_ms)
{
    uint64_t now = clock_now_ms();
    return wait_ms > UINT64_MAX - now ? UINT64_MAX : now + wait_ms;
}

/* 1: ready, 0: the deadline passed, negative: the problem. */
static int wait_for(const struct client *client, short events, uint64_t deadline,
                    struct problem *problem)
{
    for (;;) {
        if (terminal_interrupted()) {
            return problem_set(problem, ERR_CANCELED, "interrupted");
        }
        uint64_t now = clock_now_ms();
        uint64_t left = deadline > now ? deadline - now : 0;
        struct pollfd polled = {.fd = client->fd, .events = events};
        if (client->tls != NULL && !tls_is_open(client->tls)) {
            polled.events = POLLIN; /* the handshake's answer */
        }
        if (client->tls != NULL && tls_wants_write(client->tls)) {
            polled.events |= POLLOUT;
        }
        int got = poll(&polled, 1, (int)(left < WAIT_SLICE_MS ? left : WAIT_SLICE_MS));
        if (got > 0) {
            return 1;
        }
        if (got < 0 && errno != EINTR) {
            return problem_set(problem, ERR_INTERNAL, "poll: %s", err_errno(errno));
        }
        if (got == 0 && left == 0) {
            return 0;
        }
    }
}

static int cannot_reach(const char *endpoint, int number, struct problem *problem)
{
    if (number == EACCES || number == EPERM) {
        problem_hint(problem, "be root or a member of the group coppelius");
        return problem_set(problem, ERR_AUTH, "cannot reach %s: %s", endpoint, err_errno(number));
    }
    problem_hint(problem, "is coppeliusd running there? 'systemctl status coppeliusd' tells; "
                          "another daemon is named by --endpoint unix:PATH or IP:PORT");
    return problem_set(problem, ERR_REACH, "cannot reach %s: %s", endpoint, err_errno(number));
}

static int no_answer(const struct client *client, uint64_t waited_ms, struct problem *problem)
{
    problem_hint(problem, "wait longer with --timeout, or ask another node");
    return problem_set(problem, ERR_TIMEOUT, "no answer from %s within %.3g s", client->endpoint,
                       (double)waited_ms / 1000);
}

static int parse_endpoint(const char *endpoint, struct sockaddr_storage *address,
                          socklen_t *address_size, struct problem *problem)
{
    problem_hint(problem, "give unix:PATH, such as " CLIENT_ENDPOINT_DEFAULT
                          ", or IP:PORT, such as 127.0.0.1:7620");
    memset(address, 0, sizeof(*address));
    if (strncmp(endpoint, "unix:", 5) == 0) {
        struct sockaddr_un *local = (struct sockaddr_un *)address;
        size_t size = strlen(endpoint + 5);
        if (size == 0 || size >= sizeof(local->sun_path)) {
            return problem_set(problem, ERR_USAGE,
                               "endpoint '%.100s': a path of 1 to %zu bytes "
                               "is needed",
                               endpoint, sizeof(local->sun_path) - 1);
        }
        local->sun_family = AF_UNIX;
        memcpy(local->sun_path, endpoint + 5, size + 1);
        *address_size = sizeof(*local);
        problem->hint[0] = '\0';
        return 0;
    }
    struct sockaddr_in *inet = (struct sockaddr_in *)address;
    char ip[INET_ADDRSTRLEN];
    const char *colon = strrchr(endpoint, ':');
    char *end = NULL;
    unsigned long port = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
    if (colon == NULL || (size_t)(colon - endpoint) >= sizeof(ip) || port == 0 || port > 65535 ||
        *end != '\0') {
        return problem_set(problem, ERR_USAGE, "'%.100s' is not an endpoint", endpoint);
    }
    memcpy(ip, endpoint, (size_t)(colon - endpoint));
    ip[colon - endpoint] = '\0';
    inet->sin_family = AF_INET;
    inet->sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, ip, &inet->sin_addr) != 1) {
        return problem_set(problem, ERR_USAGE, "endpoint '%.100s': '%s' is not an IPv4 address",
                           endpoint, ip);
    }
    *address_size = sizeof(*inet);
    problem->hint[0] = '\0';
    return 0;
}

static int connect_to(struct client *client, const struct sockaddr_storage *address,
                      socklen_t address_size, uint64_t deadline, struct problem *problem)
{
    client->fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (client->fd < 0) {
        return problem_set(problem, ERR_INTERNAL, "socket: %s", err_errno(errno));
    }
    if (connect(client->fd, (const struct sockaddr *)address, address_size) != 0) {
        if (errno != EINPROGRESS) {
            return cannot_reach(client->endpoint, errno, problem);
        }
        int ready = wait_for(client, POLLOUT, deadline, problem);
        if (ready <= 0) {
            return ready < 0 ? ready : no_answer(client, client->timeout_ms, problem);
        }
        int number = 0;
        socklen_t size = sizeof(number);
        (void)getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &number, &size);
        if (number != 0) {
            return cannot_reach(client->endpoint, number, problem);
        }
    }
    if (address->ss_family == AF_INET) {
        int on = 1;
        (void)setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    return 0;
}

static int gone(const struct client *client, struct problem *problem)
{
    if (client->tls == NULL && strncmp(client->endpoint, "unix:", 5) != 0) {
        problem_hint(problem, "does it speak TLS? --identity DIR names a certificate of "
                              "`coppeliusctl pki user`; else ask again, or another node");
    } else {
        problem_hint(problem, "ask again, or ask another node with --endpoint");
    }
    return problem_set(problem, ERR_REACH, "%s closed the connection", client->endpoint);
}

/* What TLS found: the sentence is its own. */
static int broken(const struct client *client, const struct err *err, struct problem *problem)
{
    if (err->code != ERR_AUTH && err->code != ERR_PROTO) {
        return gone(client, problem);
    }
    problem_hint(problem, "the certificate is that of --identity or $" CLIENT_IDENTITY_ENV);
    return problem_set(problem, err->code, "%s: %s", client->endpoint, err->text);
}

/* As send() and recv(); -1: not now; FAILED: the problem is filled. */
#define FAILED (-2)

static ssize_t put_some(struct client *client, const uint8_t *bytes, size_t size,
                        struct problem *problem)
{
    struct err err = {0};
    if (client->tls == NULL) {
        ssize_t got = send(client->fd, bytes, size, MSG_NOSIGNAL);
        if (got < 0 && errno != EAGAIN && errno != EINTR) {
            (void)gone(client, problem);
            return FAILED;
        }
        return got;
    }
    struct iovec part = {(void *)(uintptr_t)bytes, size};
    ssize_t got = tls_write(client->tls, &part, 1, &err);
    if (got < 0) {
        (void)broken(client, &err, problem);
        return FAILED;
    }
    return got == 0 ? -1 : got;
}

static ssize_t take_some(struct client *client, uint8_t *bytes, size_t size,
                         struct problem *problem)
{
    struct err err = {0};
    if (client->tls == NULL) {
        ssize_t got = recv(client->fd, bytes, size, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            (void)gone(client, problem);
            return FAILED;
        }
        return got;
    }
    struct iovec part = {bytes, size};
    unsigned reads = READS_AT_ONCE;
    ssize_t got = tls_read(client->tls, &part, 1, &reads, &err);
    if (got < 0) {
        (void)broken(client, &err, problem);
        return FAILED;
    }
    return got == 0 ? -1 : got;
}

static int send_all(struct client *client, const struct buf *bytes, struct problem *problem)
{
    uint64_t deadline = deadline_of(client->timeout_ms);
    size_t sent = 0;
    while (sent < bytes->size) {
        ssize_t got = put_some(client, bytes->bytes + sent, bytes->size - sent, problem);
        if (got >= 0) {
            sent += (size_t)got;
        } else if (got == FAILED) {
            return problem->err.code;
        } else {
            int ready = wait_for(client, POLLOUT, deadline, problem);
            if (ready <= 0) {
                return ready < 0 ? ready : no_answer(client, client->timeout_ms, problem);
            }
        }
    }
    while (client->tls != NULL && tls_wants_write(client->tls)) {
        struct err err = {0};
        int ready = wait_for(client, POLLOUT, deadline, problem);
        if (ready <= 0) {
            return ready < 0 ? ready : no_answer(client, client->timeout_ms, problem);
        }
        if (tls_write(client->tls, NULL, 0, &err) < 0) {
            return broken(client, &err, problem);
        }
    }
    return 0;
}

static int send_message(struct client *client, enum frame_kind kind,
                        const ProtobufCMessage *message, struct problem *problem)
{
    struct buf out = BUF_NONE;
    int code = message_frame(&out, (uint16_t)kind, 0, client->sequence, message, FRAME_LIMIT_CTL,
                             &problem->err);
    if (code == 0) {
        client->sequence++;
        code = send_all(client, &out, problem);
    }
    buf_done(&out);
    return code;
}

/* A whole frame at the front of client->in (*ret_used bytes), or *ret_used 0 at the deadline. */
static int next_frame(struct client *client, uint64_t deadline, struct frame *ret_frame,
                      size_t *ret_used, struct problem *problem)
{
    for (;;) {
        int code = frame_parse(client->in.bytes, client->in.size, FRAME_LIMIT_CTL, ret_frame,
                               ret_used, &problem->err);
        if (code != 0) {
            problem_hint(problem, "is %s a coppeliusd of this version?", client->endpoint);
            return err_prefix(&problem->err, "%s: ", client->endpoint);
        }
        if (*ret_used > 0) {
            return 0;
        }
        buf_reserve(&client->in, READ_SIZE);
        ssize_t got = take_some(client, client->in.bytes + client->in.size, READ_SIZE, problem);
        if (got > 0) {
            client->in.size += (size_t)got;
        } else if (got == FAILED) {
            return problem->err.code;
        } else {
            int ready = wait_for(client, POLLIN, deadline, problem);
            if (ready <= 0) {
                *ret_used = 0;
                return ready;
            }
        }
    }
}

static void drop(struct client *client, size_t used)
{
    memmove(client->in.bytes, client->in.bytes + used, client->in.size - used);
    client->in.size -= used;
}

static int refused(struct client *client, const struct frame *frame, struct problem *problem)
{
    ProtobufCMessage *message = NULL;
    int code = message_unpack(&peer__refusal__descriptor, frame->body, frame->body_size, &message,
                              &problem->err);
    if (code != 0) {
        return err_prefix(&problem->err, "%s: ", client->endpoint);
    }
    const Peer__Refusal *refusal = (const Peer__Refusal *)(const void *)message;
    code = problem_set(problem, refusal->code < 0 ? refusal->code : ERR_PROTO, "%s refuses: %s",
                       client->endpoint, refusal->text);
    message_free(message);
    return code;
}

static int say_hello(struct client *client, uint64_t deadline, struct problem *problem)
{
    static char name[] = "ctl";
    struct frame frame;
    size_t used = 0;
    Peer__Hello hello;
    peer__hello__init(&hello);
    hello.node = name;
    hello.incarnation = rand_entropy();
    hello.protocol_version = FRAME_PROTOCOL_VERSION;
    hello.class_ = PEER__CLASS__CLASS_CTL;
    int code = send_message(client, FRAME_HELLO, &hello.base, problem);
    if (code == 0) {
        code = next_frame(client, deadline, &frame, &used, problem);
    }
    if (code != 0) {
        return code;
    }
    if (used == 0) {
        return no_answer(client, client->timeout_ms, problem);
    }
    if (frame.kind == FRAME_REFUSAL) {
        code = refused(client, &frame, problem);
    } else if (frame.kind != FRAME_WELCOME) {
        problem_hint(problem, "is %s a coppeliusd of this version?", client->endpoint);
        code = problem_set(problem, ERR_PROTO, "%s answered HELLO with a frame of kind %u",
                           client->endpoint, frame.kind);
    }
    drop(client, used);
    return code;
}

const char *client_endpoint_named(const struct args *args)
{
    if (args->value[FLAG_ENDPOINT] != NULL) {
        return args->value[FLAG_ENDPOINT];
    }
    const char *named = getenv(CLIENT_ENDPOINT_ENV); /* One thread. */
    return named != NULL && named[0] != '\0' ? named : NULL;
}

const char *client_identity_named(const struct args *args)
{
    if (args->value[FLAG_IDENTITY] != NULL) {
        return args->value[FLAG_IDENTITY];
    }
    const char *named = getenv(CLIENT_IDENTITY_ENV); /* One thread. */
    return named != NULL && named[0] != '\0' ? named : NULL;
}

/* TLS by the files of the folder. */
static int secure(struct client *client, const char *identity, struct problem *problem)
{
    static const char *const names[] = {"ca.crt", "node.crt", "node.key"};
    char paths[3][4200];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(paths[i], sizeof(paths[i]), "%.4096s/%s", identity, names[i]);
    }
    struct trust_settings settings = {.ca = paths[0], .certificate = paths[1], .key = paths[2]};
    int code = trust_open(&settings, &client->trust, &problem->err);
    code =
        code != 0 ? code : tls_dial(client->trust, client->fd, NULL, &client->tls, &problem->err);
    if (code != 0) {
        problem_hint(problem, "--identity names a folder of `coppeliusctl pki user`");
    }
    return code;
}

int client_open(const char *endpoint, const char *identity, uint64_t timeout_ms,
                struct client **ret_client, struct problem *problem)
{
    struct sockaddr_storage address;
    socklen_t address_size = 0;
    int code = parse_endpoint(endpoint, &address, &address_size, problem);
    if (code != 0) {
        return code;
    }
    struct client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return problem_set(problem, ERR_NOMEM, "no memory for a connection");
    }
    client->fd = -1;
    client->timeout_ms = timeout_ms;
    (void)snprintf(client->endpoint, sizeof(client->endpoint), "%s", endpoint);
    uint64_t deadline = deadline_of(timeout_ms);
    code = connect_to(client, &address, address_size, deadline, problem);
    if (code == 0 && identity != NULL && address.ss_family == AF_INET) {
        code = secure(client, identity, problem);
    }
    if (code == 0) {
        code = say_hello(client, deadline, problem);
    }
    if (code != 0) {
        client_close(client);
        return code;
    }
    *ret_client = client;
    return 0;
}

int client_connect(const char *endpoint, uint64_t timeout_ms, int *ret_fd, struct problem *problem)
{
    struct client client = {.fd = -1, .timeout_ms = timeout_ms};
    struct sockaddr_storage address;
    socklen_t address_size = 0;
    int code = parse_endpoint(endpoint, &address, &address_size, problem);
    if (code == 0 && address.ss_family != AF_INET) {
        code = problem_set(problem, ERR_USAGE, "'%.100s' is no IP:PORT", endpoint);
    }
    (void)snprintf(client.endpoint, sizeof(client.endpoint), "%s", endpoint);
    code = code != 0
               ? code
               : connect_to(&client, &address, address_size, deadline_of(timeout_ms), problem);
    if (code != 0) {
        if (client.fd >= 0) {
            (void)close(client.fd);
        }
        return code;
    }
    *ret_fd = client.fd;
    return 0;
}

int client_open_for(const struct ctl *ctl, struct client **ret_client, struct problem *problem)
{
    const char *named = client_endpoint_named(&ctl->args);
    uint64_t timeout_ms =
        ctl->args.timeout_ms != UINT64_MAX ? ctl->args.timeout_ms : CLIENT_TIMEOUT_MS;
    return client_open(named != NULL ? named : CLIENT_ENDPOINT_DEFAULT,
                       client_identity_named(&ctl->args), timeout_ms, ret_client, problem);
}

void client_close(struct client *client)
{
    if (client == NULL) {
        return;
    }
    tls_free(client->tls);
    if (client->fd >= 0) {
        (void)close(client->fd);
    }
    trust_free(client->trust);
    buf_done(&client->in);
    free(client);
}

int client_ask(struct client *client, Ctl__Request *request, struct problem *problem)
{
    request->id = ++client->request_id;
    return send_message(client, FRAME_REQUEST, &request->base, problem);
}

void answer_done(struct answer *answer)
{
    if (answer->reply != NULL) {
        message_free(&answer->reply->base);
    }
    json_decref(answer->json);
    *answer = (struct answer){NULL, NULL};
}

static int take_reply(struct client *client, const struct frame *frame, struct answer *ret_answer,
                      struct problem *problem)
{
    ProtobufCMessage *message = NULL;
    if (frame->kind != FRAME_REPLY) {
        return problem_set(problem, ERR_PROTO, "%s sent a frame of kind %u instead of a reply",
                           client->endpoint, frame->kind);
    }
    int code = message_unpack(&ctl__reply__descriptor, frame->body, frame->body_size, &message,
                              &problem->err);
    if (code != 0) {
        return err_prefix(&problem->err, "%s: ", client->endpoint);
    }
    struct answer answer = {(Ctl__Reply *)(void *)message, NULL};
    if (answer.reply->id != client->request_id) {
        code = problem_set(problem, ERR_PROTO, "%s answered another request", client->endpoint);
    } else if (answer.reply->code != 0) {
        /* Several faults come as several lines: they are shown as they are, before the error. */
        const char *text = answer.reply->text;
        if (strchr(text, '\n') != NULL) {
            problem_faults(problem, text);
            (void)problem_set(problem, answer.reply->code, "the daemon refuses it");
        } else {
            (void)problem_set(problem, answer.reply->code, "%s", text);
        }
        problem_hint(problem, "%s", answer.reply->hint);
        code = answer.reply->code < 0 ? answer.reply->code : ERR_INTERNAL;
        problem->err.code = code;
    } else if (answer.reply->json.len > 0) {
        json_error_t error;
        answer.json = json_loadb((const char *)answer.reply->json.data, answer.reply->json.len,
                                 JSON_REJECT_DUPLICATES, &error);
        if (answer.json == NULL) {
            code = problem_set(problem, ERR_PROTO, "%s sent a document that is no JSON: %s",
                               client->endpoint, error.text);
        }
    }
    if (code != 0) {
        answer_done(&answer);
        return code;
    }
    *ret_answer = answer;
    return 0;
}

int client_next(struct client *client, uint64_t wait_ms, struct answer *ret_answer,
                struct problem *problem)
{
    struct frame frame;
    size_t used = 0;
    *ret_answer = (struct answer){NULL, NULL};
    int code = next_frame(client, deadline_of(wait_ms), &frame, &used, problem);
    if (code != 0 || used == 0) {
        return code;
    }
    code = take_reply(client, &frame, ret_answer, problem);
    drop(client, used);
    return code;
}

int client_call(struct client *client, Ctl__Request *request, struct answer *ret_answer,
                struct problem *problem)
{
    int code = client_ask(client, request, problem);
    if (code == 0) {
        code = client_next(client, client->timeout_ms, ret_answer, problem);
    }
    if (code == 0 && ret_answer->reply == NULL) {
        code = no_answer(client, client->timeout_ms, problem);
    }
    return code;
}

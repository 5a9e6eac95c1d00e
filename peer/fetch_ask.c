/* The fetcher's side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "peer/fetch_room.h"

#define CONNECT_DEFAULT_MS 30000U
#define WAIT_DEFAULT_MS    3600000U
#define SILENCE_DEFAULT_MS 10000U
#define ANSWER_DEFAULT_MS  60000U
#define RETRY_MS           200U

static uint32_t or_default(uint32_t value, uint32_t other)
{
    return value != 0 ? value : other;
}

/* The end, as the holder says it. */
static int take_bye(const struct frame_header *header, const uint8_t *body, struct err *err)
{
    struct reader reader = {body, header->body_size, false};
    int code = (int)read_u32(&reader);
    char text[ERR_TEXT_SIZE - 64];
    size_t size = reader.size < sizeof(text) - 1 ? reader.size : sizeof(text) - 1;
    if (reader.failed) {
        return err_set(err, ERR_PROTO, "a goodbye of %u bytes came", header->body_size);
    }
    memcpy(text, reader.bytes, size);
    text[size] = '\0';
    for (char *at = text; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == '"' ? ' ' : *at; /* It goes into a log line. */
    }
    return err_set(err, code < 0 && code >= ERR_BUSY ? code : ERR_PEER, "%s",
                   text[0] != '\0' ? text : "it ended the fetch and does not say why");
}

int fetch_begin(struct fetch *fetch, struct err *err)
{
    uint64_t deadline = clock_now_ms() + or_default(fetch->settings->wait_ms, WAIT_DEFAULT_MS);
    for (;;) {
        struct frame_header header;
        int code =
            wire_receive(&fetch->wire, fetch->buffer, FETCH_SIZE_MAX, deadline, &header, NULL, err);
        if (code != 0) {
            return code;
        }
        if (header.kind == PEER_BYE) {
            return take_bye(&header, fetch->buffer, err);
        }
        struct reader reader = {fetch->buffer, header.body_size, false};
        uint64_t first = read_u64(&reader);
        uint64_t second = read_u64(&reader);
        if ((header.kind != PEER_FETCH_WAIT && header.kind != PEER_FETCH_ABOUT) || reader.failed ||
            reader.size != 0) {
            return err_set(err, ERR_PROTO, "a frame of kind %u and %u bytes came first",
                           header.kind, header.body_size);
        }
        if (header.kind == PEER_FETCH_ABOUT) {
            if (first == 0 || first > FETCH_MANIFEST_MAX || second > FETCH_TABLE_MAX) {
                return err_set(err, ERR_PROTO,
                               "a manifest of %llu and a table of %llu bytes are told of",
                               (unsigned long long)first, (unsigned long long)second);
            }
            fetch->manifest_size = first;
            fetch->table_size = second;
            return 0;
        }
        if (clock_now_ms() >= deadline) {
            return err_set(err, ERR_TIMEOUT, "it still reads its data: %llu of %llu bytes",
                           (unsigned long long)first, (unsigned long long)second);
        }
    }
}

static int name_holder(const struct fetch *fetch, struct err *err)
{
    return err_prefix(err, "data from node %s: ", fetch->settings->holder);
}

static int greet(struct fetch *fetch, uint64_t deadline_ms, bool *ret_again, struct err *err)
{
    const struct fetch_settings *settings = fetch->settings;
    struct peer_hello hello = {.protocol = FRAME_PROTOCOL_VERSION,
                               .class = PEER_DATA,
                               .node_id = settings->node_id,
                               .life = settings->life,
                               .incarnation = settings->incarnation,
                               .job = settings->job,
                               .generation = settings->generation};
    (void)snprintf(hello.cluster, sizeof(hello.cluster), "%s", settings->cluster);
    (void)snprintf(hello.node, sizeof(hello.node), "%s", settings->node);
    memcpy(hello.identity, settings->digest, sizeof(hello.identity));
    const struct wire_node holder = {settings->holder, settings->holder_id, settings->holder_life};
    return wire_greet(&fetch->wire, &hello, &holder, deadline_ms, ret_again, err);
}

int fetch_open(const struct fetch_settings *settings, struct fetch **ret_fetch, struct err *err)
{
    struct fetch *fetch = calloc(1, sizeof(*fetch));
    uint64_t deadline = clock_now_ms() + or_default(settings->connect_ms, CONNECT_DEFAULT_MS);
    if (fetch == NULL || (fetch->buffer = malloc(FETCH_SIZE_MAX)) == NULL) {
        free(fetch);
        return err_set(err, ERR_NOMEM, "no memory for a fetch");
    }
    fetch->settings = settings;
    fetch->wire.transport.fd = -1;
    int code = 0;
    for (;;) {
        bool again = false;
        int fd = -1;
        code = wire_connect(settings->address, settings->cancel, deadline, &fd, err);
        if (code == 0) {
            fetch->wire =
                (struct wire){.generation = settings->generation,
                              .silence_ms = or_default(settings->silence_ms, SILENCE_DEFAULT_MS),
                              .cancel = settings->cancel,
                              .ticks = settings->ticks};
            code =
                transport_dial(&fetch->wire.transport, settings->trust, fd, settings->holder, err);
            if (code != 0) {
                (void)close(fd);
            }
            code = code == 0 ? greet(fetch, deadline, &again, err) : code;
        }
        if (code == 0 || !again || clock_now_ms() + RETRY_MS >= deadline) {
            break;
        }
        wire_done(&fetch->wire);
        struct timespec pause = {0, RETRY_MS * 1000000L};
        (void)nanosleep(&pause, NULL);
        *err = (struct err){0};
        if (settings->cancel != NULL && atomic_load(settings->cancel)) {
            code = err_set(err, ERR_CANCELED, "canceled");
            break;
        }
    }
    code = code == 0 ? fetch_begin(fetch, err) : code;
    if (code != 0) {
        (void)name_holder(fetch, err);
        fetch_close(fetch);
        return code;
    }
    *ret_fetch = fetch;
    return 0;
}

void fetch_close(struct fetch *fetch)
{
    if (fetch == NULL) {
        return;
    }
    wire_done(&fetch->wire);
    free(fetch->buffer);
    free(fetch);
}

uint64_t fetch_manifest_size(const struct fetch *fetch)
{
    return fetch->manifest_size;
}

uint64_t fetch_table_size(const struct fetch *fetch)
{
    return fetch->table_size;
}

uint64_t fetch_bytes_in(const struct fetch *fetch)
{
    return fetch->bytes_in;
}

uint32_t fetch_unanswered(const struct fetch *fetch)
{
    return (uint32_t)(fetch->asked - fetch->taken);
}

int fetch_ask(struct fetch *fetch, uint32_t part, uint64_t offset, uint32_t size, struct err *err)
{
    struct buf body = BUF_NONE;
    ASSERT(fetch_unanswered(fetch) < FETCH_WINDOW);
    ASSERT(size > 0);
    ASSERT(size <= FETCH_SIZE_MAX);
    buf_put_u32(&body, part);
    buf_put_u32(&body, size);
    buf_put_u64(&body, offset);
    uint64_t now = clock_now_ms();
    int code = wire_send(&fetch->wire, PEER_FETCH_READ, fetch->asked, body.bytes, body.size,
                         now + fetch->wire.silence_ms, err);
    buf_done(&body);
    if (code != 0) {
        return name_holder(fetch, err);
    }
    if (fetch_unanswered(fetch) == 0) {
        fetch->turn_ms = now;
    }
    fetch->sizes[fetch->asked % FETCH_WINDOW] = size;
    fetch->asked++;
    return 0;
}

int fetch_take(struct fetch *fetch, const uint8_t **ret_bytes, uint32_t *ret_size, struct err *err)
{
    struct frame_header header;
    ASSERT(fetch_unanswered(fetch) > 0);
    uint32_t size = fetch->sizes[fetch->taken % FETCH_WINDOW];
    int code =
        wire_receive(&fetch->wire, fetch->buffer, FETCH_SIZE_MAX,
                     fetch->turn_ms + or_default(fetch->settings->answer_ms, ANSWER_DEFAULT_MS),
                     &header, NULL, err);
    if (code == 0 && header.kind == PEER_BYE) {
        code = take_bye(&header, fetch->buffer, err);
    }
    if (code == 0 && (header.kind != PEER_FETCH_DATA || header.sequence != fetch->taken ||
                      header.body_size != size)) {
        code = err_set(err, ERR_PROTO,
                       "a frame of kind %u, number %llu and %u bytes came; answer %llu of %u was "
                       "due",
                       header.kind, (unsigned long long)header.sequence, header.body_size,
                       (unsigned long long)fetch->taken, size);
    }
    if (code != 0) {
        return name_holder(fetch, err);
    }
    fetch->turn_ms = clock_now_ms();
    fetch->taken++;
    fetch->bytes_in += size;
    *ret_bytes = fetch->buffer;
    *ret_size = size;
    return 0;
}

int fetch_whole(struct fetch *fetch, uint32_t part, void *bytes, uint64_t size, struct err *err)
{
    uint64_t asked = 0;
    uint64_t done = 0;
    ASSERT(fetch_unanswered(fetch) == 0);
    while (done < size) {
        const uint8_t *answer = NULL;
        uint32_t got = 0;
        while (asked < size && fetch_unanswered(fetch) < FETCH_WINDOW) {
            uint64_t left = size - asked;
            uint32_t piece = left < FETCH_SIZE_MAX ? (uint32_t)left : FETCH_SIZE_MAX;
            if (fetch_ask(fetch, part, asked, piece, err) != 0) {
                return err->code;
            }
            asked += piece;
        }
        if (fetch_take(fetch, &answer, &got, err) != 0) {
            return err->code;
        }
        memcpy((uint8_t *)bytes + done, answer, got);
        done += got;
    }
    return 0;
}

/* A link's frames: cutting what is queued, writing, reading into place. */
#include <stdlib.h>

#include "base/assert.h"
#include "peer/link.h"

#define READS_A_TURN 8 /* then the loop's other handles have their turn */

static bool has_output(const struct link *link)
{
    return link->out_count > 0 || link->queue_first[0] != NULL || link->queue_first[1] != NULL;
}

void link_watch(struct link *link)
{
    if (link->state != LINK_OPEN) {
        return;
    }
    const struct transport_ops *ops = link->transport.ops;
    bool ready = ops->is_ready(&link->transport) &&
                 (ops->is_busy == NULL || !ops->is_busy(&link->transport));
    bool write =
        link->broken.code != 0 || (ready && has_output(link)) || ops->wants_write(&link->transport);
    int events = UV_READABLE | (write ? UV_WRITABLE : 0);
    if (events != link->events) {
        link->events = events;
        ASSERT(uv_poll_start(&link->poll, events, link_on_poll) == 0);
    }
}

static void answer(struct link *link, struct link_send *send, bool sent)
{
    ASSERT(send->queued);
    send->queued = false;
    if (send->on_sent != NULL) {
        send->on_sent(link, send, sent);
    }
}

static void advance(struct link *link, size_t taken);

/* What is being written is ours again. */
static void settle(struct link *link)
{
    if (link->transport.ops->settle != NULL) {
        ssize_t taken = link->transport.ops->settle(&link->transport);
        if (taken > 0) {
            advance(link, (size_t)taken);
        }
    }
}

/* Answers everything that is queued, unsent. */
void link_drop_queued(struct link *link)
{
    settle(link);
    struct link_send *dropped = NULL;
    struct link_send **last = &dropped;
    while (link->out_count > 0) {
        struct link_out *out = &link->out[link->out_first];
        if (out->last) { /* Out of the queue already; each send is in one place only. */
            out->send->next = NULL;
            *last = out->send;
            last = &out->send->next;
        }
        link->out_first = (link->out_first + 1) % LINK_BATCH;
        link->out_count--;
    }
    for (int queue = 0; queue < 2; queue++) {
        *last = link->queue_first[queue];
        if (*last != NULL) {
            last = link->queue_last[queue];
        }
        link->queue_first[queue] = NULL;
        link->queue_last[queue] = &link->queue_first[queue];
    }
    link->out_done = 0;
    link->queued_size = 0;
    while (dropped != NULL) {
        struct link_send *send = dropped;
        dropped = send->next; /* on_sent may free it. */
        answer(link, send, false);
    }
}

void link_end(struct link *link, const struct err *err)
{
    struct err reason = *err;
    if (link->state == LINK_ENDED || link->state == LINK_CLOSING) {
        return;
    }
    link->state = LINK_ENDED;
    (void)uv_poll_stop(&link->poll);
    link_drop_queued(link);
    link->ops->on_ended(link, &reason); /* Usually closes the link. */
}

/* Whether a frame of that body carries a check: TLS has one of its own. */
static bool is_checked(const struct link *link, size_t body_size)
{
    return !link->transport.sealed || body_size <= FRAME_CHECKED_MAX;
}

/* Cuts queued sends into frames until one system call's worth is there. */
static void compose(struct link *link)
{
    size_t size = 0;
    for (unsigned i = 0; i < link->out_count; i++) {
        size += link->out[(link->out_first + i) % LINK_BATCH].size;
    }
    while (link->out_count < LINK_BATCH && size < link->piece_size) {
        int queue = link->queue_first[0] != NULL ? 0 : 1;
        struct link_send *send = link->queue_first[queue];
        if (send == NULL) {
            return;
        }
        struct link_out *out = &link->out[(link->out_first + link->out_count) % LINK_BATCH];
        size_t left = send->size - send->offset;
        out->send = send;
        out->bytes = send->bytes + send->offset;
        out->size = left < link->piece_size ? left : link->piece_size;
        out->last = out->size == left;
        struct frame_part part = {out->bytes, out->size};
        if (is_checked(link, out->size)) {
            frame_header_make(out->header, send->kind, 0, send->generation, send->sequence, &part,
                              1);
        } else {
            frame_header_bare(out->header, send->kind, 0, send->generation, send->sequence,
                              out->size);
        }
        send->offset += out->size;
        size += out->size;
        link->out_count++;
        if (out->last) {
            link->queue_first[queue] = send->next;
            if (link->queue_first[queue] == NULL) {
                link->queue_last[queue] = &link->queue_first[queue];
            }
        }
    }
}

/* `taken` more bytes of the frames on their way are the socket's. */
static void advance(struct link *link, size_t taken)
{
    link->bytes_out += taken;
    link->sent_ms = uv_now(link->poll.loop);
    link->out_done += taken;
    while (link->out_count > 0) {
        struct link_out *out = &link->out[link->out_first];
        struct link_send *send = out->send;
        size_t whole = FRAME_HEADER_SIZE + out->size;
        if (link->out_done < whole) {
            return;
        }
        link->out_done -= whole;
        link->queued_size -= out->size;
        link->frames_out++;
        bool last = out->last;
        link->out_first = (link->out_first + 1) % LINK_BATCH;
        link->out_count--;
        if (last) {
            answer(link, send, true);
        }
    }
    ASSERT(link->out_done == 0);
}

/* Writes until the socket has no room, nothing is left, or this turn of the loop has had enough:
 * who only writes does not read, and fills the other side's buffers instead of its caches. An error
 * is kept for the loop's next turn: who sends must not meet on_ended inside link_send. */
void link_flush(struct link *link)
{
    if (link->state == LINK_OPEN && link->broken.code == 0 &&
        link->transport.ops->wants_write(&link->transport)) {
        (void)link->transport.ops->write(&link->transport, NULL, 0, &link->broken);
    }
    bool busy =
        link->transport.ops->is_busy != NULL; /* It has one job at a time, and its own time. */
    while (link->state == LINK_OPEN && link->broken.code == 0 &&
           (link->burst < LINK_BURST || busy)) {
        struct iovec parts[2 * LINK_BATCH];
        int parts_count = 0;
        size_t skip = link->out_done;
        size_t size = 0;
        compose(link);
        for (unsigned i = 0; i < link->out_count; i++) {
            struct link_out *out = &link->out[(link->out_first + i) % LINK_BATCH];
            struct iovec pair[2] = {{out->header, FRAME_HEADER_SIZE},
                                    {(void *)(uintptr_t)out->bytes, out->size}};
            for (int k = 0; k < 2; k++) {
                size_t cut = skip < pair[k].iov_len ? skip : pair[k].iov_len;
                skip -= cut;
                if (pair[k].iov_len > cut) {
                    parts[parts_count].iov_base = (uint8_t *)pair[k].iov_base + cut;
                    parts[parts_count].iov_len = pair[k].iov_len - cut;
                    size += parts[parts_count].iov_len;
                    parts_count++;
                }
            }
        }
        if (parts_count == 0) {
            break;
        }
        ssize_t taken =
            link->transport.ops->write(&link->transport, parts, parts_count, &link->broken);
        if (taken > 0) {
            link->burst += (size_t)taken;
            advance(link, (size_t)taken);
        }
        if (taken <= 0 || ((size_t)taken < size && !busy)) {
            break;
        }
    }
    if (link->state == LINK_OPEN && link->shut_when_sent && !has_output(link)) {
        link->shut_when_sent = false;
        link->transport.ops->shut(&link->transport);
    }
    link_watch(link);
}

void link_send(struct link *link, struct link_send *send, int queue)
{
    ASSERT(!send->queued);
    send->next = NULL;
    send->offset = 0;
    send->queued = true;
    if (link->state != LINK_OPEN && link->state != LINK_CONNECTING) {
        answer(link, send, false);
        return;
    }
    *link->queue_last[queue] = send;
    link->queue_last[queue] = &send->next;
    link->queued_size += send->size;
    link_flush(link);
}

bool link_farewell(struct link *link, struct link_send *send)
{
    settle(link);
    if (link->state != LINK_OPEN || link->out_done > 0) {
        return false;
    }
    link_drop_queued(link);
    link->shut_when_sent = true;
    link_send(link, send, 0);
    return true;
}

void link_shut(struct link *link)
{
    if (link->state == LINK_OPEN) {
        link->shut_when_sent = true;
        link_flush(link);
    }
}

/* The header is whole: where does the body go? */
static int begin_body(struct link *link, struct err *err)
{
    if (frame_header_read(link->header[link->turn], link->limit, &link->frame, err) != 0) {
        return err->code;
    }
    uint8_t *place = NULL;
    if (link->ops->place != NULL && link->ops->place(link, &link->frame, &place, err) != 0) {
        return err->code;
    }
    if (place == NULL && link->frame.body_size == 0) {
        place = link->header[link->turn]; /* Nothing is written there; but a body is never NULL. */
    } else if (place == NULL) {
        if (link->buffer_size < link->frame.body_size) {
            uint8_t *buffer = realloc(link->buffer, link->frame.body_size);
            if (buffer == NULL) {
                return err_set(err, ERR_NOMEM, "no memory for a frame of %u bytes",
                               link->frame.body_size);
            }
            link->buffer = buffer;
            link->buffer_size = link->frame.body_size;
        }
        place = link->buffer;
    }
    link->body = place;
    link->body_have = 0;
    link->in_body = true;
    return 0;
}

/* `got` more bytes lie where the parts were. False: the owner closed the link. */
static bool digest(struct link *link, size_t got, struct err *err)
{
    while (err->code == 0) {
        if (!link->in_body) {
            size_t missing = FRAME_HEADER_SIZE - link->header_have;
            size_t now = got < missing ? got : missing;
            link->header_have += now;
            got -= now;
            if (link->header_have < FRAME_HEADER_SIZE || begin_body(link, err) != 0) {
                break;
            }
        }
        size_t missing = link->frame.body_size - link->body_have;
        size_t now = got < missing ? got : missing;
        link->body_have += now;
        got -= now;
        if (link->body_have < link->frame.body_size) {
            break;
        }
        const uint8_t *header = link->header[link->turn];
        link->in_body = false;
        link->header_have = 0;
        link->turn = 1 - link->turn;
        if (is_checked(link, link->frame.body_size) &&
            frame_header_check(header, link->body, link->frame.body_size, err) != 0) {
            break;
        }
        link->frames_in++;
        (void)link->ops->on_frame(link, &link->frame, link->body, err);
        if (link->state != LINK_OPEN) {
            return false;
        }
        if (got == 0) {
            break;
        }
    }
    return true;
}

/* Drives the handshake below; whether the link may read now. */
static bool get_ready(struct link *link)
{
    struct err err = {0};
    struct transport *transport = &link->transport;
    if (transport->ops->is_ready(transport)) {
        return true;
    }
    if (transport->ops->read(transport, NULL, 0, &err) < 0) {
        link_end(link, &err);
        return false;
    }
    if (!transport->ops->is_ready(transport)) {
        return false;
    }
    link->heard_ms = uv_now(link->poll.loop);
    if (link->ops->on_ready != NULL) {
        link->ops->on_ready(link);
    }
    return link->state == LINK_OPEN;
}

void link_read_frames(struct link *link)
{
    link->transport.reads_left = READS_A_TURN;
    if (!get_ready(link)) {
        return;
    }
    while (link->state == LINK_OPEN) {
        struct iovec parts[2];
        int parts_count = 0;
        size_t size = 0;
        struct err err = {0};
        if (link->in_body) {
            parts[parts_count].iov_base = link->body + link->body_have;
            parts[parts_count].iov_len = link->frame.body_size - link->body_have;
            size = parts[parts_count++].iov_len;
            if (!link->one_frame) {
                parts[parts_count].iov_base = link->header[1 - link->turn];
                parts[parts_count++].iov_len = FRAME_HEADER_SIZE;
                size += FRAME_HEADER_SIZE;
            }
        } else {
            parts[parts_count].iov_base = link->header[link->turn] + link->header_have;
            parts[parts_count].iov_len = FRAME_HEADER_SIZE - link->header_have;
            size = parts[parts_count++].iov_len;
        }
        ssize_t got = link->transport.ops->read(&link->transport, parts, parts_count, &err);
        if (got == 0) {
            return;
        }
        if (got > 0) {
            link->bytes_in += (size_t)got;
            link->heard_ms = uv_now(link->poll.loop);
            if (!digest(link, (size_t)got, &err)) {
                return;
            }
        }
        if (err.code != 0) {
            link_end(link, &err);
            return;
        }
        if ((size_t)got < size && link->transport.ops->is_busy == NULL) {
            return; /* Less than asked for: nothing more is there. */
        }
    }
}

void link_read_now(struct link *link)
{
    if (link->state == LINK_OPEN) {
        link_read_frames(link);
    }
    if (link->state == LINK_OPEN && link->transport.ops->is_busy != NULL) {
        link_flush(link); /* It may have told of both at once. */
    }
}

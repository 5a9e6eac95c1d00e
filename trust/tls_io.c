/* Reading and writing of an open connection: whole records to and from the socket in as few system
 * calls as there can be, each byte touched once beside AES-GCM: sealed from where the caller's
 * bytes lie, opened to where they go, copied only where a record is longer than the room there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "trust/trust_room.h"

void tls_buffers_done(struct tls *tls)
{
    if (tls->in != NULL && tls->in_end > 0) { /* What was opened in place is plain text. */
        OPENSSL_cleanse(tls->in, tls->in_end);
    }
    free(tls->in);
    free(tls->out);
    tls->in = NULL;
    tls->out = NULL;
}

int tls_flush(struct tls *tls, struct err *err)
{
    while (tls->out_first < tls->out_end) {
        ssize_t sent = send(tls->fd, tls->out + tls->out_first, tls->out_end - tls->out_first,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            tls->out_first += (size_t)sent;
        } else if (sent < 0 && errno == EAGAIN) {
            return 0;
        } else if (sent < 0 && errno != EINTR) {
            (void)err_set(err, ERR_PEER, "the connection broke: %s", err_errno(errno));
            return tls_break(tls, err);
        }
    }
    tls->out_first = 0;
    tls->out_end = 0;
    if (tls->shut_wanted && !tls->shut_done) {
        tls->shut_done = true;
        (void)shutdown(tls->fd, SHUT_WR); /* A connection that is gone already needs none. */
    }
    return 0;
}

/* The next key for what we send, said with the old one. */
static int update_writes(struct tls *tls, struct err *err)
{
    static const uint8_t message[5] = {24, 0, 0, 1, 0}; /* KeyUpdate, update_not_requested */
    tls->update_owed = false;
    if (record_seal_bytes(tls, RECORD_HANDSHAKE, message, sizeof(message), err) != 0) {
        return err->code;
    }
    return tls_keys_update(tls, &tls->writes, err);
}

ssize_t tls_write(struct tls *tls, const struct iovec *parts, int parts_count, struct err *err)
{
    unsigned reads = 0;
    size_t left = 0;
    size_t offset = 0;
    size_t taken = 0;
    if (tls->state == TLS_SHAKING && tls_shake(tls, &reads, err) != 0) {
        return -1;
    }
    if (tls->state == TLS_BROKEN) {
        *err = tls->broken;
        return -1;
    }
    if (tls_flush(tls, err) != 0) {
        return -1;
    }
    for (int i = 0; i < parts_count; i++) {
        left += parts[i].iov_len;
    }
    while (left > 0 && tls->state == TLS_OPEN && tls->out_end == 0) {
        ASSERT(!tls->shut_wanted);
        while (left > 0 && TLS_BUFFER_SIZE - tls->out_end >= RECORD_CONTENT_MAX + RECORD_OVERHEAD) {
            size_t size = left < RECORD_CONTENT_MAX ? left : RECORD_CONTENT_MAX;
            bool update = tls->update_owed || tls->writes.sequence >= tls->records_max;
            if (update && update_writes(tls, err) != 0) {
                return tls_break(tls, err);
            }
            if (TLS_BUFFER_SIZE - tls->out_end < size + RECORD_OVERHEAD) {
                break; /* The key update has taken its room. */
            }
            if (record_seal(tls, RECORD_DATA, &parts, &offset, size, err) != 0) {
                return tls_break(tls, err);
            }
            left -= size;
            taken += size;
        }
        if (tls_flush(tls, err) != 0) {
            return -1;
        }
    }
    return (ssize_t)taken;
}

void tls_shut(struct tls *tls)
{
    static const uint8_t goodbye[2] = {1, ALERT_CLOSE_NOTIFY};
    struct err err = {0};
    if (tls->shut_wanted || tls->state == TLS_BROKEN) {
        return;
    }
    tls->shut_wanted = true;
    if (tls->state == TLS_OPEN && TLS_BUFFER_SIZE - tls->out_end >= 2 + RECORD_OVERHEAD) {
        (void)record_seal_bytes(tls, RECORD_ALERT, goodbye, sizeof(goodbye), &err);
    }
    (void)tls_flush(tls, &err); /* What breaks here is found by the reader. */
}

/* ---------------------------------------------------------------- reading */

/* An alert or a message of the handshake's protocol; what lies in a reader's place is not given. */
static int take_small(struct tls *tls, enum record_type type, const uint8_t *bytes, size_t size,
                      struct err *err)
{
    if (type == RECORD_ALERT && size == 2) {
        if (bytes[1] == ALERT_CLOSE_NOTIFY) {
            tls->goodbye_came = true;
            return err_set(err, ERR_PEER, "closed the connection");
        }
        return err_set(err, ERR_AUTH, "it refuses this connection: %s", tls_alert_text(bytes[1]));
    }
    if (type == RECORD_HANDSHAKE && size == 5 && bytes[0] == 24 && bytes[1] == 0 && bytes[2] == 0 &&
        bytes[3] == 1 && bytes[4] <= 1) {
        if (++tls->updates > TLS_UPDATES_IN_A_ROW) {
            return err_set(err, ERR_PROTO, "%u key updates came in a row", tls->updates);
        }
        tls->update_owed |= bytes[4] == 1;
        return tls_keys_update(tls, &tls->reads, err);
    }
    return err_set(err, ERR_PROTO,
                   "a TLS message of type %u and %zu bytes came, which this protocol does not have",
                   type, size);
}

/* Bytes from the socket behind what is there: 1, 0 for none now, or -1. */
static int take_in(struct tls *tls, unsigned *reads_left, struct err *err)
{
    size_t have = tls->in_end - tls->in_first;
    if (*reads_left == 0) {
        return 0;
    }
    if (tls->in_first > 0) {
        memmove(tls->in, tls->in + tls->in_first, have); /* Less than a record. */
        tls->in_first = 0;
        tls->in_end = have;
    }
    for (;;) {
        ssize_t got = recv(tls->fd, tls->in + have, TLS_BUFFER_SIZE, MSG_DONTWAIT);
        if (got > 0) {
            (*reads_left)--;
            tls->in_end += (size_t)got;
            return 1;
        }
        if (got == 0) { /* Told apart from the other side's word: anybody between can do this. */
            (void)err_set(err, ERR_PEER,
                          "closed the connection without a goodbye: it died, or was cut off");
            return -1;
        }
        if (errno == EAGAIN) {
            return 0;
        }
        if (errno != EINTR) {
            (void)err_set(err, ERR_PEER, "the connection broke: %s", err_errno(errno));
            return -1;
        }
    }
}

struct place { /* in the caller's parts */
    const struct iovec *parts;
    int parts_count;
    size_t offset;
    size_t done;
};

static void advance(struct place *place, size_t size)
{
    place->done += size;
    place->offset += size;
    while (place->parts_count > 0 && place->offset >= place->parts->iov_len) {
        place->offset -= place->parts->iov_len;
        place->parts++;
        place->parts_count--;
    }
}

static void give_plain(struct tls *tls, struct place *place)
{
    while (tls->plain_size > 0 && place->parts_count > 0) {
        size_t room = place->parts->iov_len - place->offset;
        size_t now = room < tls->plain_size ? room : tls->plain_size;
        memcpy((uint8_t *)place->parts->iov_base + place->offset, tls->plain, now);
        tls->plain += now;
        tls->plain_size -= now;
        advance(place, now);
    }
}

/* The whole record of that size at in_first. */
static int open_one(struct tls *tls, size_t size, struct place *place, struct err *err)
{
    enum record_type type = RECORD_DATA;
    size_t content = 0;
    size_t room = place->parts->iov_len - place->offset;
    bool direct = size - RECORD_OVERHEAD <= room;
    uint8_t *to = direct ? (uint8_t *)place->parts->iov_base + place->offset : NULL;
    if (record_open(tls, size, to, &type, &content, err) != 0) {
        return err->code;
    }
    if (type != RECORD_DATA) {
        return take_small(tls, type, direct ? to : tls->plain, content, err);
    }
    tls->updates = content > 0 ? 0 : tls->updates; /* Empty records make no flood of them good. */
    if (direct) {
        advance(place, content);
    } else {
        tls->plain_size = content;
        give_plain(tls, place);
    }
    return 0;
}

ssize_t tls_read(struct tls *tls, const struct iovec *parts, int parts_count, unsigned *reads_left,
                 struct err *err)
{
    struct place place = {.parts = parts, .parts_count = parts_count};
    struct err why = {0};
    if (tls->state == TLS_SHAKING && tls_shake(tls, reads_left, err) != 0) {
        return -1;
    }
    if (tls->state == TLS_SHAKING) {
        return 0;
    }
    advance(&place, 0); /* past empty parts */
    give_plain(tls, &place);
    while (place.parts_count > 0 && tls->state == TLS_OPEN) {
        size_t size = 0;
        bool whole = false;
        int code = record_whole(tls, &size, &whole, &why);
        if (code == 0 && whole) {
            code = open_one(tls, size, &place, &why);
        } else if (code == 0) {
            int got = take_in(tls, reads_left, &why);
            if (got == 0) {
                break;
            }
            code = got < 0 ? why.code : 0;
        }
        if (code != 0) {
            (void)tls_break(tls, &why); /* Told when what came before it is taken. */
        }
    }
    if (place.done == 0 && tls->state == TLS_BROKEN) {
        *err = tls->broken;
        return -1;
    }
    return (ssize_t)place.done;
}

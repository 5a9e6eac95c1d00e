/* A transport whose other side is memory: what comes is there at once, then the end; what goes is
 * kept. For the fuzz targets of what speaks over a wire. */
#ifndef COPPELIUS_TESTS_MEMORY_WIRE_H
#define COPPELIUS_TESTS_MEMORY_WIRE_H

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "peer/transport.h"

struct memory {
    struct buf in;
    size_t at;
    struct buf out;
};

static ssize_t memory_read(struct transport *transport, const struct iovec *parts, int parts_count,
                           struct err *err)
{
    struct memory *memory = transport->state;
    size_t left = memory->in.size - memory->at;
    size_t size = parts[0].iov_len < left ? parts[0].iov_len : left;
    ASSERT(parts_count == 1);
    if (size == 0) {
        (void)err_set(err, ERR_PEER, "closed the connection");
        return -1;
    }
    memcpy(parts[0].iov_base, memory->in.bytes + memory->at, size);
    memory->at += size;
    return (ssize_t)size;
}

static ssize_t memory_write(struct transport *transport, const struct iovec *parts, int parts_count,
                            struct err *err)
{
    struct memory *memory = transport->state;
    ssize_t taken = 0;
    (void)err;
    for (int i = 0; i < parts_count; i++) {
        buf_put(&memory->out, parts[i].iov_base, parts[i].iov_len);
        taken += (ssize_t)parts[i].iov_len;
    }
    return taken;
}

static bool memory_wants_write(const struct transport *transport)
{
    (void)transport;
    return false;
}

static bool memory_is_ready(const struct transport *transport)
{
    (void)transport;
    return true;
}

static void memory_shut(struct transport *transport)
{
    (void)transport;
}

static const struct transport_ops memory_ops = {.read = memory_read,
                                                .write = memory_write,
                                                .wants_write = memory_wants_write,
                                                .is_ready = memory_is_ready,
                                                .shut = memory_shut,
                                                .done = memory_shut};

#endif

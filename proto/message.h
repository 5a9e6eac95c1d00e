/* protobuf-c messages in and out, with limits.
 *
 * Unpacking spends memory in proportion to what the bytes claim, and a hostile message claims many
 * small things; so an allocator counts, and a message that wants more than MESSAGE_MEMORY_MAX bytes
 * or MESSAGE_BLOCKS_MAX blocks is refused. Names: <peer.pb-c.h> and <ctl.pb-c.h> have the types
 * (Peer__Hello, Ctl__Request, …) and descriptors (peer__hello__descriptor, …). Any thread. */
#ifndef COPPELIUS_PROTO_MESSAGE_H
#define COPPELIUS_PROTO_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"
#include "base/err.h"
#include "proto/frame.h"

#define MESSAGE_MEMORY_MAX (32U << 20)
#define MESSAGE_BLOCKS_MAX 65536U

/* A new message of the type, to be freed with message_free(); cast it to its own type.
 * ERR_PROTO where the bytes are not one. */
int message_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t size,
                   ProtobufCMessage **ret_message, struct err *err);
void message_free(ProtobufCMessage *message); /* NULL is fine */

/* Appends one whole frame whose body is the packed message. ERR_PROTO where that is more than
 * limit (a FRAME_LIMIT_*); nothing is appended then. generation is 0 outside of runs. */
int message_frame(struct buf *out, uint16_t kind, uint64_t generation, uint64_t sequence,
                  const ProtobufCMessage *message, size_t limit, struct err *err);

#endif

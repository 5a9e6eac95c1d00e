#include "proto/message.h"

#include <stdlib.h>

#include "base/assert.h"

struct budget {
    size_t memory;
    size_t blocks;
};

static void *budget_alloc(void *context, size_t size)
{
    struct budget *budget = context;
    if (budget->blocks == 0 || size > budget->memory) {
        return NULL;
    }
    budget->blocks--;
    budget->memory -= size;
    return malloc(size > 0 ? size : 1);
}

static void budget_free(void *context, void *block)
{
    (void)context; /* What was given back is not given out again: the budget bounds the work too. */
    free(block);
}

int message_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t size,
                   ProtobufCMessage **ret_message, struct err *err)
{
    struct budget budget = {MESSAGE_MEMORY_MAX, MESSAGE_BLOCKS_MAX};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, size, bytes);
    if (message == NULL) {
        return err_set(err, ERR_PROTO, "%zu bytes came that are no %s message", size, type->name);
    }
    *ret_message = message;
    return 0;
}

void message_free(ProtobufCMessage *message)
{
    struct budget budget = {0, 0};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    if (message != NULL) {
        protobuf_c_message_free_unpacked(message, &allocator);
    }
}

int message_frame(struct buf *out, uint16_t kind, uint64_t generation, uint64_t sequence,
                  const ProtobufCMessage *message, size_t limit, struct err *err)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    if (size > limit) {
        return err_set(err, ERR_PROTO, "a %s of %zu bytes is too long to send; the most is %zu",
                       message->descriptor->short_name, size, limit);
    }
    uint8_t *body = malloc(size > 0 ? size : 1);
    if (body == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a message of %zu bytes", size);
    }
    size_t packed = protobuf_c_message_pack(message, body);
    ASSERT(packed == size);
    struct frame frame = {.kind = kind,
                          .generation = generation,
                          .sequence = sequence,
                          .body = body,
                          .body_size = size};
    frame_write(out, &frame);
    free(body);
    return 0;
}

#include "control/message.h"

#include "base/assert.h"

#define VERSION 2U

void message_put_entry(struct buf *bytes, const struct message_entry *entry)
{
    buf_put_u64(bytes, entry->term);
    buf_put_u8(bytes, (uint8_t)entry->kind);
    buf_put_u32(bytes, entry->size);
    buf_put(bytes, entry->bytes, entry->size);
}

bool message_entry_is_well_formed(uint64_t term, uint32_t kind, const uint8_t *bytes, uint32_t size)
{
    struct control_group group;
    if (term == 0) {
        return false;
    }
    return (kind == ENTRY_NOOP && size == 0) ||
           (kind == ENTRY_COMMAND && size > 0 && size <= CONTROL_COMMAND_SIZE) ||
           (kind == ENTRY_GROUP && group_parse(bytes, size, &group));
}

int message_read_entry(struct reader *reader, struct message_entry *ret_entry, struct err *err)
{
    uint64_t term = read_u64(reader);
    uint8_t kind = read_u8(reader);
    uint32_t size = read_u32(reader);
    if (reader->failed || size > reader->size) {
        return err_set(err, ERR_PROTO, "a log entry ends early");
    }
    if (!message_entry_is_well_formed(term, kind, reader->bytes, size)) {
        return err_set(err, ERR_PROTO, "a log entry of term %llu, kind %u, %u bytes is none",
                       (unsigned long long)term, kind, size);
    }
    *ret_entry = (struct message_entry){term, (enum entry_kind)kind, reader->bytes, size};
    reader->bytes += size;
    reader->size -= size;
    return 0;
}

static void put_append_answer(const struct raft_message *message, struct buf *bytes)
{
    buf_put_u8(bytes, message->ok);
    buf_put_u64(bytes, message->index);
    buf_put_u64(bytes, message->verified);
    if (!message->ok) {
        buf_put_u64(bytes, message->hint_index);
        buf_put_u64(bytes, message->hint_term);
        buf_put_u64(bytes, message->rejected);
    }
}

static void put_snapshot(const struct raft_message *message, struct buf *bytes)
{
    buf_put_u64(bytes, message->index);
    buf_put_u64(bytes, message->log_term);
    buf_put_u16(bytes, (uint16_t)message->group_size);
    buf_put(bytes, message->group, message->group_size);
    buf_put_u64(bytes, message->total);
    buf_put_u64(bytes, message->hash);
    buf_put_u64(bytes, message->offset);
    buf_put_u32(bytes, (uint32_t)message->size);
    buf_put(bytes, message->bytes, message->size);
}

void message_encode(const struct raft_message *message, struct buf *bytes)
{
    buf_put_u8(bytes, VERSION);
    buf_put_u8(bytes, (uint8_t)message->kind);
    buf_put_u32(bytes, message->from);
    buf_put_u32(bytes, message->to);
    buf_put_u64(bytes, message->term);
    switch (message->kind) {
    case MESSAGE_PREVOTE:
    case MESSAGE_VOTE:
        buf_put_u64(bytes, message->index);
        buf_put_u64(bytes, message->log_term);
        break;
    case MESSAGE_PREVOTE_ANSWER:
    case MESSAGE_VOTE_ANSWER:
        buf_put_u8(bytes, message->ok);
        break;
    case MESSAGE_APPEND:
        buf_put_u64(bytes, message->index);
        buf_put_u64(bytes, message->log_term);
        buf_put_u64(bytes, message->commit);
        buf_put_u32(bytes, message->entries_count);
        buf_put(bytes, message->bytes, message->size);
        break;
    case MESSAGE_APPEND_ANSWER:
        put_append_answer(message, bytes);
        break;
    case MESSAGE_SNAPSHOT:
        put_snapshot(message, bytes);
        break;
    case MESSAGE_SNAPSHOT_ANSWER:
        buf_put_u64(bytes, message->index);
        buf_put_u64(bytes, message->offset);
        break;
    case MESSAGE_FORWARD:
        buf_put_u32(bytes, (uint32_t)message->size);
        buf_put(bytes, message->bytes, message->size);
        break;
    }
    ASSERT(bytes->size <= CONTROL_MESSAGE_SIZE);
}

static bool read_bool(struct reader *reader)
{
    uint8_t value = read_u8(reader);
    if (value > 1) {
        reader->failed = true;
    }
    return value == 1;
}

/* A counted run of bytes that must be the rest of the message. */
static void read_rest(struct reader *reader, struct raft_message *message)
{
    uint32_t size = read_u32(reader);
    if (reader->failed || size != reader->size) {
        reader->failed = true;
        return;
    }
    message->bytes = reader->bytes;
    message->size = size;
    reader->bytes += size;
    reader->size = 0;
}

static int read_append(struct reader *reader, struct raft_message *message, struct err *err)
{
    message->index = read_u64(reader);
    message->log_term = read_u64(reader);
    message->commit = read_u64(reader);
    message->entries_count = read_u32(reader);
    message->bytes = reader->bytes;
    message->size = reader->size;
    if (reader->failed || message->entries_count > MESSAGE_ENTRIES_MAX ||
        message->index > UINT64_MAX / 2) {
        return err_set(err, ERR_PROTO, "an append that is none");
    }
    uint64_t term = message->log_term;
    for (uint32_t i = 0; i < message->entries_count; i++) {
        struct message_entry entry;
        int code = message_read_entry(reader, &entry, err);
        if (code != 0) {
            return code;
        }
        if (entry.term < term || entry.term > message->term) {
            return err_set(err, ERR_PROTO, "entries of terms out of order in an append");
        }
        term = entry.term;
    }
    return 0;
}

static void read_append_answer(struct reader *reader, struct raft_message *message)
{
    message->ok = read_bool(reader);
    message->index = read_u64(reader);
    message->verified = read_u64(reader);
    if (!message->ok) {
        message->hint_index = read_u64(reader);
        message->hint_term = read_u64(reader);
        message->rejected = read_u64(reader);
    }
}

static void read_snapshot(struct reader *reader, struct raft_message *message)
{
    message->index = read_u64(reader);
    message->log_term = read_u64(reader);
    struct control_group group;
    message->group_size = read_u16(reader);
    message->group = reader->bytes;
    if (reader->failed || message->group_size > reader->size ||
        !group_parse(message->group, message->group_size, &group)) {
        reader->failed = true;
        return;
    }
    reader->bytes += message->group_size;
    reader->size -= message->group_size;
    message->total = read_u64(reader);
    message->hash = read_u64(reader);
    message->offset = read_u64(reader);
    read_rest(reader, message);
    if (message->index == 0 || message->index > UINT64_MAX / 2 || message->log_term == 0 ||
        message->total > CONTROL_SNAPSHOT_SIZE || message->offset > message->total ||
        message->size > message->total - message->offset) {
        reader->failed = true;
    }
}

int message_decode(const uint8_t *bytes, size_t size, struct raft_message *ret_message,
                   struct err *err)
{
    if (size > CONTROL_MESSAGE_SIZE) {
        return err_set(err, ERR_PROTO, "a consensus message of %zu bytes; the most is %u", size,
                       CONTROL_MESSAGE_SIZE);
    }
    struct reader reader = {bytes, size, false};
    struct raft_message message = {0};
    uint8_t version = read_u8(&reader);
    uint8_t kind = read_u8(&reader);
    message.from = read_u32(&reader);
    message.to = read_u32(&reader);
    message.term = read_u64(&reader);
    if (reader.failed || version != VERSION || kind < MESSAGE_PREVOTE || kind > MESSAGE_FORWARD) {
        return err_set(err, ERR_PROTO, "a consensus message of version %u, kind %u is not known",
                       version, kind);
    }
    message.kind = (enum message_kind)kind;
    int code = 0;
    switch (message.kind) {
    case MESSAGE_PREVOTE:
    case MESSAGE_VOTE:
        message.index = read_u64(&reader);
        message.log_term = read_u64(&reader);
        break;
    case MESSAGE_PREVOTE_ANSWER:
    case MESSAGE_VOTE_ANSWER:
        message.ok = read_bool(&reader);
        break;
    case MESSAGE_APPEND:
        code = read_append(&reader, &message, err);
        break;
    case MESSAGE_APPEND_ANSWER:
        read_append_answer(&reader, &message);
        break;
    case MESSAGE_SNAPSHOT:
        read_snapshot(&reader, &message);
        break;
    case MESSAGE_SNAPSHOT_ANSWER:
        message.index = read_u64(&reader);
        message.offset = read_u64(&reader);
        break;
    case MESSAGE_FORWARD:
        read_rest(&reader, &message);
        if (message.size == 0 || message.size > CONTROL_COMMAND_SIZE) {
            reader.failed = true;
        }
        break;
    }
    if (code != 0) {
        return code;
    }
    if (reader.failed || reader.size != 0) {
        return err_set(err, ERR_PROTO, "a consensus message of kind %u is malformed", kind);
    }
    *ret_message = message;
    return 0;
}

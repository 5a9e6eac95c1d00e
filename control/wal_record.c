#include "control/wal_record.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define RECORD_MAGIC 0x52575043U /* "CPWR" */

static const char segment_magic[8] = {'C', 'O', 'P', 'P', 'W', 'A', 'L', '\n'};

void wal_put_segment(struct buf *bytes, const struct wal_segment *segment)
{
    size_t start = bytes->size;
    buf_put(bytes, segment_magic, sizeof(segment_magic));
    buf_put_u32(bytes, WAL_FORMAT);
    buf_put_u32(bytes, segment->node);
    buf_put_u64(bytes, segment->number);
    buf_put_u64(bytes, segment->base_index);
    buf_put_u64(bytes, segment->base_term);
    buf_put_u64(bytes, hash_xxh3(bytes->bytes + start, bytes->size - start));
    ASSERT(bytes->size - start == WAL_SEGMENT_SIZE);
}

int wal_parse_segment(const uint8_t *bytes, size_t size, struct wal_segment *ret_segment,
                      struct err *err)
{
    struct reader reader = {bytes, size, false};
    char magic[8];
    read_bytes(&reader, magic, sizeof(magic));
    uint32_t format = read_u32(&reader);
    if (reader.failed || memcmp(magic, segment_magic, sizeof(magic)) != 0) {
        return err_set(err, ERR_DAMAGED, "it does not begin as a log file does");
    }
    if (format != WAL_FORMAT) {
        return err_set(err, ERR_DAMAGED, "it has format %u; this program reads %u", format,
                       WAL_FORMAT);
    }
    struct wal_segment segment;
    segment.node = read_u32(&reader);
    segment.number = read_u64(&reader);
    segment.base_index = read_u64(&reader);
    segment.base_term = read_u64(&reader);
    uint64_t hash = read_u64(&reader);
    if (reader.failed || hash != hash_xxh3(bytes, WAL_SEGMENT_SIZE - 8)) {
        return err_set(err, ERR_DAMAGED, "its header is damaged");
    }
    *ret_segment = segment;
    return 0;
}

void wal_put_record(struct buf *bytes, const struct wal_record *record)
{
    size_t start = bytes->size;
    buf_reserve(bytes, WAL_RECORD_SIZE + record->size + 8U);
    buf_put_u32(bytes, RECORD_MAGIC);
    buf_put_u16(bytes, (uint16_t)record->kind);
    buf_put_u16(bytes, record->kind == WAL_ENTRY ? (uint16_t)record->entry_kind : 0);
    buf_put_u64(bytes, record->segment);
    buf_put_u64(bytes, record->position);
    buf_put_u64(bytes, record->batch);
    buf_put_u32(bytes, record->left);
    buf_put_u32(bytes, record->size);
    buf_put_u64(bytes, record->kind == WAL_ENTRY ? record->index : record->vote);
    buf_put_u64(bytes, record->term);
    buf_put_u64(bytes, hash_xxh3(record->bytes, record->size));
    buf_put_u64(bytes, hash_xxh3(bytes->bytes + start, bytes->size - start));
    ASSERT(bytes->size - start == WAL_RECORD_SIZE);
    buf_put(bytes, record->bytes, record->size);
    static const uint8_t zeros[8];
    buf_put(bytes, zeros, (8 - record->size % 8) % 8);
}

static bool kind_is_known(const struct wal_record *record, uint16_t kind, uint16_t entry_kind,
                          uint64_t place)
{
    if (kind == WAL_HARD) {
        return entry_kind == 0 && record->size == 0 && place <= UINT32_MAX;
    }
    if (kind != WAL_ENTRY || place == 0 || place > UINT64_MAX / 2 || record->term == 0) {
        return false;
    }
    return (entry_kind == ENTRY_NOOP && record->size == 0) ||
           (entry_kind == ENTRY_COMMAND && record->size > 0 &&
            record->size <= CONTROL_COMMAND_SIZE) ||
           (entry_kind == ENTRY_GROUP && record->size > 0 && record->size <= GROUP_SIZE_MAX);
}

int wal_parse_record(const uint8_t *bytes, size_t size, uint64_t segment, uint64_t position,
                     struct wal_record *ret_record, size_t *ret_used, struct err *err)
{
    ASSERT(position <= size);
    const uint8_t *start = bytes + position;
    struct reader reader = {start, size - (size_t)position, false};
    if (reader.size < WAL_RECORD_SIZE) {
        return err_set(err, ERR_DAMAGED, "a record's header is cut short");
    }
    struct wal_record record = {0};
    uint32_t magic = read_u32(&reader);
    uint16_t kind = read_u16(&reader);
    uint16_t entry_kind = read_u16(&reader);
    record.segment = read_u64(&reader);
    record.position = read_u64(&reader);
    record.batch = read_u64(&reader);
    record.left = read_u32(&reader);
    record.size = read_u32(&reader);
    uint64_t place = read_u64(&reader);
    record.term = read_u64(&reader);
    uint64_t payload_hash = read_u64(&reader);
    uint64_t hash = read_u64(&reader);
    if (magic != RECORD_MAGIC || hash != hash_xxh3(start, WAL_RECORD_SIZE - 8)) {
        return err_set(err, ERR_DAMAGED, "a record's header is damaged");
    }
    if (record.segment != segment || record.position != position) {
        return err_set(err, ERR_DAMAGED, "a record is of another place");
    }
    if (!kind_is_known(&record, kind, entry_kind, place)) {
        return err_set(err, ERR_DAMAGED, "a record of kind %u is not known", kind);
    }
    size_t padding = (8 - record.size % 8) % 8;
    if (reader.size < record.size + padding) {
        return err_set(err, ERR_DAMAGED, "a record is cut short");
    }
    if (payload_hash != hash_xxh3(reader.bytes, record.size)) {
        return err_set(err, ERR_DAMAGED, "a record's bytes are damaged");
    }
    if (kind == WAL_ENTRY &&
        !message_entry_is_well_formed(record.term, entry_kind, reader.bytes, record.size)) {
        return err_set(err, ERR_DAMAGED, "a record's entry is none");
    }
    for (size_t i = 0; i < padding; i++) {
        if (reader.bytes[record.size + i] != 0) {
            return err_set(err, ERR_DAMAGED, "a record's padding is damaged");
        }
    }
    record.kind = (enum wal_kind)kind;
    record.entry_kind = (enum entry_kind)entry_kind;
    record.index = kind == WAL_ENTRY ? place : 0;
    record.vote = kind == WAL_HARD ? (uint32_t)place : 0;
    record.bytes = reader.bytes;
    *ret_record = record;
    *ret_used = WAL_RECORD_SIZE + record.size + padding;
    return 0;
}

/* Records of the write-ahead log, as bytes.
 *
 * A segment file is a header and records, each padded with zeros to 8 bytes, little endian:
 *   header   8 bytes "COPPWAL\n", u32 format, u32 node, u64 segment, u64 base index, u64 base term,
 *            u64 XXH3 of the 40 bytes before
 *   record   u32 magic, u16 kind, u16 entry kind, u64 segment, u64 position, u64 batch, u32 left,
 *            u32 size, u64 index (HARD: vote), u64 term, u64 XXH3 of the payload,
 *            u64 XXH3 of the 64 bytes before; payload
 * A record names its own place, so no copy of one, in a payload or left by another file, passes.
 * `batch` numbers what was synced at once and `left` says how many records of it follow: behind
 * damage, a record of a later batch proves that the damaged one had been synced. */
#ifndef COPPELIUS_CONTROL_WAL_RECORD_H
#define COPPELIUS_CONTROL_WAL_RECORD_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "control/group.h"
#include "control/message.h"

#define WAL_FORMAT        2U
#define WAL_SEGMENT_SIZE  48U /* of the header */
#define WAL_RECORD_SIZE   72U /* of a record's header */
#define WAL_FILE_SIZE_MAX 268435456U

enum wal_kind { WAL_HARD = 1, WAL_ENTRY = 2 };

struct wal_segment {
    uint32_t node;
    uint64_t number;
    uint64_t base_index; /* where the log ended when the segment began */
    uint64_t base_term;
};

struct wal_record {
    enum wal_kind kind;
    uint64_t segment;
    uint64_t position; /* of the record in its file */
    uint64_t batch;
    uint32_t left;
    uint64_t index; /* WAL_ENTRY */
    uint32_t vote;  /* WAL_HARD */
    uint64_t term;
    enum entry_kind entry_kind;
    const uint8_t *bytes; /* borrowed */
    uint32_t size;
};

void wal_put_segment(struct buf *bytes, const struct wal_segment *segment);
/* ERR_DAMAGED; another format is named as such. */
int wal_parse_segment(const uint8_t *bytes, size_t size, struct wal_segment *ret_segment,
                      struct err *err);

void wal_put_record(struct buf *bytes, const struct wal_record *record);
/* The record at bytes[position], which must name that place; *ret_used includes the padding.
 * ERR_DAMAGED. */
int wal_parse_record(const uint8_t *bytes, size_t size, uint64_t segment, uint64_t position,
                     struct wal_record *ret_record, size_t *ret_used, struct err *err);

#endif

/* The write-ahead log and the snapshot files, over struct fs.
 *
 *   <folder>/format                     one line of text: format, node, the first voters: those
 * that the cluster began with, none where this node joined one <folder>/segment-<number> entries
 * and hard states (wal_record.h), appended only <folder>/snapshot-<index>           written whole,
 * synced, renamed into place
 *
 * An entry whose index is not behind the last one replaces that one and all after it: nothing is
 * ever cut while running. Every segment begins, atomically, with the hard state then, so old ones
 * may go. Each wal_write() is one batch, synced before it returns.
 *
 * Recovery cuts an invalid tail only: of the last segment, when nothing valid of a later batch
 * follows. Other damage, a hole, a missing hard state or snapshot, a log that was removed, another
 * format or node: refused with ERR_DAMAGED, never guessed at.
 *
 * After any error here THE PROCESS MUST END; the object then accepts no further call but
 * wal_close(). One thread at a time; blocks. */
#ifndef COPPELIUS_CONTROL_WAL_H
#define COPPELIUS_CONTROL_WAL_H

#include "base/fs.h"
#include "control/control.h"
#include "control/raft.h"

struct wal;

/* Makes the folder where absent. *ret_recovered: the caller's, to be freed or given to raft_new().
 * settings: self, voters (only where the folder is
 * fresh), segment_size, folder. */
int wal_open(struct fs *fs, const struct control_settings *settings, struct wal **ret_wal,
             struct raft_recovered *ret_recovered, bool *ret_fresh, struct err *err);
void wal_close(struct wal *wal); /* NULL is fine; writes nothing */
void raft_recovered_done(struct raft_recovered *recovered);

/* One durable batch: of `count` writes chained by next, each hard state and its entries. Their
 * snapshots are not looked at. */
int wal_write(struct wal *wal, const struct control_write *first, size_t count, struct err *err);
/* Durable when it returns; the older snapshot file is deleted. */
int wal_snapshot(struct wal *wal, uint64_t index, uint64_t term, const struct buf *group,
                 const struct buf *bytes, struct err *err);
/* The log begins anew behind a snapshot that is durable. */
int wal_restart(struct wal *wal, uint64_t index, uint64_t term, struct err *err);
/* Deletes segments that hold only entries below `before`. */
int wal_release(struct wal *wal, uint64_t before, struct err *err);

/* Bytes of a snapshot file, for tests and the fuzzer. ERR_DAMAGED. bytes points into `file`. */
int wal_parse_snapshot(const uint8_t *file, size_t size, struct raft_snapshot *ret_snapshot,
                       const uint8_t **ret_bytes, size_t *ret_size, struct err *err);

#endif

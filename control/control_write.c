/* A write: what one step of the core needs on the disk, carried to the writer and back. */
#include <stdlib.h>

#include "base/assert.h"
#include "control/control.h"
#include "control/wal.h"

#define GROUP_SIZE (1024U * 1024U) /* bytes of entries that share a sync */

/* Order: a snapshot before the log lets go of what it covers; the hard state before the entries
 * that need its term. */
static int write_snapshot(const struct control_write *write, struct err *err)
{
    int code = 0;
    if (MUTANT(MUTANT_RELEASE_EARLY)) {
        code = wal_release(write->wal, write->release_before, err);
    }
    if (code == 0) {
        code = wal_snapshot(write->wal, write->snapshot_index, write->snapshot_term,
                            &write->snapshot_group, &write->snapshot_bytes, err);
    }
    if (code == 0 && write->install && !MUTANT(MUTANT_KEEP_LOG_ON_INSTALL)) {
        code = wal_restart(write->wal, write->snapshot_index, write->snapshot_term, err);
    }
    return code;
}

/* How many writes, this one first, may share a sync; one with a snapshot is by itself. */
static size_t group_of(const struct control_write *write)
{
    size_t count = 1;
    size_t size = write->entries.size;
    if (write->snapshot) {
        return count;
    }
    for (write = write->next; write != NULL && !write->snapshot; write = write->next) {
        size += write->entries.size;
        if (size > GROUP_SIZE) {
            break;
        }
        count++;
    }
    return count;
}

int control_write_run(struct control_write *write, struct err *err)
{
    while (write != NULL) {
        const struct control_write *first = write;
        size_t count = group_of(write);
        bool any = false;
        for (size_t i = 0; i < count; i++, write = write->next) {
            any = any || write->hard || write->entries_count > 0;
        }
        int code = any ? wal_write(first->wal, first, count, err) : 0;
        if (code == 0 && first->snapshot) {
            code = write_snapshot(first, err);
        }
        if (code == 0 && first->snapshot) {
            code = wal_release(first->wal, first->release_before, err);
        }
        if (code != 0) {
            return err_prefix(err, "the consensus log: ");
        }
    }
    return 0;
}

void control_write_free(struct control_write *write)
{
    if (write == NULL) {
        return;
    }
    buf_done(&write->entries);
    buf_done(&write->snapshot_group);
    buf_done(&write->snapshot_bytes);
    free(write);
}

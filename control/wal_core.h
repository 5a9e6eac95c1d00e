/* The log's insides, shared by wal.c and wal_recover.c. */
#ifndef COPPELIUS_CONTROL_WAL_CORE_H
#define COPPELIUS_CONTROL_WAL_CORE_H

#include "control/wal.h"
#include "control/wal_record.h"

#define WAL_PATH_SIZE 256U

struct wal_file {
    uint64_t number;
    uint64_t base_index;
};

struct wal {
    struct fs *fs;
    char folder[128];
    uint32_t node;
    struct control_group first; /* voters that the cluster began with; none: it joined one */
    uint64_t segment_size;
    bool failed;

    struct fs_file *file;   /* the last segment, open to append */
    uint64_t position;      /* its size */
    struct wal_file *files; /* all segments, ascending */
    size_t files_count;
    size_t files_capacity;
    uint64_t batch; /* the last one written */

    uint64_t term; /* as last written */
    uint32_t vote;
    uint64_t last_index;
    uint64_t last_term;
    uint64_t snapshot_index; /* of the file; 0: none */
    struct buf scratch;
};

void wal_path(const struct wal *wal, const char *kind, uint64_t number, char path[WAL_PATH_SIZE]);
void wal_add_file(struct wal *wal, uint64_t number, uint64_t base_index);
/* Begins the next segment, at last_index and last_term, and opens it. */
int wal_roll(struct wal *wal, struct err *err);
int wal_write_format(struct wal *wal, struct err *err);
void wal_format_text(const struct wal *wal, struct buf *text);

#endif

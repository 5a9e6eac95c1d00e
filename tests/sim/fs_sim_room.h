/* Private to fs_sim*.c: the tree of files and folders of a simulated disk, as it is seen and as a
 * crash leaves it, and the changes of names in between. */
#ifndef COPPELIUS_TESTS_SIM_FS_SIM_ROOM_H
#define COPPELIUS_TESTS_SIM_FS_SIM_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/rand.h"
#include "tests/sim/fs_sim.h"

#define SIM_NAME_SIZE 128U

/* A name in a folder. Holds a reference. */
struct sim_entry {
    char name[SIM_NAME_SIZE];
    struct sim_inode *inode;
};

struct sim_entries {
    struct sim_entry *items;
    size_t count;
    size_t capacity;
};

struct sim_inode {
    unsigned refs;
    bool folder;
    struct sim_disk *disk;
    struct sim_entries seen;    /* a folder: what a lookup sees */
    struct sim_entries durable; /* ... and what a crash leaves for certain */
    struct buf bytes;           /* a file: what a reader sees */
    size_t clean;               /* of them, the first ones that are durable */
    struct buf cut; /* durable bytes behind `clean` that an unsynced truncate took away */
    bool dirty;
    bool wrong; /* a sync failed: what is in [wrong_from, wrong_to) will be gone after a crash */
    size_t wrong_from;
    size_t wrong_to;
    uint64_t kept; /* reserved behind the end; in the disk's `used` */
};

/* A change of names that is not durable yet; holds references. */
struct sim_change {
    struct sim_inode *folder; /* whose sync makes it durable */
    char name[SIM_NAME_SIZE];
    struct sim_inode *inode;       /* what the name leads to then; NULL: removed */
    struct sim_inode *from_folder; /* a rename: the old place; else NULL */
    char from_name[SIM_NAME_SIZE];
};

struct sim_disk {
    struct fs fs;
    struct rand rand;
    struct sim_inode *root;
    struct sim_change *changes; /* in order */
    size_t changes_count;
    size_t changes_capacity;
    uint64_t ops;
    uint64_t crash_op;
    bool crash_after;
    bool dead;
    bool torn;
    uint64_t fail_sync;
    uint64_t capacity;
    uint64_t used;
    uint64_t generation;
};

/* One reference is the caller's. */
struct sim_inode *sim_inode_new(struct sim_disk *disk, bool folder);
struct sim_inode *sim_inode_hold(struct sim_inode *inode);
void sim_inode_release(struct sim_inode *inode); /* NULL is fine */

void sim_entries_done(struct sim_entries *entries);
struct sim_inode *sim_entries_find(const struct sim_entries *entries, const char *name);
void sim_entries_put(struct sim_entries *entries, const char *name, struct sim_inode *inode);
void sim_entries_remove(struct sim_entries *entries, const char *name);

void sim_changes_add(struct sim_disk *disk, struct sim_inode *folder, const char *name,
                     struct sim_inode *inode, struct sim_inode *from_folder, const char *from_name);
void sim_changes_remove(struct sim_disk *disk, size_t at);
/* What it changes is durable. */
void sim_change_apply(const struct sim_change *change);

#endif

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/sim/fs_sim_room.h"

struct sim_inode *sim_inode_new(struct sim_disk *disk, bool folder)
{
    struct sim_inode *inode = calloc(1, sizeof(*inode));
    ASSERT(inode != NULL);
    inode->refs = 1;
    inode->folder = folder;
    inode->disk = disk;
    return inode;
}

struct sim_inode *sim_inode_hold(struct sim_inode *inode)
{
    inode->refs++;
    return inode;
}

void sim_inode_release(struct sim_inode *inode)
{
    if (inode == NULL || --inode->refs > 0) {
        return;
    }
    inode->disk->used -= inode->bytes.size + inode->kept;
    sim_entries_done(&inode->seen);
    sim_entries_done(&inode->durable);
    buf_done(&inode->bytes);
    buf_done(&inode->cut);
    free(inode);
}

void sim_entries_done(struct sim_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        sim_inode_release(entries->items[i].inode);
    }
    free(entries->items);
    *entries = (struct sim_entries){NULL, 0, 0};
}

struct sim_inode *sim_entries_find(const struct sim_entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++) {
        if (strcmp(entries->items[i].name, name) == 0) {
            return entries->items[i].inode;
        }
    }
    return NULL;
}

void sim_entries_put(struct sim_entries *entries, const char *name, struct sim_inode *inode)
{
    sim_inode_hold(inode);
    for (size_t i = 0; i < entries->count; i++) {
        if (strcmp(entries->items[i].name, name) == 0) {
            sim_inode_release(entries->items[i].inode);
            entries->items[i].inode = inode;
            return;
        }
    }
    if (entries->count == entries->capacity) {
        entries->capacity = entries->capacity == 0 ? 8 : 2 * entries->capacity;
        entries->items = realloc(entries->items, entries->capacity * sizeof(*entries->items));
        ASSERT(entries->items != NULL);
    }
    struct sim_entry *entry = &entries->items[entries->count++];
    strcpy(entry->name, name);
    entry->inode = inode;
}

void sim_entries_remove(struct sim_entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++) {
        if (strcmp(entries->items[i].name, name) == 0) {
            struct sim_inode *inode = entries->items[i].inode;
            memmove(&entries->items[i], &entries->items[i + 1],
                    (entries->count - i - 1) * sizeof(*entries->items));
            entries->count--;
            sim_inode_release(inode);
            return;
        }
    }
}

static void change_done(struct sim_change *change)
{
    sim_inode_release(change->folder);
    sim_inode_release(change->inode);
    sim_inode_release(change->from_folder);
}

void sim_changes_remove(struct sim_disk *disk, size_t at)
{
    change_done(&disk->changes[at]);
    memmove(&disk->changes[at], &disk->changes[at + 1],
            (disk->changes_count - at - 1) * sizeof(*disk->changes));
    disk->changes_count--;
}

void sim_changes_add(struct sim_disk *disk, struct sim_inode *folder, const char *name,
                     struct sim_inode *inode, struct sim_inode *from_folder, const char *from_name)
{
    if (disk->changes_count == disk->changes_capacity) {
        disk->changes_capacity = disk->changes_capacity == 0 ? 16 : 2 * disk->changes_capacity;
        disk->changes = realloc(disk->changes, disk->changes_capacity * sizeof(*disk->changes));
        ASSERT(disk->changes != NULL);
    }
    struct sim_change *change = &disk->changes[disk->changes_count++];
    memset(change, 0, sizeof(*change));
    change->folder = sim_inode_hold(folder);
    strcpy(change->name, name);
    change->inode = inode != NULL ? sim_inode_hold(inode) : NULL;
    if (from_folder != NULL) {
        change->from_folder = sim_inode_hold(from_folder);
        strcpy(change->from_name, from_name);
    }
}

void sim_change_apply(const struct sim_change *change)
{
    struct sim_entries *durable = &change->folder->durable;
    if (change->from_folder != NULL &&
        sim_entries_find(&change->from_folder->durable, change->from_name) == change->inode) {
        sim_entries_remove(&change->from_folder->durable, change->from_name);
    }
    if (change->inode == NULL) {
        sim_entries_remove(durable, change->name);
    } else {
        sim_entries_put(durable, change->name, change->inode);
    }
}

#include "tests/sim/fs_sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rand.h"

#define SECTOR    512U
#define NAME_SIZE 128U

/* A name in a folder. Holds a reference. */
struct entry {
    char name[NAME_SIZE];
    struct inode *inode;
};

struct entries {
    struct entry *items;
    size_t count;
    size_t capacity;
};

struct inode {
    unsigned refs;
    bool folder;
    struct sim_disk *disk;
    struct entries seen;    /* a folder: what a lookup sees */
    struct entries durable; /* ... and what a crash leaves for certain */
    struct buf bytes;       /* a file: what a reader sees */
    size_t clean;           /* of them, the first ones that are durable */
    struct buf cut;         /* durable bytes behind `clean` that an unsynced truncate took away */
    bool dirty;
    bool wrong; /* a sync failed: what is in [wrong_from, wrong_to) will be gone after a crash */
    size_t wrong_from;
    size_t wrong_to;
};

/* A change of names that is not durable yet; holds references. */
struct change {
    struct inode *folder; /* whose sync makes it durable */
    char name[NAME_SIZE];
    struct inode *inode;       /* what the name leads to then; NULL: removed */
    struct inode *from_folder; /* a rename: the old place; else NULL */
    char from_name[NAME_SIZE];
};

struct sim_disk {
    struct fs fs;
    struct rand rand;
    struct inode *root;
    struct change *changes; /* in order */
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

struct fs_file {
    struct sim_disk *disk;
    struct inode *inode;
    uint64_t generation;
    bool writable;
};

static struct inode *inode_new(struct sim_disk *disk, bool folder)
{
    struct inode *inode = calloc(1, sizeof(*inode));
    ASSERT(inode != NULL);
    inode->refs = 1;
    inode->folder = folder;
    inode->disk = disk;
    return inode;
}

static struct inode *inode_hold(struct inode *inode)
{
    inode->refs++;
    return inode;
}

static void entries_done(struct entries *entries);

static void inode_release(struct inode *inode)
{
    if (inode == NULL || --inode->refs > 0) {
        return;
    }
    inode->disk->used -= inode->bytes.size;
    entries_done(&inode->seen);
    entries_done(&inode->durable);
    buf_done(&inode->bytes);
    buf_done(&inode->cut);
    free(inode);
}

static void entries_done(struct entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        inode_release(entries->items[i].inode);
    }
    free(entries->items);
    *entries = (struct entries){NULL, 0, 0};
}

static struct inode *entries_find(const struct entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++) {
        if (strcmp(entries->items[i].name, name) == 0) {
            return entries->items[i].inode;
        }
    }
    return NULL;
}

static void entries_put(struct entries *entries, const char *name, struct inode *inode)
{
    inode_hold(inode);
    for (size_t i = 0; i < entries->count; i++) {
        if (strcmp(entries->items[i].name, name) == 0) {
            inode_release(entries->items[i].inode);
            entries->items[i].inode = inode;
            return;
        }
    }
    if (entries->count == entries->capacity) {
        entries->capacity = entries->capacity == 0 ? 8 : 2 * entries->capacity;
        entries->items = realloc(entries->items, entries->capacity * sizeof(*entries->items));
        ASSERT(entries->items != NULL);
    }
    struct entry *entry = &entries->items[entries->count++];
    strcpy(entry->name, name);
    entry->inode = inode;
}

static void entries_remove(struct entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++) {
        if (strcmp(entries->items[i].name, name) == 0) {
            struct inode *inode = entries->items[i].inode;
            memmove(&entries->items[i], &entries->items[i + 1],
                    (entries->count - i - 1) * sizeof(*entries->items));
            entries->count--;
            inode_release(inode);
            return;
        }
    }
}

static void change_done(struct change *change)
{
    inode_release(change->folder);
    inode_release(change->inode);
    inode_release(change->from_folder);
}

static void changes_remove(struct sim_disk *disk, size_t at)
{
    change_done(&disk->changes[at]);
    memmove(&disk->changes[at], &disk->changes[at + 1],
            (disk->changes_count - at - 1) * sizeof(*disk->changes));
    disk->changes_count--;
}

static void changes_add(struct sim_disk *disk, struct inode *folder, const char *name,
                        struct inode *inode, struct inode *from_folder, const char *from_name)
{
    if (disk->changes_count == disk->changes_capacity) {
        disk->changes_capacity = disk->changes_capacity == 0 ? 16 : 2 * disk->changes_capacity;
        disk->changes = realloc(disk->changes, disk->changes_capacity * sizeof(*disk->changes));
        ASSERT(disk->changes != NULL);
    }
    struct change *change = &disk->changes[disk->changes_count++];
    memset(change, 0, sizeof(*change));
    change->folder = inode_hold(folder);
    strcpy(change->name, name);
    change->inode = inode != NULL ? inode_hold(inode) : NULL;
    if (from_folder != NULL) {
        change->from_folder = inode_hold(from_folder);
        strcpy(change->from_name, from_name);
    }
}

static void change_apply(const struct change *change)
{
    struct entries *durable = &change->folder->durable;
    if (change->from_folder != NULL &&
        entries_find(&change->from_folder->durable, change->from_name) == change->inode) {
        entries_remove(&change->from_folder->durable, change->from_name);
    }
    if (change->inode == NULL) {
        entries_remove(durable, change->name);
    } else {
        entries_put(durable, change->name, change->inode);
    }
}

/* Splits a path into its folder, which must exist, and the last name. NULL where it does not. */
static struct inode *walk(struct sim_disk *disk, const char *path, char last[NAME_SIZE])
{
    struct inode *at = disk->root;
    for (;;) {
        const char *slash = strchr(path, '/');
        size_t size = slash != NULL ? (size_t)(slash - path) : strlen(path);
        ASSERT(size < NAME_SIZE);
        memcpy(last, path, size);
        last[size] = '\0';
        ASSERT(strcmp(last, "..") != 0);
        if (slash == NULL) {
            return at;
        }
        path = slash + 1;
        if (strcmp(last, ".") == 0 || size == 0) {
            continue;
        }
        at = entries_find(&at->seen, last);
        if (at == NULL || !at->folder) {
            return NULL;
        }
    }
}

static struct inode *lookup(struct sim_disk *disk, const char *path)
{
    char name[NAME_SIZE];
    struct inode *folder = walk(disk, path, name);
    if (folder == NULL) {
        return NULL;
    }
    return strcmp(name, ".") == 0 || name[0] == '\0' ? folder : entries_find(&folder->seen, name);
}

/* --- crash points ---------------------------------------------------------------------------- */
static int dead_error(struct err *err)
{
    return err_set(err, ERR_DISK, "simulated crash");
}

static int op_begin(struct sim_disk *disk, struct err *err)
{
    if (disk->dead) {
        return dead_error(err);
    }
    disk->ops++;
    if (disk->ops == disk->crash_op && !disk->crash_after) {
        disk->dead = true;
        return dead_error(err);
    }
    return 0;
}

static int op_end(struct sim_disk *disk, int code, struct err *err)
{
    if (disk->ops == disk->crash_op && disk->crash_after) {
        disk->dead = true;
        return dead_error(err);
    }
    return code;
}

static struct sim_disk *disk_of(struct fs *fs)
{
    return OWNER_OF(fs, struct sim_disk, fs);
}

static int absent(struct err *err, const char *what, const char *path)
{
    return err_set(err, ERR_NOT_FOUND, "%s '%s': no such file", what, path);
}

/* --- files ----------------------------------------------------------------------------------- */
static int sim_open(struct fs *fs, const char *path, enum fs_mode mode, struct fs_file **ret_file,
                    struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    if (disk->dead) {
        return dead_error(err);
    }
    char name[NAME_SIZE];
    struct inode *folder = walk(disk, path, name);
    if (folder == NULL) {
        return absent(err, "open", path);
    }
    struct inode *inode = entries_find(&folder->seen, name);
    if (inode != NULL && inode->folder) {
        return err_set(err, ERR_DISK, "open '%s': Is a directory", path);
    }
    if (mode == FS_READ && inode == NULL) {
        return absent(err, "open", path);
    }
    if (mode == FS_CREATE && inode != NULL) {
        return err_set(err, ERR_DISK, "create '%s': File exists", path);
    }
    int code = 0;
    if (inode == NULL) {
        code = op_begin(disk, err);
        if (code != 0) {
            return code;
        }
        inode = inode_new(disk, false);
        inode->dirty = true;
        entries_put(&folder->seen, name, inode);
        changes_add(disk, folder, name, inode, NULL, NULL);
        inode_release(inode);
        code = op_end(disk, 0, err);
        if (code != 0) {
            return code;
        }
    }
    struct fs_file *file = calloc(1, sizeof(*file));
    ASSERT(file != NULL);
    file->disk = disk;
    file->inode = inode_hold(inode);
    file->generation = disk->generation;
    file->writable = mode != FS_READ;
    *ret_file = file;
    return 0;
}

static int sim_write(struct fs_file *file, const void *bytes, size_t size, struct err *err)
{
    struct sim_disk *disk = file->disk;
    ASSERT(file->generation == disk->generation);
    ASSERT(file->writable);
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    uint64_t room = disk->capacity > disk->used ? disk->capacity - disk->used : 0;
    size_t fits = size <= room ? size : (size_t)room;
    buf_put(&file->inode->bytes, bytes, fits);
    disk->used += fits;
    file->inode->dirty = true;
    if (fits < size) {
        code = err_set(err, ERR_DISK, "write: No space left on device");
    }
    return op_end(disk, code, err);
}

static int sim_read(struct fs_file *file, uint64_t offset, void *bytes, size_t size,
                    struct err *err)
{
    if (file->disk->dead) {
        return dead_error(err);
    }
    ASSERT(file->generation == file->disk->generation);
    const struct buf *seen = &file->inode->bytes;
    if (offset > seen->size || seen->size - offset < size) {
        return err_set(err, ERR_DAMAGED, "read: it ends early");
    }
    if (size > 0) {
        memcpy(bytes, seen->bytes + offset, size);
    }
    return 0;
}

static int sim_size(struct fs_file *file, uint64_t *ret_size, struct err *err)
{
    if (file->disk->dead) {
        return dead_error(err);
    }
    *ret_size = file->inode->bytes.size;
    return 0;
}

static int sim_truncate(struct fs_file *file, uint64_t size, struct err *err)
{
    struct sim_disk *disk = file->disk;
    struct inode *inode = file->inode;
    ASSERT(file->generation == disk->generation);
    ASSERT(size <= inode->bytes.size); /* Nobody grows a file so. */
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    if (size < inode->clean) {
        ASSERT(inode->cut.size == 0); /* One unsynced cut at a time is enough here. */
        buf_put(&inode->cut, inode->bytes.bytes + size, inode->clean - size);
        inode->clean = size;
    }
    disk->used -= inode->bytes.size - size;
    inode->bytes.size = size;
    inode->dirty = true;
    return op_end(disk, 0, err);
}

static bool sync_fails(struct sim_disk *disk)
{
    return disk->fail_sync > 0 && --disk->fail_sync == 0;
}

static int sim_sync(struct fs_file *file, struct err *err)
{
    struct sim_disk *disk = file->disk;
    struct inode *inode = file->inode;
    ASSERT(file->generation == disk->generation);
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    if (sync_fails(disk)) {
        inode->wrong = true;
        inode->wrong_from = inode->clean;
        inode->wrong_to = inode->bytes.size;
        code = err_set(err, ERR_DISK, "fsync: Input/output error");
    }
    inode->clean = inode->bytes.size;
    buf_clear(&inode->cut);
    inode->dirty = false;
    return op_end(disk, code, err);
}

static int sim_close(struct fs_file *file, struct err *err)
{
    int code = file->disk->dead && file->writable ? dead_error(err) : 0;
    inode_release(file->inode);
    free(file);
    return code;
}

/* --- names ----------------------------------------------------------------------------------- */
static int sim_rename(struct fs *fs, const char *from, const char *to, struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    char from_name[NAME_SIZE];
    char to_name[NAME_SIZE];
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    struct inode *from_folder = walk(disk, from, from_name);
    struct inode *to_folder = walk(disk, to, to_name);
    struct inode *inode = from_folder != NULL ? entries_find(&from_folder->seen, from_name) : NULL;
    if (inode == NULL || to_folder == NULL) {
        return op_end(disk, absent(err, "rename to", to), err);
    }
    struct inode *there = entries_find(&to_folder->seen, to_name);
    if (there == inode) {
        return op_end(disk, 0, err);
    }
    if (there != NULL &&
        (there->folder != inode->folder || (there->folder && there->seen.count > 0))) {
        code = err_set(err, ERR_DISK, "rename to '%s': Directory not empty", to);
        return op_end(disk, code, err);
    }
    inode_hold(inode);
    entries_remove(&from_folder->seen, from_name);
    entries_put(&to_folder->seen, to_name, inode);
    changes_add(disk, to_folder, to_name, inode, from_folder, from_name);
    inode_release(inode);
    return op_end(disk, 0, err);
}

static int remove_name(struct fs *fs, const char *path, bool folder_wanted, struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    char name[NAME_SIZE];
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    struct inode *folder = walk(disk, path, name);
    struct inode *inode = folder != NULL ? entries_find(&folder->seen, name) : NULL;
    if (inode == NULL) {
        return op_end(disk, 0, err);
    }
    if (inode->folder != folder_wanted) {
        code = err_set(err, ERR_DISK, "delete '%s': %s", path,
                       folder_wanted ? "Not a directory" : "Is a directory");
        return op_end(disk, code, err);
    }
    if (inode->folder && inode->seen.count > 0) {
        code = err_set(err, ERR_DISK, "delete folder '%s': Directory not empty", path);
        return op_end(disk, code, err);
    }
    entries_remove(&folder->seen, name);
    changes_add(disk, folder, name, NULL, NULL, NULL);
    return op_end(disk, 0, err);
}

static int sim_unlink(struct fs *fs, const char *path, struct err *err)
{
    return remove_name(fs, path, false, err);
}

static int sim_rmdir(struct fs *fs, const char *path, struct err *err)
{
    return remove_name(fs, path, true, err);
}

static int sim_mkdir(struct fs *fs, const char *path, struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    char name[NAME_SIZE];
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    struct inode *folder = walk(disk, path, name);
    if (folder == NULL) {
        return op_end(disk, absent(err, "create folder", path), err);
    }
    if (strcmp(name, ".") == 0 || entries_find(&folder->seen, name) != NULL) {
        return op_end(disk, 0, err);
    }
    struct inode *inode = inode_new(disk, true);
    entries_put(&folder->seen, name, inode);
    changes_add(disk, folder, name, inode, NULL, NULL);
    inode_release(inode);
    return op_end(disk, 0, err);
}

static int sim_sync_folder(struct fs *fs, const char *path, struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    struct inode *folder = lookup(disk, path);
    if (folder == NULL || !folder->folder) {
        return op_end(disk, absent(err, "open folder", path), err);
    }
    bool fails = sync_fails(disk);
    for (size_t i = 0; i < disk->changes_count;) {
        struct change *change = &disk->changes[i];
        if (change->folder != folder) {
            i++;
            continue;
        }
        if (!fails) {
            change_apply(change);
            /* A rename took the name away: its making, still pending elsewhere, is history. */
            for (size_t j = 0; change->from_folder != NULL && j < i;) {
                const struct change *older = &disk->changes[j];
                if (older->folder == change->from_folder && older->inode == change->inode &&
                    strcmp(older->name, change->from_name) == 0) {
                    changes_remove(disk, j);
                    i--;
                    change--;
                    continue;
                }
                j++;
            }
        }
        changes_remove(disk, i);
    }
    if (fails) {
        code = err_set(err, ERR_DISK, "fsync folder '%s': Input/output error", path);
    }
    return op_end(disk, code, err);
}

static int sim_list(struct fs *fs, const char *path, fs_list_fn *on_entry, void *context,
                    struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    if (disk->dead) {
        return dead_error(err);
    }
    struct inode *folder = lookup(disk, path);
    if (folder == NULL || !folder->folder) {
        return absent(err, "list folder", path);
    }
    for (size_t i = 0; i < folder->seen.count; i++) {
        on_entry(context, folder->seen.items[i].name, folder->seen.items[i].inode->folder);
    }
    return 0;
}

static int sim_exists(struct fs *fs, const char *path, bool *ret_exists, struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    if (disk->dead) {
        return dead_error(err);
    }
    *ret_exists = lookup(disk, path) != NULL;
    return 0;
}

static const struct fs_ops sim_ops = {
    .open = sim_open,
    .write = sim_write,
    .read = sim_read,
    .size = sim_size,
    .truncate = sim_truncate,
    .sync = sim_sync,
    .close = sim_close,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .mkdir = sim_mkdir,
    .rmdir = sim_rmdir,
    .sync_folder = sim_sync_folder,
    .list = sim_list,
    .exists = sim_exists,
};

static void tear(struct sim_disk *disk, struct inode *inode)
{
    size_t tail = inode->bytes.size - inode->clean;
    uint64_t luck = rand_below(&disk->rand, 4);
    size_t kept = luck == 0 ? 0 : luck == 1 ? tail : (size_t)rand_below(&disk->rand, tail + 1);
    inode->bytes.size = inode->clean + kept;
    if (!disk->torn || rand_below(&disk->rand, 2) == 0) {
        return;
    }
    for (size_t at = inode->clean; at < inode->bytes.size;) {
        size_t end = (at / SECTOR + 1) * SECTOR;
        end = end < inode->bytes.size ? end : inode->bytes.size;
        uint64_t fate = rand_below(&disk->rand, 8);
        for (size_t i = at; fate < 2 && i < end; i++) {
            inode->bytes.bytes[i] = fate == 0 ? 0 : (uint8_t)rand_next(&disk->rand);
        }
        at = end;
    }
}

static void file_crash(struct sim_disk *disk, struct inode *inode)
{
    disk->used -= inode->bytes.size;
    if (inode->dirty) {
        if (inode->cut.size > 0 && rand_below(&disk->rand, 2) == 0) {
            inode->bytes.size = inode->clean;
            buf_put(&inode->bytes, inode->cut.bytes, inode->cut.size);
        } else {
            tear(disk, inode);
        }
    }
    if (inode->wrong) {
        for (size_t i = inode->wrong_from; i < inode->wrong_to && i < inode->bytes.size; i++) {
            inode->bytes.bytes[i] = 0;
        }
    }
    buf_clear(&inode->cut);
    inode->wrong = false;
    inode->dirty = false;
    inode->clean = inode->bytes.size;
    disk->used += inode->bytes.size;
}

static void folder_crash(struct sim_disk *disk, struct inode *folder)
{
    entries_done(&folder->seen);
    for (size_t i = 0; i < folder->durable.count; i++) {
        struct entry *entry = &folder->durable.items[i];
        entries_put(&folder->seen, entry->name, entry->inode);
        if (entry->inode->folder) {
            folder_crash(disk, entry->inode);
        } else {
            file_crash(disk, entry->inode);
        }
    }
}

void sim_disk_crash(struct sim_disk *disk)
{
    for (size_t i = 0; i < disk->changes_count; i++) {
        if (rand_below(&disk->rand, 2) == 0) {
            change_apply(&disk->changes[i]);
        }
    }
    while (disk->changes_count > 0) {
        changes_remove(disk, disk->changes_count - 1);
    }
    folder_crash(disk, disk->root);
    disk->dead = false;
    disk->crash_op = 0;
    disk->fail_sync = 0;
    disk->generation++;
}

struct sim_disk *sim_disk_new(uint64_t seed)
{
    struct sim_disk *disk = calloc(1, sizeof(*disk));
    ASSERT(disk != NULL);
    disk->fs.ops = &sim_ops;
    disk->rand.state = seed;
    disk->root = inode_new(disk, true);
    disk->torn = true;
    disk->capacity = UINT64_MAX;
    return disk;
}

void sim_disk_free(struct sim_disk *disk)
{
    if (disk == NULL) {
        return;
    }
    while (disk->changes_count > 0) {
        changes_remove(disk, disk->changes_count - 1);
    }
    inode_release(disk->root);
    free(disk->changes);
    free(disk);
}

void sim_disk_wipe(struct sim_disk *disk)
{
    while (disk->changes_count > 0) {
        changes_remove(disk, disk->changes_count - 1);
    }
    entries_done(&disk->root->seen);
    entries_done(&disk->root->durable);
    disk->generation++;
}

void sim_disk_wipe_folder(struct sim_disk *disk, const char *name)
{
    (void)sim_ops.rename(&disk->fs, name, ".wiped", NULL);
    (void)fs_remove_tree(&disk->fs, ".wiped", NULL);
    (void)sim_ops.sync_folder(&disk->fs, ".", NULL);
}

struct fs *sim_disk_fs(struct sim_disk *disk)
{
    return &disk->fs;
}

uint64_t sim_disk_ops(const struct sim_disk *disk)
{
    return disk->ops;
}

void sim_disk_crash_at(struct sim_disk *disk, uint64_t op, bool after)
{
    disk->crash_op = op;
    disk->crash_after = after;
}

bool sim_disk_dead(const struct sim_disk *disk)
{
    return disk->dead;
}

void sim_disk_fail_sync(struct sim_disk *disk, uint64_t nth)
{
    disk->fail_sync = nth;
}

void sim_disk_set_capacity(struct sim_disk *disk, uint64_t bytes)
{
    disk->capacity = bytes;
}

uint64_t sim_disk_used(const struct sim_disk *disk)
{
    return disk->used;
}

void sim_disk_set_torn(struct sim_disk *disk, bool torn)
{
    disk->torn = torn;
}

int sim_disk_flip(struct sim_disk *disk, const char *path, uint64_t byte, unsigned bit,
                  struct err *err)
{
    struct inode *inode = lookup(disk, path);
    if (inode == NULL || inode->folder) {
        return absent(err, "flip", path);
    }
    if (byte >= inode->bytes.size) {
        return err_set(err, ERR_USAGE, "flip '%s': it has %zu bytes", path, inode->bytes.size);
    }
    inode->bytes.bytes[byte] ^= (uint8_t)(1U << (bit % 8));
    return 0;
}

bool sim_disk_is_durable(struct sim_disk *disk, const char *path)
{
    struct inode *at = disk->root;
    char part[NAME_SIZE];
    while (*path != '\0') {
        const char *slash = strchr(path, '/');
        size_t size = slash != NULL ? (size_t)(slash - path) : strlen(path);
        ASSERT(size < NAME_SIZE);
        memcpy(part, path, size);
        part[size] = '\0';
        path += size + (slash != NULL ? 1 : 0);
        if (size == 0 || strcmp(part, ".") == 0) {
            continue;
        }
        if (!at->folder) {
            return false;
        }
        struct inode *next = entries_find(&at->durable, part);
        if (next == NULL || next != entries_find(&at->seen, part)) {
            return false;
        }
        at = next;
    }
    return at->folder || (!at->dirty && !at->wrong);
}

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/sim/fs_sim_room.h"

#define SECTOR 512U

struct fs_file {
    struct sim_disk *disk;
    struct sim_inode *inode;
    uint64_t generation;
    bool writable;
};

/* Splits a path into its folder, which must exist, and the last name. NULL where it does not. */
static struct sim_inode *walk(struct sim_disk *disk, const char *path, char last[SIM_NAME_SIZE])
{
    struct sim_inode *at = disk->root;
    for (;;) {
        const char *slash = strchr(path, '/');
        size_t size = slash != NULL ? (size_t)(slash - path) : strlen(path);
        ASSERT(size < SIM_NAME_SIZE);
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
        at = sim_entries_find(&at->seen, last);
        if (at == NULL || !at->folder) {
            return NULL;
        }
    }
}

static struct sim_inode *lookup(struct sim_disk *disk, const char *path)
{
    char name[SIM_NAME_SIZE];
    struct sim_inode *folder = walk(disk, path, name);
    if (folder == NULL) {
        return NULL;
    }
    return strcmp(name, ".") == 0 || name[0] == '\0' ? folder
                                                     : sim_entries_find(&folder->seen, name);
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
    char name[SIM_NAME_SIZE];
    struct sim_inode *folder = walk(disk, path, name);
    if (folder == NULL) {
        return absent(err, "open", path);
    }
    struct sim_inode *inode = sim_entries_find(&folder->seen, name);
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
        inode = sim_inode_new(disk, false);
        inode->dirty = true;
        sim_entries_put(&folder->seen, name, inode);
        sim_changes_add(disk, folder, name, inode, NULL, NULL);
        sim_inode_release(inode);
        code = op_end(disk, 0, err);
        if (code != 0) {
            return code;
        }
    }
    struct fs_file *file = calloc(1, sizeof(*file));
    ASSERT(file != NULL);
    file->disk = disk;
    file->inode = sim_inode_hold(inode);
    file->generation = disk->generation;
    file->writable = mode != FS_READ;
    *ret_file = file;
    return 0;
}

static uint64_t room_of(const struct sim_disk *disk)
{
    return disk->capacity > disk->used ? disk->capacity - disk->used : 0;
}

/* Of what is reserved, at most so much. */
static void give_back(struct sim_inode *inode, uint64_t size)
{
    size = size < inode->kept ? size : inode->kept;
    inode->kept -= size;
    inode->disk->used -= size;
}

static int sim_reserve(struct fs_file *file, uint64_t size, struct err *err)
{
    struct sim_disk *disk = file->disk;
    struct sim_inode *inode = file->inode;
    ASSERT(file->generation == disk->generation);
    ASSERT(file->writable);
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    if (size > inode->kept && size - inode->kept > room_of(disk)) {
        give_back(inode, UINT64_MAX);
        code = err_set(err, ERR_DISK, "reserve: No space left on device");
    } else if (size > inode->kept) {
        disk->used += size - inode->kept;
        inode->kept = size;
    }
    return op_end(disk, code, err);
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
    give_back(file->inode, size);
    uint64_t room = room_of(disk);
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
    struct sim_inode *inode = file->inode;
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
    give_back(inode, UINT64_MAX);
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
    struct sim_inode *inode = file->inode;
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
    sim_inode_release(file->inode);
    free(file);
    return code;
}

/* --- names ----------------------------------------------------------------------------------- */
static int sim_rename(struct fs *fs, const char *from, const char *to, struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    char from_name[SIM_NAME_SIZE];
    char to_name[SIM_NAME_SIZE];
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    struct sim_inode *from_folder = walk(disk, from, from_name);
    struct sim_inode *to_folder = walk(disk, to, to_name);
    struct sim_inode *inode =
        from_folder != NULL ? sim_entries_find(&from_folder->seen, from_name) : NULL;
    if (inode == NULL || to_folder == NULL) {
        return op_end(disk, absent(err, "rename to", to), err);
    }
    struct sim_inode *there = sim_entries_find(&to_folder->seen, to_name);
    if (there == inode) {
        return op_end(disk, 0, err);
    }
    if (there != NULL &&
        (there->folder != inode->folder || (there->folder && there->seen.count > 0))) {
        code = err_set(err, ERR_DISK, "rename to '%s': Directory not empty", to);
        return op_end(disk, code, err);
    }
    sim_inode_hold(inode);
    sim_entries_remove(&from_folder->seen, from_name);
    sim_entries_put(&to_folder->seen, to_name, inode);
    sim_changes_add(disk, to_folder, to_name, inode, from_folder, from_name);
    sim_inode_release(inode);
    return op_end(disk, 0, err);
}

static int remove_name(struct fs *fs, const char *path, bool folder_wanted, struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    char name[SIM_NAME_SIZE];
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    struct sim_inode *folder = walk(disk, path, name);
    struct sim_inode *inode = folder != NULL ? sim_entries_find(&folder->seen, name) : NULL;
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
    sim_entries_remove(&folder->seen, name);
    sim_changes_add(disk, folder, name, NULL, NULL, NULL);
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
    char name[SIM_NAME_SIZE];
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    struct sim_inode *folder = walk(disk, path, name);
    if (folder == NULL) {
        return op_end(disk, absent(err, "create folder", path), err);
    }
    if (strcmp(name, ".") == 0 || sim_entries_find(&folder->seen, name) != NULL) {
        return op_end(disk, 0, err);
    }
    struct sim_inode *inode = sim_inode_new(disk, true);
    sim_entries_put(&folder->seen, name, inode);
    sim_changes_add(disk, folder, name, inode, NULL, NULL);
    sim_inode_release(inode);
    return op_end(disk, 0, err);
}

static int sim_sync_folder(struct fs *fs, const char *path, struct err *err)
{
    struct sim_disk *disk = disk_of(fs);
    int code = op_begin(disk, err);
    if (code != 0) {
        return code;
    }
    struct sim_inode *folder = lookup(disk, path);
    if (folder == NULL || !folder->folder) {
        return op_end(disk, absent(err, "open folder", path), err);
    }
    bool fails = sync_fails(disk);
    for (size_t i = 0; i < disk->changes_count;) {
        struct sim_change *change = &disk->changes[i];
        if (change->folder != folder) {
            i++;
            continue;
        }
        if (!fails) {
            sim_change_apply(change);
            /* A rename took the name away: its making, still pending elsewhere, is history. */
            for (size_t j = 0; change->from_folder != NULL && j < i;) {
                const struct sim_change *older = &disk->changes[j];
                if (older->folder == change->from_folder && older->inode == change->inode &&
                    strcmp(older->name, change->from_name) == 0) {
                    sim_changes_remove(disk, j);
                    i--;
                    change--;
                    continue;
                }
                j++;
            }
        }
        sim_changes_remove(disk, i);
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
    struct sim_inode *folder = lookup(disk, path);
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
    .reserve = sim_reserve,
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

static void tear(struct sim_disk *disk, struct sim_inode *inode)
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

static void file_crash(struct sim_disk *disk, struct sim_inode *inode)
{
    give_back(inode, UINT64_MAX);
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

static void folder_crash(struct sim_disk *disk, struct sim_inode *folder)
{
    sim_entries_done(&folder->seen);
    for (size_t i = 0; i < folder->durable.count; i++) {
        struct sim_entry *entry = &folder->durable.items[i];
        sim_entries_put(&folder->seen, entry->name, entry->inode);
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
            sim_change_apply(&disk->changes[i]);
        }
    }
    while (disk->changes_count > 0) {
        sim_changes_remove(disk, disk->changes_count - 1);
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
    disk->root = sim_inode_new(disk, true);
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
        sim_changes_remove(disk, disk->changes_count - 1);
    }
    sim_inode_release(disk->root);
    free(disk->changes);
    free(disk);
}

void sim_disk_wipe(struct sim_disk *disk)
{
    while (disk->changes_count > 0) {
        sim_changes_remove(disk, disk->changes_count - 1);
    }
    sim_entries_done(&disk->root->seen);
    sim_entries_done(&disk->root->durable);
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
    struct sim_inode *inode = lookup(disk, path);
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
    struct sim_inode *at = disk->root;
    char part[SIM_NAME_SIZE];
    while (*path != '\0') {
        const char *slash = strchr(path, '/');
        size_t size = slash != NULL ? (size_t)(slash - path) : strlen(path);
        ASSERT(size < SIM_NAME_SIZE);
        memcpy(part, path, size);
        part[size] = '\0';
        path += size + (slash != NULL ? 1 : 0);
        if (size == 0 || strcmp(part, ".") == 0) {
            continue;
        }
        if (!at->folder) {
            return false;
        }
        struct sim_inode *next = sim_entries_find(&at->durable, part);
        if (next == NULL || next != sim_entries_find(&at->seen, part)) {
            return false;
        }
        at = next;
    }
    return at->folder || (!at->dirty && !at->wrong);
}

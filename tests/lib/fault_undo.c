#include "tests/lib/fault_undo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct piece {
    struct piece *next;
    off_t offset;
    size_t size;
    char bytes[];
};

struct undo {
    struct undo *next; /* older */
    enum fault_undo_kind kind;
    bool poisoned; /* an fsync of it has failed: none makes it durable any more */
    /* UNDO_DATA */
    int fd;
    dev_t device;
    ino_t inode;
    off_t size;
    struct piece *pieces; /* newest first */
    /* the others: a folder and a name in it; of a rename the second is where it came from */
    int folder[2];
    bool pending[2];
    char name[2][FAULT_NAME_SIZE];
    unsigned aside; /* what was there before, kept under this number; 0: nothing */
};

static struct undo *undos;
static unsigned asides;
static char aside_folder[4096];

static void aside_path(unsigned number, char *path, size_t size)
{
    (void)snprintf(path, size, "%s/%d-%u", aside_folder, (int)getpid(), number);
}

static struct undo *undo_new(enum fault_undo_kind kind)
{
    struct undo *undo = calloc(1, sizeof(*undo));
    if (undo == NULL) {
        abort();
    }
    *undo = (struct undo){.next = undos, .kind = kind, .fd = -1, .folder = {-1, -1}};
    undos = undo;
    return undo;
}

static void undo_free(struct undo *undo)
{
    char path[4200];
    while (undo->pieces != NULL) {
        struct piece *piece = undo->pieces;
        undo->pieces = piece->next;
        free(piece);
    }
    if (undo->aside != 0) {
        aside_path(undo->aside, path, sizeof(path));
        (void)real.unlinkat(AT_FDCWD, path, 0);
    }
    for (int i = 0; i < 2; i++) {
        if (undo->folder[i] >= 0) {
            (void)close(undo->folder[i]);
        }
    }
    if (undo->fd >= 0) {
        (void)close(undo->fd);
    }
    free(undo);
}

void fault_keep_data(int fd, off_t offset, size_t size)
{
    struct stat status;
    char link[64];
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return;
    }
    struct undo *undo = undos;
    while (undo != NULL && (undo->kind != UNDO_DATA || undo->inode != status.st_ino ||
                            undo->device != status.st_dev)) {
        undo = undo->next;
    }
    if (undo == NULL) {
        undo = undo_new(UNDO_DATA);
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        undo->fd = real.open(link, O_RDWR | O_CLOEXEC);
        undo->device = status.st_dev;
        undo->inode = status.st_ino;
        undo->size = status.st_size;
    }
    if (offset < undo->size && size > 0) {
        size_t lost = (size_t)(undo->size - offset) < size ? (size_t)(undo->size - offset) : size;
        struct piece *piece = malloc(sizeof(*piece) + lost);
        if (piece == NULL) {
            abort();
        }
        ssize_t got = pread(undo->fd, piece->bytes, lost, offset);
        *piece = (struct piece){undo->pieces, offset, got > 0 ? (size_t)got : 0};
        undo->pieces = piece;
    }
}

unsigned fault_keep_aside(int folder, const char *name)
{
    char path[4200];
    aside_path(++asides, path, sizeof(path));
    return linkat(folder, name, AT_FDCWD, path, 0) == 0 ? asides : 0;
}

static void drop(struct undo **at)
{
    struct undo *undo = *at;
    *at = undo->next;
    undo_free(undo);
}

void fault_synced_file(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return;
    }
    for (struct undo **at = &undos; *at != NULL;) {
        struct undo *undo = *at;
        if (undo->kind == UNDO_DATA && !undo->poisoned && undo->inode == status.st_ino &&
            undo->device == status.st_dev) {
            drop(at);
        } else {
            at = &undo->next;
        }
    }
}

void fault_synced_folder(int fd)
{
    struct stat status;
    struct stat other;
    if (fstat(fd, &status) != 0) {
        return;
    }
    for (struct undo **at = &undos; *at != NULL;) {
        struct undo *undo = *at;
        for (int i = 0; i < 2 && undo->kind != UNDO_DATA; i++) {
            if (undo->pending[i] && fstat(undo->folder[i], &other) == 0 &&
                other.st_ino == status.st_ino && other.st_dev == status.st_dev) {
                undo->pending[i] = false;
            }
        }
        if (undo->kind != UNDO_DATA && !undo->pending[0] && !undo->pending[1]) {
            drop(at);
        } else {
            at = &undo->next;
        }
    }
}

void fault_poison(int fd)
{
    struct stat status;
    if (fstat(fd, &status) == 0) {
        for (struct undo *undo = undos; undo != NULL; undo = undo->next) {
            undo->poisoned =
                undo->poisoned || (undo->kind == UNDO_DATA && undo->inode == status.st_ino);
        }
    }
}

static void remove_tree(int folder, const char *name)
{
    if (real.unlinkat(folder, name, 0) == 0 || (errno != EISDIR && errno != EPERM)) {
        return;
    }
    int fd = real.openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry = list != NULL ? readdir(list) : NULL; entry != NULL;
         entry = readdir(list)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            remove_tree(dirfd(list), entry->d_name);
        }
    }
    if (list != NULL) {
        (void)closedir(list);
    }
    (void)real.unlinkat(folder, name, AT_REMOVEDIR);
}

static void put_back(const struct undo *undo, int folder, const char *name)
{
    char path[4200];
    aside_path(undo->aside, path, sizeof(path));
    (void)real.renameat(AT_FDCWD, path, folder, name);
}

static void forget_one(struct undo *undo)
{
    switch (undo->kind) {
    case UNDO_DATA:
        for (struct piece *piece = undo->pieces; piece != NULL; piece = piece->next) {
            (void)!real.pwrite(undo->fd, piece->bytes, piece->size, piece->offset);
        }
        (void)!real.ftruncate(undo->fd, undo->size);
        break;
    case UNDO_CREATE:
    case UNDO_MKDIR:
        remove_tree(undo->folder[0], undo->name[0]);
        break;
    case UNDO_RENAME:
        /* A reader sees the new file or the old one, never none. */
        if (undo->aside != 0) {
            (void)!linkat(undo->folder[0], undo->name[0], undo->folder[1], undo->name[1], 0);
            put_back(undo, undo->folder[0], undo->name[0]);
        } else {
            (void)real.renameat(undo->folder[0], undo->name[0], undo->folder[1], undo->name[1]);
        }
        break;
    case UNDO_UNLINK:
        if (undo->aside != 0) {
            put_back(undo, undo->folder[0], undo->name[0]);
        } else {
            (void)real.mkdirat(undo->folder[0], undo->name[0], 0750);
        }
        break;
    }
}

void fault_forget(bool coins, uint64_t seed)
{
    for (struct undo *undo = undos; undo != NULL; undo = undo->next) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        if (!coins || (seed >> 40) % 2 == 0) {
            forget_one(undo);
        }
    }
}

void fault_note(enum fault_undo_kind kind, int folder, const char *name, int from_folder,
                const char *from_name, unsigned aside)
{
    struct undo *undo = undo_new(kind);
    undo->folder[0] = folder;
    undo->folder[1] = from_folder;
    undo->pending[0] = true;
    undo->pending[1] = from_folder >= 0;
    undo->aside = aside;
    (void)snprintf(undo->name[0], sizeof(undo->name[0]), "%s", name);
    (void)snprintf(undo->name[1], sizeof(undo->name[1]), "%s", from_name);
}

void fault_undo_init(const char *folder)
{
    (void)snprintf(aside_folder, sizeof(aside_folder), "%s", folder);
}

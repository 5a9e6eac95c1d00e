/* What a process has done to its files since they were last synced, as a list of things to undo,
 * newest first: old sizes and overwritten bytes of files (until their fsync), names made, moved and
 * removed (until the fsync of each folder that is in it). For tests/lib/fault_shim.c, under its
 * lock. */
#ifndef COPPELIUS_TESTS_FAULT_UNDO_H
#define COPPELIUS_TESTS_FAULT_UNDO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define FAULT_NAME_SIZE 256

/* The functions behind the preloaded ones. */
struct fault_real {
    int (*open)(const char *, int, ...);
    int (*openat)(int, const char *, int, ...);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*pwrite)(int, const void *, size_t, off_t);
    int (*ftruncate)(int, off_t);
    int (*fallocate)(int, int, off_t, off_t);
    int (*fsync)(int);
    int (*fdatasync)(int);
    int (*renameat)(int, const char *, int, const char *);
    int (*mkdirat)(int, const char *, mode_t);
    int (*unlinkat)(int, const char *, int);
    ssize_t (*sendmsg)(int, const struct msghdr *, int);
};
extern struct fault_real real;

enum fault_undo_kind { UNDO_DATA, UNDO_CREATE, UNDO_MKDIR, UNDO_RENAME, UNDO_UNLINK };

/* The folder for what is replaced or removed, on the same file system. */
void fault_undo_init(const char *aside_folder);
/* Before bytes from `offset` on change: the file's synced size, and what of it is overwritten. */
void fault_keep_data(int fd, off_t offset, size_t size);
/* Before a name is replaced or removed: a number to give to fault_note, 0 where there is no such
 * file. */
unsigned fault_keep_aside(int folder, const char *name);
/* A name was made, removed, or (from_folder >= 0) moved there. Takes the descriptors. */
void fault_note(enum fault_undo_kind kind, int folder, const char *name, int from_folder,
                const char *from_name, unsigned aside);
void fault_synced_file(int fd);
void fault_synced_folder(int fd);
/* An fsync has failed: the pages are clean and wrong, and no later one mends that. */
void fault_poison(int fd);
/* Undoes what is not synced: all of it, or with coins from a seed each thing or not. */
void fault_forget(bool coins, uint64_t seed);

#endif

/* Private to checkpoint/: the small steps that several files take. All block. */
#ifndef COPPELIUS_CHECKPOINT_FILES_H
#define COPPELIUS_CHECKPOINT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/hash.h"

/* After a failed fsync of a folder nothing is known about its names, and another fsync would not
 * tell: *ret_fatal becomes true, the process must end and read what is really there. */
int files_sync_folder(struct fs *fs, const char *path, bool *ret_fatal, struct err *err);

/* ERR_DAMAGED, naming the file, where size (looked at first: nothing is read then) or digest are
 * others; ERR_NOT_FOUND where it is missing. */
int files_check(struct fs *fs, const char *path, const uint8_t sha256[SHA256_SIZE], uint64_t size,
                struct err *err);

/* Copies a file of that size from one file system to a new file on another, fsynced; the digest is
 * of what was copied. ERR_DAMAGED: it has another size, and nothing was copied. */
int files_copy(struct fs *from_fs, const char *from, uint64_t size, struct fs *to_fs,
               const char *to, uint8_t ret_sha256[SHA256_SIZE], struct err *err);

/* current_write() that says whether the process must end. */
/* CURRENT that names no epoch, or one that is not there, was damaged from outside: what it must
 * name follows from the folder, for an epoch's folder is there only when it is whole.
 * *ret_repaired: it names the newest one now, or is gone where there is none. */
int files_current_repair(struct fs *fs, const char *folder, bool *ret_repaired, bool *ret_fatal,
                         struct err *err);
int files_current_replace(struct fs *fs, const char *folder, uint64_t epoch, bool *ret_fatal,
                          struct err *err);
/* The same, backwards: of a job whose newest epoch was lost on all nodes. */
int files_current_back(struct fs *fs, const char *folder, uint64_t epoch, bool *ret_fatal,
                       struct err *err);

#endif

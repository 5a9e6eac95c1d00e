/* A folder of this machine as the checkpoint room wants it: a struct fs of its parent, and a name
 * in it. */
#ifndef COPPELIUS_CTL_FOLDER_H
#define COPPELIUS_CTL_FOLDER_H

#include "base/fs.h"
#include "ctl/command.h"

struct folder {
    struct fs *fs;    /* of the parent */
    char *path;       /* absolute */
    const char *name; /* the last part of path */
};

/* An existing folder; links on the way are followed ("latest"). ERR_NOT_FOUND. */
int folder_open(const char *path, struct folder *ret_folder, struct problem *problem);
/* One that is to be made: its parent exists, it does not (ERR_USAGE). */
int folder_make(const char *path, struct folder *ret_folder, struct problem *problem);
void folder_close(struct folder *folder);
/* Where code is ERR_NOT_FOUND: which folders are checkpoints, and the newest one below path where
 * it is the parent of some. Returns code. */
int folder_hint(const char *path, int code, struct problem *problem);

#endif

/* What is being made beside its place: OUTPUT.part, renamed when it is whole. Whoever makes it
 * holds a lock on it that ends with the process, so that a second one is refused, and what a dead
 * one has left is made anew. */
#ifndef COPPELIUS_CTL_PART_H
#define COPPELIUS_CTL_PART_H

#include <stdio.h>

#include "ctl/command.h"
#include "ctl/folder.h"

struct part {
    char *path; /* OUTPUT.part */
    int lock;   /* its descriptor; -1: none */
};

#define PART_NONE ((struct part){NULL, -1})

/* An empty file for writing; part_end() follows. ERR_BUSY where another process makes it, ERR_DISK.
 */
int part_file(const char *output, struct part *ret_part, FILE **ret_file, struct problem *problem);
/* code 0: closes the file durably and renames it to OUTPUT; else, or where that fails, removes it.
 * Returns code, or ERR_DISK. */
int part_end(struct part *part, const char *output, FILE *file, int code, struct problem *problem);
/* An empty folder beside the one that is to be made; part_done() follows. */
int part_folder(const struct folder *folder, struct part *ret_part, struct problem *problem);
/* Gives the lock up; what is still there is the caller's to remove before. */
void part_done(struct part *part);

#endif

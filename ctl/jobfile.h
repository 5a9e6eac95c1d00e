/* A job file as submit and local hand it in: read, checked here first, with its folder. */
#ifndef COPPELIUS_CTL_JOBFILE_H
#define COPPELIUS_CTL_JOBFILE_H

#include <ctl.pb-c.h>

#include "ctl/command.h"
#include "proto/job.h"

struct jobfile {
    struct buf text; /* a zero behind its end */
    char *name;      /* as given; "stdin" for - */
    char *folder;    /* absolute */
    char *from;      /* absolute, or "" */
    char *sets[ARGS_SETS_MAX];
    size_t sets_count;
    struct job job; /* as parsed here */
};

/* Shows all faults on stderr. ERR_NOT_FOUND, ERR_DISK, ERR_JOB. */
int jobfile_read(const struct args *args, const char *path, struct jobfile *ret_file,
                 struct problem *problem);
void jobfile_done(struct jobfile *file);
/* The request, pointing into the file and to uuid, which gets fresh random bits. */
void jobfile_fill(struct jobfile *file, uint64_t uuid[2], Ctl__Submit *ret_submit);

/* A whole file, at most size_max bytes, a zero behind its end; "-" is stdin. */
int file_read(const char *path, size_t size_max, struct buf *bytes, struct problem *problem);
/* An absolute form of an existing path (new memory), or the problem. */
int path_absolute(const char *path, char **ret_path, struct problem *problem);

#endif

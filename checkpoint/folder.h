/* A job's folder: its layout, CURRENT, and what is found in it.
 *
 * CURRENT holds the newest published epoch's folder name and a line feed. It is replaced
 * (CURRENT.new, fsync, rename, fsync of the folder) and only ever moves to a greater epoch. */
#ifndef COPPELIUS_CHECKPOINT_FOLDER_H
#define COPPELIUS_CHECKPOINT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"
#include "control/state.h"

#define FOLDER_PATH_SIZE 512
#define FOLDER_ENTRIES_MAX                                                 \
    128 /* epochs looked at in each place; more are left for the next scan \
         */

/* Epoch numbers found, ascending. */
struct folder_view {
    uint64_t current; /* 0: no CURRENT */
    uint32_t staged_count;
    uint64_t staged[FOLDER_ENTRIES_MAX];
    uint32_t published_count;
    uint64_t published[FOLDER_ENTRIES_MAX];
    /* Shards whose files lie in each of them, bit rank; parts are none. */
    uint64_t staged_shards[FOLDER_ENTRIES_MAX];
    uint64_t published_shards[FOLDER_ENTRIES_MAX];
};

/* "jobs/7-california" */
void checkpoint_job_folder(const struct state_job *job, char path[FOLDER_PATH_SIZE]);
/* "<folder>/epoch-00000012" and "<folder>/staging/epoch-00000012" */
void checkpoint_epoch_folder(const char *folder, uint64_t epoch, char path[FOLDER_PATH_SIZE]);
void checkpoint_staging_folder(const char *folder, uint64_t epoch, char path[FOLDER_PATH_SIZE]);

/* An absent folder is an empty view. ERR_DAMAGED where CURRENT is no epoch's name. */
int folder_scan(struct fs *fs, const char *folder, struct folder_view *ret_view, struct err *err);

/* *ret_epoch is 0 where there is no CURRENT. */
int current_read(struct fs *fs, const char *folder, uint64_t *ret_epoch, struct err *err);
/* Refuses (ERR_STATE) to move backwards. */
int current_write(struct fs *fs, const char *folder, uint64_t epoch, struct err *err);

#endif

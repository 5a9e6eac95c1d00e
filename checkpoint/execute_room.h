/* Private to checkpoint/execute*.c: the file work of one action. */
#ifndef COPPELIUS_CHECKPOINT_EXECUTE_ROOM_H
#define COPPELIUS_CHECKPOINT_EXECUTE_ROOM_H

#include "checkpoint/agent.h"
#include "checkpoint/files.h"

struct work {
    struct fs *fs;
    const struct agent_action *action;
    struct agent_result *result;
    char staging[FOLDER_PATH_SIZE]; /* <folder>/staging */
    char staged[FOLDER_PATH_SIZE];  /* <folder>/staging/epoch-N */
    char epoch[FOLDER_PATH_SIZE];   /* <folder>/epoch-N */
};

/* execute.c */
void work_begin(struct work *w, struct fs *fs, const struct agent_action *action,
                struct agent_result *result);
/* Looks at the folder again; fills code and view. */
void work_end(struct work *w, int code);
int work_join(char *path, const char *folder, const char *name);
int work_sync(struct work *w, const char *path);
/* Every folder down to staging/epoch-N, each durable in the one above. */
int work_make_folders(struct work *w);

/* execute_copies.c */
/* Compares the digests of these shards in the folder, into result->good and bad. */
void work_compare(struct work *w, const char *folder, uint64_t ranks);
/* Renames those of result->bad; the folder is fsynced. */
int work_set_aside(struct work *w, const char *folder);
int work_put_manifest(struct work *w, const char *folder);
/* SHA256SUMS names manifest.json and these shards; the folder is fsynced. */
int work_put_sums(struct work *w, const char *folder, uint64_t ranks);
int work_verify(struct work *w);
int work_trim(struct work *w);

#endif

/* The folder that a node keeps: it belongs to one node of one cluster and to one daemon at a time.
 *
 * node.json says whose it is: {"format": 1, "cluster": …, "name": …, "uuid": …, "incarnation": …}.
 * The uuid is made with the folder: a lost disk is another identity of the node. A folder of
 * another node, of a newer format, or with a log but no node.json is refused, nothing in it is
 * touched. The file `lock` is held (flock) as long as the daemon lives. Blocks: before the loop
 * runs. */
#ifndef COPPELIUS_DAEMON_STATE_FOLDER_H
#define COPPELIUS_DAEMON_STATE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define STATE_FOLDER_FORMAT 1

struct state_folder {
    int lock_fd;          /* -1: none */
    uint64_t incarnation; /* of this start: above that of every earlier one */
    uint8_t uuid[16];
    bool fresh; /* made by this start */
};

#define STATE_FOLDER_NONE \
    {                     \
        .lock_fd = -1     \
    }

/* Makes the folder (not its parents) where it is absent. ERR_CONFIG where it cannot be used,
 * ERR_STATE where it is somebody else's, ERR_BUSY where another daemon holds it (named by pid),
 * ERR_DAMAGED where node.json is unreadable. */
int state_folder_open(const char *path, const char *cluster, const char *name,
                      struct state_folder *ret_folder, struct err *err);
void state_folder_close(struct state_folder *folder); /* twice is fine */

#endif

/* The roll: who this node is and who else is in the cluster, as it last knew: `members.json` in the
 * state folder. Written when the agreed list changes, read at a start, before the log is: the mesh
 * needs names and addresses. Where there is none, the config's `peers` are the list.
 *
 * {"format": 1, "node": 4, "life": 0, "members": [{"node": 1, "life": 0, "name": "a",
 *  "address": "10.0.0.1:7620", "role": "trainer"}, …]}, this node among them. */
#ifndef COPPELIUS_DAEMON_ROLL_H
#define COPPELIUS_DAEMON_ROLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"

#define ROLL_MAX 64

struct roll_entry {
    uint32_t node; /* place */
    uint32_t life;
    char name[64];
    char address[64]; /* "IP:PORT" */
    char role[16];    /* trainer, arbiter, spare */
};

struct roll {
    uint32_t node; /* this one */
    uint32_t life;
    uint32_t count;
    struct roll_entry entries[ROLL_MAX]; /* by place, each once */
};

/* *ret_there false: no file. ERR_DAMAGED: none that can be read. */
int roll_read(struct fs *fs, struct roll *ret_roll, bool *ret_there, struct err *err);
/* Durable, or the old one is left. */
int roll_write(struct fs *fs, const struct roll *roll, struct err *err);
/* From the text of a daemon's answer to a node that joins. ERR_PROTO. */
int roll_parse(const char *text, size_t size, struct roll *ret_roll, struct err *err);
const struct roll_entry *roll_self(const struct roll *roll);

#endif

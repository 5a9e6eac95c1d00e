/* Connections to all nodes of a cluster: the named daemon first, then those that it knows and that
 * can be reached. */
#ifndef COPPELIUS_CTL_SOURCES_H
#define COPPELIUS_CTL_SOURCES_H

#include <stddef.h>

#include "ctl/client.h"

#define SOURCES_MAX 65

struct sources {
    struct client *clients[SOURCES_MAX];
    char names[SOURCES_MAX][64];
    size_t count;
};

/* Who cannot be reached is said and left out; an error is one of the named daemon. */
int sources_open(struct ctl *ctl, struct sources *sources, struct problem *problem);
void sources_close(struct sources *sources); /* twice is fine */

/* Gives each of the shards of a document of `checkpoint show` its `copies`: the names of the nodes
 * that hold it, as the named daemon knows; null where none is named, it does not answer (which is
 * said) or it does not know the checkpoint. */
void copies_told(struct ctl *ctl, json_t *document);

#endif

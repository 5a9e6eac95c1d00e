/* Private to control/state*.c and snapshot.c: making and freeing the parts of a state. */
#ifndef COPPELIUS_CONTROL_STATE_EDIT_H
#define COPPELIUS_CONTROL_STATE_EDIT_H

#include "control/state.h"

/* All end the process where there is no memory: what they allocate is bounded by the limits. */
struct state_job *state_job_new(void);
void state_job_free(struct state_job *job); /* NULL is fine */
struct state_epoch *state_epoch_new(uint32_t shards_count);
void state_epoch_free(struct state_epoch *epoch); /* NULL is fine */

/* As state_job() and state_node(), to be written to. */
struct state_job *state_job_edit(struct state *state, uint64_t id);
struct state_node *state_node_edit(struct state *state, uint32_t node);

/* About how many bytes of a snapshot the job takes. */
uint64_t state_job_size(const struct state_job *job);

#endif

/* What the files that apply entries share: state_apply.c (nodes, jobs, which entry is whose) and
 * state_publish.c (publications). Private to control/state_*.c. */
#ifndef COPPELIUS_CONTROL_STATE_ENTRY_H
#define COPPELIUS_CONTROL_STATE_ENTRY_H

#include "control/state.h"
#include "control/state_edit.h"

/* The entry under way: what every handler needs. */
struct entry {
    struct state *state;
    uint64_t index;
    uint64_t wall_ms;
    struct err *why;
};

/* STATE_IGNORED, with the sentence in entry->why. */
enum state_outcome state_ignored(const struct entry *entry, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The only writer of job->state; the move must be in the drawing of state.h. */
void state_move(const struct entry *entry, struct state_job *job, enum state_job_state next);
/* Copies a reason, cut to COMMAND_REASON_SIZE. */
void state_reason(char *target, const char *text);
/* The generation is over; who asked for a stop meanwhile still holds the job. */
void state_end_generation(const struct entry *entry, struct state_job *job, const char *reason);
/* The open publication comes to nothing. */
void state_drop_open(struct state_job *job, const char *reason);
bool state_make_room(struct state *state, uint64_t size, uint32_t jobs);
/* The job whose generation the entry names, or NULL with the outcome's sentence. */
struct state_job *state_of_generation(const struct entry *entry, uint64_t id, uint64_t generation);

/* What the node had under way is over: its part of an open publication, its generation. */
void state_without_node(const struct entry *entry, struct state_job *job, uint32_t node,
                        const char *reason);

/* state_members.c */
enum state_outcome state_on_node(const struct entry *entry, const struct command_node *c);
enum state_outcome state_on_member(const struct entry *entry, const struct command_member *c);
enum state_outcome state_on_remove(const struct entry *entry, const struct command_remove *c);
enum state_outcome state_on_drain(const struct entry *entry, const struct command_drain *c);
enum state_outcome state_on_recover(const struct entry *entry, const struct command_recover *c);

/* state_publish.c */
enum state_outcome state_on_begin(const struct entry *entry, const struct command_begin *c);
enum state_outcome state_on_prepared(const struct entry *entry, const struct command_prepared *c);
enum state_outcome state_on_abort(const struct entry *entry, const struct command_abort *c);
enum state_outcome state_on_published(const struct entry *entry, const struct command_published *c);
enum state_outcome state_on_collect(const struct entry *entry, const struct command_collect *c);

/* state_copies.c */
enum state_outcome state_on_replicated(const struct entry *entry, const struct command_copy *c);
enum state_outcome state_on_dropped(const struct entry *entry, const struct command_copy *c);
enum state_outcome state_on_assign(const struct entry *entry, const struct command_copy *c);
enum state_outcome state_on_prune(const struct entry *entry, const struct command_prune *c);
/* The node is no member any more: its copies count no longer, and it owes no word. What its going
 * takes the last copy of is lost, as by DROPPED. */
void state_copies_without(const struct entry *entry, uint32_t node);

#endif

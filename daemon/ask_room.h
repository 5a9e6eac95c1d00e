/* Private to daemon/ask*.c: replies, and what the questions share. */
#ifndef COPPELIUS_DAEMON_ASK_ROOM_H
#define COPPELIUS_DAEMON_ASK_ROOM_H

#include <jansson.h>

#include "daemon/ask.h"
#include "daemon/connection.h"

/* ask.c */
const struct facts *ask_facts(const struct connection *connection);
/* The last reply was made. */
void ask_finish(struct connection *connection);
void ask_fail(struct connection *connection, int code, const char *text, const char *hint);
void ask_answer(struct connection *connection, json_t *document);
/* A job by its id, or the newest of a name, or the newest of all. 0 after a failure was replied. */
uint64_t ask_find_job(struct connection *connection, const char *wanted);
/* A verb was begun, or it failed at once. */
void ask_began(struct connection *connection, int status, const struct err *err);
/* facts_done_fn: what a verb on a job came to. */
void ask_on_done(void *context, const struct facts_result *result);

/* ask_checkpoints.c */
void ask_checkpoint_file(struct connection *connection, const Ctl__CheckpointFile *request);
void ask_checkpoint_list(struct connection *connection, const Ctl__CheckpointList *request);
void ask_checkpoint_verify(struct connection *connection, const char *wanted);
void ask_checkpoint_prune(struct connection *connection, const Ctl__CheckpointPrune *request);

/* ask_members.c */
/* A node with a certificate asks to be let in. */
bool ask_for_itself(const struct connection *connection, const Ctl__Request *request);
void ask_member(struct connection *connection, const Ctl__Member *request);

#endif

/* One verdict a pause or failure of a job: who, when, step, phase, why, with the records of all.
 *
 *   applied -> PENDING on every node      the job has left its generation     [verdict_after]
 *   PENDING -> ASKED on the leader        a second later: the others have met it too [verdict_turn]
 *   ASKED -> written                      all that are up have answered, or 2 s are over
 *   PENDING -> written on the others      the leader's verdict came           [verdict_on_text]
 *
 * The leader sends what it wrote to everybody, and each keeps it as a file below its state folder,
 * verdicts/job-00000012-g3.json (documents.md has its form; the newest VERDICT_FILES_MAX are kept).
 * A leader that dies in between leaves PENDING with the others: the next one collects. A leader
 * that was not there when it happened finds the job paused without a verdict, and collects.
 * Thread: the loop; files are written on the libuv pool. */
#ifndef COPPELIUS_DAEMON_VERDICT_H
#define COPPELIUS_DAEMON_VERDICT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "control/state.h"
#include "daemon/facts.h"

#define VERDICT_FILES_MAX   32
#define VERDICT_PENDING_MAX 8
#define VERDICT_TEXT_MAX \
    (384U << 10) /* bytes of a file; one frame, and little enough for a turn of the loop */
#define VERDICT_RECORDS_MAX 256U /* of a node */

struct daemon;
struct command;

/* What was known of the job when it left its generation. */
struct verdict_pending {
    uint64_t job; /* 0: this place is free */
    uint64_t generation;
    char state[16]; /* paused, failed */
    uint32_t node;  /* who is meant; 0: nobody, or not known yet */
    bool asked_for; /* a person or a stopping node wanted it: nobody is to blame */
    uint64_t wall_ms;
    uint64_t step;
    char why[COMMAND_REASON_SIZE];
    uint64_t since_ms;                /* clock_now_ms() */
    uint64_t asked_ms;                /* 0: not asked */
    json_t *records[STATE_NODES_MAX]; /* by node id - 1; NULL: no answer */
};

/* The job as it was before an entry is applied. */
struct verdict_before {
    uint64_t job;
    uint64_t generation;
    enum state_job_state state;
    uint64_t step;
};

struct verdicts {
    struct verdict_pending pending[VERDICT_PENDING_MAX];
    size_t count;
    struct facts_verdict *told[VERDICT_FILES_MAX]; /* oldest first, by time */
    struct buf newest;                             /* the text of the newest one */
    bool led; /* this node has led at the last turn, and has looked for what nobody has judged */
};

int verdict_open(struct daemon *daemon, struct err *err);
void verdict_close(struct daemon *daemon);

/* Around state_apply(); command NULL: it could not be read. */
void verdict_before(struct daemon *daemon, const struct command *command,
                    struct verdict_before *ret_before);
void verdict_after(struct daemon *daemon, const struct command *command,
                   const struct verdict_before *before);
void verdict_turn(struct daemon *daemon);
/* Frames of the mesh. */
void verdict_on_ask(struct daemon *daemon, uint32_t from, const uint8_t *bytes, size_t size);
void verdict_on_records(struct daemon *daemon, uint32_t from, const uint8_t *bytes, size_t size);
void verdict_on_text(struct daemon *daemon, uint32_t from, const uint8_t *bytes, size_t size);
/* A node is up again: it is sent the newest one. */
void verdict_on_up(struct daemon *daemon, uint32_t node);
/* The newest verdict of a job; false: none. */
bool verdict_tell(void *daemon, uint64_t job, struct facts_verdict *ret);

/* verdict_files.c */
void verdict_files_close(struct daemon *daemon);
struct facts_verdict *verdict_find(const struct verdicts *verdicts, uint64_t job,
                                   uint64_t generation);
/* Into the list, and into a file on the pool; the bytes are copied. */
void verdict_keep(struct daemon *daemon, const struct facts_verdict *told, const uint8_t *bytes,
                  size_t size);

/* verdict_text.c: the file's form. */
json_t *verdict_record(uint64_t wall_ms, const char *event, uint64_t job, uint64_t generation,
                       uint64_t step, const char *phase, uint64_t sent_bytes,
                       uint64_t received_bytes, const char *words);
/* Who is meant, where several are blamed: the one whom most nodes have named in that generation. */
uint32_t verdict_blamed(const struct daemon *daemon, const struct verdict_pending *pending);
/* A node that the sentence names, the last one; 0: none. */
uint32_t verdict_named(const struct daemon *daemon, const char *sentence);
void verdict_compose(struct daemon *daemon, const struct verdict_pending *pending, struct buf *out);
/* ERR_DAMAGED: it is no verdict. path is not filled. */
int verdict_parse(const void *bytes, size_t size, struct facts_verdict *ret, struct err *err);

#endif

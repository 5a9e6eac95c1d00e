/* The flight recorder: the last minutes of what happened on this node, in memory of a fixed size.
 *
 * The oldest records give way. Thread: the loop. What becomes of them when a job pauses or fails:
 * verdict.h. */
#ifndef COPPELIUS_DAEMON_RECORDER_H
#define COPPELIUS_DAEMON_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define RECORDER_TEXT_SIZE 256
#define RECORDER_RECORDS \
    1024 /* with a pulse a second: a quarter of an hour, less when much happens */

struct record {
    uint64_t wall_ms;
    uint64_t job, generation, step; /* job 0: none was under way */
    uint64_t sent_bytes, received_bytes;
    char event[16]; /* event, phase, failed, publish, pulse */
    char phase[24];
    char text[RECORDER_TEXT_SIZE];
};

struct recorder {
    struct record *records; /* the one with number n is at n % records_max */
    size_t records_max;
    uint64_t count; /* ever */
};

int recorder_init(struct recorder *recorder, size_t records_max, struct err *err);
void recorder_done(struct recorder *recorder); /* twice is fine */
void recorder_put(struct recorder *recorder, const struct record *record);
/* How many there are, at most records_max. */
size_t recorder_size(const struct recorder *recorder);
/* index 0 is the oldest of recorder_size(). Borrowed until the next put. */
const struct record *recorder_at(const struct recorder *recorder, size_t index);

#endif

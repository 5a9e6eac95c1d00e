/* Whether this node's device can be worked with, after it has failed in a run.
 *
 *   FIT -> UNFIT       its part of a run ended with the device's error   [fitness_fail]
 *   UNFIT -> TESTING   the wait is over and no run holds the device      [fitness_turn]
 *   TESTING -> FIT     the self-test gave its bits                       [on_tested]
 *   TESTING -> UNFIT   it did not                                        [on_tested]
 *
 * A node that is not FIT says so in its heartbeats, with the reason: it is placed on nothing
 * (control/roster.h), and is not ready. An elastic job goes on without it, another waits for it.
 * Where the failure has cost this process the GPU (session_device_lost), no test of its own could
 * pass: when it is due the program starts itself anew instead, and hands on how many failures in a
 * row there were. The new process begins with TESTING, and its start's self-test is that test.
 *
 * The wait before the test is 5 s, then twice as long after each failure in a row, at most 10
 * minutes: a device that passes the test and fails in the job all the same does not disturb it for
 * ever. A capture ends the row.
 *
 * Thread: the loop; the test runs on the libuv pool. */
#ifndef COPPELIUS_DAEMON_FITNESS_H
#define COPPELIUS_DAEMON_FITNESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define FITNESS_WAIT_MS     5000
#define FITNESS_WAIT_MS_MAX 600000

enum fitness_state { FITNESS_FIT, FITNESS_UNFIT, FITNESS_TESTING };

struct fitness {
    enum fitness_state state;
    unsigned failures; /* in a row */
    uint64_t test_ms;  /* when the test is due */
};

struct daemon;

/* The device failed in a run: `err` is the sentence, with step and phase. */
void fitness_fail(struct daemon *daemon, const struct err *err);
/* This process takes the place of one that has lost its GPU. Before the first turn. */
void fitness_take_over(struct daemon *daemon, unsigned failures);
/* What the self-test said; err code 0: it passed, on that device. */
struct session_binding;
void fitness_conclude(struct daemon *daemon, const struct session_binding *binding,
                      const char *sentence, const struct err *err);
/* A run got as far as a capture with it. */
void fitness_prove(struct daemon *daemon);
void fitness_turn(struct daemon *daemon);
/* The test holds the device: no run may begin. */
bool fitness_testing(const struct daemon *daemon);
/* The wait before the next test after so many failures in a row (at least 1). */
uint64_t fitness_wait_ms(unsigned failures);

#endif

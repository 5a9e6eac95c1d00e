/* What is wrong with this node, and what to do: the checks of `coppeliusctl doctor` and of the
 * start.
 *
 * doctor_run begins on the loop, looks at disk, device and clock on the libuv pool (nothing there
 * is shared), asks the facts on the loop and calls back there. */
#ifndef COPPELIUS_DAEMON_DOCTOR_H
#define COPPELIUS_DAEMON_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "daemon/documents.h"
#include "daemon/facts.h"

#define DOCTOR_CHECKS_MAX 64

struct doctor_settings { /* immutable while checks run, but for closing */
    char state_dir[FACTS_PATH_SIZE];
    char device[64];                    /* as configured: cpu, auto, cuda, an index, a UUID */
    char tile_choices[FACTS_PATH_SIZE]; /* a file, "": the built-in table */
    char listen[32];                    /* IP:PORT */
    char advertise[32];                 /* IP:PORT */
    char http[32];                      /* IP:PORT, "" without */
    uint64_t storage_free_least;        /* bytes; below is a failure */
    /* The golden step (selftest.h); NULL: skipped. Pool thread. */
    int (*selftest)(void *context, char *sentence, size_t sentence_size, struct err *err);
    void *selftest_context;
    bool closing; /* the facts are gone: a visit that comes back asks them nothing */
};

typedef void doctor_done_fn(void *context, const struct document_check *checks,
                            size_t checks_count);

/* The checks that need no cluster; blocks (fsync, driver): any thread but a loop. Appends to
 * checks; returns the new count. */
size_t doctor_look(const struct doctor_settings *settings, bool device_is_taken,
                   struct document_check *checks, size_t checks_count);
/* All checks; facts may be NULL (before the start). done comes once, on the loop. */
int doctor_run(uv_loop_t *loop, const struct doctor_settings *settings, const struct facts *facts,
               doctor_done_fn *done, void *context, struct err *err);

#endif

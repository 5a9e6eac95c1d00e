/* The core's own workload: see hashes.c. The world's context is a struct hashes. */
#ifndef COPPELIUS_TESTS_SIM_HASHES_H
#define COPPELIUS_TESTS_SIM_HASHES_H

#include "tests/sim/world.h"

struct hashes;
struct hashes *hashes_new(void);
void hashes_free(struct hashes *all);
uint64_t hashes_acknowledged(const struct hashes *all); /* commands */
uint64_t hashes_count(const void *self);                /* commands that this node applied */

#endif

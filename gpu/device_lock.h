/* Who holds a GPU: flock() on a file named by the GPU's UUID, so a dead process leaves none behind.
 *
 * A process takes a GPU once and keeps it until it ends: a daemon binds one GPU for its life, and
 * its sessions (runs, predictions, the self-test) come and go on it. An exclusive holder and
 * sharers (device_share: yes) keep each other out. Any thread. */
#ifndef COPPELIUS_GPU_DEVICE_LOCK_H
#define COPPELIUS_GPU_DEVICE_LOCK_H

#include <stdbool.h>

#include "base/err.h"

/* 0 where this process holds it now, or did already; a sharer that asks for all of it gets it where
 * it is alone. ERR_BUSY: another process does. ERR_DEVICE: the lock's file. */
int device_lock_take(const char *uuid, bool share, struct err *err);
/* This process holds that one; any. */
bool device_lock_held(const char *uuid);
bool device_lock_any(void);

#endif

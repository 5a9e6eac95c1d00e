/* Room on the disk, kept before a long file is begun.
 *
 * A disk that fills up in the middle of a shard has no byte left for the log beside it either, and
 * says so only after minutes of writing. So the room is looked for first, and then kept: asked for
 * more than the disk has, nothing is taken from it, not for a moment. */
#ifndef COPPELIUS_BASE_ROOM_H
#define COPPELIUS_BASE_ROOM_H

#include <stdint.h>

#include "base/err.h"

/* Keeps `size` bytes behind the file's end (fallocate; the file's size stays), less what is kept
 * there already. ERR_DISK "no room for '<name>': …", with bytes needed, bytes free, the folder and
 * what to do; what had been kept behind the end is given back then. 0 where the file system cannot
 * (what is missing is then found by the write). */
int room_reserve(int fd, const char *name, uint64_t size, struct err *err);

#endif

/* A simulated disk: a struct fs that forgets what was not synced.
 *
 * Each file has the bytes that a reader sees and those a crash leaves; each folder the names that a
 * lookup sees and those a crash leaves. At a crash
 *   - bytes not synced are kept, dropped or torn, 512-byte sector by sector;
 *   - a name made, removed or renamed since its (target) folder was synced is kept or not, by a
 * coin for each operation (a rename is whole: old or new, never both or none). Syncing a file does
 *     not make its name durable, nor syncing a folder the folder's own name;
 *   - a cut (truncate) not synced is kept or not.
 * A failed sync loses what it was to sync, though readers go on seeing it: "clean and wrong".
 * Every operation that changes something is numbered (crash point). Not threaded; deterministic:
 * the same calls and the same seed give the same bytes. */
#ifndef COPPELIUS_TESTS_SIM_FS_SIM_H
#define COPPELIUS_TESTS_SIM_FS_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fs.h"

struct sim_disk;

/* The disk outlives crashes of its node. seed feeds its own generator. */
struct sim_disk *sim_disk_new(uint64_t seed);
void sim_disk_free(struct sim_disk *disk); /* NULL is fine; all files of it must be closed */

/* The file system; the same pointer for the disk's whole life. Give it to control_open() and to the
 * code under test. */
struct fs *sim_disk_fs(struct sim_disk *disk);

/* Operations so far (open that creates, reserve, write, truncate, sync, rename, unlink, mkdir,
 * rmdir, sync_folder). */
uint64_t sim_disk_ops(const struct sim_disk *disk);
/* The node dies at operation number `op` (counted from 1 over the disk's life): before it (nothing
 * of it happens) or after it (it has happened, and its caller still gets the error). From then on
 * every call but close gives ERR_DISK "simulated crash" until sim_disk_crash(). 0 disarms. */
void sim_disk_crash_at(struct sim_disk *disk, uint64_t op, bool after);
/* A crash point has fired and sim_disk_crash() was not called yet: discard the node's objects
 * (close its files), then call it. */
bool sim_disk_dead(const struct sim_disk *disk);
/* Power is cut: decides what is left of everything unsynced. Open files stay objects that only
 * close is allowed on. The disk is usable again at once (for the next incarnation). */
void sim_disk_crash(struct sim_disk *disk);

/* The n-th sync (file or folder) from now fails once with EIO; 0 disarms. */
void sim_disk_fail_sync(struct sim_disk *disk, uint64_t nth);
/* Bytes that all files together may have, what they reserved included; a reservation beyond keeps
 * nothing, a write beyond writes what fits and gives ERR_DISK ("No
 * space left on device"). UINT64_MAX at start. */
void sim_disk_set_capacity(struct sim_disk *disk, uint64_t bytes);
uint64_t sim_disk_used(const struct sim_disk *disk);
/* Torn sectors may hold noise, not only zeros, and unsynced sectors live or die each by itself
 * (true at start); false: an unsynced tail is cut at one place only. */
void sim_disk_set_torn(struct sim_disk *disk, bool torn);
/* Wipes everything, as a lost pod. */
void sim_disk_wipe(struct sim_disk *disk);
/* Wipes what is below a folder of the root, and its name, at once and for ever. */
void sim_disk_wipe_folder(struct sim_disk *disk, const char *name);
/* Flips one bit of a file, in what is read and in what is durable. ERR_NOT_FOUND, or ERR_USAGE
 * beyond its end. */
int sim_disk_flip(struct sim_disk *disk, const char *path, uint64_t byte, unsigned bit,
                  struct err *err);
/* What would be on the disk if the power were cut now and every coin fell against us: does the path
 * lead to something whose names on the way are all durable and, for a file, all bytes synced? */
bool sim_disk_is_durable(struct sim_disk *disk, const char *path);

#endif

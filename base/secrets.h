/* Private keys and tokens: where they lie on the disk, and that they stay in the memory of the
 * program; what the kernel writes down when it dies is a file that others may read. */
#ifndef COPPELIUS_BASE_SECRETS_H
#define COPPELIUS_BASE_SECRETS_H

#include <stddef.h>

#include "base/err.h"

struct buf;

/* Appends the whole file, at most size_max bytes. `what` begins the sentences ("tls.key",
 * "http.token_file"). Refused, each with a sentence of its own (ERR_CONFIG): a link, no plain file,
 * larger, of another user than this one or root, one that group or others may read or write, one in
 * a folder that somebody else could put another in. ERR_NOT_FOUND: there is none. Blocks on the
 * disk. */
int secrets_read(const char *what, const char *path, size_t size_max, struct buf *bytes,
                 struct err *err);
/* Whether somebody else than this user and root could put other files into the open folder: its
 * owner, or who may write to it without the sticky bit. */
int secrets_check_folder(const char *what, const char *path, int fd, struct err *err);

/* From now on a core dump has registers and the headers of mapped programs, and no memory of this
 * process nor of its children, whoever takes the dump (a file, or a program behind core_pattern).
 * First thing in main. Where the kernel does not offer it, no core is written at all. */
void secrets_stay_out_of_dumps(void);

#endif

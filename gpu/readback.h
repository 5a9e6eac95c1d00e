/* The file that a session leaves at its end: the captured state and what vouches for it. Little
 * endian:
 *
 *   0   8   "COPRBK01"
 *   8   16  binding
 *   24  8   coordinate_first      32  8  coordinate_end
 *   40  8   issues, the device's counter at the capture
 *   48  8   issues, as the host counted its submissions
 *   56  8   issues expected by the job
 *   64  32  SHA-256 of the parameter bytes
 *   96  32  SHA-256 of the accumulator bytes
 *   128 8n  parameter, n = coordinate_end - coordinate_first binary64 values
 *       8n  accumulator
 *       32  SHA-256 of everything before
 *
 * Written once by session_read_back(), exclusively created and synced. Any thread. */
#ifndef COPPELIUS_GPU_READBACK_H
#define COPPELIUS_GPU_READBACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/fs.h"
#include "base/hash.h"
#include "gpu/binding.h"

#define READBACK_HEADER_SIZE 128

struct readback {
    struct session_binding binding; /* bytes only */
    uint64_t coordinate_first;
    uint64_t coordinate_end;
    uint64_t issues_device;
    uint64_t issues_host;
    uint64_t issues_expected;
    uint8_t parameter_sha256[SHA256_SIZE]; /* made by readback_write() */
    uint8_t accumulator_sha256[SHA256_SIZE];
};

/* Creates path, which must not exist. Fills in the digests. */
int readback_write(struct fs *fs, const char *path, struct readback *readback,
                   const double *parameter, const double *accumulator, struct err *err);
/* Checks the bytes of a whole file, sizes first, then digests: ERR_DAMAGED. The state follows the
 * header, as many coordinates as it says. */
int readback_parse(const uint8_t *bytes, size_t size, struct readback *ret_readback,
                   struct err *err);
/* Reads header and digests, and checks them against the file: ERR_DAMAGED. parameter and
 * accumulator may be NULL; else they take coordinate_end - coordinate_first values, which must be
 * coordinates. */
int readback_read(struct fs *fs, const char *path, uint64_t coordinates,
                  struct readback *ret_readback, double *parameter, double *accumulator,
                  struct err *err);

#endif

#include "base/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"

#define EARLY_SIZE (UINT64_C(8) << 20)

_Static_assert(DIRECT_PIECE_SIZE % DIRECT_ALIGN == 0, "pieces keep the file's end aligned");

static int set_direct(int fd, int on)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 ? -1 : fcntl(fd, F_SETFL, on != 0 ? flags | O_DIRECT : flags & ~O_DIRECT);
}

void direct_begin(struct direct *direct, int fd)
{
    void *memory = NULL;
    off_t end = lseek(fd, 0, SEEK_END);
    if (direct->buffer != NULL || end < 0 || end % (off_t)DIRECT_ALIGN != 0 ||
        posix_memalign(&memory, DIRECT_PIECE_SIZE, DIRECT_PIECE_SIZE) != 0) {
        return;
    }
    if (set_direct(fd, 1) != 0) {
        free(memory);
        return;
    }
    (void)madvise(memory, DIRECT_PIECE_SIZE, MADV_HUGEPAGE); /* A wish. */
    direct->buffer = memory;
    direct->filled = 0;
}

/* Only begins, and promises nothing: what fails of it the fsync tells. */
static void begin_early(struct direct *direct, int fd)
{
    off_t end = lseek(fd, 0, SEEK_CUR); /* After a write of O_APPEND too. */
    if (end >= (off_t)direct->early) {
        (void)sync_file_range(fd, end - (off_t)direct->early, (off_t)direct->early,
                              SYNC_FILE_RANGE_WRITE);
    }
    direct->early = 0;
}

static int write_plain(struct direct *direct, int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return errno;
        }
        bytes += written;
        size -= (size_t)written;
        direct->early += (uint64_t)written;
    }
    if (direct->early >= EARLY_SIZE) {
        begin_early(direct, fd);
    }
    return 0;
}

/* A full buffer. A file system may refuse only now (EINVAL), or do a part that leaves the end
 * unaligned: the rest is by the page cache. */
static int write_piece(struct direct *direct, int fd)
{
    ssize_t written = 0;
    do {
        written = write(fd, direct->buffer, DIRECT_PIECE_SIZE);
    } while (written < 0 && errno == EINTR);
    if (written == (ssize_t)DIRECT_PIECE_SIZE) {
        direct->filled = 0;
        return 0;
    }
    if (written < 0 && errno != EINVAL) {
        return errno;
    }
    size_t done = written > 0 ? (size_t)written : 0;
    memmove(direct->buffer, direct->buffer + done, DIRECT_PIECE_SIZE - done);
    direct->filled = DIRECT_PIECE_SIZE - done;
    return direct_end(direct, fd);
}

int direct_write(struct direct *direct, int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0 && direct->buffer != NULL) {
        size_t room = DIRECT_PIECE_SIZE - direct->filled;
        size_t part = size < room ? size : room;
        memcpy(direct->buffer + direct->filled, bytes, part);
        direct->filled += part;
        bytes += part;
        size -= part;
        if (direct->filled == DIRECT_PIECE_SIZE) {
            int number = write_piece(direct, fd);
            if (number != 0) {
                direct_drop(direct); /* The file is given up. */
                return number;
            }
        }
    }
    return size > 0 ? write_plain(direct, fd, bytes, size) : 0;
}

int direct_end(struct direct *direct, int fd)
{
    if (direct->buffer == NULL) {
        return 0;
    }
    uint8_t *buffer = direct->buffer;
    int number = set_direct(fd, 0) == 0 ? 0 : errno;
    number = number != 0 ? number : write_plain(direct, fd, buffer, direct->filled);
    direct_drop(direct);
    return number;
}

void direct_drop(struct direct *direct)
{
    free(direct->buffer);
    direct->buffer = NULL;
    direct->filled = 0;
}

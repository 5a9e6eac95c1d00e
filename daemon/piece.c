#include "daemon/piece.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

struct reading {
    uv_work_t work;
    char path[1024 + PIECE_NAME_MAX + 2];
    uint64_t offset;
    size_t size_max;
    piece_done_fn *done;
    void *context;
    struct piece piece;
    uint8_t *bytes;
};

bool piece_name_is_good(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t size = strlen(name);
    return size > 0 && size <= PIECE_NAME_MAX && name[0] != '.' && strspn(name, allowed) == size;
}

/* Pool thread. */
static void on_work(uv_work_t *work)
{
    struct reading *reading = OWNER_OF(work, struct reading, work);
    struct piece *piece = &reading->piece;
    const char *name = strrchr(reading->path, '/') + 1;
    int fd = open(reading->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0) {
        int code = errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK;
        (void)err_set(&piece->err, code, "checkpoint: file '%s': %s", name, err_errno(errno));
    } else if (!S_ISREG(stat.st_mode)) {
        (void)err_set(&piece->err, ERR_DAMAGED, "checkpoint: '%s' is no plain file", name);
    } else {
        piece->total = (uint64_t)stat.st_size;
        if (reading->offset < piece->total) {
            uint64_t left = piece->total - reading->offset;
            size_t size = left < reading->size_max ? (size_t)left : reading->size_max;
            reading->bytes = malloc(size);
            ssize_t got = reading->bytes == NULL
                              ? -1
                              : pread(fd, reading->bytes, size, (off_t)reading->offset);
            if (got < 0) {
                (void)err_set(&piece->err, ERR_DISK, "checkpoint: file '%s' at byte %llu: %s", name,
                              (unsigned long long)reading->offset, err_errno(errno));
            } else {
                piece->size = (size_t)got;
                piece->bytes = reading->bytes;
            }
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

static void on_worked(uv_work_t *work, int status)
{
    struct reading *reading = OWNER_OF(work, struct reading, work);
    if (status != 0) {
        (void)err_set(&reading->piece.err, ERR_CANCELED, "checkpoint: the read was cancelled");
    }
    reading->done(reading->context, &reading->piece);
    free(reading->bytes);
    free(reading);
}

int piece_read(uv_loop_t *loop, const char *folder, const char *name, uint64_t offset,
               size_t size_max, piece_done_fn *done, void *context, struct err *err)
{
    ASSERT(piece_name_is_good(name));
    if (strlen(folder) > 1024 || offset > INT64_MAX) {
        return err_set(err, ERR_USAGE, "checkpoint: no file '%s' has a byte %llu", name,
                       (unsigned long long)offset);
    }
    struct reading *reading = calloc(1, sizeof(*reading));
    ASSERT(reading != NULL);
    (void)snprintf(reading->path, sizeof(reading->path), "%s/%s", folder, name);
    reading->offset = offset;
    reading->size_max = size_max;
    reading->done = done;
    reading->context = context;
    int status = uv_queue_work(loop, &reading->work, on_work, on_worked);
    ASSERT(status == 0);
    return 0;
}

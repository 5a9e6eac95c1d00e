#include "data/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "data/npy.h"

#define BUFFER_SIZE (1U << 20)
#define PATH_SIZE   4096

static int write_all(int fd, uint64_t offset, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    while (size > 0) {
        ssize_t put = pwrite(fd, from, size, (off_t)offset);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return -1;
        }
        from += put;
        offset += (uint64_t)put;
        size -= (size_t)put;
    }
    return 0;
}

int writer_open(struct writer *writer, const char *folder, const char *name, struct err *err)
{
    struct writer made = WRITER_NONE;
    char path[PATH_SIZE];
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    ASSERT(strlen(name) < sizeof(made.name));
    (void)snprintf(made.name, sizeof(made.name), "%s", name);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return err_set(err, ERR_DISK, "%s: the path is too long", folder);
    }
    made.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (made.fd < 0) {
        return err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
    }
    made.offset = NPY_HEADER_SIZE;
    made.buffer = malloc(BUFFER_SIZE);
    if (made.buffer == NULL) {
        writer_done(&made);
        return err_set(err, ERR_NOMEM, "%s: no memory for a buffer", path);
    }
    *writer = made;
    return 0;
}

int writer_put_at(struct writer *writer, uint64_t offset, const void *bytes, size_t size,
                  struct err *err)
{
    if (write_all(writer->fd, offset, bytes, size) != 0) {
        return err_set(err, ERR_DISK, "writing %s: %s", writer->name, err_errno(errno));
    }
    return 0;
}

static int flush(struct writer *writer, struct err *err)
{
    int code = writer_put_at(writer, writer->offset, writer->buffer, writer->used, err);
    writer->offset += writer->used;
    writer->used = 0;
    return code;
}

int writer_put(struct writer *writer, const void *bytes, size_t size, struct err *err)
{
    if (size >= BUFFER_SIZE) { /* Large pieces need no copy. */
        int code = flush(writer, err);
        if (code == 0) {
            code = writer_put_at(writer, writer->offset, bytes, size, err);
            writer->offset += size;
        }
        return code;
    }
    if (BUFFER_SIZE - writer->used < size) {
        int code = flush(writer, err);
        if (code != 0) {
            return code;
        }
    }
    memcpy(writer->buffer + writer->used, bytes, size);
    writer->used += size;
    return 0;
}

int writer_finish(struct writer *writer, const char *descr, bool fortran, uint64_t rows,
                  uint64_t columns, struct err *err)
{
    uint8_t header[NPY_HEADER_SIZE];
    npy_header(header, descr, fortran, rows, columns);
    int code = flush(writer, err);
    if (code == 0) {
        code = writer_put_at(writer, 0, header, sizeof(header), err);
    }
    if (code == 0 && fdatasync(writer->fd) != 0) {
        code = err_set(err, ERR_DISK, "syncing %s: %s", writer->name, err_errno(errno));
    }
    if (code == 0 && close(writer->fd) != 0) {
        code = err_set(err, ERR_DISK, "closing %s: %s", writer->name, err_errno(errno));
        writer->fd = -1;
    }
    writer->fd = code == 0 ? -1 : writer->fd;
    writer_done(writer);
    return code;
}

void writer_done(struct writer *writer)
{
    if (writer->fd >= 0) {
        (void)close(writer->fd);
        writer->fd = -1;
    }
    free(writer->buffer);
    writer->buffer = NULL;
}

int spill_open(const char *folder, struct err *err)
{
    char path[PATH_SIZE];
    int length = snprintf(path, sizeof(path), "%s/spill-XXXXXX", folder);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return err_set(err, ERR_DISK, "%s: the path is too long", folder);
    }
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || unlink(path) != 0) {
        int code = err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return code;
    }
    return fd;
}

int spill_write(int fd, uint64_t offset, const void *bytes, size_t size, struct err *err)
{
    if (write_all(fd, offset, bytes, size) != 0) {
        return err_set(err, ERR_DISK, "writing a temporary file: %s", err_errno(errno));
    }
    return 0;
}

int spill_read(int fd, uint64_t offset, void *bytes, size_t size, struct err *err)
{
    return npy_pread(fd, "a temporary file", offset, bytes, size, err);
}

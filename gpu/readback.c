#include "gpu/readback.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "vectors are written as they lie");

static const char magic[8] = {'C', 'O', 'P', 'R', 'B', 'K', '0', '1'};

/* The sum of header and both vectors, in the order of the file. */
static void digest_all(const struct buf *header, const double *parameter, const double *accumulator,
                       size_t vector_size, uint8_t digest[SHA256_SIZE])
{
    struct sha256 whole = {0};
    sha256_init(&whole);
    sha256_update(&whole, header->bytes, header->size);
    sha256_update(&whole, parameter, vector_size);
    sha256_update(&whole, accumulator, vector_size);
    sha256_finish(&whole, digest);
}

static void put_header(const struct readback *readback, struct buf *header)
{
    buf_put(header, magic, sizeof(magic));
    buf_put(header, readback->binding.bytes, BINDING_SIZE);
    buf_put_u64(header, readback->coordinate_first);
    buf_put_u64(header, readback->coordinate_end);
    buf_put_u64(header, readback->issues_device);
    buf_put_u64(header, readback->issues_host);
    buf_put_u64(header, readback->issues_expected);
    buf_put(header, readback->parameter_sha256, SHA256_SIZE);
    buf_put(header, readback->accumulator_sha256, SHA256_SIZE);
    ASSERT(header->size == READBACK_HEADER_SIZE);
}

int readback_write(struct fs *fs, const char *path, struct readback *readback,
                   const double *parameter, const double *accumulator, struct err *err)
{
    size_t vector_size =
        (size_t)(readback->coordinate_end - readback->coordinate_first) * sizeof(double);
    sha256_of(parameter, vector_size, readback->parameter_sha256);
    sha256_of(accumulator, vector_size, readback->accumulator_sha256);
    struct buf header = BUF_NONE;
    put_header(readback, &header);
    uint8_t digest[SHA256_SIZE];
    digest_all(&header, parameter, accumulator, vector_size, digest);
    struct fs_file *file = NULL;
    int code = fs_open(fs, path, FS_CREATE, &file, err);
    if (code == 0) {
        code = fs->ops->write(file, header.bytes, header.size, err);
        if (code == 0) {
            code = fs->ops->write(file, parameter, vector_size, err);
        }
        if (code == 0) {
            code = fs->ops->write(file, accumulator, vector_size, err);
        }
        if (code == 0) {
            code = fs->ops->write(file, digest, sizeof(digest), err);
        }
        if (code == 0) {
            code = fs->ops->sync(file, err);
        }
        int close_code = fs->ops->close(file, code == 0 ? err : NULL);
        code = code != 0 ? code : close_code;
    }
    if (code == 0) {
        char folder[4096];
        fs_folder_of(path, folder, sizeof(folder));
        code = fs->ops->sync_folder(fs, folder, err);
    }
    buf_done(&header);
    return code;
}

static void get_header(struct reader *reader, struct readback *readback)
{
    read_bytes(reader, readback->binding.bytes, BINDING_SIZE);
    readback->coordinate_first = read_u64(reader);
    readback->coordinate_end = read_u64(reader);
    readback->issues_device = read_u64(reader);
    readback->issues_host = read_u64(reader);
    readback->issues_expected = read_u64(reader);
    read_bytes(reader, readback->parameter_sha256, SHA256_SIZE);
    read_bytes(reader, readback->accumulator_sha256, SHA256_SIZE);
}

int readback_parse(const uint8_t *bytes, size_t size, struct readback *ret_readback,
                   struct err *err)
{
    if (size < READBACK_HEADER_SIZE + SHA256_SIZE || memcmp(bytes, magic, sizeof(magic)) != 0) {
        return err_set(err, ERR_DAMAGED, "no read-back file");
    }
    struct readback readback = {0};
    struct reader reader = {.bytes = bytes + sizeof(magic),
                            .size = READBACK_HEADER_SIZE - sizeof(magic)};
    get_header(&reader, &readback);
    size_t vectors_size = size - READBACK_HEADER_SIZE - SHA256_SIZE;
    if (readback.coordinate_first > readback.coordinate_end || vectors_size % 16 != 0 ||
        readback.coordinate_end - readback.coordinate_first != vectors_size / 16) {
        return err_set(err, ERR_DAMAGED, "%zu bytes of state for coordinates %llu to %llu",
                       vectors_size, (unsigned long long)readback.coordinate_first,
                       (unsigned long long)readback.coordinate_end);
    }
    const uint8_t *parameter = bytes + READBACK_HEADER_SIZE;
    uint8_t digest[3][SHA256_SIZE];
    sha256_of(bytes, size - SHA256_SIZE, digest[0]);
    sha256_of(parameter, vectors_size / 2, digest[1]);
    sha256_of(parameter + vectors_size / 2, vectors_size / 2, digest[2]);
    if (memcmp(digest[0], bytes + size - SHA256_SIZE, SHA256_SIZE) != 0 ||
        memcmp(digest[1], readback.parameter_sha256, SHA256_SIZE) != 0 ||
        memcmp(digest[2], readback.accumulator_sha256, SHA256_SIZE) != 0) {
        return err_set(err, ERR_DAMAGED, "the bytes differ from their digests");
    }
    *ret_readback = readback;
    return 0;
}

int readback_read(struct fs *fs, const char *path, uint64_t coordinates,
                  struct readback *ret_readback, double *parameter, double *accumulator,
                  struct err *err)
{
    struct buf bytes = BUF_NONE;
    struct readback readback = {0};
    int code = coordinates > UINT64_MAX / 64
                   ? err_set(err, ERR_DAMAGED, "'%s': too many coordinates", path)
                   : fs_read_all(fs, path, coordinates * 16 + READBACK_HEADER_SIZE + SHA256_SIZE,
                                 &bytes, err);
    if (code == 0) {
        code = readback_parse(bytes.bytes, bytes.size, &readback, err);
        code = code == 0 ? 0 : err_prefix(err, "'%s': ", path);
    }
    if (code == 0 && readback.coordinate_end - readback.coordinate_first != coordinates) {
        code = err_set(err, ERR_DAMAGED, "'%s' is of %llu coordinates, not %llu", path,
                       (unsigned long long)(readback.coordinate_end - readback.coordinate_first),
                       (unsigned long long)coordinates);
    }
    if (code == 0) {
        size_t vector_size = (size_t)coordinates * sizeof(double);
        if (parameter != NULL) {
            memcpy(parameter, bytes.bytes + READBACK_HEADER_SIZE, vector_size);
        }
        if (accumulator != NULL) {
            memcpy(accumulator, bytes.bytes + READBACK_HEADER_SIZE + vector_size, vector_size);
        }
        *ret_readback = readback;
    }
    buf_done(&bytes);
    return code;
}

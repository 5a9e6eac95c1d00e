/* What an import is asked to do: checked, named, and turned into a key. */
#include "data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "data/digest.h"
#include "data/share.h"
#include "data/source.h"

static const char *const format_names[] = {"csv", "space", "svm", "npy", "native"};

int data_format_from_text(const char *text)
{
    for (size_t i = 0; i < sizeof(format_names) / sizeof(format_names[0]); i++) {
        if (strcmp(text, format_names[i]) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const char *data_format_name(enum data_format format)
{
    return (unsigned)format < sizeof(format_names) / sizeof(format_names[0]) ? format_names[format]
                                                                             : NULL;
}

static int check_marks(const struct data_settings *settings, struct err *err)
{
    char separator = settings->separator != '\0' ? settings->separator : ',';
    char decimal = settings->decimal != '\0' ? settings->decimal : '.';
    if (decimal != '.' && decimal != ',') {
        return err_set(err, ERR_USAGE, "decimal '%c': give '.' or ','", decimal);
    }
    if (settings->format != DATA_FORMAT_CSV) {
        return 0;
    }
    if (strchr("\"\r\n+-.0123456789eE", separator) != NULL) {
        return err_set(err, ERR_USAGE,
                       "separator '%c' can be part of a number, a quote or a line's end; give "
                       "another one",
                       separator == '\n' || separator == '\r' ? '?' : separator);
    }
    if (separator == decimal) {
        return err_set(err, ERR_USAGE,
                       "separator and decimal mark are both '%c'; files with decimal commas use "
                       "another separator, such as ';'",
                       decimal);
    }
    return 0;
}

int data_settings_check(const struct data_settings *settings, struct err *err)
{
    size_t most = settings->format == DATA_FORMAT_NPY ? 2 : SIZE_MAX;
    if (data_format_name(settings->format) == NULL) {
        return err_set(err, ERR_USAGE, "format %d is none", (int)settings->format);
    }
    if (settings->format == DATA_FORMAT_NATIVE) {
        return err_set(err, ERR_USAGE, "a native folder is used as it is; it is not imported");
    }
    if (settings->paths_count == 0 || settings->paths_count > most) {
        return err_set(err, ERR_USAGE, "%zu files; give %s", settings->paths_count,
                       most == 2 ? "x.npy, or x.npy and y.npy" : "at least one");
    }
    if (settings->drop_count > DATA_DROP_MAX || settings->missing_values_count > DATA_DROP_MAX) {
        return err_set(err, ERR_USAGE, "more than %u names to drop or missing values",
                       DATA_DROP_MAX);
    }
    bool table = settings->format == DATA_FORMAT_CSV || settings->format == DATA_FORMAT_SPACE;
    if (settings->target == DATA_TARGET_NAME &&
        (settings->target_name == NULL || !settings->header || !table)) {
        return err_set(err, ERR_USAGE,
                       "the target '%.64s' is a name, which needs a header (header: yes); or give "
                       "first, last or the column's number",
                       settings->target_name != NULL ? settings->target_name : "");
    }
    if (settings->target == DATA_TARGET_COLUMN && settings->target_column == 0) {
        return err_set(err, ERR_USAGE, "target column 0: columns count from 1");
    }
    if (settings->features > DATA_FEATURES_MAX || settings->expect_features > DATA_FEATURES_MAX) {
        return err_set(err, ERR_USAGE, "%llu features; the most is %llu",
                       (unsigned long long)(settings->features > settings->expect_features
                                                ? settings->features
                                                : settings->expect_features),
                       (unsigned long long)DATA_FEATURES_MAX);
    }
    if (settings->format == DATA_FORMAT_SVM && settings->drop_count > 0) {
        return err_set(err, ERR_USAGE, "svmlight data has no columns to drop by name");
    }
    return check_marks(settings, err);
}

static void end_block(struct sha256 *block, struct buf *blocks)
{
    uint8_t digest[SHA256_SIZE];
    sha256_finish(block, digest);
    buf_put(blocks, digest, sizeof(digest));
}

/* The bytes at `total` of the file go on with its blocks; a read may end anywhere. */
static void add_block(struct sha256 *block, uint64_t total, const uint8_t *bytes, size_t size,
                      struct buf *blocks)
{
    while (size > 0) {
        size_t used = (size_t)(total % SHARE_BLOCK_SIZE);
        size_t piece = SHARE_BLOCK_SIZE - used < size ? SHARE_BLOCK_SIZE - used : size;
        if (used == 0) {
            sha256_init(block);
        }
        sha256_update(block, bytes, piece);
        if (used + piece == SHARE_BLOCK_SIZE) {
            end_block(block, blocks);
        }
        bytes += piece;
        total += piece;
        size -= piece;
    }
}

int digest_file(const char *path, struct meter *meter, uint8_t ret_digest[SHA256_SIZE],
                struct buf *blocks, uint64_t *ret_bytes, struct err *err)
{
    enum { CHUNK = SHARE_BLOCK_SIZE };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        int code = errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK;
        (void)err_set(err, code, "%s: %s", path, err_errno(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return code;
    }
    if (!S_ISREG(status.st_mode)) {
        (void)close(fd);
        return err_set(err, ERR_DATA, "%s: is not a regular file", path);
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    uint8_t *bytes = malloc(CHUNK);
    ASSERT(bytes != NULL);
    struct sha256 sha;
    struct sha256 block = {NULL};
    sha256_init(&sha);
    uint64_t total = 0;
    int code = 0;
    for (;;) {
        ssize_t got = read(fd, bytes, CHUNK);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            code = err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
        }
        if (got <= 0) {
            break;
        }
        sha256_update(&sha, bytes, (size_t)got);
        if (blocks != NULL) {
            add_block(&block, total, bytes, (size_t)got, blocks);
        }
        total += (uint64_t)got;
        code = meter != NULL ? meter_add(meter, (uint64_t)got, err) : 0;
        if (code != 0) {
            break;
        }
    }
    free(bytes);
    (void)close(fd);
    if (code != 0) {
        sha256_done(&sha);
        sha256_done(&block);
        return code;
    }
    if (blocks != NULL && total % SHARE_BLOCK_SIZE != 0) {
        end_block(&block, blocks);
    }
    sha256_finish(&sha, ret_digest);
    *ret_bytes = total;
    return 0;
}

static void put_list(struct buf *bytes, const char *const *texts, size_t count)
{
    buf_put_u64(bytes, count);
    for (size_t i = 0; i < count; i++) {
        buf_put_text(bytes, texts[i]);
    }
}

int data_cache_key(const struct data_settings *settings, const struct data_progress *progress,
                   uint8_t ret_key[SHA256_SIZE], struct err *err)
{
    int code = data_settings_check(settings, err);
    struct meter meter;
    uint64_t total = 0;
    for (size_t i = 0; i < settings->paths_count && code == 0; i++) {
        struct stat status;
        total += stat(settings->paths[i], &status) == 0 ? (uint64_t)status.st_size : 0;
    }
    meter_start(&meter, progress, "digest", total);
    struct buf bytes = BUF_NONE;
    buf_put_text(&bytes, "coppelius import 1");
    buf_put_u8(&bytes, (uint8_t)settings->format);
    buf_put_u8(&bytes, settings->header ? 1 : 0);
    buf_put_u8(&bytes, settings->separator != '\0' ? (uint8_t)settings->separator : ',');
    buf_put_u8(&bytes, settings->decimal != '\0' ? (uint8_t)settings->decimal : '.');
    buf_put_u8(&bytes, (uint8_t)settings->target);
    buf_put_text(&bytes, settings->target == DATA_TARGET_NAME ? settings->target_name : "");
    buf_put_u64(&bytes, settings->target == DATA_TARGET_COLUMN ? settings->target_column : 0);
    put_list(&bytes, settings->drop, settings->drop_count);
    buf_put_u8(&bytes, (uint8_t)settings->missing);
    put_list(&bytes, settings->missing_values, settings->missing_values_count);
    buf_put_u8(&bytes, (uint8_t)settings->storage);
    buf_put_u64(&bytes, settings->features);
    buf_put_u64(&bytes, settings->expect_features);
    put_list(&bytes, settings->expect_names,
             settings->expect_names != NULL ? settings->expect_features : 0);
    buf_put_u64(&bytes, settings->paths_count);
    for (size_t i = 0; i < settings->paths_count && code == 0; i++) {
        uint8_t digest[SHA256_SIZE];
        uint64_t size = 0;
        code = digest_file(settings->paths[i], &meter, digest, NULL, &size, err);
        if (code == 0) {
            buf_put(&bytes, digest, sizeof(digest));
            buf_put_u64(&bytes, size);
        }
    }
    if (code == 0) {
        sha256_of(bytes.bytes, bytes.size, ret_key);
    }
    buf_done(&bytes);
    return code;
}

#include "data/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

/* A cursor over the header's text, a Python dict literal. */
struct literal {
    const char *at;
    const char *end;
};

static void skip_blanks(struct literal *literal)
{
    while (literal->at < literal->end &&
           (*literal->at == ' ' || *literal->at == '\n' || *literal->at == '\t')) {
        literal->at++;
    }
}

static bool take(struct literal *literal, char wanted)
{
    skip_blanks(literal);
    if (literal->at < literal->end && *literal->at == wanted) {
        literal->at++;
        return true;
    }
    return false;
}

/* 'text' or "text" without escapes. */
static bool take_text(struct literal *literal, char *text, size_t capacity)
{
    skip_blanks(literal);
    if (literal->at == literal->end || (*literal->at != '\'' && *literal->at != '"')) {
        return false;
    }
    char quote = *literal->at;
    const char *first = literal->at + 1;
    const char *last = memchr(first, quote, (size_t)(literal->end - first));
    if (last == NULL || (size_t)(last - first) >= capacity) {
        return false;
    }
    memcpy(text, first, (size_t)(last - first));
    text[last - first] = '\0';
    literal->at = last + 1;
    return true;
}

static bool take_word(struct literal *literal, const char *word)
{
    skip_blanks(literal);
    size_t size = strlen(word);
    if ((size_t)(literal->end - literal->at) >= size && memcmp(literal->at, word, size) == 0) {
        literal->at += size;
        return true;
    }
    return false;
}

static bool take_count(struct literal *literal, uint64_t *ret_count)
{
    skip_blanks(literal);
    const char *first = literal->at;
    uint64_t count = 0;
    while (literal->at < literal->end && *literal->at >= '0' && *literal->at <= '9') {
        if (count > (UINT64_C(1) << 56)) {
            return false;
        }
        count = count * 10 + (uint64_t)(*literal->at - '0');
        literal->at++;
    }
    *ret_count = count;
    return literal->at > first;
}

/* (), (3,), (3, 4): *ret_dims above 2 is said by the caller. */
static bool take_shape(struct literal *literal, struct npy *npy)
{
    npy->dims = 0;
    npy->shape[0] = 1;
    npy->shape[1] = 1;
    if (!take(literal, '(')) {
        return false;
    }
    while (!take(literal, ')')) {
        uint64_t count = 0;
        if (!take_count(literal, &count)) {
            return false;
        }
        if (npy->dims < 2) {
            npy->shape[npy->dims] = count;
        }
        npy->dims++;
        if (!take(literal, ',')) {
            if (!take(literal, ')')) {
                return false;
            }
            break;
        }
    }
    return true;
}

static int parse_type(const char *descr, struct npy *npy, struct err *err)
{
    char order = descr[0];
    npy->kind = order != '\0' ? descr[1] : '\0';
    const char *digits = npy->kind != '\0' ? descr + 2 : "";
    npy->item =
        digits[0] >= '1' && digits[0] <= '8' && digits[1] == '\0' ? (uint32_t)(digits[0] - '0') : 0;
    bool size_ok = npy->item == 1 || npy->item == 2 || npy->item == 4 || npy->item == 8;
    bool known = (npy->kind == 'f' && (npy->item == 4 || npy->item == 8)) ||
                 ((npy->kind == 'i' || npy->kind == 'u') && size_ok) ||
                 (npy->kind == 'b' && npy->item == 1);
    if (order == '>' && known && npy->item > 1) {
        return err_set(err, ERR_DATA,
                       "elements '%.8s' are big-endian; save with .astype('<%c%u') in NumPy", descr,
                       npy->kind, npy->item);
    }
    if (!known || (order != '<' && order != '|' && order != '=')) {
        return err_set(err, ERR_DATA,
                       "elements of type '%.16s' are not read; save as '<f4', '<f8' or integers",
                       descr);
    }
    return 0;
}

static int parse_dict(struct literal *literal, struct npy *npy, struct err *err)
{
    static const char broken[] = "the NPY header is not the dictionary that NumPy writes";
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    char descr[64] = "";
    if (!take(literal, '{')) {
        return err_set(err, ERR_DAMAGED, broken);
    }
    while (!take(literal, '}')) {
        char key[16];
        if (!take_text(literal, key, sizeof(key)) || !take(literal, ':')) {
            return err_set(err, ERR_DAMAGED, broken);
        }
        bool good = false;
        if (strcmp(key, "descr") == 0) {
            skip_blanks(literal);
            if (literal->at < literal->end && *literal->at == '[') {
                return err_set(err, ERR_DATA, "a structured array is not read; save plain columns");
            }
            good = !has_descr && take_text(literal, descr, sizeof(descr));
            has_descr = true;
        } else if (strcmp(key, "fortran_order") == 0) {
            npy->fortran = take_word(literal, "True");
            good = !has_order && (npy->fortran || take_word(literal, "False"));
            has_order = true;
        } else if (strcmp(key, "shape") == 0) {
            good = !has_shape && take_shape(literal, npy);
            has_shape = true;
        }
        if (!good) {
            return err_set(err, ERR_DAMAGED, broken);
        }
        if (!take(literal, ',')) {
            if (!take(literal, '}')) {
                return err_set(err, ERR_DAMAGED, broken);
            }
            break;
        }
    }
    if (!has_descr || !has_order || !has_shape) {
        return err_set(err, ERR_DAMAGED, broken);
    }
    if (npy->dims < 1 || npy->dims > 2) {
        return err_set(err, ERR_DATA, "an array of %u dimensions; 1 or 2 are read", npy->dims);
    }
    return parse_type(descr, npy, err);
}

int npy_parse(const uint8_t *bytes, size_t size, uint64_t file_size, struct npy *ret_npy,
              struct err *err)
{
    static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    if (size < 10 || memcmp(bytes, magic, sizeof(magic)) != 0) {
        return err_set(err, ERR_DATA, "is not an NPY file");
    }
    uint8_t version = bytes[6];
    if (version < 1 || version > 3) {
        return err_set(err, ERR_DATA, "NPY version %u; 1 to 3 are read", version);
    }
    size_t start = version == 1 ? 10 : 12;
    if (size < start) {
        return err_set(err, ERR_DAMAGED, "the NPY header is cut off");
    }
    uint64_t header = (uint64_t)bytes[8] | (uint64_t)bytes[9] << 8;
    if (version > 1) {
        header |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
    }
    if (header > NPY_HEADER_MAX) {
        return err_set(err, ERR_DATA, "an NPY header of %llu bytes; the most is %u",
                       (unsigned long long)header, NPY_HEADER_MAX);
    }
    if (size - start < header) {
        return err_set(err, ERR_DAMAGED, "the NPY header is cut off");
    }
    struct npy npy = {.offset = start + header};
    struct literal literal = {(const char *)bytes + start, (const char *)bytes + start + header};
    int code = parse_dict(&literal, &npy, err);
    if (code != 0) {
        return code;
    }
    uint64_t count = 0;
    uint64_t total = 0;
    if (__builtin_mul_overflow(npy.shape[0], npy.shape[1], &count) ||
        __builtin_mul_overflow(count, (uint64_t)npy.item, &total) ||
        total != file_size - npy.offset) {
        return err_set(
            err, ERR_DAMAGED,
            "the NPY header says %llu x %llu elements of %u bytes, but %llu bytes follow "
            "it; is the file whole?",
            (unsigned long long)npy.shape[0], (unsigned long long)npy.shape[1], npy.item,
            (unsigned long long)(file_size - npy.offset));
    }
    *ret_npy = npy;
    return 0;
}

int npy_pread(int fd, const char *path, uint64_t offset, void *bytes, size_t size, struct err *err)
{
    uint8_t *to = bytes;
    while (size > 0) {
        ssize_t got = pread(fd, to, size, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
        }
        if (got == 0) {
            return err_set(err, ERR_DAMAGED, "%s: ends before byte %llu", path,
                           (unsigned long long)(offset + size));
        }
        to += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return 0;
}

int npy_open(const char *path, struct npy *ret_npy, int *ret_fd, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int code = errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK;
        return err_set(err, code, "%s: %s", path, err_errno(errno));
    }
    int code = 0;
    struct stat status;
    uint8_t *bytes = NULL;
    if (fstat(fd, &status) != 0) {
        code = err_set(err, ERR_DISK, "%s: %s", path, err_errno(errno));
    } else if (!S_ISREG(status.st_mode)) {
        code = err_set(err, ERR_DATA, "%s: is not a regular file", path);
    } else {
        size_t size = NPY_HEADER_MAX + 12;
        size = (uint64_t)status.st_size < size ? (size_t)status.st_size : size;
        bytes = malloc(size > 0 ? size : 1);
        ASSERT(bytes != NULL);
        code = npy_pread(fd, path, 0, bytes, size, err);
        if (code == 0) {
            code = npy_parse(bytes, size, (uint64_t)status.st_size, ret_npy, err);
            if (code != 0) {
                (void)err_prefix(err, "%s: ", path);
            }
        }
    }
    free(bytes);
    if (code != 0) {
        (void)close(fd);
        return code;
    }
    *ret_fd = fd;
    return 0;
}

void npy_header(uint8_t bytes[NPY_HEADER_SIZE], const char *descr, bool fortran, uint64_t rows,
                uint64_t columns)
{
    char text[NPY_HEADER_SIZE];
    char shape[64];
    if (columns == 0) {
        (void)snprintf(shape, sizeof(shape), "(%llu,)", (unsigned long long)rows);
    } else {
        (void)snprintf(shape, sizeof(shape), "(%llu, %llu)", (unsigned long long)rows,
                       (unsigned long long)columns);
    }
    int size = snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }",
                        descr, fortran ? "True" : "False", shape);
    ASSERT(size > 0 && size < NPY_HEADER_SIZE - 11);
    static const uint8_t front[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, NPY_HEADER_SIZE - 10, 0};
    memset(bytes, ' ', NPY_HEADER_SIZE);
    memcpy(bytes, front, sizeof(front));
    memcpy(bytes + sizeof(front), text, (size_t)size);
    bytes[NPY_HEADER_SIZE - 1] = '\n';
}

double npy_value(const struct npy *npy, const uint8_t *elements, size_t index)
{
    const uint8_t *at = elements + index * npy->item;
    union {
        float f32;
        double f64;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
    } value = {.u64 = 0};
    memcpy(&value, at, npy->item);
    if (npy->kind == 'f') {
        return npy->item == 4 ? (double)value.f32 : value.f64;
    }
    if (npy->kind == 'i') {
        return npy->item == 1   ? (double)(int8_t)at[0]
               : npy->item == 2 ? (double)value.i16
               : npy->item == 4 ? (double)value.i32
                                : (double)value.i64;
    }
    return npy->item == 1   ? (double)at[0]
           : npy->item == 2 ? (double)value.u16
           : npy->item == 4 ? (double)value.u32
                            : (double)value.u64;
}

#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void buf_done(struct buf *buf)
{
    free(buf->bytes);
    *buf = (struct buf)BUF_NONE;
}

void buf_clear(struct buf *buf)
{
    buf->size = 0;
}

void buf_reserve(struct buf *buf, size_t more)
{
    ASSERT(more <= SIZE_MAX / 4);
    ASSERT(buf->size <= SIZE_MAX / 4);
    size_t needed = buf->size + more;
    if (needed <= buf->capacity) {
        return;
    }
    size_t capacity = buf->capacity < 256 ? 256 : buf->capacity;
    while (capacity < needed) {
        capacity *= 2;
    }
    buf->bytes = realloc(buf->bytes, capacity);
    ASSERT(buf->bytes != NULL);
    buf->capacity = capacity;
}

void buf_put(struct buf *buf, const void *bytes, size_t size)
{
    if (size == 0) {
        return;
    }
    buf_reserve(buf, size);
    memcpy(buf->bytes + buf->size, bytes, size);
    buf->size += size;
}

static void put_little(struct buf *buf, uint64_t value, size_t size)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
    buf_put(buf, bytes, size);
}

void buf_put_u8(struct buf *buf, uint8_t value)
{
    put_little(buf, value, 1);
}

void buf_put_u16(struct buf *buf, uint16_t value)
{
    put_little(buf, value, 2);
}

void buf_put_u32(struct buf *buf, uint32_t value)
{
    put_little(buf, value, 4);
}

void buf_put_u64(struct buf *buf, uint64_t value)
{
    put_little(buf, value, 8);
}

void buf_put_f64(struct buf *buf, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    buf_put_u64(buf, bits);
}

void buf_put_text(struct buf *buf, const char *text)
{
    size_t size = strlen(text);
    ASSERT(size <= UINT32_MAX);
    buf_put_u32(buf, (uint32_t)size);
    buf_put(buf, text, size);
}

void buf_print(struct buf *buf, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    ASSERT(size >= 0);
    buf_reserve(buf, (size_t)size + 1);
    va_start(arguments, format);
    (void)vsnprintf((char *)buf->bytes + buf->size, (size_t)size + 1, format, arguments);
    va_end(arguments);
    buf->size += (size_t)size;
}

static uint64_t read_little(struct reader *reader, size_t size)
{
    uint8_t bytes[8];
    read_bytes(reader, bytes, size);
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

uint8_t read_u8(struct reader *reader)
{
    return (uint8_t)read_little(reader, 1);
}

uint16_t read_u16(struct reader *reader)
{
    return (uint16_t)read_little(reader, 2);
}

uint32_t read_u32(struct reader *reader)
{
    return (uint32_t)read_little(reader, 4);
}

uint64_t read_u64(struct reader *reader)
{
    return read_little(reader, 8);
}

double read_f64(struct reader *reader)
{
    uint64_t bits = read_u64(reader);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

void read_bytes(struct reader *reader, void *bytes, size_t size)
{
    if (size == 0) {
        return;
    }
    if (reader->failed || reader->size < size) {
        reader->failed = true;
        memset(bytes, 0, size);
        return;
    }
    memcpy(bytes, reader->bytes, size);
    reader->bytes += size;
    reader->size -= size;
}

void read_text(struct reader *reader, char *text, size_t capacity)
{
    ASSERT(capacity > 0);
    uint32_t size = read_u32(reader);
    text[0] = '\0';
    if (reader->failed || size > reader->size || size >= capacity ||
        memchr(reader->bytes, 0, size) != NULL) {
        reader->failed = true;
        return;
    }
    read_bytes(reader, text, size);
    text[size] = '\0';
}

/* A growing run of bytes with little-endian writers, and a bounded reader over somebody else's
 * bytes. A struct buf belongs to its owner and one thread at a time. */
#ifndef COPPELIUS_BASE_BUF_H
#define COPPELIUS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *bytes;
    size_t size;     /* used */
    size_t capacity; /* allocated */
};

#define BUF_NONE                                                                                   \
    {                                                                                              \
        NULL, 0, 0                                                                                 \
    }

void buf_done(struct buf *buf);  /* frees; twice is fine */
void buf_clear(struct buf *buf); /* size 0, memory kept */
/* Memory for `more` further bytes. These end the process when there is no memory for what the
 * project itself bounds; sizes that come from outside are checked by the caller first. */
void buf_reserve(struct buf *buf, size_t more);
void buf_put(struct buf *buf, const void *bytes, size_t size);
void buf_put_u8(struct buf *buf, uint8_t value);
void buf_put_u16(struct buf *buf, uint16_t value);
void buf_put_u32(struct buf *buf, uint32_t value);
void buf_put_u64(struct buf *buf, uint64_t value);
void buf_put_f64(struct buf *buf, double value);
/* u32 length, then the bytes; no terminating zero. */
void buf_put_text(struct buf *buf, const char *text);
/* printf at the end; no terminating zero is counted, one is kept behind the end. */
void buf_print(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads off borrowed bytes. After a read past the end `failed` is true and every read gives zeros:
 * check it once, behind the last read. */
struct reader {
    const uint8_t *bytes;
    size_t size; /* left */
    bool failed;
};

uint8_t read_u8(struct reader *reader);
uint16_t read_u16(struct reader *reader);
uint32_t read_u32(struct reader *reader);
uint64_t read_u64(struct reader *reader);
double read_f64(struct reader *reader);
void read_bytes(struct reader *reader, void *bytes, size_t size);
/* A text of at most capacity-1 bytes without zeros into `text`, terminated. */
void read_text(struct reader *reader, char *text, size_t capacity);

#endif

/* Private to checkpoint/: writing JSON by hand, and reading it strictly with jansson. */
#ifndef COPPELIUS_CHECKPOINT_JSON_TEXT_H
#define COPPELIUS_CHECKPOINT_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"

/* The text in quotes, escaped; what is not UTF-8 becomes U+FFFD, a byte each. */
void json_put_text(struct buf *out, const char *text, size_t size);

/* Takes values out of an object one by one; whoever asks for a key says what it must be. After an
 * error (missing, another type, out of range) `failed` names the first key and all calls give
 * zeros. json_end() finds keys that nobody asked for. */
struct json_reader {
    const json_t *object;
    size_t taken;
    const char *failed; /* NULL: all was well so far */
};

uint64_t json_take_u64(struct json_reader *reader, const char *key, uint64_t least, uint64_t most);
/* At most capacity - 1 bytes. */
void json_take_text(struct json_reader *reader, const char *key, char *text, size_t capacity);
void json_take_digest(struct json_reader *reader, const char *key, uint8_t digest[SHA256_SIZE]);
/* A decimal number in a text, as safetensors' metadata has them. */
uint64_t json_take_decimal(struct json_reader *reader, const char *key, uint64_t least,
                           uint64_t most);
const json_t *json_take(struct json_reader *reader, const char *key); /* NULL: failed */
/* Whether the key is there. */
bool json_has(const struct json_reader *reader, const char *key);
/* NULL where all keys were taken and good, else a key's name or "an unknown key". */
const char *json_end(const struct json_reader *reader);

/* Digits only, no sign, no leading zero but "0"; false beyond 64 bits. */
bool json_decimal(const char *text, uint64_t *ret_value);

#endif

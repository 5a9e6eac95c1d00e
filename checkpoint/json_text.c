#include "checkpoint/json_text.h"

#include <string.h>

#include "base/assert.h"

/* The bytes of the UTF-8 character at `at` (shortest forms, no surrogates), 0: none. */
static size_t character_size(const unsigned char *at, size_t left)
{
    if (at[0] < 0x80) {
        return 1;
    }
    size_t size = at[0] >= 0xf0 ? 4 : (at[0] >= 0xe0 ? 3 : 2);
    if (at[0] < 0xc2 || at[0] > 0xf4 || left < size) {
        return 0;
    }
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0U) != 0x80U) {
            return 0;
        }
    }
    bool odd = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
               (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f);
    return odd ? 0 : size;
}

void json_put_text(struct buf *out, const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    buf_put_u8(out, '"');
    for (size_t i = 0; i < size;) {
        size_t bytes = character_size(at + i, size - i);
        if (bytes == 0) {
            buf_put(out, "\xef\xbf\xbd", 3);
            i++;
            continue;
        }
        if (at[i] == '"' || at[i] == '\\') {
            buf_put_u8(out, '\\');
            buf_put_u8(out, at[i]);
        } else if (at[i] < 0x20 || at[i] == 0x7f) {
            buf_print(out, "\\u%04x", at[i]);
        } else {
            buf_put(out, at + i, bytes);
        }
        i += bytes;
    }
    buf_put_u8(out, '"');
}

static void fail(struct json_reader *reader, const char *key)
{
    if (reader->failed == NULL) {
        reader->failed = key;
    }
}

bool json_has(const struct json_reader *reader, const char *key)
{
    return json_object_get(reader->object, key) != NULL;
}

const json_t *json_take(struct json_reader *reader, const char *key)
{
    const json_t *value = json_object_get(reader->object, key);
    if (value == NULL) {
        fail(reader, key);
        return NULL;
    }
    reader->taken++;
    return value;
}

uint64_t json_take_u64(struct json_reader *reader, const char *key, uint64_t least, uint64_t most)
{
    const json_t *value = json_take(reader, key);
    if (value == NULL || !json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) < least || (uint64_t)json_integer_value(value) > most) {
        fail(reader, key);
        return 0;
    }
    return (uint64_t)json_integer_value(value);
}

void json_take_text(struct json_reader *reader, const char *key, char *text, size_t capacity)
{
    const json_t *value = json_take(reader, key);
    text[0] = '\0';
    if (value == NULL || !json_is_string(value) || json_string_length(value) >= capacity ||
        strlen(json_string_value(value)) != json_string_length(value)) {
        fail(reader, key);
        return;
    }
    memcpy(text, json_string_value(value), json_string_length(value) + 1);
}

void json_take_digest(struct json_reader *reader, const char *key, uint8_t digest[SHA256_SIZE])
{
    char text[SHA256_HEX_SIZE];
    json_take_text(reader, key, text, sizeof(text));
    if (sha256_from_hex(text, digest) != 0) {
        fail(reader, key);
        memset(digest, 0, SHA256_SIZE);
    }
}

bool json_decimal(const char *text, uint64_t *ret_value)
{
    size_t size = strspn(text, "0123456789");
    if (size == 0 || size > 20 || text[size] != '\0' || (text[0] == '0' && size > 1)) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value)) {
            return false;
        }
    }
    *ret_value = value;
    return true;
}

uint64_t json_take_decimal(struct json_reader *reader, const char *key, uint64_t least,
                           uint64_t most)
{
    char text[24];
    uint64_t value = 0;
    json_take_text(reader, key, text, sizeof(text));
    if (!json_decimal(text, &value) || value < least || value > most) {
        fail(reader, key);
        return 0;
    }
    return value;
}

const char *json_end(const struct json_reader *reader)
{
    if (reader->failed != NULL) {
        return reader->failed;
    }
    return json_object_size(reader->object) == reader->taken ? NULL : "an unknown key";
}

#include "base/hash.h"

#include <openssl/evp.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/assert.h"

uint64_t hash_xxh3(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

void sha256_init(struct sha256 *sha)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    ASSERT(context != NULL);
    ASSERT(EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1);
    sha->context = context;
}

void sha256_update(struct sha256 *sha, const void *bytes, size_t size)
{
    ASSERT(sha->context != NULL);
    ASSERT(EVP_DigestUpdate(sha->context, bytes, size) == 1);
}

void sha256_finish(struct sha256 *sha, uint8_t digest[SHA256_SIZE])
{
    unsigned size = 0;
    ASSERT(sha->context != NULL);
    ASSERT(EVP_DigestFinal_ex(sha->context, digest, &size) == 1);
    ASSERT(size == SHA256_SIZE);
    sha256_done(sha);
}

void sha256_done(struct sha256 *sha)
{
    EVP_MD_CTX_free(sha->context);
    sha->context = NULL;
}

void sha256_of(const void *bytes, size_t size, uint8_t digest[SHA256_SIZE])
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_update(&sha, bytes, size);
    sha256_finish(&sha, digest);
}

void sha256_hex(const uint8_t digest[SHA256_SIZE], char hex[SHA256_HEX_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < SHA256_SIZE; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * SHA256_SIZE] = '\0';
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return -1;
}

int sha256_from_hex(const char *hex, uint8_t digest[SHA256_SIZE])
{
    uint8_t bytes[SHA256_SIZE];
    for (size_t i = 0; i < SHA256_SIZE; i++) {
        int high = digit_value(hex[2 * i]);
        int low = high < 0 ? -1 : digit_value(hex[2 * i + 1]);
        if (low < 0) {
            return -1;
        }
        bytes[i] = (uint8_t)(high * 16 + low);
    }
    if (hex[2 * SHA256_SIZE] != '\0') {
        return -1;
    }
    memcpy(digest, bytes, SHA256_SIZE);
    return 0;
}

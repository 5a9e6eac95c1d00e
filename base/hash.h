/* Digests: XXH3 (64 bits) guards frames and log records against accidents, SHA-256 names contents.
 * A struct sha256 belongs to its caller and one thread. */
#ifndef COPPELIUS_BASE_HASH_H
#define COPPELIUS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE     32
#define SHA256_HEX_SIZE 65 /* with the terminating zero */

uint64_t hash_xxh3(const void *bytes, size_t size);

struct sha256 {
    void *context; /* EVP_MD_CTX; NULL before init and after done */
};

/* Ends the process where OpenSSL has no memory for the 200 bytes it needs. */
void sha256_init(struct sha256 *sha);
void sha256_update(struct sha256 *sha, const void *bytes, size_t size);
/* Writes the digest and frees; the object must be initialised again before another use. */
void sha256_finish(struct sha256 *sha, uint8_t digest[SHA256_SIZE]);
/* Frees without a digest; a finished or zeroed object is fine. */
void sha256_done(struct sha256 *sha);

void sha256_of(const void *bytes, size_t size, uint8_t digest[SHA256_SIZE]);
void sha256_hex(const uint8_t digest[SHA256_SIZE], char hex[SHA256_HEX_SIZE]);
/* 0, or -1 where the text is not 64 hexadecimal digits. */
int sha256_from_hex(const char *hex, uint8_t digest[SHA256_SIZE]);

#endif

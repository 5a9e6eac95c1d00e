/* The keys of a connection's records. OpenSSL makes the handshake and with it the traffic secrets;
 * it tells them to its key log, from which we take them (they are written nowhere). The records are
 * ours because OpenSSL's copy each byte twice more: 0.69 s of processor time a GB for both sides
 * where AES-GCM itself takes 0.39. */
#include <string.h>

#include "base/assert.h"
#include "trust/trust_room.h"
#include "trust/openssl.h"

/* HKDF-Expand-Label(secret, label, "", size) of RFC 8446 7.1 with size at most the hash's: one
 * block. */
static void expand_label(bool sha384, const uint8_t *secret, size_t secret_size, const char *label,
                         uint8_t *ret_bytes, size_t size)
{
    uint8_t info[64];
    uint8_t block[EVP_MAX_MD_SIZE];
    unsigned block_size = 0;
    size_t label_size = strlen(label);
    size_t at = 0;
    ASSERT(label_size < 32);
    info[at++] = (uint8_t)(size >> 8);
    info[at++] = (uint8_t)size;
    info[at++] = (uint8_t)(6 + label_size);
    memcpy(info + at, "tls13 ", 6);
    at += 6;
    memcpy(info + at, label, label_size);
    at += label_size;
    info[at++] = 0; /* no context */
    info[at++] = 1; /* the first block */
    ASSERT(HMAC(sha384 ? EVP_sha384() : EVP_sha256(), secret, (int)secret_size, info, at, block,
                &block_size) != NULL);
    ASSERT(size <= block_size);
    memcpy(ret_bytes, block, size);
    OPENSSL_cleanse(block, sizeof(block));
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "CLIENT_TRAFFIC_SECRET_0 <random> <secret>" */
void tls_keys_on_line(const SSL *ssl, const char *line)
{
    static const char client[] = "CLIENT_TRAFFIC_SECRET_0 ";
    static const char server[] = "SERVER_TRAFFIC_SECRET_0 ";
    struct tls *tls = tls_of(ssl);
    bool of_client = strncmp(line, client, sizeof(client) - 1) == 0;
    if (!of_client && strncmp(line, server, sizeof(server) - 1) != 0) {
        return;
    }
    struct tls_direction *direction = of_client == tls->server ? &tls->reads : &tls->writes;
    const char *at = strrchr(line, ' ');
    ASSERT(at != NULL);
    size_t size = 0;
    for (at++; hex_digit(at[0]) >= 0 && hex_digit(at[1]) >= 0; at += 2) {
        ASSERT(size < TLS_SECRET_SIZE_MAX);
        direction->secret[size++] = (uint8_t)(hex_digit(at[0]) * 16 + hex_digit(at[1]));
    }
    direction->secret_size = size;
}

static int install(struct tls *tls, struct tls_direction *direction, bool sealing, struct err *err)
{
    uint8_t key[32];
    const EVP_CIPHER *cipher = tls->key_size == 32 ? EVP_aes_256_gcm() : EVP_aes_128_gcm();
    if (direction->secret_size != (tls->sha384 ? 48U : 32U)) {
        return err_set(err, ERR_INTERNAL, "the handshake gave no traffic secret");
    }
    if (direction->cipher == NULL) {
        direction->cipher = EVP_CIPHER_CTX_new();
        ASSERT(direction->cipher != NULL);
    }
    expand_label(tls->sha384, direction->secret, direction->secret_size, "key", key,
                 (size_t)tls->key_size);
    expand_label(tls->sha384, direction->secret, direction->secret_size, "iv", direction->iv,
                 sizeof(direction->iv));
    int good = sealing ? EVP_EncryptInit_ex(direction->cipher, cipher, NULL, key, direction->iv)
                       : EVP_DecryptInit_ex(direction->cipher, cipher, NULL, key, direction->iv);
    OPENSSL_cleanse(key, sizeof(key));
    direction->sequence = 0;
    return good == 1 ? 0 : err_set(err, ERR_INTERNAL, "OpenSSL has no AES-GCM");
}

int tls_keys_install(struct tls *tls, struct err *err)
{
    int code = install(tls, &tls->reads, /* sealing= */ false, err);
    return code != 0 ? code : install(tls, &tls->writes, /* sealing= */ true, err);
}

int tls_keys_update(struct tls *tls, struct tls_direction *direction, struct err *err)
{
    uint8_t next[TLS_SECRET_SIZE_MAX];
    expand_label(tls->sha384, direction->secret, direction->secret_size, "traffic upd", next,
                 direction->secret_size);
    memcpy(direction->secret, next, direction->secret_size);
    OPENSSL_cleanse(next, sizeof(next));
    return install(tls, direction, direction == &tls->writes, err);
}

void tls_keys_done(struct tls_direction *direction)
{
    EVP_CIPHER_CTX_free(direction->cipher); /* It overwrites the key. */
    OPENSSL_cleanse(direction, sizeof(*direction));
}

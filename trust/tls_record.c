/* One record of TLS 1.3 (RFC 8446 5.2): sealed from where the bytes lie, opened to where they go.
 */
#include <string.h>

#include "base/assert.h"
#include "trust/trust_room.h"

/* The nonce of the direction's next record; counts it. */
static void next_nonce(struct tls_direction *direction, uint8_t nonce[12])
{
    memcpy(nonce, direction->iv, 12);
    for (int i = 0; i < 8; i++) {
        nonce[11 - i] ^= (uint8_t)(direction->sequence >> (8 * i));
    }
    direction->sequence++;
}

int record_seal(struct tls *tls, enum record_type type, const struct iovec **parts, size_t *offset,
                size_t size, struct err *err)
{
    EVP_CIPHER_CTX *cipher = tls->writes.cipher;
    uint8_t *record = tls->out + tls->out_end;
    uint8_t *at = record + RECORD_HEADER_SIZE;
    size_t sealed = size + 1 + RECORD_TAG_SIZE;
    uint8_t nonce[12];
    uint8_t inner = (uint8_t)type;
    int got = 0;
    ASSERT(size <= RECORD_CONTENT_MAX);
    ASSERT(tls->out_end + size + RECORD_OVERHEAD <= TLS_BUFFER_SIZE);
    record[0] = RECORD_DATA;
    record[1] = 3;
    record[2] = 3;
    record[3] = (uint8_t)(sealed >> 8);
    record[4] = (uint8_t)sealed;
    next_nonce(&tls->writes, nonce);
    int good = EVP_EncryptInit_ex(cipher, NULL, NULL, NULL, nonce) == 1 &&
               EVP_EncryptUpdate(cipher, NULL, &got, record, RECORD_HEADER_SIZE) == 1;
    while (good && size > 0) {
        size_t left = (*parts)->iov_len - *offset;
        size_t now = left < size ? left : size;
        good = now == 0 ||
               EVP_EncryptUpdate(cipher, at, &got, (const uint8_t *)(*parts)->iov_base + *offset,
                                 (int)now) == 1;
        at += now;
        size -= now;
        *offset += now;
        if (*offset == (*parts)->iov_len) {
            (*parts)++;
            *offset = 0;
        }
    }
    good = good && EVP_EncryptUpdate(cipher, at, &got, &inner, 1) == 1 &&
           EVP_EncryptFinal_ex(cipher, at + 1, &got) == 1 &&
           EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, RECORD_TAG_SIZE, at + 1) == 1;
    if (!good) {
        return err_set(err, ERR_INTERNAL, "AES-GCM failed");
    }
    tls->out_end = (size_t)(at - tls->out) + 1 + RECORD_TAG_SIZE;
    return 0;
}

int record_seal_bytes(struct tls *tls, enum record_type type, const void *bytes, size_t size,
                      struct err *err)
{
    const struct iovec part = {(void *)(uintptr_t)bytes, size};
    const struct iovec *parts = &part;
    size_t offset = 0;
    return record_seal(tls, type, &parts, &offset, size, err);
}

int record_whole(const struct tls *tls, size_t *ret_size, bool *ret_whole, struct err *err)
{
    const uint8_t *record = tls->in + tls->in_first;
    size_t have = tls->in_end - tls->in_first;
    *ret_whole = false;
    if (have < RECORD_HEADER_SIZE) {
        return 0;
    }
    size_t body = (size_t)record[3] << 8 | record[4];
    if (record[0] != RECORD_DATA || record[1] != 3 || record[2] != 3 ||
        body < 1 + RECORD_TAG_SIZE || body > RECORD_SIZE_MAX - RECORD_HEADER_SIZE) {
        return err_set(err, ERR_PROTO, "a TLS record of type %u and %zu bytes came", record[0],
                       body);
    }
    *ret_size = RECORD_HEADER_SIZE + body;
    *ret_whole = have >= *ret_size;
    return 0;
}

int record_open(struct tls *tls, size_t size, uint8_t *to, enum record_type *ret_type,
                size_t *ret_size, struct err *err)
{
    EVP_CIPHER_CTX *cipher = tls->reads.cipher;
    uint8_t *record = tls->in + tls->in_first;
    uint8_t *body = record + RECORD_HEADER_SIZE;
    size_t content = size - RECORD_OVERHEAD; /* where nothing is padded */
    uint8_t nonce[12];
    uint8_t last[1];
    uint8_t inner = 0;
    int got = 0;
    bool in_place = to == NULL;
    to = in_place ? body : to;
    next_nonce(&tls->reads, nonce);
    bool good = EVP_DecryptInit_ex(cipher, NULL, NULL, NULL, nonce) == 1 &&
                EVP_DecryptUpdate(cipher, NULL, &got, record, RECORD_HEADER_SIZE) == 1 &&
                (content == 0 || EVP_DecryptUpdate(cipher, to, &got, body, (int)content) == 1) &&
                EVP_DecryptUpdate(cipher, &inner, &got, body + content, 1) == 1 &&
                EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, RECORD_TAG_SIZE,
                                    body + content + 1) == 1 &&
                EVP_DecryptFinal_ex(cipher, last, &got) == 1;
    tls->in_first += size;
    if (!good) {
        return err_set(err, ERR_PROTO,
                       "a TLS record fails its check: its bytes were changed on "
                       "the way");
    }
    while (inner == 0 && content > 0) { /* padding, which other implementations may send */
        inner = to[--content];
    }
    if (content > RECORD_CONTENT_MAX ||
        (inner != RECORD_DATA && inner != RECORD_HANDSHAKE && inner != RECORD_ALERT)) {
        return err_set(err, ERR_PROTO, "a TLS record with contents of type %u and %zu bytes came",
                       inner, content);
    }
    if (in_place) {
        tls->plain = to;
    }
    *ret_type = (enum record_type)inner;
    *ret_size = content;
    return 0;
}

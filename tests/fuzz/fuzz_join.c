/* What joiner and host parse of each other, and what an operator pastes: by the first byte a
 * token's text, a wish with its request for a certificate, an answer with its certificates, the
 * authority's file of tokens. Either it is refused with a sentence, or what came out keeps its own
 * rules. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "tests/lib/trust_files.h"
#include "trust/identity.h"
#include "trust/issue.h"
#include "trust/join_room.h"
#include "trust/pem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The request of the corpus' answer_p256: an answer's certificate must be of its key. */
static const uint8_t asked[] = {
    0x30, 0x81, 0xbb, 0x30, 0x62, 0x02, 0x01, 0x00, 0x30, 0x00, 0x30, 0x59, 0x30, 0x13, 0x06, 0x07,
    0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01,
    0x07, 0x03, 0x42, 0x00, 0x04, 0x91, 0xc9, 0x28, 0xf1, 0x89, 0x42, 0x5b, 0x1f, 0x6c, 0x21, 0x09,
    0x39, 0x5a, 0x10, 0x30, 0x2e, 0x12, 0x03, 0x78, 0x8d, 0xc3, 0x3f, 0x1b, 0x79, 0x3a, 0xe9, 0xf9,
    0xa6, 0x42, 0xea, 0x67, 0xe1, 0xab, 0xbe, 0x39, 0x4d, 0x8c, 0xe0, 0x8a, 0x1c, 0xb1, 0xc9, 0x69,
    0x87, 0xc6, 0xb2, 0xde, 0xbc, 0xfb, 0xde, 0x04, 0x9a, 0xc1, 0xc0, 0x66, 0x7d, 0x58, 0x2d, 0x54,
    0xc1, 0x0e, 0x08, 0xd9, 0xdf, 0xa0, 0x00, 0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d,
    0x04, 0x03, 0x02, 0x03, 0x49, 0x00, 0x30, 0x46, 0x02, 0x21, 0x00, 0xf3, 0xc8, 0x2c, 0xb3, 0xd8,
    0x84, 0xa5, 0x76, 0xd0, 0xa8, 0x94, 0xc4, 0x32, 0x45, 0xa9, 0x84, 0x6b, 0x0a, 0xfc, 0x5f, 0xac,
    0x00, 0x04, 0x20, 0xd3, 0x7b, 0x44, 0x71, 0x8b, 0xd2, 0x29, 0x9c, 0x02, 0x21, 0x00, 0xd5, 0x65,
    0xb7, 0xa1, 0xe5, 0xc7, 0xb1, 0xa6, 0xc4, 0xb3, 0x1e, 0x81, 0xc2, 0x84, 0x79, 0x81, 0x54, 0x00,
    0x7e, 0x86, 0xb6, 0xe9, 0xd8, 0xb3, 0xd6, 0xde, 0x7d, 0xf4, 0xf2, 0x5f, 0x85, 0xc6,
};

static struct test_folder folder;
static char authority[256];

static void done(void)
{
    test_folder_close(&folder);
}

static void try_token(const uint8_t *data, size_t size)
{
    char text[200];
    struct token token;
    struct err err = {0};
    size_t taken = size < sizeof(text) - 1 ? size : sizeof(text) - 1;
    memcpy(text, data, taken);
    text[taken] = '\0';
    if (token_parse(text, &token, &err) == 0) {
        ASSERT(strlen(token.id) == TOKEN_ID_SIZE - 1);
        ASSERT(strlen(token.secret) == TOKEN_SECRET_SIZE - 1);
    } else {
        ASSERT(err.text[0] != '\0');
    }
}

static void try_wish(const uint8_t *data, size_t size)
{
    struct join_wish wish = {.name = ""};
    struct buf request = BUF_NONE;
    struct err err = {0};
    if (join_read_wish(data, size, &wish, &request, &err) == 0) {
        ASSERT(identity_is_name(wish.name));
        ASSERT(request.size > 0 && request.size <= AUTHORITY_REQUEST_MAX);
    } else {
        ASSERT(err.text[0] != '\0');
        ASSERT(wish.name[0] == '\0');
    }
    buf_done(&request);
}

/* The authority that came is taken for the pinned one: else nobody gets further. */
static bool pin_of(const struct join_answer *answer, uint8_t pin[32])
{
    X509 *ca = NULL;
    unsigned char *bytes = NULL;
    if (pem_parse_certificate(answer->ca.bytes, answer->ca.size, &ca) != 0) {
        return false;
    }
    int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(ca), &bytes);
    if (size > 0) {
        sha256_of(bytes, (size_t)size, pin);
    }
    OPENSSL_free(bytes);
    X509_free(ca);
    return size > 0;
}

static void check_taken(const struct join_answer *answer, const struct join_wish *wish)
{
    X509 *certificate = NULL;
    EVP_PKEY *key = NULL;
    struct trust_identity identity;
    struct err err = {0};
    ASSERT(pem_parse_certificate(answer->certificate.bytes, answer->certificate.size,
                                 &certificate) == 0);
    ASSERT(issue_request_key(asked, sizeof(asked), &key, &err) == 0);
    ASSERT(EVP_PKEY_eq(X509_get0_pubkey(certificate), key) == 1);
    ASSERT(identity_of(certificate, &identity, &err) == 0);
    ASSERT(identity.kind == TRUST_NODE);
    ASSERT(strcmp(identity.name, wish->name) == 0);
    ASSERT(strcmp(identity.cluster, answer->cluster) == 0);
    EVP_PKEY_free(key);
    X509_free(certificate);
}

static void try_answer(const uint8_t *data, size_t size)
{
    struct reader reader = {data, size, false};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct join_wish wish = {.name = "b"};
    struct token token = {.id = ""};
    struct err err = {0};
    if (join_read_answer(&reader, &answer, &err) != 0) {
        ASSERT(err.text[0] != '\0');
        join_answer_done(&answer);
        return;
    }
    /* No authority has the pin of zeros. */
    ASSERT(join_check_answer(&token, &wish, asked, sizeof(asked), &answer, &err) != 0);
    ASSERT(err.text[0] != '\0');
    if (pin_of(&answer, token.pin) &&
        join_check_answer(&token, &wish, asked, sizeof(asked), &answer, &err) == 0) {
        check_taken(&answer, &wish);
    }
    join_answer_done(&answer);
}

/* Without a sync: a thousand times as fast as the authority's own way. */
static void put_file(const char *path, const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ASSERT(fd >= 0);
    while (size > 0) {
        ssize_t put = write(fd, data, size);
        ASSERT(put >= 0 || errno == EINTR);
        data += put > 0 ? put : 0;
        size -= put > 0 ? (size_t)put : 0;
    }
    (void)close(fd);
}

static void try_file(const uint8_t *data, size_t size)
{
    char path[300];
    struct token_verifier verifier;
    struct err err = {0};
    (void)snprintf(path, sizeof(path), "%s/tokens", authority);
    put_file(path, data, size);
    if (token_find(authority, "AAAAAAAAAAAA", &verifier, &err) == 0) {
        /* Unless its time ends between the two. */
        ASSERT(token_take(authority, "AAAAAAAAAAAA", &verifier, 1, &err) == 0 ||
               strstr(err.text, "expired") != NULL);
    } else {
        ASSERT(err.text[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {try_token, try_wish, try_answer,
                                                             try_file};
    if (authority[0] == '\0') {
        test_folder_open(&folder);
        trust_make_authority(&folder, "ca", "test");
        trust_file(&folder, "ca", authority);
        ASSERT(atexit(done) == 0);
    }
    if (size > 0) {
        tries[data[0] % 4](data + 1, size - 1);
    }
    return 0;
}

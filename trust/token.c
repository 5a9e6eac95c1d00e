/* Tokens for joining. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "trust/authority.h"
#include "trust/authority_folder.h"
#include "trust/pem.h"
#include "trust/openssl.h"
#include "trust/proof.h"

#define ID_BYTES     9  /* 12 characters */
#define SECRET_BYTES 32 /* 43 */

/* A line of the file. */
struct entry {
    char id[TOKEN_ID_SIZE];
    struct token_verifier verifier;
    int64_t ends;
    unsigned uses;
};

static void to_base64url(const uint8_t *bytes, size_t size, char *text)
{
    unsigned char padded[64];
    ASSERT(size <= 36);
    int got = EVP_EncodeBlock(padded, bytes, (int)size);
    size_t at = 0;
    for (int i = 0; i < got && padded[i] != '='; i++) {
        text[at++] = (char)(padded[i] == '+' ? '-' : padded[i] == '/' ? '_' : padded[i]);
    }
    text[at] = '\0';
    OPENSSL_cleanse(padded, sizeof(padded));
}

/* 43 characters to 32 bytes. */
static bool from_base64url(const char *text, uint8_t bytes[32])
{
    unsigned char padded[45];
    unsigned char decoded[33];
    for (size_t i = 0; i < 43; i++) {
        padded[i] = (unsigned char)(text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i]);
    }
    padded[43] = '=';
    padded[44] = '\0';
    if (EVP_DecodeBlock(decoded, padded, 44) != 33) {
        return false;
    }
    memcpy(bytes, decoded, 32);
    return true;
}

static bool is_base64url(const char *text, size_t size)
{
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    return strlen(text) == size && strspn(text, all) == size;
}

int token_parse(const char *text, struct token *ret_token, struct err *err)
{
    struct token token;
    char parts[4][64] = {"", "", "", ""};
    int got =
        sscanf(text, "%63[^.].%63[^.].%63[^.].%63[^.\n ]", parts[0], parts[1], parts[2], parts[3]);
    bool old = strcmp(parts[0], "cpl1") == 0;
    bool good = got == 4 && strlen(text) < TOKEN_TEXT_SIZE && strcmp(parts[0], "cpl2") == 0 &&
                is_base64url(parts[1], 43) && is_base64url(parts[2], TOKEN_ID_SIZE - 1) &&
                is_base64url(parts[3], TOKEN_SECRET_SIZE - 1) &&
                from_base64url(parts[1], token.pin);
    if (good) {
        memcpy(token.id, parts[2], TOKEN_ID_SIZE);
        memcpy(token.secret, parts[3], TOKEN_SECRET_SIZE);
        *ret_token = token;
    }
    OPENSSL_cleanse(parts, sizeof(parts));
    OPENSSL_cleanse(&token, sizeof(token));
    if (old) {
        return err_set(err, ERR_USAGE,
                       "this token is of an earlier version; make another with `coppeliusctl "
                       "cluster token`");
    }
    return good ? 0
                : err_set(err, ERR_USAGE,
                          "this is no token: one line cpl2.… as `coppeliusctl cluster token` "
                          "printed it is needed, whole");
}

static bool is_of_before(const char *line)
{
    char id[TOKEN_ID_SIZE];
    char digest[SHA256_HEX_SIZE];
    int64_t ends = 0;
    unsigned uses = 0;
    return sscanf(line, "%12s %64s %" SCNd64 " %u", id, digest, &ends, &uses) == 4;
}

static bool read_entry(const char *line, struct entry *entry)
{
    char host[SHA256_HEX_SIZE];
    char joiner[SHA256_HEX_SIZE];
    return sscanf(line, "%12s %64s %64s %" SCNd64 " %u", entry->id, host, joiner, &entry->ends,
                  &entry->uses) == 5 &&
           sha256_from_hex(host, entry->verifier.host) == 0 &&
           sha256_from_hex(joiner, entry->verifier.joiner) == 0;
}

/* The tokens that have not expired; at most AUTHORITY_TOKENS_MAX. */
static int read_entries(const char *path, struct entry *entries, size_t *ret_count, struct err *err)
{
    struct buf bytes = BUF_NONE;
    *ret_count = 0;
    int code = pem_read_file("the file of tokens", path, /* secret= */ true, &bytes, err);
    if (code == ERR_NOT_FOUND) {
        buf_done(&bytes);
        *err = (struct err){0};
        return 0;
    }
    if (code == 0) {
        buf_put_u8(&bytes, 0);
        char *rest = NULL;
        for (char *line = strtok_r((char *)bytes.bytes, "\n", &rest);
             line != NULL && *ret_count < AUTHORITY_TOKENS_MAX;
             line = strtok_r(NULL, "\n", &rest)) {
            struct entry entry;
            bool good = read_entry(line, &entry);
            if (!good && is_of_before(line)) {
                continue; /* Void; gone with the next write. */
            }
            if (!good) {
                code = err_set(err, ERR_DAMAGED,
                               "'%s' has a line that is no token; remove the file: tokens that "
                               "were given out are then void",
                               path);
                break;
            }
            entries[(*ret_count)++] = entry;
        }
    }
    buf_done(&bytes);
    return code;
}

static int write_entries(const char *path, const struct entry *entries, size_t count,
                         struct err *err)
{
    struct buf bytes = BUF_NONE;
    for (size_t i = 0; i < count; i++) {
        char host[SHA256_HEX_SIZE];
        char joiner[SHA256_HEX_SIZE];
        sha256_hex(entries[i].verifier.host, host);
        sha256_hex(entries[i].verifier.joiner, joiner);
        buf_print(&bytes, "%s %s %s %" PRId64 " %u\n", entries[i].id, host, joiner, entries[i].ends,
                  entries[i].uses);
    }
    int code = pem_write_file(path, /* secret= */ true, bytes.size > 0 ? bytes.bytes : NULL,
                              bytes.size, err);
    buf_done(&bytes);
    return code;
}

static size_t drop_old(struct entry *entries, size_t count)
{
    size_t kept = 0;
    int64_t now = (int64_t)time(NULL);
    for (size_t i = 0; i < count; i++) {
        if (entries[i].ends > now - 7 * 86400) { /* For a week "expired" can still be said. */
            entries[kept++] = entries[i];
        }
    }
    return kept;
}

static int pin_of(const char *folder, char text[48], struct err *err)
{
    X509 *ca = NULL;
    uint8_t digest[SHA256_SIZE];
    unsigned char *bytes = NULL;
    if (authority_ca(folder, &ca, err) != 0) {
        return err->code;
    }
    int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(ca), &bytes);
    ASSERT(size > 0);
    sha256_of(bytes, (size_t)size, digest);
    OPENSSL_free(bytes);
    X509_free(ca);
    to_base64url(digest, sizeof(digest), text);
    return 0;
}

int token_make(const char *folder, uint64_t ttl_s, unsigned uses, char text[TOKEN_TEXT_SIZE],
               struct err *err)
{
    struct entry *entries = calloc(AUTHORITY_TOKENS_MAX + 1, sizeof(*entries));
    char path[AUTHORITY_PATH_SIZE];
    char pin[48];
    char secret[TOKEN_SECRET_SIZE + 4];
    uint8_t random[ID_BYTES + SECRET_BYTES];
    size_t count = 0;
    int lock = -1;
    ASSERT(uses > 0);
    ASSERT(entries != NULL);
    authority_path(folder, "tokens", path);
    int code = pin_of(folder, pin, err);
    code = code != 0 ? code : authority_lock(folder, &lock, err);
    if (code != 0) {
        free(entries);
        return code;
    }
    code = read_entries(path, entries, &count, err);
    count = drop_old(entries, count);
    if (code == 0 && count == AUTHORITY_TOKENS_MAX) {
        code = err_set(err, ERR_STATE, "%u tokens are open; remove lines of '%s'", (unsigned)count,
                       path);
    }
    if (code == 0) {
        struct entry *made = &entries[count];
        ASSERT(RAND_bytes(random, sizeof(random)) == 1);
        to_base64url(random, ID_BYTES, made->id);
        to_base64url(random + ID_BYTES, SECRET_BYTES, secret);
        proof_verifier(secret, &made->verifier);
        made->ends = (int64_t)time(NULL) + (int64_t)ttl_s;
        made->uses = uses;
        code = write_entries(path, entries, count + 1, err);
        (void)snprintf(text, TOKEN_TEXT_SIZE, "cpl2.%s.%s.%s", pin, made->id, secret);
        OPENSSL_cleanse(random, sizeof(random));
        OPENSSL_cleanse(secret, sizeof(secret));
    }
    (void)close(lock);
    free(entries);
    return code;
}

static struct entry *find(struct entry *entries, size_t count, const char *id)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(entries[i].id, id) == 0) {
            return &entries[i];
        }
    }
    return NULL;
}

/* entry NULL: there is none. */
static int check(const struct entry *entry, struct err *err)
{
    if (entry == NULL) {
        return err_set(
            err, ERR_AUTH,
            "this authority has no such token; make one with `coppeliusctl cluster token` "
            "where the authority is");
    }
    if (entry->ends <= (int64_t)time(NULL)) {
        return err_set(err, ERR_AUTH,
                       "this token has expired; make another with `coppeliusctl cluster token`");
    }
    if (entry->uses == 0) {
        return err_set(err, ERR_AUTH,
                       "this token is used up; make another with `coppeliusctl cluster token`");
    }
    return 0;
}

static int take(struct entry *entry, const struct token_verifier *verifier, int uses,
                struct err *err)
{
    bool same = entry != NULL && memcmp(&entry->verifier, verifier, sizeof(*verifier)) == 0;
    if ((!same || uses > 0) && check(same ? entry : NULL, err) != 0) {
        return err->code;
    }
    entry->uses = (unsigned)((int)entry->uses - uses);
    return 0;
}

/* Reads the file, locked; uses 0: finds only. */
static int with_entry(const char *folder, const char *id, struct token_verifier *verifier, int uses,
                      struct err *err)
{
    struct entry *entries = calloc(AUTHORITY_TOKENS_MAX, sizeof(*entries));
    char path[AUTHORITY_PATH_SIZE];
    size_t count = 0;
    int lock = -1;
    ASSERT(entries != NULL);
    authority_path(folder, "tokens", path);
    int code = authority_lock(folder, &lock, err);
    if (code == 0) {
        code = read_entries(path, entries, &count, err);
        struct entry *entry = find(entries, count, id);
        if (code == 0 && uses == 0) {
            code = check(entry, err);
            *verifier = code == 0 ? entry->verifier : *verifier;
        } else if (code == 0) {
            code = take(entry, verifier, uses, err);
            code = code != 0 ? code : write_entries(path, entries, count, err);
        }
        (void)close(lock);
    }
    OPENSSL_cleanse(entries, AUTHORITY_TOKENS_MAX * sizeof(*entries));
    free(entries);
    return code;
}

int token_find(const char *folder, const char *id, struct token_verifier *ret_verifier,
               struct err *err)
{
    return with_entry(folder, id, ret_verifier, 0, err);
}

int token_take(const char *folder, const char *id, const struct token_verifier *verifier, int uses,
               struct err *err)
{
    struct token_verifier same = *verifier;
    ASSERT(uses == 1 || uses == -1);
    return with_entry(folder, id, &same, uses, err);
}

/* The cluster's own authority: a folder with its certificate and key, and the tokens that let new
 * nodes in. The operator puts it where it is safest; nothing here copies the key anywhere.
 *
 *   ca.crt      its certificate: what every node has too
 *   ca.key      its key, mode 0600
 *   tokens      one token a line: id, SHA-256 of its secret, end, uses left; mode 0600
 *   issued      one certificate a line: when, what, until when; for the operator
 *
 * Calls read and write files; any thread, any process (the folder is locked meanwhile). */
#ifndef COPPELIUS_TRUST_AUTHORITY_H
#define COPPELIUS_TRUST_AUTHORITY_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "trust/trust.h"

#define AUTHORITY_LEAF_DAYS   30U
#define AUTHORITY_CA_DAYS     3650U
#define AUTHORITY_REQUEST_MAX 4096 /* bytes of a request for a certificate */
#define AUTHORITY_TOKENS_MAX  1000
#define TOKEN_ID_SIZE         13 /* texts, with the terminating zero */
#define TOKEN_SECRET_SIZE     44
#define TOKEN_TEXT_SIZE       128

enum authority_key { AUTHORITY_P256, AUTHORITY_ED25519 };

/* Makes folder, key and certificate. ERR_STATE where one is there already. */
int authority_make(const char *folder, const char *cluster, enum authority_key kind,
                   struct err *err);
/* "cluster" of the authority that is there; ERR_NOT_FOUND with what to do. */
int authority_cluster(const char *folder, char cluster[TRUST_NAME_SIZE], struct err *err);

/* A fresh key, and the request for its certificate (DER, signed by it). */
int authority_new_key(enum authority_key kind, struct buf *key_pem, struct buf *request,
                      struct err *err);
/* The request for a certificate of the key in that file. */
int authority_request_of(const char *key_file, struct buf *request, struct err *err);
/* Replaces the file as a whole, synced: mode 0600 for secrets, else 0644. */
int authority_write(const char *path, bool secret, const struct buf *bytes, struct err *err);
void authority_wipe(struct buf *bytes); /* overwrites and frees */
/* Signs: appends the certificate and the authority's (PEM). The identity's kind, cluster (must be
 * the authority's) and name count, not what the request says; days 0: AUTHORITY_LEAF_DAYS. */
int authority_sign(const char *folder, const struct trust_identity *identity, unsigned days,
                   const void *request, size_t request_size, struct buf *certificate_pem,
                   struct buf *ca_pem, struct err *err);
/* A folder for a node or a person that the operator carries there: ca.crt, NAME.crt and NAME.key as
 * `certificate` and `key`. */
int authority_bundle(const char *folder, const struct trust_identity *identity, unsigned days,
                     enum authority_key kind, const char *output, struct err *err);

/* ------------------------------------------------------------------ tokens
 * "cpl1.PIN.ID.SECRET": PIN is SHA-256 of the authority's SPKI, SECRET 32 random bytes, both in
 * base64url. */

struct token {
    uint8_t pin[32];
    char id[TOKEN_ID_SIZE];
    char secret[TOKEN_SECRET_SIZE];
};

int token_parse(const char *text, struct token *ret_token, struct err *err);
/* Makes one; only the secret's digest is stored. */
int token_make(const char *folder, uint64_t ttl_s, unsigned uses, char text[TOKEN_TEXT_SIZE],
               struct err *err);
/* Checks id and secret and takes so many uses, durably, before anything is signed: 0 only checks,
 * -1 gives one back. ERR_AUTH: no such token or another secret (not told apart), used up, expired.
 */
int token_redeem(const char *folder, const char *id, const char *secret, int uses, struct err *err);

#endif

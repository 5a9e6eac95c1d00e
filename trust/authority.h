/* The cluster's own authority: a folder with its certificate and key, and the tokens that let new
 * nodes in. The operator puts it where it is safest; nothing here copies the key anywhere.
 *
 *   ca.crt      its certificate: what every node has too
 *   ca.key      its key, mode 0600
 *   tokens      one token a line: id, what checks its secret, end, uses left; mode 0600
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
#define TOKEN_KEY_SIZE        32

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
/* Whether a request can be signed: its size, its key's kind, its signature. ERR_PROTO. */
int authority_check_request(const void *request, size_t request_size, struct err *err);
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
 * "cpl2.PIN.ID.SECRET": PIN is SHA-256 of the authority's SPKI, SECRET 32 random bytes, both in
 * base64url. The secret leaves neither side: each proves that it knows it (proof.h). */

struct token {
    uint8_t pin[32];
    char id[TOKEN_ID_SIZE];
    char secret[TOKEN_SECRET_SIZE];
};

/* All that the authority keeps of a secret; it finds no secret, and lets nobody join. */
struct token_verifier {
    uint8_t host[TOKEN_KEY_SIZE];   /* proves to the joiner who the host is */
    uint8_t joiner[TOKEN_KEY_SIZE]; /* a public key: checks the joiner's proof */
};

int token_parse(const char *text, struct token *ret_token, struct err *err);
/* Makes one; only its verifier is stored. */
int token_make(const char *folder, uint64_t ttl_s, unsigned uses, char text[TOKEN_TEXT_SIZE],
               struct err *err);
/* What checks the token of that id. ERR_AUTH: none, used up, expired. */
int token_find(const char *folder, const char *id, struct token_verifier *ret_verifier,
               struct err *err);
/* Takes so many uses, durably, before anything is signed; -1 gives one back. The verifier must be
 * the id's still. ERR_AUTH as above. */
int token_take(const char *folder, const char *id, const struct token_verifier *verifier, int uses,
               struct err *err);

#endif

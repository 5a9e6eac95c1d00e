/* How a node gets in: what a joiner and the daemon with the authority say to each other, inside
 * TLS.
 *
 *   joiner                                   host
 *   (checks that the authority shown is the one whose digest the token pins)
 *   "cpj2", token's id                ──>    16 bytes; is there such a token?
 *                                     <──    u32 size, i32 code, sentence, proof (32)
 *   (checks the proof: who answers is who has the token's verifier, on this very connection)
 *   u32 size, proof (64), name,       ──>    the proof is checked, then the request; one use of the
 *   address, role, request for a             token is taken, the cluster admits, signed
 *   certificate
 *                                     <──    u32 size, i32 code, sentence, cluster, certificate,
 *                                            the authority's, the members
 *   (checks that the certificate is of the pinned authority for its name and key)
 *
 * The proofs (proof.h) hold on one TLS connection only, and the secret itself is never sent.
 * Integers little endian; texts are u32 size and bytes. Both sides block, with one deadline for the
 * whole: never on a loop. Stands on base. */
#ifndef COPPELIUS_TRUST_JOIN_H
#define COPPELIUS_TRUST_JOIN_H

#include "base/buf.h"
#include "trust/authority.h"
#include "trust/trust.h"

#define JOIN_ADDRESS_SIZE 24
#define JOIN_ROLE_SIZE    16
#define JOIN_QUESTION_MAX 8192
#define JOIN_PROOF_MS     4000 /* for the proof: until then anybody may hold the place */
#define JOIN_ANSWER_MAX   65536
#define JOIN_FIRST_SIZE   (4 + TOKEN_ID_SIZE - 1)

struct join_wish {
    char name[TRUST_NAME_SIZE];
    char address[JOIN_ADDRESS_SIZE]; /* "IP:PORT" that the others dial; "": a renewal */
    char role[JOIN_ROLE_SIZE];
};

struct join_answer { /* of the joiner */
    char cluster[TRUST_NAME_SIZE];
    struct buf certificate, ca; /* PEM */
    struct buf members;         /* a line each: ID NAME ADDRESS ROLE */
};

#define JOIN_ANSWER_NONE                 \
    {                                    \
        "", BUF_NONE, BUF_NONE, BUF_NONE \
    }

void join_answer_done(struct join_answer *answer);

/* The joiner's side over a connected, non-blocking socket. deadline_ms by clock_now_ms(). */
int join_ask(int fd, const struct token *token, const struct join_wish *wish, const void *request,
             size_t request_size, uint64_t deadline_ms, struct join_answer *ret_answer,
             struct err *err);

struct join_host {
    const char *authority; /* folder */
    const char *cluster;
    void *context;
    /* Whether the cluster takes it: a member from now on; `members` gets the lines. Called before
     * anything is signed and after all else was checked, on the serving thread; ERR_STATE with a
     * sentence. */
    int (*admit)(void *context, const struct join_wish *wish, struct buf *members, struct err *err);
};

/* The host's side; the wish is filled as far as it came. An error was told to the joiner where it
 * could be. */
int join_serve(struct tls *tls, int fd, const struct join_host *host, uint64_t deadline_ms,
               struct join_wish *ret_wish, struct err *err);

#endif

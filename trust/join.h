/* How a node gets in: what a joiner and the daemon with the authority say to each other, inside
 * TLS.
 *
 *   joiner                                   host
 *   (checks that the authority shown is the one whose digest the token pins)
 *   "cpj1", token's id and secret     ──>    59 bytes, compared; nothing else is read before
 *                                     <──    u32 size, i32 code, sentence
 *   u32 size, name, address, role,    ──>    admitted by the cluster, one use of the token taken,
 *   request for a certificate                signed
 *                                     <──    u32 size, i32 code, sentence, cluster, certificate,
 *                                            the authority's, the members
 *
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
#define JOIN_TOKEN_MS     4000 /* for the token: until then anybody may hold the place */
#define JOIN_ANSWER_MAX   65536
#define JOIN_FIRST_SIZE   (4 + TOKEN_ID_SIZE - 1 + TOKEN_SECRET_SIZE - 1)

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
     * anything is signed, on the serving thread; ERR_STATE with a sentence. */
    int (*admit)(void *context, const struct join_wish *wish, struct buf *members, struct err *err);
};

/* The host's side; the wish is filled as far as it came. An error was told to the joiner where it
 * could be. */
int join_serve(struct tls *tls, int fd, const struct join_host *host, uint64_t deadline_ms,
               struct join_wish *ret_wish, struct err *err);

#endif

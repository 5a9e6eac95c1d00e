/* How joiner and host prove to each other that they know the same token, without either showing
 * anything that could be used elsewhere.
 *
 *   secret ──HMAC "host"──>    a key that both have: the host's proof is an HMAC with it
 *          ──HMAC "joiner"──>  the seed of an Ed25519 key: the joiner's proof is a signature by it,
 *                              and the authority keeps the public half alone
 *
 * Both are over the scene: the TLS connection's exporter (RFC 8446 7.5), the token's id, the
 * cluster and the host's name by its certificate. So a proof holds on this connection between these
 * two only; who relays has two connections, and two exporters. What the authority keeps lets nobody
 * join. Any thread. Private to the room. */
#ifndef COPPELIUS_TRUST_PROOF_H
#define COPPELIUS_TRUST_PROOF_H

#include "trust/authority.h"
#include "trust/trust_room.h"

#define PROOF_HOST_SIZE   32
#define PROOF_JOINER_SIZE 64

struct proof_scene {
    uint8_t exporter[TLS_EXPORTER_SIZE];
    const char *id;      /* the token's */
    const char *cluster; /* of the host's certificate, */
    const char *host;    /* and the node's name in it */
};

/* What the authority keeps of a secret. */
void proof_verifier(const char *secret, struct token_verifier *ret_verifier);
void proof_of_host(const struct token_verifier *verifier, const struct proof_scene *scene,
                   uint8_t ret_proof[PROOF_HOST_SIZE]);
/* Covers the message. */
void proof_of_joiner(const char *secret, const struct proof_scene *scene, const void *message,
                     size_t size, uint8_t ret_proof[PROOF_JOINER_SIZE]);
bool proof_check_joiner(const struct token_verifier *verifier, const struct proof_scene *scene,
                        const void *message, size_t size, const uint8_t proof[PROOF_JOINER_SIZE]);

#endif

/* Keys, requests and certificates in memory. Private to the room. */
#ifndef COPPELIUS_TRUST_ISSUE_H
#define COPPELIUS_TRUST_ISSUE_H

#include "trust/authority.h"
#include "trust/openssl.h"

int issue_key(enum authority_key kind, EVP_PKEY **ret_key, struct err *err);
/* "coppelius authority of CLUSTER", which may sign leaves only. */
int issue_ca(const char *cluster, EVP_PKEY *key, X509 **ret_ca, struct err *err);
int issue_leaf(X509 *ca, EVP_PKEY *ca_key, EVP_PKEY *public_key,
               const struct trust_identity *identity, unsigned days, X509 **ret_leaf,
               struct err *err);
int issue_request(EVP_PKEY *key, struct buf *request, struct err *err);
/* The key that a request shows, where it has signed it. ERR_PROTO. */
int issue_request_key(const void *request, size_t size, EVP_PKEY **ret_key, struct err *err);

#endif

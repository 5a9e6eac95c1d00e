/* What a certificate says of its holder. Any thread. Private to the room. */
#ifndef COPPELIUS_TRUST_IDENTITY_H
#define COPPELIUS_TRUST_IDENTITY_H

#include "trust/trust.h"
#include "trust/openssl.h"

/* 1 to 63 letters, digits, '-', '_' or '.', a letter or digit first. */
bool identity_is_name(const char *name);
/* ERR_AUTH where it has no URI of ours, or more than one. */
int identity_of(X509 *certificate, struct trust_identity *ret_identity, struct err *err);
/* "coppelius://CLUSTER/KIND/NAME" */
void identity_uri(const struct trust_identity *identity, char *text, size_t text_size);
/* For sentences: "2026-11-30 20:03 UTC"; the subject's or issuer's common name. */
#define IDENTITY_TIME_SIZE 32
void identity_time(int64_t at, char text[IDENTITY_TIME_SIZE]);
void identity_common_name(const X509_NAME *name, char *text, size_t text_size);
int64_t identity_seconds(const ASN1_TIME *time);

#endif

/* Keys and certificates as PEM files. Calls block; any thread. Private to the room. */
#ifndef COPPELIUS_TRUST_PEM_H
#define COPPELIUS_TRUST_PEM_H

#include "base/buf.h"
#include "base/err.h"
#include "trust/openssl.h"

#define PEM_SIZE_MAX (64U << 10)

/* Whole file, at most PEM_SIZE_MAX. what: "the key"; ERR_CONFIG names it and the file. A secret one
 * must not be readable by everybody. */
int pem_read_file(const char *what, const char *path, bool secret, struct buf *bytes,
                  struct err *err);
int pem_certificate(const char *what, const char *path, X509 **ret_certificate, struct err *err);
int pem_key(const char *what, const char *path, EVP_PKEY **ret_key, struct err *err);
int pem_parse_certificate(const void *bytes, size_t size, X509 **ret_certificate);

/* Replaces the file as a whole, synced, mode 0600 for secrets, else 0644. ERR_DISK. */
int pem_write_file(const char *path, bool secret, const void *bytes, size_t size, struct err *err);
void pem_put_certificate(struct buf *bytes, X509 *certificate);
void pem_put_key(struct buf *bytes, EVP_PKEY *key);
/* Overwrites and frees. */
void pem_wipe(struct buf *bytes);

#endif

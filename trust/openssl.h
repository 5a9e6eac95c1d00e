/* OpenSSL's headers. Its type ERR_STATE and our code of that name are kept apart by another name
 * for theirs, which nobody here uses. Private to the room. */
#ifndef COPPELIUS_TRUST_OPENSSL_H
#define COPPELIUS_TRUST_OPENSSL_H

#define ERR_STATE OPENSSL_ERR_STATE
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#undef ERR_STATE

#include <stddef.h>

/* The sentence of the first error in OpenSSL's queue of this thread, which is emptied. */
void openssl_text(char *text, size_t text_size);

#endif

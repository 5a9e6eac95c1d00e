/* Whether a certificate is let in, and the sentence where it is not: which certificate, why, and
 * what to do. Called by OpenSSL in the handshake, on the connection's thread. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/hash.h"
#include "trust/trust_room.h"
#include "trust/openssl.h"

bool trust_is_member(const struct trust *trust, const char *name)
{
    for (size_t i = 0; i < trust->members_count; i++) {
        if (strcmp(trust->members[i], name) == 0) {
            return true;
        }
    }
    return !trust->members_known;
}

bool trust_is_removed(const struct trust *trust, const char *name)
{
    for (size_t i = 0; i < trust->removed_count; i++) {
        if (strcmp(trust->removed[i], name) == 0) {
            return true;
        }
    }
    return false;
}

bool trust_is_authority_of(X509 *ca, X509 *certificate)
{
    EVP_PKEY *key = X509_get0_pubkey(ca);
    bool good = key != NULL && X509_check_issued(ca, certificate) == X509_V_OK &&
                X509_verify(certificate, key) == 1;
    ERR_clear_error();
    return good;
}

/* "its certificate (coppelius://…)" or by its common name. */
static void name_it(X509 *certificate, char *text, size_t text_size)
{
    struct trust_identity identity;
    char name[200];
    if (certificate == NULL) {
        (void)snprintf(text, text_size, "its certificate");
        return;
    }
    if (identity_of(certificate, &identity, NULL) == 0) {
        identity_uri(&identity, name, sizeof(name));
    } else {
        identity_common_name(X509_get_subject_name(certificate), name, sizeof(name));
    }
    (void)snprintf(text, text_size, "its certificate (%s)", name);
}

static void now_text(char text[IDENTITY_TIME_SIZE])
{
    identity_time((int64_t)time(NULL), text);
}

/* leaf: the holder's own; certificate: the one of its chain that the error is about. */
static enum trust_failure explain(int error, X509 *certificate, X509 *leaf, struct err *why)
{
    char what[280];
    char at[IDENTITY_TIME_SIZE];
    char now[IDENTITY_TIME_SIZE];
    char issuer[128];
    name_it(certificate, what, sizeof(what));
    now_text(now);
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        identity_time(identity_seconds(X509_get0_notAfter(certificate)), at);
        (void)err_set(
            why, ERR_AUTH,
            "%s has expired: it ended %s and this machine's clock says %s; renew it there "
            "(`coppeliusctl cluster renew`, or a new `pki bundle`), or set the clock here",
            what, at, now);
        return FAILURE_EXPIRED;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        identity_time(identity_seconds(X509_get0_notBefore(certificate)), at);
        (void)err_set(why, ERR_AUTH,
                      "%s is not valid yet: it begins %s and this machine's clock says %s; compare "
                      "the clocks of both machines",
                      what, at, now);
        return FAILURE_EXPIRED;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED:
        name_it(leaf, what, sizeof(what));
        identity_common_name(X509_get_issuer_name(leaf), issuer, sizeof(issuer));
        (void)err_set(
            why, ERR_AUTH,
            "%s was signed by another authority (%s) than the one in this side's `ca`; is "
            "it of this cluster? join it with a token of this cluster",
            what, issuer);
        return FAILURE_AUTHORITY;
    default:
        (void)err_set(why, ERR_AUTH, "%s is refused: %s", what,
                      X509_verify_cert_error_string(error));
        return error == X509_V_ERR_INVALID_PURPOSE ? FAILURE_NAME : FAILURE_OTHER;
    }
}

/* The chain is good: is it who may speak here? Sets X509's error for the alert. */
static bool check_identity(struct tls *tls, X509_STORE_CTX *store, X509 *certificate)
{
    struct trust *trust = tls->trust;
    struct trust_identity identity;
    bool good = false;
    int error = X509_V_ERR_CERT_REJECTED;
    tls->failure = FAILURE_NAME;
    pthread_mutex_lock(&trust->lock);
    if (identity_of(certificate, &identity, &tls->why) != 0) {
        /* told */
    } else if (strcmp(identity.cluster, trust->self.cluster) != 0) {
        (void)err_set(
            &tls->why, ERR_AUTH,
            "its certificate is of cluster '%s', and this is '%s'; correct the address, or "
            "join it to this cluster",
            identity.cluster, trust->self.cluster);
    } else if (!tls->server && identity.kind != TRUST_NODE) {
        (void)err_set(&tls->why, ERR_AUTH, "a %s's certificate ('%s') answers there, not a node's",
                      trust_kind_name(identity.kind), identity.name);
    } else if (tls->expected[0] != '\0' && strcmp(identity.name, tls->expected) != 0) {
        (void)err_set(&tls->why, ERR_AUTH,
                      "node '%s' answers there by its certificate, not '%s'; correct the address",
                      identity.name, tls->expected);
    } else if (identity.kind == TRUST_NODE && !trust_is_member(trust, identity.name) &&
               (!tls->server || trust_is_removed(trust, identity.name))) {
        tls->failure = FAILURE_MEMBER;
        error = X509_V_ERR_CERT_REVOKED;
        (void)err_set(&tls->why, ERR_AUTH,
                      "node '%s' is no member of cluster '%s': it was removed, or has not joined; "
                      "`coppeliusctl cluster join` with a new token makes it one",
                      identity.name, identity.cluster);
    } else {
        identity.member = identity.kind == TRUST_NODE && trust_is_member(trust, identity.name);
        tls->peer = identity; /* From now on trust_set_members() may cut it. */
        good = true;
    }
    pthread_mutex_unlock(&trust->lock);
    if (!good) {
        X509_STORE_CTX_set_error(store, error);
    }
    return good;
}

int trust_verify(int good, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *tls = tls_of(ssl);
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    if (good != 1) {
        tls->failure = explain(X509_STORE_CTX_get_error(store), certificate,
                               X509_STORE_CTX_get0_cert(store), &tls->why);
        return 0;
    }
    if (X509_STORE_CTX_get_error_depth(store) > 0) {
        return 1;
    }
    /* The purpose (server or client authentication) was checked with the chain, and with it the
     * use of the key where the certificate names uses; ours must name the signature. */
    if ((X509_get_key_usage(certificate) & KU_DIGITAL_SIGNATURE) == 0 ||
        (X509_get_extension_flags(certificate) & EXFLAG_XKUSAGE) == 0) {
        tls->failure = FAILURE_NAME;
        (void)err_set(&tls->why, ERR_AUTH,
                      "its certificate's key may not sign, or it does not say what it is for; make "
                      "it with `coppeliusctl pki`");
        X509_STORE_CTX_set_error(store, X509_V_ERR_INVALID_PURPOSE);
        return 0;
    }
    return check_identity(tls, store, certificate) ? 1 : 0;
}

bool trust_has_pin(X509 *certificate, const uint8_t pin[32])
{
    uint8_t digest[SHA256_SIZE];
    unsigned char *bytes = NULL;
    int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &bytes);
    if (size <= 0) {
        return false;
    }
    sha256_of(bytes, (size_t)size, digest);
    OPENSSL_free(bytes);
    return memcmp(digest, pin, sizeof(digest)) == 0;
}

/* A joiner's: the pinned authority must be among what the other side shows, and have signed it. */
int trust_verify_pinned(X509_STORE_CTX *store, void *context)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *tls = tls_of(ssl);
    X509 *leaf = X509_STORE_CTX_get0_cert(store);
    STACK_OF(X509) *shown = X509_STORE_CTX_get0_untrusted(store);
    STACK_OF(X509) *trusted = sk_X509_new_null();
    struct trust_identity identity = {.kind = TRUST_NOBODY};
    (void)context;
    ASSERT(trusted != NULL);
    for (int i = 0; i < sk_X509_num(shown); i++) {
        X509 *at = sk_X509_value(shown, i);
        if (at != leaf && X509_check_ca(at) == 1 && trust_has_pin(at, tls->pin)) {
            ASSERT(sk_X509_push(trusted, at) > 0);
            break;
        }
    }
    int good = 0;
    if (sk_X509_num(trusted) == 0) {
        tls->failure = FAILURE_AUTHORITY;
        X509_STORE_CTX_set_error(store, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN);
        (void)err_set(
            &tls->why, ERR_AUTH,
            "who answers there does not show the authority that the token pins: the token "
            "is of another cluster, or somebody is between; nothing secret was sent");
    } else {
        X509_STORE_CTX_set0_trusted_stack(store, trusted);
        good = X509_verify_cert(store) == 1 && identity_of(leaf, &identity, &tls->why) == 0 &&
               identity.kind == TRUST_NODE;
        if (good) {
            tls->peer = identity;
        } else if (tls->why.code == 0) {
            tls->failure = explain(X509_STORE_CTX_get_error(store),
                                   X509_STORE_CTX_get_current_cert(store), leaf, &tls->why);
        }
        X509_STORE_CTX_set0_trusted_stack(store, NULL);
    }
    sk_X509_free(trusted);
    return good;
}

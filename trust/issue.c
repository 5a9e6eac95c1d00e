#include "trust/issue.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "trust/identity.h"
#include "trust/openssl.h"

#define BACKDATED_S 3600 /* for clocks that are behind */
#define DAY_S       86400

static int failed(const char *what, struct err *err)
{
    char text[160];
    openssl_text(text, sizeof(text));
    return err_set(err, ERR_INTERNAL, "%s: %s", what, text);
}

int issue_key(enum authority_key kind, EVP_PKEY **ret_key, struct err *err)
{
    EVP_PKEY *key =
        kind == AUTHORITY_ED25519 ? EVP_PKEY_Q_keygen(NULL, NULL, "ED25519") : EVP_EC_gen("P-256");
    if (key == NULL) {
        return failed("cannot make a key", err);
    }
    *ret_key = key;
    return 0;
}

/* Ed25519 has its hash inside. */
static const EVP_MD *digest_of(const EVP_PKEY *key)
{
    return EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 ? NULL : EVP_sha256();
}

static bool add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool good = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

static bool set_name(X509_NAME *name, const char *common)
{
    return X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC, (const unsigned char *)"coppelius",
                                      -1, -1, 0) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common, -1,
                                      -1, 0) == 1;
}

/* Version, a random serial number, times, key. */
static X509 *begin(EVP_PKEY *key, unsigned days)
{
    unsigned char serial[16];
    X509 *certificate = X509_new();
    ASSERT(certificate != NULL);
    ASSERT(RAND_bytes(serial, sizeof(serial)) == 1);
    serial[0] &= 0x7f; /* positive, and never shorter */
    serial[0] |= 0x40;
    BIGNUM *number = BN_bin2bn(serial, sizeof(serial), NULL);
    ASSERT(number != NULL);
    ASSERT(BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL);
    BN_free(number);
    time_t now = time(NULL);
    time_t first = now - BACKDATED_S;
    ASSERT(X509_set_version(certificate, X509_VERSION_3) == 1);
    ASSERT(X509_time_adj_ex(X509_getm_notBefore(certificate), 0, 0, &first) != NULL);
    ASSERT(X509_time_adj_ex(X509_getm_notAfter(certificate), (int)days, 0, &now) != NULL);
    ASSERT(X509_set_pubkey(certificate, key) == 1);
    return certificate;
}

int issue_ca(const char *cluster, EVP_PKEY *key, X509 **ret_ca, struct err *err)
{
    char common[128];
    X509 *ca = begin(key, AUTHORITY_CA_DAYS);
    (void)snprintf(common, sizeof(common), "coppelius authority of %s", cluster);
    if (!set_name(X509_get_subject_name(ca), common) ||
        X509_set_issuer_name(ca, X509_get_subject_name(ca)) != 1 ||
        !add_extension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_extension(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !add_extension(ca, ca, NID_subject_key_identifier, "hash") ||
        X509_sign(ca, key, digest_of(key)) == 0) {
        X509_free(ca);
        return failed("cannot make the authority's certificate", err);
    }
    *ret_ca = ca;
    return 0;
}

int issue_leaf(X509 *ca, EVP_PKEY *ca_key, EVP_PKEY *public_key,
               const struct trust_identity *identity, unsigned days, X509 **ret_leaf,
               struct err *err)
{
    char uri[256];
    char names[512];
    ASSERT(identity_is_name(identity->cluster)); /* Names cannot break out of the extension. */
    ASSERT(identity_is_name(identity->name));
    identity_uri(identity, uri, sizeof(uri));
    (void)snprintf(names, sizeof(names), "URI:%s,DNS:%s", uri, identity->name);
    int64_t left = identity_seconds(X509_get0_notAfter(ca)) - (int64_t)time(NULL);
    if (left <= 0) {
        return err_set(err, ERR_STATE,
                       "the authority's certificate has expired; make a new authority and give "
                       "every node a certificate of it");
    }
    unsigned most = (unsigned)(left / DAY_S); /* A leaf does not outlive its authority. */
    X509 *leaf = begin(public_key, days <= most ? days : most);
    const char *purpose = identity->kind == TRUST_NODE ? "serverAuth,clientAuth" : "clientAuth";
    if (!set_name(X509_get_subject_name(leaf), identity->name) ||
        X509_set_issuer_name(leaf, X509_get_subject_name(ca)) != 1 ||
        !add_extension(leaf, ca, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_extension(leaf, ca, NID_key_usage, "critical,digitalSignature") ||
        !add_extension(leaf, ca, NID_ext_key_usage, purpose) ||
        !add_extension(leaf, ca, NID_subject_alt_name, names) ||
        !add_extension(leaf, ca, NID_subject_key_identifier, "hash") ||
        !add_extension(leaf, ca, NID_authority_key_identifier, "keyid:always") ||
        X509_sign(leaf, ca_key, digest_of(ca_key)) == 0) {
        X509_free(leaf);
        return failed("cannot make the certificate", err);
    }
    *ret_leaf = leaf;
    return 0;
}

int issue_request(EVP_PKEY *key, struct buf *request, struct err *err)
{
    X509_REQ *made = X509_REQ_new();
    unsigned char *bytes = NULL;
    ASSERT(made != NULL);
    int size = -1;
    if (X509_REQ_set_pubkey(made, key) == 1 && X509_REQ_sign(made, key, digest_of(key)) > 0) {
        size = i2d_X509_REQ(made, &bytes);
    }
    X509_REQ_free(made);
    if (size <= 0) {
        return failed("cannot make the request for a certificate", err);
    }
    buf_put(request, bytes, (size_t)size);
    OPENSSL_free(bytes);
    return 0;
}

int issue_request_key(const void *request, size_t size, EVP_PKEY **ret_key, struct err *err)
{
    const unsigned char *at = request;
    X509_REQ *parsed = size <= AUTHORITY_REQUEST_MAX ? d2i_X509_REQ(NULL, &at, (long)size) : NULL;
    EVP_PKEY *key = parsed != NULL ? X509_REQ_get_pubkey(parsed) : NULL;
    int kind = key != NULL ? EVP_PKEY_get_base_id(key) : 0;
    char group[32] = "";
    bool named = kind == EVP_PKEY_EC &&
                 EVP_PKEY_get_group_name(key, group, sizeof(group), NULL) == 1 &&
                 strcmp(group, "prime256v1") == 0; /* not by explicit parameters, nor 256 others */
    bool known = kind == EVP_PKEY_ED25519 || named;
    bool good = known && X509_REQ_verify(parsed, key) == 1;
    X509_REQ_free(parsed);
    ERR_clear_error();
    if (!good) {
        EVP_PKEY_free(key);
        return err_set(err, ERR_PROTO,
                       "the request for a certificate is malformed, not signed by its key, or its "
                       "key is neither P-256 nor Ed25519");
    }
    *ret_key = key;
    return 0;
}

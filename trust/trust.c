/* This side's files, who is let in, and the connections that live by it. */
#include "trust/trust.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/assert.h"
#include "trust/authority.h"
#include "trust/pem.h"
#include "trust/trust_room.h"
#include "trust/openssl.h"

struct loaded {
    SSL_CTX *context;
    X509 *ca;
    X509 *certificate;
    EVP_PKEY *key;
    struct trust_identity self;
};

static void loaded_done(struct loaded *loaded)
{
    SSL_CTX_free(loaded->context);
    X509_free(loaded->ca);
    X509_free(loaded->certificate);
    EVP_PKEY_free(loaded->key);
}

static int not_signed(const struct trust *trust, X509 *ca, X509 *certificate, struct err *err)
{
    char issuer[128];
    char own[128];
    identity_common_name(X509_get_issuer_name(certificate), issuer, sizeof(issuer));
    identity_common_name(X509_get_subject_name(ca), own, sizeof(own));
    return err_set(err, ERR_CONFIG,
                   "tls.certificate '%s' was signed by %s and not by the key of tls.ca '%s' (%s); "
                   "use the files of one cluster",
                   trust->certificate_path, issuer, trust->ca_path, own);
}

static int check_times(const struct trust *trust, const struct trust_identity *self,
                       struct err *err)
{
    char at[IDENTITY_TIME_SIZE];
    char now_text[IDENTITY_TIME_SIZE];
    int64_t now = (int64_t)time(NULL);
    identity_time(now, now_text);
    if (self->not_after <= now) {
        identity_time(self->not_after, at);
        return err_set(
            err, ERR_CONFIG,
            "tls.certificate '%s' has expired: it ended %s and this machine's clock says "
            "%s; join again (`coppeliusctl cluster join`), or set the clock",
            trust->certificate_path, at, now_text);
    }
    if (self->not_before > now) {
        identity_time(self->not_before, at);
        return err_set(
            err, ERR_CONFIG,
            "tls.certificate '%s' is not valid yet: it begins %s and this machine's clock "
            "says %s; set the clock",
            trust->certificate_path, at, now_text);
    }
    return 0;
}

static int check_loaded(const struct trust *trust, struct loaded *loaded, struct err *err)
{
    if (X509_check_ca(loaded->ca) != 1) {
        return err_set(err, ERR_CONFIG,
                       "tls.ca '%s' is no authority's certificate; give the cluster's ca.crt",
                       trust->ca_path);
    }
    if (X509_check_private_key(loaded->certificate, loaded->key) != 1) {
        ERR_clear_error();
        return err_set(err, ERR_CONFIG,
                       "tls.key '%s' is not the key of tls.certificate '%s'; use two files that "
                       "were made together",
                       trust->key_path, trust->certificate_path);
    }
    if (!trust_is_authority_of(loaded->ca, loaded->certificate)) {
        return not_signed(trust, loaded->ca, loaded->certificate, err);
    }
    if (identity_of(loaded->certificate, &loaded->self, err) != 0) {
        (void)err_prefix(err, "tls.certificate '%s': ", trust->certificate_path);
        err->code = ERR_CONFIG;
        return err->code;
    }
    if (trust->cluster != NULL && strcmp(trust->cluster, loaded->self.cluster) != 0) {
        return err_set(err, ERR_CONFIG,
                       "tls.certificate '%s' is of cluster '%s', and `cluster` is '%s'; make them "
                       "the same",
                       trust->certificate_path, loaded->self.cluster, trust->cluster);
    }
    if (trust->name != NULL &&
        (loaded->self.kind != TRUST_NODE || strcmp(trust->name, loaded->self.name) != 0)) {
        return err_set(
            err, ERR_CONFIG,
            "tls.certificate '%s' is of the %s '%s', and this is the node '%s'; use this "
            "node's own",
            trust->certificate_path, trust_kind_name(loaded->self.kind), loaded->self.name,
            trust->name);
    }
    return check_times(trust, &loaded->self, err);
}

static int make_context(struct loaded *loaded, struct err *err)
{
    char text[160];
    loaded->context = trust_context_new();
    X509_STORE *store = X509_STORE_new();
    ASSERT(loaded->context != NULL);
    ASSERT(store != NULL);
    int good = X509_STORE_add_cert(store, loaded->ca) == 1 &&
               SSL_CTX_use_certificate(loaded->context, loaded->certificate) == 1 &&
               SSL_CTX_use_PrivateKey(loaded->context, loaded->key) == 1;
    SSL_CTX_set1_cert_store(loaded->context, store); /* our authority and no other */
    X509_STORE_free(store);
    SSL_CTX_set_verify(loaded->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       trust_verify);
    if (!good) {
        openssl_text(text, sizeof(text));
        return err_set(err, ERR_CONFIG, "the certificate or its key cannot be used: %s", text);
    }
    return 0;
}

static int load(const struct trust *trust, struct loaded *ret_loaded, struct err *err)
{
    struct loaded loaded = {.context = NULL};
    int code = pem_certificate("tls.ca", trust->ca_path, &loaded.ca, err);
    code = code != 0 ? code
                     : pem_certificate("tls.certificate", trust->certificate_path,
                                       &loaded.certificate, err);
    code = code != 0 ? code : pem_key("tls.key", trust->key_path, &loaded.key, err);
    code = code != 0 ? code : check_loaded(trust, &loaded, err);
    code = code != 0 ? code : make_context(&loaded, err);
    if (code != 0) {
        loaded_done(&loaded);
        if (code == ERR_NOT_FOUND) {
            err->code = ERR_CONFIG;
        }
        return err->code;
    }
    *ret_loaded = loaded;
    return 0;
}

/* Under the lock: shuts what lives and is meant; its thread reads the end, and says why. */
static size_t cut_where(struct trust *trust, enum trust_cut why,
                        bool (*meant)(const struct trust *, const struct tls *, int64_t),
                        int64_t now_s)
{
    size_t cut = 0;
    for (struct tls *at = trust->live; at != NULL; at = at->next) {
        if (atomic_load(&at->cut) == CUT_NOT && meant(trust, at, now_s)) {
            atomic_store(&at->cut, (int)why);
            (void)shutdown(at->fd, SHUT_RDWR);
            cut++;
        }
    }
    trust->stats.cut += cut;
    return cut;
}

static bool is_any(const struct trust *trust, const struct tls *tls, int64_t now_s)
{
    (void)trust;
    (void)tls;
    (void)now_s;
    return true;
}

/* A node of the cluster that is no member is a guest, and stays while it was not removed. */
static bool is_out(const struct trust *trust, const struct tls *tls, int64_t now_s)
{
    (void)now_s;
    return tls->peer.kind == TRUST_NODE && !trust_is_member(trust, tls->peer.name) &&
           (tls->peer.member || trust_is_removed(trust, tls->peer.name));
}

static bool has_ended(const struct trust *trust, const struct tls *tls, int64_t now_s)
{
    (void)trust;
    return (tls->peer.kind == TRUST_ADMIN || tls->peer.kind == TRUST_VIEWER) &&
           tls->peer.not_after < now_s;
}

static void use(struct trust *trust, struct loaded *loaded)
{
    SSL_CTX *context = trust->context;
    X509 *ca = trust->ca;
    if (ca != NULL && EVP_PKEY_eq(X509_get0_pubkey(ca), X509_get0_pubkey(loaded->ca)) != 1) {
        (void)cut_where(trust, CUT_AUTHORITY, is_any, 0);
    }
    trust->context = loaded->context;
    trust->ca = loaded->ca;
    trust->self = loaded->self;
    trust->ca_ends = identity_seconds(X509_get0_notAfter(loaded->ca));
    loaded->context = context; /* Living connections hold on to their own. */
    loaded->ca = ca;
}

static char *copy(const char *text)
{
    char *made = text != NULL ? strdup(text) : NULL;
    ASSERT(text == NULL || made != NULL);
    return made;
}

int trust_open(const struct trust_settings *settings, struct trust **ret_trust, struct err *err)
{
    struct loaded loaded;
    struct trust *trust = calloc(1, sizeof(*trust));
    if (trust == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for the certificates");
    }
    trust->ca_path = copy(settings->ca);
    trust->certificate_path = copy(settings->certificate);
    trust->key_path = copy(settings->key);
    trust->cluster = copy(settings->cluster);
    trust->name = copy(settings->name);
    trust->records_max = settings->records_max;
    ASSERT(pthread_mutex_init(&trust->lock, NULL) == 0);
    if (load(trust, &loaded, err) != 0) {
        trust_free(trust);
        return err->code;
    }
    use(trust, &loaded);
    loaded_done(&loaded);
    *ret_trust = trust;
    return 0;
}

int trust_reload(struct trust *trust, struct err *err)
{
    struct loaded loaded;
    if (load(trust, &loaded, err) != 0) {
        return err->code;
    }
    pthread_mutex_lock(&trust->lock);
    use(trust, &loaded);
    trust->stats.reloads++;
    pthread_mutex_unlock(&trust->lock);
    loaded_done(&loaded);
    return 0;
}

int trust_request(struct trust *trust, struct buf *request, struct err *err)
{
    return authority_request_of(trust->key_path, request, err);
}

/* Before anything is written: a certificate that another node sent. */
static int check_new(const struct trust *trust, const struct buf *certificate, int64_t ends,
                     struct err *err)
{
    struct loaded loaded = {.context = NULL};
    int code = certificate->size > PEM_SIZE_MAX ||
                       pem_parse_certificate(certificate->bytes, certificate->size,
                                             &loaded.certificate) != 0
                   ? err_set(err, ERR_CONFIG, "what came is no PEM certificate")
                   : pem_certificate("tls.ca", trust->ca_path, &loaded.ca, err);
    code = code != 0 ? code : pem_key("tls.key", trust->key_path, &loaded.key, err);
    code = code != 0 ? code : check_loaded(trust, &loaded, err);
    if (code == 0 && loaded.self.not_after < ends) {
        code = err_set(err, ERR_CONFIG, "the certificate that came ends before the one in use");
    }
    loaded_done(&loaded);
    return code;
}

int trust_replace(struct trust *trust, const struct buf *certificate, struct err *err)
{
    struct buf before = BUF_NONE;
    struct err ignored = {0};
    struct trust_identity self;
    trust_self(trust, &self);
    int code = check_new(trust, certificate, self.not_after, err);
    code = code != 0 ? code
                     : pem_read_file("tls.certificate", trust->certificate_path,
                                     /* secret= */ false, &before, err);
    code = code != 0 ? code
                     : pem_write_file(trust->certificate_path, /* secret= */ false,
                                      certificate->bytes, certificate->size, err);
    if (code == 0 && trust_reload(trust, err) != 0) {
        code = err->code;
        (void)pem_write_file(trust->certificate_path, /* secret= */ false, before.bytes,
                             before.size, &ignored);
    }
    buf_done(&before);
    return code;
}

void trust_free(struct trust *trust)
{
    if (trust == NULL) {
        return;
    }
    ASSERT(trust->live == NULL);
    SSL_CTX_free(trust->context);
    X509_free(trust->ca);
    free(trust->ca_path);
    free(trust->certificate_path);
    free(trust->key_path);
    free(trust->cluster);
    free(trust->name);
    ASSERT(pthread_mutex_destroy(&trust->lock) == 0);
    free(trust);
}

void trust_self(struct trust *trust, struct trust_identity *ret_self)
{
    pthread_mutex_lock(&trust->lock);
    *ret_self = trust->self;
    pthread_mutex_unlock(&trust->lock);
}

void trust_ends(struct trust *trust, int64_t *ret_certificate, int64_t *ret_authority)
{
    pthread_mutex_lock(&trust->lock);
    *ret_certificate = trust->self.not_after;
    *ret_authority = trust->ca_ends;
    pthread_mutex_unlock(&trust->lock);
}

size_t trust_set_members(struct trust *trust, const char *const *names, size_t count)
{
    ASSERT(count <= TRUST_MEMBERS_MAX);
    pthread_mutex_lock(&trust->lock);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(trust->members[i], TRUST_NAME_SIZE, "%s", names[i]);
    }
    trust->members_count = count;
    trust->members_known = true;
    size_t cut = cut_where(trust, CUT_MEMBER, is_out, 0);
    pthread_mutex_unlock(&trust->lock);
    return cut;
}

void trust_set_removed(struct trust *trust, const char *const *names, size_t count)
{
    pthread_mutex_lock(&trust->lock);
    trust->removed_count = 0;
    for (size_t i = 0; i < count && i < TRUST_MEMBERS_MAX; i++) {
        (void)snprintf(trust->removed[trust->removed_count++], TRUST_NAME_SIZE, "%s", names[i]);
    }
    pthread_mutex_unlock(&trust->lock);
}

size_t trust_cut_ended(struct trust *trust, int64_t now_s)
{
    pthread_mutex_lock(&trust->lock);
    size_t cut = cut_where(trust, CUT_ENDED, has_ended, now_s);
    pthread_mutex_unlock(&trust->lock);
    return cut;
}

void trust_get_stats(struct trust *trust, struct trust_stats *ret_stats)
{
    pthread_mutex_lock(&trust->lock);
    *ret_stats = trust->stats;
    pthread_mutex_unlock(&trust->lock);
}

void trust_count_failure(struct trust *trust, enum trust_failure failure)
{
    pthread_mutex_lock(&trust->lock);
    struct trust_stats *stats = &trust->stats;
    stats->handshakes_failed++;
    stats->failed_plain += failure == FAILURE_PLAIN;
    stats->failed_authority += failure == FAILURE_AUTHORITY;
    stats->failed_expired += failure == FAILURE_EXPIRED;
    stats->failed_name += failure == FAILURE_NAME;
    stats->failed_member += failure == FAILURE_MEMBER;
    stats->failed_other += failure == FAILURE_OTHER;
    pthread_mutex_unlock(&trust->lock);
}

void trust_forget(struct tls *tls)
{
    struct trust *trust = tls->trust;
    pthread_mutex_lock(&trust->lock);
    *tls->link_to_this = tls->next;
    if (tls->next != NULL) {
        tls->next->link_to_this = tls->link_to_this;
    }
    ASSERT(trust->stats.live > 0);
    trust->stats.live--;
    pthread_mutex_unlock(&trust->lock);
}

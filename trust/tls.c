/* A connection's life and handshake. OpenSSL reads and writes two memory BIOs; the bytes between
 * them and the socket are moved here, so that it never blocks and never sees more than
 * TLS_HANDSHAKE_MAX bytes of a stranger. When it is done it is freed: the records are ours
 * (tls_keys.c says why). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "trust/trust_room.h"
#include "trust/openssl.h"

static const unsigned char alpn_peer[] = "\x0b"
                                         "coppelius/1";
static const unsigned char alpn_join[] = "\x10"
                                         "coppelius-join/2";
static const char exporter_label[] = "EXPORTER-coppelius-join-2";

struct tls *tls_of(const SSL *ssl)
{
    struct tls *tls = SSL_get_app_data(ssl);
    ASSERT(tls != NULL);
    return tls;
}

const char *tls_alert_text(unsigned alert)
{
    switch (alert) {
    case 20:
        return "bytes were changed on the way";
    case 42:
    case 43:
    case 46:
        return "this side's certificate is none of a member for it; its log says why";
    case 44:
        return "this node is no member of the cluster, or was removed; `coppeliusctl cluster "
               "join` makes it one";
    case 45:
        return "this side's certificate has expired by its clock; renew it, or compare the clocks";
    case 48:
        return "this side's certificate was signed by another authority than its cluster's; is it "
               "the same cluster?";
    case 49:
        return "this side may not connect";
    case 70:
        return "it does not speak TLS 1.3";
    case 116:
        return "it wants a certificate, and this side showed none";
    case 120:
        return "it does not speak this protocol (a join where no authority is, or another program)";
    default:
        return "the handshake failed there; its log says why";
    }
}

int tls_break(struct tls *tls, const struct err *err)
{
    if (tls->state != TLS_BROKEN) {
        tls->state = TLS_BROKEN;
        tls->broken = *err;
        switch ((enum trust_cut)atomic_load(&tls->cut)) {
        case CUT_MEMBER:
            (void)err_set(&tls->broken, ERR_AUTH, "node '%s' is no member of the cluster any more",
                          tls->peer.name);
            break;
        case CUT_AUTHORITY:
            (void)err_set(&tls->broken, ERR_AUTH,
                          "this side has another authority since this connection was made");
            break;
        case CUT_ENDED:
            (void)err_set(&tls->broken, ERR_AUTH,
                          "the certificate of the %s '%s' has ended since this connection was made",
                          trust_kind_name(tls->peer.kind), tls->peer.name);
            break;
        case CUT_NOT:
            break;
        }
    }
    return -1;
}

/* ---------------------------------------------------------------- the handshake */

/* What came from the socket and the dialer's ClientHello is no TLS, or an older one: told apart for
 * the sentence. */
static int describe(struct tls *tls, struct err *err)
{
    char text[160];
    int reason = ERR_GET_REASON(ERR_peek_error());
    if (tls->why.code != 0) { /* The verification's own sentence. */
        *err = tls->why;
    } else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
               reason == SSL_R_HTTPS_PROXY_REQUEST || reason == SSL_R_RECORD_LENGTH_MISMATCH ||
               reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_BAD_PACKET_LENGTH) {
        tls->failure = FAILURE_PLAIN;
        (void)err_set(err, ERR_PROTO,
                      "it does not speak TLS (a daemon with tls: off, an older coppeliusctl, or "
                      "another program); use the same `tls` on both sides");
    } else if (reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_VERSION_TOO_LOW ||
               reason == SSL_R_UNKNOWN_PROTOCOL || reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION) {
        tls->failure = FAILURE_PLAIN;
        (void)err_set(err, ERR_PROTO, "it offers no TLS 1.3, which alone is spoken here");
    } else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        tls->failure = FAILURE_AUTHORITY;
        (void)err_set(err, ERR_AUTH, "it shows no certificate");
    } else if (reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256) {
        (void)err_set(err, ERR_AUTH, "it refuses this connection: %s",
                      tls_alert_text((unsigned)(reason - SSL_AD_REASON_OFFSET)));
    } else {
        openssl_text(text, sizeof(text));
        (void)err_set(err, ERR_AUTH, "the TLS handshake failed: %s", text);
    }
    ERR_clear_error();
    return err->code;
}

/* What OpenSSL wants to say goes behind what waits already. */
static int move_out(struct tls *tls, struct err *err)
{
    char *bytes = NULL;
    long size = BIO_get_mem_data(tls->to_peer, &bytes);
    if (size > 0) {
        ASSERT((size_t)size <= TLS_BUFFER_SIZE - tls->out_end);
        memcpy(tls->out + tls->out_end, bytes, (size_t)size);
        tls->out_end += (size_t)size;
        (void)BIO_reset(tls->to_peer);
    }
    return tls_flush(tls, err);
}

/* 1: fed; 0: nothing is there now; -1. */
static int move_in(struct tls *tls, unsigned *reads_left, struct err *err)
{
    uint8_t bytes[4096];
    if (*reads_left == 0) {
        return 0;
    }
    for (;;) {
        ssize_t got = recv(tls->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got > 0) {
            (*reads_left)--;
            tls->shaken += (size_t)got;
            if (tls->shaken > TLS_HANDSHAKE_MAX) {
                (void)err_set(err, ERR_PROTO, "its handshake has more than %u bytes",
                              TLS_HANDSHAKE_MAX);
                return -1;
            }
            ASSERT(BIO_write(tls->from_peer, bytes, (int)got) == (int)got);
            return 1;
        }
        if (got == 0) {
            (void)err_set(err, ERR_PEER, "closed the connection in the TLS handshake%s",
                          tls->shaken == 0 ? " without a word; does a daemon with TLS answer there?"
                                           : "");
            return -1;
        }
        if (errno == EAGAIN) {
            return 0;
        }
        if (errno != EINTR) {
            (void)err_set(err, ERR_PEER, "the connection broke: %s", err_errno(errno));
            return -1;
        }
    }
}

static void end_openssl(struct tls *tls)
{
    SSL_free(tls->ssl); /* and both BIOs */
    SSL_CTX_free(tls->own_context);
    tls->ssl = NULL;
    tls->own_context = NULL;
    tls->from_peer = NULL;
    tls->to_peer = NULL;
}

static int finish(struct tls *tls, struct err *err)
{
    const unsigned char *alpn = NULL;
    unsigned alpn_size = 0;
    const SSL_CIPHER *suite = SSL_get_current_cipher(tls->ssl);
    uint32_t id = suite != NULL ? (uint32_t)SSL_CIPHER_get_id(suite) & 0xffffU : 0;
    const unsigned char *wanted = tls->protocol == TLS_JOIN ? alpn_join : alpn_peer;
    SSL_get0_alpn_selected(tls->ssl, &alpn, &alpn_size);
    if (SSL_version(tls->ssl) != TLS1_3_VERSION || (id != 0x1301 && id != 0x1302)) {
        return err_set(err, ERR_PROTO, "it chose %s with %s; TLS 1.3 with AES-GCM is spoken here",
                       SSL_get_version(tls->ssl), SSL_get_cipher_name(tls->ssl));
    }
    if (alpn == NULL || alpn_size != wanted[0] || memcmp(alpn, wanted + 1, alpn_size) != 0) {
        return err_set(err, ERR_PROTO, "it speaks TLS, but is no coppeliusd of this version");
    }
    if ((tls->protocol == TLS_PEER || !tls->server) &&
        (tls->peer.kind == TRUST_NOBODY || SSL_get0_peer_certificate(tls->ssl) == NULL)) {
        return err_set(err, ERR_AUTH, "it shows no certificate");
    }
    tls->sha384 = id == 0x1302;
    tls->key_size = id == 0x1302 ? 32 : 16;
    if (tls_keys_install(tls, err) != 0) {
        return err->code;
    }
    if (tls->protocol == TLS_JOIN &&
        SSL_export_keying_material(tls->ssl, tls->exporter, sizeof(tls->exporter), exporter_label,
                                   sizeof(exporter_label) - 1, NULL, 0, 0) != 1) {
        return err_set(err, ERR_INTERNAL, "the handshake exports no keys");
    }
    char *rest = NULL;
    long rest_size = BIO_get_mem_data(tls->from_peer, &rest);
    ASSERT(rest_size >= 0 && rest_size <= (long)TLS_HANDSHAKE_MAX);
    memcpy(tls->in, rest, (size_t)rest_size); /* records that came behind the handshake */
    tls->in_end = (size_t)rest_size;
    return 0;
}

int tls_shake(struct tls *tls, unsigned *reads_left, struct err *err)
{
    unsigned own_reads = 4; /* A write must make progress too, and the flood is bounded. */
    unsigned *reads = *reads_left > 0 ? reads_left : &own_reads;
    for (;;) {
        ERR_clear_error();
        int done = SSL_do_handshake(tls->ssl);
        int want = SSL_get_error(tls->ssl, done);
        bool failed = done != 1 && want != SSL_ERROR_WANT_READ;
        struct err why = {0};
        if (failed) {
            (void)describe(tls, &why);
        }
        int flushed = move_out(tls, failed ? &(struct err){0} : &why); /* the alert goes too */
        int got = 1;
        if (!failed && flushed == 0 && done == 1) {
            if (finish(tls, &why) == 0) {
                tls->state = TLS_OPEN;
                end_openssl(tls);
                if (tls->trust != NULL) {
                    pthread_mutex_lock(&tls->trust->lock);
                    tls->trust->stats.handshakes++;
                    pthread_mutex_unlock(&tls->trust->lock);
                }
                return 0;
            }
        } else if (!failed && flushed == 0) {
            got = move_in(tls, reads, &why);
        }
        if (why.code != 0) {
            bool silent = tls->server && tls->shaken == 0; /* a look at the port, no handshake */
            if (tls->trust != NULL && !silent) {
                trust_count_failure(tls->trust, tls->failure);
            }
            (void)tls_break(tls, &why);
            *err = tls->broken;
            return -1;
        }
        if (got == 0) {
            return 0;
        }
    }
}

/* ---------------------------------------------------------------- life */

static int on_alpn(SSL *ssl, const unsigned char **ret_name, unsigned char *ret_size,
                   const unsigned char *offered, unsigned offered_size, void *context)
{
    struct tls *tls = tls_of(ssl);
    (void)context;
    for (unsigned at = 0; at < offered_size && at + 1 + offered[at] <= offered_size;
         at += 1U + offered[at]) {
        for (int join = 0; join < 2; join++) {
            const unsigned char *known = join ? alpn_join : alpn_peer;
            if (offered[at] != known[0] || memcmp(offered + at + 1, known + 1, known[0]) != 0 ||
                (join && !tls->joins)) {
                continue;
            }
            /* A joiner has no certificate yet; it may do nothing but show its token. Set each time:
             * a second ClientHello (behind a HelloRetryRequest) may offer something else. */
            SSL_set_verify(
                ssl, join ? SSL_VERIFY_NONE : SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                join ? NULL : trust_verify);
            tls->protocol = join ? TLS_JOIN : TLS_PEER;
            *ret_name = known + 1;
            *ret_size = known[0];
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

SSL_CTX *trust_context_new(void)
{
    static char groups[] = "X25519:P-256"; /* OpenSSL's macros take no const. */
    static char signatures[] = "ECDSA+SHA256:ed25519";
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    if (context == NULL) {
        return NULL;
    }
    ASSERT(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1);
    ASSERT(SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1);
    ASSERT(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384") == 1);
    ASSERT(SSL_CTX_set1_groups_list(context, groups) == 1);
    ASSERT(SSL_CTX_set1_sigalgs_list(context, signatures) == 1);
    /* Tickets would let a removed node back in, and unread ones at a close lose data (RST). */
    ASSERT(SSL_CTX_set_num_tickets(context, 0) == 1);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                           SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    (void)SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    (void)SSL_CTX_set_max_cert_list(context, 16384);
    SSL_CTX_set_verify_depth(context, 2);
    SSL_CTX_set_alpn_select_cb(context, on_alpn, NULL);
    SSL_CTX_set_keylog_callback(context, tls_keys_on_line);
    return context;
}

static struct tls *tls_new(struct trust *trust, SSL_CTX *context, int fd, bool server)
{
    struct tls *tls = calloc(1, sizeof(*tls));
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem());
    BIO *out = BIO_new(BIO_s_mem());
    uint8_t *in_bytes = malloc(TLS_BUFFER_SIZE + RECORD_SIZE_MAX);
    uint8_t *out_bytes = malloc(TLS_BUFFER_SIZE);
    if (tls == NULL || ssl == NULL || in == NULL || out == NULL || in_bytes == NULL ||
        out_bytes == NULL) {
        free(tls);
        SSL_free(ssl);
        (void)BIO_free(in);
        (void)BIO_free(out);
        free(in_bytes);
        free(out_bytes);
        return NULL;
    }
    tls->trust = trust;
    tls->fd = fd;
    tls->server = server;
    tls->ssl = ssl;
    tls->from_peer = in;
    tls->to_peer = out;
    tls->in = in_bytes;
    tls->out = out_bytes;
    tls->records_max = RECORD_KEY_USES;
    SSL_set_bio(ssl, in, out);
    SSL_set_app_data(ssl, tls);
    if (server) {
        SSL_set_accept_state(ssl);
    } else {
        SSL_set_connect_state(ssl);
    }
    return tls;
}

static int open_by(struct trust *trust, int fd, bool server, struct tls **ret_tls, struct err *err)
{
    pthread_mutex_lock(&trust->lock);
    struct tls *tls = tls_new(trust, trust->context, fd, server);
    if (tls != NULL) {
        tls->records_max = trust->records_max != 0 ? trust->records_max : RECORD_KEY_USES;
        tls->next = trust->live;
        tls->link_to_this = &trust->live;
        if (tls->next != NULL) {
            tls->next->link_to_this = &tls->next;
        }
        trust->live = tls;
        trust->stats.live++;
        if (server) { /* A joiner knows the authority by its digest only. */
            ASSERT(SSL_add1_chain_cert(tls->ssl, trust->ca) == 1);
        }
    }
    pthread_mutex_unlock(&trust->lock);
    *ret_tls = tls;
    return tls != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for a TLS connection");
}

int tls_accept(struct trust *trust, int fd, bool joins, struct tls **ret_tls, struct err *err)
{
    int code = open_by(trust, fd, /* server= */ true, ret_tls, err);
    if (code == 0) {
        (*ret_tls)->joins = joins;
    }
    return code;
}

int tls_dial(struct trust *trust, int fd, const char *node, struct tls **ret_tls, struct err *err)
{
    struct tls *tls = NULL;
    if (open_by(trust, fd, /* server= */ false, &tls, err) != 0) {
        return err->code;
    }
    (void)snprintf(tls->expected, sizeof(tls->expected), "%s", node != NULL ? node : "");
    ASSERT(SSL_set_alpn_protos(tls->ssl, alpn_peer, sizeof(alpn_peer) - 1) == 0);
    *ret_tls = tls;
    return 0;
}

int tls_dial_pinned(int fd, const uint8_t pin[32], struct tls **ret_tls, struct err *err)
{
    SSL_CTX *context = trust_context_new();
    struct tls *tls = context != NULL ? tls_new(NULL, context, fd, /* server= */ false) : NULL;
    if (tls == NULL) {
        SSL_CTX_free(context);
        return err_set(err, ERR_NOMEM, "no memory for a TLS connection");
    }
    tls->own_context = context;
    tls->protocol = TLS_JOIN;
    memcpy(tls->pin, pin, sizeof(tls->pin));
    SSL_CTX_set_cert_verify_callback(context, trust_verify_pinned, NULL);
    SSL_set_verify(tls->ssl, SSL_VERIFY_PEER, NULL);
    ASSERT(SSL_set_alpn_protos(tls->ssl, alpn_join, sizeof(alpn_join) - 1) == 0);
    *ret_tls = tls;
    return 0;
}

void tls_free(struct tls *tls)
{
    if (tls == NULL) {
        return;
    }
    if (tls->state == TLS_OPEN && tls->out_end == 0) {
        tls_shut(tls); /* Says goodbye and FIN; the caller closes. */
    }
    if (tls->trust != NULL) {
        trust_forget(tls); /* From here on nobody else touches fd. */
    }
    if (tls->state == TLS_SHAKING && tls->trust != NULL && tls->shaken > 0) {
        trust_count_failure(tls->trust, FAILURE_OTHER); /* too slow */
    }
    end_openssl(tls);
    tls_keys_done(&tls->reads);
    tls_keys_done(&tls->writes);
    OPENSSL_cleanse(tls->exporter, sizeof(tls->exporter));
    tls_buffers_done(tls);
    free(tls);
}

bool tls_is_open(const struct tls *tls)
{
    return tls->state == TLS_OPEN;
}

bool tls_wants_write(const struct tls *tls)
{
    return tls->out_first < tls->out_end && tls->state != TLS_BROKEN;
}

enum tls_protocol tls_spoken(const struct tls *tls)
{
    return tls->protocol;
}

const struct trust_identity *tls_peer(const struct tls *tls)
{
    ASSERT(tls->state != TLS_SHAKING);
    return &tls->peer;
}

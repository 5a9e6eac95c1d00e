/* What trust.c (files, members, life), trust_verify.c (whether a certificate is let in), tls.c (a
 * connection's life and handshake), tls_io.c (reading and writing), tls_record.c (one record) and
 * tls_keys.c (its keys) share. Private to the room and its tests. */
#ifndef COPPELIUS_TRUST_TRUST_ROOM_H
#define COPPELIUS_TRUST_TRUST_ROOM_H

#include <pthread.h>
#include <stdatomic.h>

#include "trust/identity.h"
#include "trust/trust.h"
#include "trust/openssl.h"

/* RFC 8446 5.1, 5.2: the header, the most bytes of contents, what a sealed record has more.
 * A buffer of 6 records: what was sealed is still near when the kernel copies it, and what came
 * when it is opened; of 3, 4, 5, 6, 8, 9 and 17 it took the least processor time. */
#define RECORD_HEADER_SIZE   5
#define RECORD_CONTENT_MAX   16384
#define RECORD_TAG_SIZE      16
#define RECORD_OVERHEAD      (RECORD_HEADER_SIZE + 1 + RECORD_TAG_SIZE)
#define RECORD_SIZE_MAX      (RECORD_HEADER_SIZE + RECORD_CONTENT_MAX + 256)
#define RECORD_KEY_USES      (UINT64_C(1) << 23) /* AES-GCM's bound is 2^24.5 (RFC 8446 5.5) */
#define TLS_SECRET_SIZE_MAX  48
#define TLS_BUFFER_SIZE      (6 * (RECORD_CONTENT_MAX + RECORD_OVERHEAD))
#define TLS_EXPORTER_SIZE    32
#define TLS_UPDATES_IN_A_ROW 16 /* key updates with no data between them */

enum record_type { RECORD_ALERT = 21, RECORD_HANDSHAKE = 22, RECORD_DATA = 23 };
enum tls_alert { ALERT_CLOSE_NOTIFY = 0, ALERT_UNEXPECTED = 10, ALERT_BAD_MAC = 20 };

enum trust_failure {
    FAILURE_OTHER,
    FAILURE_PLAIN,
    FAILURE_AUTHORITY,
    FAILURE_EXPIRED,
    FAILURE_NAME,
    FAILURE_MEMBER,
};

enum trust_cut { CUT_NOT, CUT_MEMBER, CUT_AUTHORITY, CUT_ENDED };

struct trust {
    char *ca_path, *certificate_path, *key_path;
    char *cluster, *name; /* NULL: any */
    uint64_t records_max;
    pthread_mutex_t lock; /* of all below */
    SSL_CTX *context;
    X509 *ca;
    struct trust_identity self;
    int64_t ca_ends;
    bool members_known;
    char members[TRUST_MEMBERS_MAX][TRUST_NAME_SIZE];
    size_t members_count;
    char removed[TRUST_MEMBERS_MAX][TRUST_NAME_SIZE];
    size_t removed_count;
    struct tls *live;
    struct trust_stats stats;
};

enum tls_state { TLS_SHAKING, TLS_OPEN, TLS_BROKEN };

struct tls_direction {
    EVP_CIPHER_CTX *cipher; /* NULL: no keys yet */
    uint8_t secret[TLS_SECRET_SIZE_MAX];
    size_t secret_size;
    uint8_t iv[12];
    uint64_t sequence; /* records of this key */
};

struct tls {
    struct trust *trust; /* NULL: pinned */
    struct tls *next;    /* in trust->live, under its lock, as link_to_this */
    struct tls **link_to_this;
    int fd;
    bool server;
    bool joins;
    enum tls_protocol protocol;
    char expected[TRUST_NAME_SIZE]; /* the node that is dialled; "": any */
    uint8_t pin[32];
    struct trust_identity peer; /* written under trust's lock while shaking */
    atomic_int cut;             /* enum trust_cut: by whoever took it away, under the lock */
    enum tls_state state;
    struct err broken;

    SSL *ssl; /* while shaking */
    SSL_CTX *own_context;
    BIO *from_peer, *to_peer;
    size_t shaken;
    enum trust_failure failure;
    struct err why; /* what the verification found */

    uint8_t exporter[TLS_EXPORTER_SIZE]; /* of a join: names this connection, for proof.h */
    bool sha384;                         /* the suite's hash */
    int key_size;
    struct tls_direction reads, writes;
    uint64_t records_max;
    uint8_t *in; /* TLS_BUFFER_SIZE + RECORD_SIZE_MAX; both from the first use on */
    size_t in_first, in_end;
    uint8_t *plain; /* opened in place, not yet taken */
    size_t plain_size;
    uint8_t *out;
    size_t out_first, out_end;
    unsigned updates;  /* key updates since the last data */
    bool update_owed;  /* the other side asks for our next key */
    bool goodbye_came; /* close_notify */
    bool shut_wanted;  /* after what is in `out` */
    bool shut_done;
};

/* trust_verify.c */
int trust_verify(int good, X509_STORE_CTX *store);
int trust_verify_pinned(X509_STORE_CTX *store, void *context);
/* Under the lock. */
bool trust_is_member(const struct trust *trust, const char *name);
bool trust_is_removed(const struct trust *trust, const char *name);
bool trust_is_authority_of(X509 *ca, X509 *certificate);
bool trust_has_pin(X509 *certificate, const uint8_t pin[32]);

/* trust.c */
SSL_CTX *trust_context_new(void); /* TLS 1.3 and what else is the same for all; NULL: no memory */
void trust_count_failure(struct trust *trust, enum trust_failure failure);
void trust_forget(struct tls *tls);

/* tls.c */
struct tls *tls_of(const SSL *ssl);
int tls_shake(struct tls *tls, unsigned *reads_left, struct err *err);
/* Ends it with the error that is in err; returns -1. */
int tls_break(struct tls *tls, const struct err *err);
const char *tls_alert_text(unsigned alert);

/* tls_keys.c */
void tls_keys_on_line(const SSL *ssl, const char *line); /* OpenSSL's key log */
/* Ciphers from the secrets; ERR_INTERNAL where there are none. */
int tls_keys_install(struct tls *tls, struct err *err);
int tls_keys_update(struct tls *tls, struct tls_direction *direction, struct err *err);
void tls_keys_done(struct tls_direction *direction);

/* tls_record.c */
/* Seals size (at most RECORD_CONTENT_MAX) bytes of the parts, from *offset on in the first one,
 * behind out_end; moves parts and offset on. */
int record_seal(struct tls *tls, enum record_type type, const struct iovec **parts, size_t *offset,
                size_t size, struct err *err);
int record_seal_bytes(struct tls *tls, enum record_type type, const void *bytes, size_t size,
                      struct err *err);
/* Whether the record at in_first is whole; its size. ERR_PROTO: it cannot be one. */
int record_whole(const struct tls *tls, size_t *ret_size, bool *ret_whole, struct err *err);
/* Opens it to `to`, where size - RECORD_OVERHEAD bytes of contents fit (not in `in`), or in place
 * (to NULL, contents in tls->plain). in_first moves behind it. */
int record_open(struct tls *tls, size_t size, uint8_t *to, enum record_type *ret_type,
                size_t *ret_size, struct err *err);

/* tls_io.c */
/* 0: all that was sealed is the socket's, or it has no room now; -1: broken, in err. */
int tls_flush(struct tls *tls, struct err *err);
void tls_buffers_done(struct tls *tls);

#endif

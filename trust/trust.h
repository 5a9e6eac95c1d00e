/* trust: who may speak with this node, and TLS 1.3 over a socket. The room's map:
 *
 *   trust      this node's certificate, its key, the cluster's authority and its members; read from
 *              files, read again at a reload; every connection that lives by it
 *   identity   what a certificate says: the cluster, a node's or a person's name
 *   tls        one connection: the handshake by OpenSSL over memory BIOs, the records by AES-GCM
 *   authority  (authority.h) the cluster's own authority: keys, certificates, tokens for joining
 *
 * A certificate of this house has one URI among its alternative names:
 *
 *   coppelius://CLUSTER/node/NAME     a daemon: serves and dials
 *   coppelius://CLUSTER/admin/NAME    a person or script with a remote coppeliusctl: may change
 *   coppelius://CLUSTER/viewer/NAME   may look
 *
 * Stands on base. Threads: a struct trust is for any thread; a struct tls belongs to one at a time.
 */
#ifndef COPPELIUS_TRUST_TRUST_H
#define COPPELIUS_TRUST_TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"

#define TRUST_NAME_SIZE   64 /* cluster, node and user names with the terminating zero */
#define TRUST_MEMBERS_MAX 128

enum trust_kind { TRUST_NOBODY, TRUST_NODE, TRUST_ADMIN, TRUST_VIEWER };

struct trust_identity {
    enum trust_kind kind;
    char cluster[TRUST_NAME_SIZE];
    char name[TRUST_NAME_SIZE];
    int64_t not_before, not_after; /* seconds since 1970 */
    bool member; /* of a peer that is a node: it was one when it connected; else it may only ask in
                  */
};

const char *trust_kind_name(enum trust_kind kind); /* "node", "admin", "viewer", "nobody" */

/* ------------------------------------------------------------------- trust */

struct trust;

struct trust_settings {      /* copied */
    const char *ca;          /* files, PEM: the authority's certificate, */
    const char *certificate; /* this side's, */
    const char *key;         /* and its key, which nobody but owner and group may read */
    /* What the certificate must say; NULL: anything. */
    const char *cluster;
    const char *name;
    /* Tests: records of one key before the next one; 0: 2^23, far below AES-GCM's bound. */
    uint64_t records_max;
};

struct trust_stats {
    uint64_t handshakes;        /* done */
    uint64_t handshakes_failed; /* of them: */
    uint64_t failed_plain;      /* no TLS, or an older one */
    uint64_t failed_authority;  /* signed by another authority */
    uint64_t failed_expired;    /* expired, or not yet valid */
    uint64_t failed_name;       /* another cluster, another name, not a node */
    uint64_t failed_member;     /* no member (any more) */
    uint64_t failed_other;
    uint64_t cut; /* connections: of members that were removed, of people whose certificate ended,
                     of another authority's before a reload */
    uint64_t reloads;
    size_t live; /* connections */
};

/* Reads the files. ERR_CONFIG names the file and what to do: absent, readable by others, a key that
 * is not the certificate's, another authority's, expired, another cluster's or node's. */
int trust_open(const struct trust_settings *settings, struct trust **ret_trust, struct err *err);
/* Reads them again: new connections use them, those that live go on; but with another authority
 * every connection that was made under the one before is cut. Where they are refused, all stays as
 * it was. */
int trust_reload(struct trust *trust, struct err *err);
/* For a renewal: a request for a certificate of the key that is in use (DER); and the certificate
 * (PEM) that came, put in the file's place and in use from now on. Where it does not fit, all stays
 * as it was. Both block on the disk. */
struct buf;
int trust_request(struct trust *trust, struct buf *request, struct err *err);
int trust_replace(struct trust *trust, const struct buf *certificate, struct err *err);
/* Every connection must be gone. NULL is fine. */
void trust_free(struct trust *trust);
/* Of this side's certificate, as of the last (re)load. */
void trust_self(struct trust *trust, struct trust_identity *ret_self);
/* When the certificate and the authority's end, seconds since 1970. */
void trust_ends(struct trust *trust, int64_t *ret_certificate, int64_t *ret_authority);
/* The nodes that are members and dialled from now on; before the first call: every node of the
 * cluster. Connections with a member that is not among them any more are cut at once, on whatever
 * thread they are. Returns how many. A node of the cluster that is no member gets through the
 * handshake (it may ask to become one), but for those that were removed. */
size_t trust_set_members(struct trust *trust, const char *const *names, size_t count);
void trust_set_removed(struct trust *trust, const char *const *names, size_t count);
/* Cuts the connections of people whose certificate ended before that second; nodes are members as
 * long as the list says so, and renew theirs. Returns how many; call it now and then. */
size_t trust_cut_ended(struct trust *trust, int64_t now_s);
void trust_get_stats(struct trust *trust, struct trust_stats *ret_stats);

/* --------------------------------------------------------------------- tls
 *
 *   SHAKING -> OPEN      both sides have shown a certificate of the authority   [tls_read,
 * tls_write] SHAKING -> BROKEN    refused, no TLS, too long                              [break_]
 *   OPEN -> BROKEN       the end, a record that fails its check, cut            [break_]
 *
 * No byte is given to a reader before OPEN. The socket is the caller's, non-blocking. */

struct tls;

/* What is spoken inside, agreed on in the handshake (ALPN). */
enum tls_protocol {
    TLS_PEER, /* "coppelius/1": frames; both sides show a certificate */
    TLS_JOIN, /* "coppelius-join/2": the dialer proves inside that it has a token (join.h) */
};

#define TLS_HANDSHAKE_MAX (32U << 10) /* bytes from the other side before it is known */

/* Serves: TLS_JOIN is let in where `joins`. trust must outlive it. */
int tls_accept(struct trust *trust, int fd, bool joins, struct tls **ret_tls, struct err *err);
/* Dials a node of the cluster; node NULL: whichever answers there. */
int tls_dial(struct trust *trust, int fd, const char *node, struct tls **ret_tls, struct err *err);
/* Dials without a certificate of its own: whoever answers must show the authority whose key's
 * digest (SHA-256 of the SPKI) is the pin, and a certificate of it for a node. */
int tls_dial_pinned(int fd, const uint8_t pin[32], struct tls **ret_tls, struct err *err);
/* Says goodbye where it can; does not close fd, but must come before that. NULL is fine. */
void tls_free(struct tls *tls);

/* As peer/transport.h: bytes read or taken, 0 for none now, -1 with err. *reads_left counts the
 * system calls down that may still be made; when it is 0 or the answer is less than asked for,
 * nothing that poll() would not tell of is left inside. */
ssize_t tls_read(struct tls *tls, const struct iovec *parts, int parts_count, unsigned *reads_left,
                 struct err *err);
ssize_t tls_write(struct tls *tls, const struct iovec *parts, int parts_count, struct err *err);
bool tls_is_open(const struct tls *tls);
bool tls_wants_write(const struct tls *tls); /* bytes of its own wait for the socket */
void tls_shut(struct tls *tls);              /* no more will be written: goodbye, then FIN */
/* Once open. */
enum tls_protocol tls_spoken(const struct tls *tls);
const struct trust_identity *tls_peer(const struct tls *tls); /* kind TRUST_NOBODY: a joiner */

#endif

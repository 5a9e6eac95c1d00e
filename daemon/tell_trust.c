/* What the facts say of TLS. */
#include <stdio.h>
#include <time.h>

#include "daemon/core.h"

void tell_trust(const struct daemon *daemon, struct facts_cluster *ret)
{
    struct trust_stats stats;
    struct mesh_stats strangers = {0};
    if (daemon->mesh != NULL) { /* Else a stop has closed it, and waits for other works. */
        mesh_stats(daemon->mesh, &strangers);
    }
    ret->peer_turned_away = strangers.turned_away;
    ret->peer_refused = strangers.refused;
    ret->peer_late = strangers.cut;
    ret->tls = daemon->trust != NULL;
    ret->insecure = daemon->trust == NULL && daemon->insecure;
    if (daemon->trust == NULL) {
        return;
    }
    trust_get_stats(daemon->trust, &stats);
    trust_ends(daemon->trust, &ret->tls_ends[0], &ret->tls_ends[1]);
    ret->tls_handshakes = stats.handshakes;
    ret->tls_failures[FACTS_TLS_PLAIN] = stats.failed_plain;
    ret->tls_failures[FACTS_TLS_AUTHORITY] = stats.failed_authority;
    ret->tls_failures[FACTS_TLS_EXPIRED] = stats.failed_expired;
    ret->tls_failures[FACTS_TLS_NAME] = stats.failed_name;
    ret->tls_failures[FACTS_TLS_MEMBER] = stats.failed_member;
    ret->tls_failures[FACTS_TLS_OTHER] = stats.failed_other;
    ret->tls_cut = stats.cut;
}

void tell_trust_check(const struct daemon *daemon, struct facts_check *ret)
{
    int64_t ends = 0;
    int64_t authority_ends = 0;
    *ret = (struct facts_check){.ok = true};
    (void)snprintf(ret->name, sizeof(ret->name), "tls");
    if (daemon->trust == NULL) {
        ret->warns = daemon->insecure;
        (void)snprintf(
            ret->sentence, sizeof(ret->sentence), "off: %s",
            daemon->insecure
                ? "insecure: yes; whoever reaches this node may join and command it"
                : "every address is loopback; whoever is on this machine may command it");
        (void)snprintf(ret->hint, sizeof(ret->hint),
                       "'coppeliusctl cluster init' and 'cluster join' make certificates");
        return;
    }
    trust_ends(daemon->trust, &ends, &authority_ends);
    double days = (double)(ends - (int64_t)time(NULL)) / 86400;
    ret->ok = days > 0;
    (void)snprintf(ret->sentence, sizeof(ret->sentence),
                   days > 0 ? "mutual TLS 1.3; this node's certificate ends in %.1f days"
                            : "this node's certificate ended %.1f days ago",
                   days > 0 ? days : -days);
    (void)snprintf(ret->hint, sizeof(ret->hint), "%s",
                   days > 0 ? ""
                            : "join again with a token, put a new bundle in its place and send "
                              "SIGHUP, or set the clock");
}

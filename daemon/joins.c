#include "daemon/joins.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"

/*  TALKING -> ASKING      the thread has read the wish          [on_admit]
 *  ASKING  -> ANSWERED    the loop knows                        [answer]
 *  ANSWERED -> TALKING    the thread takes it                   [on_admit]
 *  any -> ENDED           the thread returns                    [serve_main] */
enum joining_state { JOINING_TALKING, JOINING_ASKING, JOINING_ANSWERED, JOINING_ENDED };

struct joining {
    struct joining *next;
    struct joins *joins;
    struct peer_incoming incoming;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    enum joining_state state;
    bool stopping;
    struct join_wish wish;
    struct buf members;
    struct err answer;
};

struct joins {
    char authority[4096];
    char cluster[TRUST_NAME_SIZE];
    joins_admit_fn *admit;
    void *context;
    struct joining *list;
    unsigned count;
    uv_async_t wake; /* a thread asks or has ended */
    void (*on_closed)(void *context);
    void *closed_context;
};

/* ---------------------------------------------------------------- the thread */

static int on_admit(void *context, const struct join_wish *wish, struct buf *members,
                    struct err *err)
{
    struct joining *joining = context;
    struct timespec until = clock_deadline(clock_now_ms(), JOINS_DEADLINE_MS);
    pthread_mutex_lock(&joining->lock);
    joining->wish = *wish;
    joining->state = JOINING_ASKING;
    ASSERT(uv_async_send(&joining->joins->wake) == 0);
    int late = 0;
    while (joining->state == JOINING_ASKING && !joining->stopping && late == 0) {
        late = pthread_cond_timedwait(&joining->changed, &joining->lock, &until);
    }
    if (joining->state == JOINING_ANSWERED) {
        *err = joining->answer;
        buf_put(members, joining->members.bytes, joining->members.size);
    } else {
        (void)err_set(err, joining->stopping ? ERR_BUSY : ERR_TIMEOUT,
                      joining->stopping ? "this daemon is stopping"
                                        : "the cluster did not take the node in time; has it a "
                                          "leader? `coppeliusctl cluster status` tells");
    }
    joining->state = JOINING_TALKING;
    pthread_mutex_unlock(&joining->lock);
    return err->code;
}

static void *serve_main(void *context)
{
    struct joining *joining = context;
    struct join_host host = {joining->joins->authority, joining->joins->cluster, joining, on_admit};
    struct join_wish wish;
    struct err err = {0};
    int code = join_serve(joining->incoming.transport.state, joining->incoming.transport.fd, &host,
                          clock_now_ms() + JOINS_DEADLINE_MS, &wish, &err);
    if (code == 0) {
        log_notice("join.done", "node=%s address=%s role=%s from=%s", wish.name, wish.address,
                   wish.role, joining->incoming.address);
    } else {
        log_warning("join.refused", "node=%s from=%s reason=\"%s\"",
                    wish.name[0] != '\0' ? wish.name : "?", joining->incoming.address, err.text);
    }
    pthread_mutex_lock(&joining->lock);
    transport_close(&joining->incoming.transport); /* joins_close() may shut it meanwhile. */
    joining->state = JOINING_ENDED;
    pthread_mutex_unlock(&joining->lock);
    ASSERT(uv_async_send(&joining->joins->wake) == 0);
    return NULL;
}

/* ---------------------------------------------------------------- the loop */

static void free_joining(struct joining *joining)
{
    ASSERT(pthread_join(joining->thread, NULL) == 0);
    buf_done(&joining->members);
    ASSERT(pthread_mutex_destroy(&joining->lock) == 0);
    ASSERT(pthread_cond_destroy(&joining->changed) == 0);
    free(joining);
}

/* Under its lock. */
static void answer(struct joins *joins, struct joining *joining)
{
    struct err err = {0};
    buf_clear(&joining->members);
    int code = joins->admit(joins->context, &joining->wish, &joining->members, &err);
    if (code != 0) {
        joining->answer = err; /* code 0 where it is in */
        joining->state = JOINING_ANSWERED;
        ASSERT(pthread_cond_signal(&joining->changed) == 0);
    }
}

void joins_turn(struct joins *joins)
{
    for (struct joining **at = &joins->list; *at != NULL;) {
        struct joining *joining = *at;
        pthread_mutex_lock(&joining->lock);
        if (joining->state == JOINING_ASKING) {
            answer(joins, joining);
        }
        bool ended = joining->state == JOINING_ENDED;
        pthread_mutex_unlock(&joining->lock);
        if (!ended) {
            at = &joining->next;
            continue;
        }
        *at = joining->next;
        joins->count--;
        free_joining(joining);
    }
}

static void on_wake(uv_async_t *wake)
{
    joins_turn(OWNER_OF(wake, struct joins, wake));
}

int joins_open(uv_loop_t *loop, const char *authority, const char *cluster, joins_admit_fn *admit,
               void *context, struct joins **ret_joins, struct err *err)
{
    char there[TRUST_NAME_SIZE];
    if (authority_cluster(authority, there, err) != 0) {
        (void)err_prefix(err, "tls.authority: ");
        return err->code = ERR_CONFIG;
    }
    if (strcmp(there, cluster) != 0) {
        return err_set(
            err, ERR_CONFIG,
            "tls.authority: '%s' is the authority of cluster '%s', and `cluster` is '%s'",
            authority, there, cluster);
    }
    struct joins *joins = calloc(1, sizeof(*joins));
    ASSERT(joins != NULL);
    (void)snprintf(joins->authority, sizeof(joins->authority), "%s", authority);
    (void)snprintf(joins->cluster, sizeof(joins->cluster), "%s", cluster);
    joins->admit = admit;
    joins->context = context;
    ASSERT(uv_async_init(loop, &joins->wake, on_wake) == 0);
    *ret_joins = joins;
    return 0;
}

void joins_take(struct joins *joins, const struct peer_incoming *incoming)
{
    struct peer_incoming refused = *incoming;
    joins_turn(joins);
    struct joining *joining = joins->count < JOINS_MAX ? calloc(1, sizeof(*joining)) : NULL;
    if (joining == NULL) {
        log_warning("join.refused", "from=%s reason=\"%u join already\"", incoming->address,
                    joins->count);
        transport_close(&refused.transport);
        return;
    }
    joining->joins = joins;
    joining->incoming = *incoming;
    ASSERT(pthread_mutex_init(&joining->lock, NULL) == 0);
    clock_condition_init(&joining->changed);
    if (pthread_create(&joining->thread, NULL, serve_main, joining) != 0) {
        log_warning("join.refused", "from=%s reason=\"no thread for it\"", incoming->address);
        transport_close(&refused.transport);
        free(joining);
        return;
    }
    joining->next = joins->list;
    joins->list = joining;
    joins->count++;
}

static void on_wake_closed(uv_handle_t *handle)
{
    struct joins *joins = OWNER_OF(handle, struct joins, wake);
    void (*on_closed)(void *) = joins->on_closed;
    void *context = joins->closed_context;
    free(joins);
    on_closed(context);
}

void joins_close(struct joins *joins, void (*on_closed)(void *context), void *context)
{
    while (joins->list != NULL) {
        struct joining *joining = joins->list;
        joins->list = joining->next;
        pthread_mutex_lock(&joining->lock);
        joining->stopping = true;
        if (joining->state != JOINING_ENDED) {
            (void)shutdown(joining->incoming.transport.fd, SHUT_RDWR);
        }
        ASSERT(pthread_cond_signal(&joining->changed) == 0);
        pthread_mutex_unlock(&joining->lock);
        free_joining(joining);
    }
    joins->on_closed = on_closed;
    joins->closed_context = context;
    uv_close((uv_handle_t *)&joins->wake, on_wake_closed);
}

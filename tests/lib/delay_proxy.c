#include "tests/lib/delay_proxy.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/rand.h"

#define CONNECTIONS_MAX 256
#define PIECE_SIZE      65536

struct one_way {
    struct delay_proxy *proxy;
    int from, to;
    uint64_t seed;
    pthread_t thread;
};

struct delay_proxy {
    int listener;
    uint16_t port, target_port;
    uint32_t delay_us_max;
    uint64_t seed;
    pthread_t thread;
    _Atomic bool frozen, ending;
    pthread_mutex_t lock;
    struct one_way ways[CONNECTIONS_MAX][2]; /* under lock until made */
    int connections;
};

static void *carry(void *context)
{
    struct one_way *way = context;
    struct delay_proxy *proxy = way->proxy;
    struct rand rand = {way->seed};
    char *bytes = malloc(PIECE_SIZE);
    ASSERT(bytes != NULL);
    while (!atomic_load(&proxy->ending)) {
        struct pollfd readable = {.fd = way->from, .events = POLLIN};
        if (poll(&readable, 1, 50) == 0) {
            continue;
        }
        if (atomic_load(&proxy->frozen)) {
            (void)usleep(20000);
            continue;
        }
        ssize_t got = recv(way->from, bytes, 1 + rand_below(&rand, PIECE_SIZE), 0);
        if (got <= 0) {
            break;
        }
        if (proxy->delay_us_max > 0) {
            (void)usleep((useconds_t)rand_below(&rand, proxy->delay_us_max));
        }
        if (send(way->to, bytes, (size_t)got, MSG_NOSIGNAL) != got) {
            break;
        }
    }
    free(bytes);
    (void)shutdown(way->to, SHUT_WR);
    return NULL;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static void *accept_all(void *context)
{
    struct delay_proxy *proxy = context;
    const int yes = 1;
    while (!atomic_load(&proxy->ending)) {
        struct pollfd readable = {.fd = proxy->listener, .events = POLLIN};
        if (poll(&readable, 1, 50) <= 0) {
            continue;
        }
        int near = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
        int far = near >= 0 ? connect_to(proxy->target_port) : -1;
        if (far < 0) {
            if (near >= 0) {
                (void)close(near);
            }
            continue;
        }
        (void)setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
        (void)setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
        ASSERT(pthread_mutex_lock(&proxy->lock) == 0);
        ASSERT(proxy->connections < CONNECTIONS_MAX);
        struct one_way *ways = proxy->ways[proxy->connections];
        for (int i = 0; i < 2; i++) {
            ways[i] = (struct one_way){.proxy = proxy,
                                       .from = i == 0 ? near : far,
                                       .to = i == 0 ? far : near,
                                       .seed = proxy->seed++ * 7919U};
            ASSERT(pthread_create(&ways[i].thread, NULL, carry, &ways[i]) == 0);
        }
        proxy->connections++;
        ASSERT(pthread_mutex_unlock(&proxy->lock) == 0);
    }
    return NULL;
}

struct delay_proxy *delay_proxy_new(uint16_t target_port, uint32_t delay_us_max, uint64_t seed)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    struct delay_proxy *proxy = calloc(1, sizeof(*proxy));
    ASSERT(proxy != NULL);
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    proxy->target_port = target_port;
    proxy->delay_us_max = delay_us_max;
    proxy->seed = seed;
    ASSERT(pthread_mutex_init(&proxy->lock, NULL) == 0);
    ASSERT(bind(proxy->listener, (struct sockaddr *)&address, size) == 0);
    ASSERT(listen(proxy->listener, 64) == 0);
    ASSERT(getsockname(proxy->listener, (struct sockaddr *)&address, &size) == 0);
    proxy->port = ntohs(address.sin_port);
    ASSERT(pthread_create(&proxy->thread, NULL, accept_all, proxy) == 0);
    return proxy;
}

uint16_t delay_proxy_port(const struct delay_proxy *proxy)
{
    return proxy->port;
}

void delay_proxy_freeze(struct delay_proxy *proxy)
{
    atomic_store(&proxy->frozen, true);
}

int delay_proxy_cut_one(struct delay_proxy *proxy)
{
    int result = -1;
    ASSERT(pthread_mutex_lock(&proxy->lock) == 0);
    if (proxy->connections > 0) {
        for (int i = 0; i < 2; i++) {
            (void)shutdown(proxy->ways[proxy->connections - 1][i].from, SHUT_RDWR);
        }
        result = 0;
    }
    ASSERT(pthread_mutex_unlock(&proxy->lock) == 0);
    return result;
}

void delay_proxy_free(struct delay_proxy *proxy)
{
    atomic_store(&proxy->ending, true);
    ASSERT(pthread_join(proxy->thread, NULL) == 0);
    for (int c = 0; c < proxy->connections; c++) {
        for (int i = 0; i < 2; i++) {
            (void)shutdown(proxy->ways[c][i].from, SHUT_RDWR);
        }
        for (int i = 0; i < 2; i++) {
            ASSERT(pthread_join(proxy->ways[c][i].thread, NULL) == 0);
        }
        for (int i = 0; i < 2; i++) {
            (void)close(proxy->ways[c][i].from);
        }
    }
    (void)close(proxy->listener);
    ASSERT(pthread_mutex_destroy(&proxy->lock) == 0);
    free(proxy);
}

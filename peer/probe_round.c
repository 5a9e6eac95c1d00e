/* A round of looks: a thread for each node that is asked. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rand.h"
#include "peer/probe_room.h"

#define TURNS_MS   4000U /* all turns together */
#define SLOT_MS    800U  /* one turn, at most: a quarter for pings, five eighths for bytes */
#define SLOT_LEAST 60U
#define AGAIN_MS   200U
#define SILENCE_MS 4000U
#define STACK_SIZE (512U << 10)
#define LOOK_MS    50U

struct looking { /* at one node */
    struct probe_round *round;
    size_t index;
    uint32_t node_id, life;
    char name[PEER_NAME_SIZE];
    char address[PEER_ADDRESS_SIZE];
    pthread_t thread;
    bool started;
};

struct probe_round {
    struct probe_settings settings;
    char cluster[PEER_NAME_SIZE];
    char node[PEER_NAME_SIZE];
    struct probe_turns turns;
    uint32_t slot_ms;
    uint64_t deadline_ms;
    atomic_bool cancel;
    size_t count;
    uint8_t pattern[PROBE_PIECE_SIZE]; /* that no line can make smaller */
    struct looking looks[];
};

/* ---------------------------------------------------------------- turns */

static bool is_next(const struct probe_turns *turns, size_t index, uint64_t now_ms)
{
    for (size_t i = 0; i < index; i++) {
        if (turns->waits[i]) {
            return false;
        }
    }
    return now_ms >= turns->free_ms;
}

void probe_turn_take(struct probe_turns *turns, size_t index, uint32_t slot_ms,
                     uint64_t deadline_ms)
{
    ASSERT(index < PEER_NODES_MAX);
    ASSERT(pthread_mutex_lock(&turns->lock) == 0);
    turns->waits[index] = true;
    uint64_t now_ms = clock_now_ms();
    while (!is_next(turns, index, now_ms) && now_ms < deadline_ms) {
        uint64_t wait_ms = turns->free_ms > now_ms && turns->free_ms - now_ms < LOOK_MS
                               ? turns->free_ms - now_ms
                               : LOOK_MS;
        struct timespec until = clock_deadline(now_ms, wait_ms);
        (void)pthread_cond_timedwait(&turns->changed, &turns->lock, &until);
        now_ms = clock_now_ms();
    }
    turns->waits[index] = false;
    turns->holder = index;
    turns->free_ms = now_ms + slot_ms;
    ASSERT(pthread_mutex_unlock(&turns->lock) == 0);
}

void probe_turn_give(struct probe_turns *turns, size_t index)
{
    ASSERT(pthread_mutex_lock(&turns->lock) == 0);
    if (turns->holder == index) {
        turns->free_ms = 0;
        ASSERT(pthread_cond_broadcast(&turns->changed) == 0);
    }
    ASSERT(pthread_mutex_unlock(&turns->lock) == 0);
}

/* ---------------------------------------------------------------- one look */

static int reach_once(struct looking *looking, struct wire *wire, uint64_t deadline_ms,
                      bool *ret_again, struct probe_result *result, struct err *err)
{
    struct probe_round *round = looking->round;
    const struct probe_settings *settings = &round->settings;
    struct peer_hello hello = {.protocol = FRAME_PROTOCOL_VERSION,
                               .class = PEER_PROBE,
                               .node_id = settings->node_id,
                               .life = settings->life,
                               .incarnation = settings->incarnation};
    int fd = -1;
    (void)snprintf(hello.cluster, sizeof(hello.cluster), "%s", round->cluster);
    (void)snprintf(hello.node, sizeof(hello.node), "%s", round->node);
    result->step = PROBE_CONNECT;
    if (wire_connect(looking->address, &round->cancel, deadline_ms, &fd, err) != 0) {
        return err->code;
    }
    result->step = PROBE_GREET;
    wire->silence_ms = SILENCE_MS * settings->patience;
    wire->cancel = &round->cancel;
    if (transport_dial(&wire->transport, settings->trust, fd, looking->name, err) != 0) {
        (void)close(fd);
        return err->code;
    }
    const struct wire_node node = {looking->name, looking->node_id, looking->life};
    return wire_greet(wire, &hello, &node, deadline_ms, ret_again, err);
}

static int reach(struct looking *looking, struct wire *wire, struct probe_result *result,
                 struct err *err)
{
    uint64_t deadline_ms = clock_now_ms() + PROBE_CONNECT_MS * looking->round->settings.patience;
    for (;;) {
        bool again = false;
        int code = reach_once(looking, wire, deadline_ms, &again, result, err);
        if (code == 0) {
            return 0;
        }
        if (!again || clock_now_ms() + AGAIN_MS >= deadline_ms ||
            atomic_load(&looking->round->cancel)) {
            result->late = clock_now_ms() >= deadline_ms;
            return code;
        }
        transport_close(&wire->transport);
        wire->transport.fd = -1;
        *err = (struct err){0};
        struct timespec pause = {0, AGAIN_MS * 1000000L};
        (void)nanosleep(&pause, NULL);
    }
}

static bool is_loopback(const char *address)
{
    struct sockaddr_in parsed;
    struct err err = {0};
    return peer_address_parse(address, &parsed, &err) == 0 &&
           ntohl(parsed.sin_addr.s_addr) >> 24 == 127;
}

static void *look_main(void *context)
{
    struct looking *looking = context;
    struct probe_round *round = looking->round;
    struct probe_result result = {.sealed = round->settings.trust != NULL};
    struct err err = {0};
    struct wire wire = {.transport = {.fd = -1}};
    int code = reach(looking, &wire, &result, &err);
    if (code == 0) {
        probe_turn_take(&round->turns, looking->index, round->slot_ms, round->deadline_ms);
        code = probe_pings(&wire, clock_now_ms() + round->slot_ms / 4, round->deadline_ms, &result,
                           &err);
        uint32_t ms = round->slot_ms * 5 / 8;
        uint32_t bytes = is_loopback(looking->address) ? PROBE_BYTES_LOOPBACK : PROBE_BYTES_MAX;
        if (code == 0) {
            (void)probe_put(&wire, round->pattern, bytes, ms,
                            round->deadline_ms + PROBE_SLOW_MS * round->settings.patience, &result,
                            &err);
        }
        probe_turn_give(&round->turns, looking->index);
    }
    transport_close(&wire.transport);
    if (atomic_load(&round->cancel) && result.step != PROBE_DONE) {
        err = (struct err){0};
        (void)err_set(&err, ERR_CANCELED, "given up");
    }
    result.err = err;
    round->settings.on_result(round->settings.context, looking->index, &result);
    return NULL;
}

/* ---------------------------------------------------------------- the round */

static void init_turns(struct probe_turns *turns)
{
    ASSERT(pthread_mutex_init(&turns->lock, NULL) == 0);
    clock_condition_init(&turns->changed);
}

static void fill(uint8_t *pattern, size_t size)
{
    struct rand rand = {clock_now_ns()};
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t value = rand_next(&rand);
        memcpy(pattern + i, &value, sizeof(value));
    }
}

static uint32_t slot_of(size_t count)
{
    uint32_t slot = TURNS_MS / (uint32_t)count;
    slot = slot < SLOT_LEAST ? SLOT_LEAST : slot;
    return slot > SLOT_MS ? SLOT_MS : slot;
}

/* Starts them all, or none goes on. */
static int start(struct probe_round *round, struct err *err)
{
    pthread_attr_t attributes;
    int failed = 0;
    ASSERT(pthread_attr_init(&attributes) == 0);
    (void)pthread_attr_setstacksize(&attributes, STACK_SIZE);
    for (size_t i = 0; i < round->count && failed == 0; i++) {
        struct looking *looking = &round->looks[i];
        failed = pthread_create(&looking->thread, &attributes, look_main, looking);
        looking->started = failed == 0;
    }
    ASSERT(pthread_attr_destroy(&attributes) == 0);
    return failed == 0 ? 0 : err_set(err, ERR_BUSY, "no threads for %zu looks", round->count);
}

int probe_round_new(const struct probe_settings *settings, const struct probe_target *targets,
                    size_t count, struct probe_round **ret_round, struct err *err)
{
    ASSERT(count >= 1);
    ASSERT(count <= PEER_NODES_MAX);
    struct probe_round *round = calloc(1, sizeof(*round) + count * sizeof(round->looks[0]));
    if (round == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu looks", count);
    }
    round->settings = *settings;
    round->settings.patience = settings->patience == 0 ? 1 : settings->patience;
    (void)snprintf(round->cluster, sizeof(round->cluster), "%s", settings->cluster);
    (void)snprintf(round->node, sizeof(round->node), "%s", settings->node);
    round->count = count;
    round->slot_ms = slot_of(count);
    round->deadline_ms =
        clock_now_ms() + (PROBE_ROUND_MS - PROBE_SLOW_MS) * round->settings.patience;
    fill(round->pattern, sizeof(round->pattern));
    init_turns(&round->turns);
    for (size_t i = 0; i < count; i++) {
        struct looking *looking = &round->looks[i];
        looking->round = round;
        looking->index = i;
        looking->node_id = targets[i].node_id;
        looking->life = targets[i].life;
        (void)snprintf(looking->name, sizeof(looking->name), "%s", targets[i].name);
        (void)snprintf(looking->address, sizeof(looking->address), "%s", targets[i].address);
    }
    *ret_round = round;
    int code = start(round, err);
    if (code != 0) {
        *ret_round = NULL;
        probe_round_free(round);
    }
    return code;
}

void probe_round_free(struct probe_round *round)
{
    if (round == NULL) {
        return;
    }
    atomic_store(&round->cancel, true);
    for (size_t i = 0; i < round->count; i++) {
        if (round->looks[i].started) {
            ASSERT(pthread_join(round->looks[i].thread, NULL) == 0);
        }
    }
    ASSERT(pthread_mutex_destroy(&round->turns.lock) == 0);
    ASSERT(pthread_cond_destroy(&round->turns.changed) == 0);
    free(round);
}

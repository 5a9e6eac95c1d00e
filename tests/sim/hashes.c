/* A state machine of marked commands, and its clients: the core's own workload.
 *
 * A command is {u64 id, padding}. A client on each node makes one now and then, repeats it at
 * random nodes until its own node has applied it, and then takes it as acknowledged: from there on
 * it must be in every history. The state is the set of ids seen, so a repetition changes nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tests/sim/hashes.h"

#define IDS_MAX  8192U
#define RETRY_MS 300U
#define OPEN_MAX 5U /* a client makes no more while so many are open */

struct hashes {
    uint32_t made;
    uint32_t first_open; /* all before are acknowledged */
    bool ended;
    struct {
        unsigned node;
        bool acknowledged;
        uint32_t tries;
        uint64_t tried_us;
    } ids[IDS_MAX];
};

struct self {
    struct world *world;
    struct hashes *all;
    unsigned node;
    uint8_t seen[IDS_MAX / 8];
    uint64_t count; /* commands applied, repetitions included */
};

struct hashes *hashes_new(void)
{
    struct hashes *all = calloc(1, sizeof(*all));
    ASSERT(all != NULL);
    return all;
}

void hashes_free(struct hashes *all)
{
    free(all);
}

static bool has_seen(const struct self *self, uint64_t id)
{
    return ((unsigned)self->seen[id / 8] >> (id % 8)) % 2 == 1;
}

static void *on_open(struct world *world, unsigned node, uint64_t incarnation, struct fs *fs)
{
    (void)incarnation;
    (void)fs;
    struct self *self = calloc(1, sizeof(*self));
    ASSERT(self != NULL);
    self->world = world;
    self->all = world_context(world);
    self->node = node;
    return self;
}

static void on_close(void *self)
{
    free(self);
}

static void apply(void *context, uint64_t index, uint64_t term, const uint8_t *command, size_t size)
{
    (void)index;
    (void)term;
    struct self *self = context;
    struct reader reader = {command, size, false};
    uint64_t id = read_u64(&reader);
    ASSERT(!reader.failed);
    ASSERT(id < IDS_MAX);
    self->seen[id / 8] |= (uint8_t)(1U << (id % 8));
    self->count++;
    if (self->all->ids[id].node == self->node) {
        self->all->ids[id].acknowledged = true;
    }
}

static void snapshot_write(void *context, struct buf *bytes)
{
    struct self *self = context;
    uint32_t size = (self->all->made + 7) / 8;
    uint32_t used = 0; /* only what this state knows, lest others' ids make snapshots differ */
    for (uint32_t i = 0; i < size; i++) {
        used = self->seen[i] != 0 ? i + 1 : used;
    }
    buf_put_u64(bytes, self->count);
    buf_put_u32(bytes, used);
    buf_put(bytes, self->seen, used);
}

static int snapshot_load(void *context, uint64_t index, const uint8_t *bytes, size_t size,
                         struct err *err)
{
    (void)index;
    struct self *self = context;
    struct reader reader = {bytes, size, false};
    memset(self->seen, 0, sizeof(self->seen));
    self->count = read_u64(&reader);
    uint32_t used = read_u32(&reader);
    if (reader.failed || used > sizeof(self->seen) || used != reader.size) {
        return err_set(err, ERR_DAMAGED, "a snapshot of hashes that is none");
    }
    read_bytes(&reader, self->seen, used);
    for (uint64_t id = 0; id < self->all->made; id++) {
        if (has_seen(self, id) && self->all->ids[id].node == self->node) {
            self->all->ids[id].acknowledged = true;
        }
    }
    return 0;
}

static void fsm(void *self, struct control_fsm *ret_fsm)
{
    *ret_fsm = (struct control_fsm){self, apply, snapshot_write, snapshot_load};
}

static void try_id(struct self *self, uint64_t id, unsigned node)
{
    struct rand *rand = world_rand(self->world);
    struct buf bytes = BUF_NONE;
    uint64_t size = rand_below(rand, world_options(self->world)->command_size_max + 1U);
    buf_put_u64(&bytes, id);
    for (uint64_t i = 0; i < size; i++) {
        buf_put_u8(&bytes, (uint8_t)(id + i));
    }
    self->all->ids[id].tried_us = world_now_us(self->world);
    self->all->ids[id].tries += self->all->ids[id].tries < 9 ? 1 : 0;
    (void)world_propose(self->world, node, bytes.bytes, bytes.size);
    buf_done(&bytes);
}

static void on_tick(void *context)
{
    struct self *self = context;
    struct world *world = self->world;
    struct hashes *all = self->all;
    struct rand *rand = world_rand(world);
    while (all->first_open < all->made && all->ids[all->first_open].acknowledged) {
        all->first_open++;
    }
    uint32_t open = 0;
    for (uint64_t id = all->first_open; id < all->made; id++) {
        if (all->ids[id].node != self->node || all->ids[id].acknowledged) {
            continue;
        }
        open++;
        uint64_t waited_us = world_now_us(world) - all->ids[id].tried_us;
        if (waited_us > 1000U * RETRY_MS * (1U + all->ids[id].tries)) {
            unsigned node = (unsigned)rand_below(rand, world_options(world)->nodes);
            try_id(self, id, world_is_wanted(world, node) ? node : self->node);
        }
    }
    if (!all->ended && all->made < IDS_MAX && open < OPEN_MAX &&
        rand_below(rand, world_options(world)->propose_ms) < 20) {
        uint64_t id = all->made++;
        all->ids[id].node = self->node;
        try_id(self, id, self->node);
    }
}

static void on_heal(struct world *world)
{
    struct hashes *all = world_context(world);
    all->ended = true;
    if (all->made < IDS_MAX) { /* One more, that a stalled log would never apply. */
        unsigned node = 0;
        while (node + 1 < world_options(world)->nodes && !world_is_wanted(world, node)) {
            node++;
        }
        all->ids[all->made].node = node;
        all->made++;
    }
}

static bool settled(struct world *world, void *const *selves, unsigned nodes)
{
    (void)nodes;
    const struct hashes *all = world_context(world);
    for (uint64_t id = all->first_open; id < all->made; id++) {
        /* Who is no member asks in vain. */
        if (!all->ids[id].acknowledged && selves[all->ids[id].node] != NULL) {
            return false;
        }
    }
    return true;
}

static void finish(struct world *world, void *const *selves, unsigned nodes)
{
    const struct hashes *all = world_context(world);
    for (unsigned node = 0; node < nodes; node++) {
        const struct self *self = selves[node];
        for (uint64_t id = 0; self != NULL && id < all->made; id++) {
            if (all->ids[id].acknowledged && !has_seen(self, id)) {
                world_violation(world,
                                "command %llu was acknowledged at node %u, and node %u "
                                "does not have it",
                                (unsigned long long)id, all->ids[id].node, node);
                return;
            }
        }
    }
}

uint64_t hashes_acknowledged(const struct hashes *all)
{
    uint64_t count = 0;
    for (uint64_t id = 0; id < all->made; id++) {
        count += all->ids[id].acknowledged ? 1 : 0;
    }
    return count;
}

uint64_t hashes_count(const void *self)
{
    return ((const struct self *)self)->count;
}

const struct world_extension world_hashes = {
    .node_open = on_open,
    .node_close = on_close,
    .fsm = fsm,
    .on_tick = on_tick,
    .on_heal = on_heal,
    .settled = settled,
    .finish = finish,
};

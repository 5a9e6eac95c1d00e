/* The world's insides: world.c (events, runs), node.c (nodes and their environment), faults.c (what
 * goes wrong), oracle.c (what must hold). */
#ifndef COPPELIUS_TESTS_SIM_WORLD_CORE_H
#define COPPELIUS_TESTS_SIM_WORLD_CORE_H

#include "control/message.h"
#include "control/raft.h"
#include "tests/sim/world.h"

#define TICK_US 20000U

enum event_kind {
    EVENT_TICK,
    EVENT_DELIVER, /* bytes to control */
    EVENT_MAIL,    /* bytes to the extension */
    EVENT_WRITE,   /* the node's oldest write is done now */
    EVENT_CONNECT, /* a new connection with a process that has started */
    EVENT_AFTER,   /* a function of the extension */
    EVENT_RESTART,
    EVENT_CRASH, /* the generators of faults; each plans its next */
    EVENT_CUT,
    EVENT_CUT_END,
    EVENT_PAUSE,
    EVENT_SYNC_FAIL,
    EVENT_MEMBER,
    EVENT_WIPE,
    EVENT_FULL,
    EVENT_FULL_END,
};

struct event {
    uint64_t time_us;
    uint64_t order; /* of equal times */
    enum event_kind kind;
    unsigned node;
    unsigned from;
    uint32_t from_id;
    uint64_t incarnation; /* of the node, for events that die with it */
    struct buf bytes;
    void (*function)(void *self, void *argument);
    void *argument;
};

/* What a node was told is durable: the oracle's own account. */
struct durable {
    uint64_t term;
    uint32_t vote;
    uint64_t snapshot;
    uint64_t last;
    uint64_t *terms; /* [index], 0: not there */
    size_t capacity;
    /* the write in progress when the node crashed may have happened or not */
    uint64_t open_from;
    bool open_hard;
};

struct node {
    struct world *world;
    unsigned number;
    uint64_t incarnation;
    uint32_t place;              /* of its identity: the machine's number, or where it rejoined */
    uint32_t life;               /* of its identity: how often the place was lost */
    bool removed;                /* this identity was wanted, and is no more */
    struct control_group wanted; /* as far as it has heard */
    bool up;
    bool dying;
    bool expect_refusal;
    char refusal[ERR_TEXT_SIZE];
    uint64_t paused_until_us;
    uint64_t clock_offset_us;
    uint64_t clock_permille;
    struct sim_disk *disk;
    struct control *control;
    void *self;
    struct control_fsm inner;     /* the extension's state machine */
    struct control_write *writes; /* oldest first */
    struct control_write **writes_last;

    struct durable durable;
    uint64_t chain; /* of all commands applied */
    uint64_t chain_index;
    uint64_t led_term;
    uint64_t led_last;
};

/* What was first applied at an index. */
struct truth {
    uint64_t hash; /* 0: nothing */
    uint64_t term;
    uint64_t chain;
    uint64_t snapshot_hash; /* 0: none was written there */
};

/* Every (index, term) that any log held. */
struct known {
    uint64_t index;
    uint64_t term;
    uint64_t hash;
    uint64_t previous_term;
};

struct oracle {
    struct truth *truths; /* [index] */
    size_t truths_capacity;
    uint64_t truths_last;
    struct known *knowns; /* open addressing */
    size_t knowns_count;
    size_t knowns_capacity;
    uint32_t *leaders; /* [term] */
    size_t leaders_capacity;
    struct vote {
        uint32_t voter;
        uint32_t candidate;
    } * votes; /* [term * nodes + node] */
    size_t votes_capacity;
};

struct world {
    struct world_options options;
    const struct world_extension *extension;
    void *context;
    struct rand rand;
    uint64_t now_us;
    uint64_t order;
    struct event *heap;
    size_t heap_count;
    size_t heap_capacity;
    struct node nodes[WORLD_NODES_MAX];
    bool cut[WORLD_NODES_MAX][WORLD_NODES_MAX];
    bool faulty;
    bool violated;
    bool quiet; /* a mutant's run: say nothing */
    char violation[1024];
    struct control_group wanted;
    struct control_group agreed; /* the newest that any node knew as committed */
    uint64_t agreed_index;
    struct oracle oracle;
    struct world_stats stats;
};

/* world.c */
void world_plan(struct world *world, const struct event *event); /* takes event->bytes */
uint64_t world_exponential(struct world *world, uint64_t mean);

/* node.c */
void node_init(struct world *world, unsigned number);
void node_start(struct node *node);
void node_crash(struct node *node);
void node_done(struct node *node);
void node_on_write(struct node *node);
void node_settings(const struct node *node, struct control_settings *settings);

/* faults.c */
void faults_plan(struct world *world);
void faults_event(struct world *world, const struct event *event);
void faults_heal(struct world *world);

/* members.c */
void members_init(struct world *world);
void members_event(struct world *world, const struct event *event);
void members_tick(struct node *node);
void members_heal(struct world *world);
void members_look(struct node *node);
void members_print(const struct world *world); /* for a person who looks at a failed seed */

/* oracle.c */
void oracle_done(struct oracle *oracle);
void oracle_on_send(struct node *node, uint32_t to, const struct raft_message *message);
void oracle_on_persist(struct node *node, const struct control_write *write);
void oracle_on_durable(struct node *node, const struct control_write *write);
void oracle_on_open_write(struct node *node, const struct control_write *write);
void oracle_on_recovered(struct node *node);
void oracle_on_apply(struct node *node, uint64_t index, uint64_t term, const uint8_t *command,
                     size_t size);
void oracle_on_snapshot(struct node *node, uint64_t index, uint64_t chain, const uint8_t *bytes,
                        size_t size);
void oracle_look(struct node *node);

#endif

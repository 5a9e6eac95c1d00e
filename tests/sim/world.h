/* The simulated world: nodes, network, disks and time out of one seed.
 *
 * Every node is a real struct control (Raft core, log on a struct sim_disk) around a state machine;
 * the network loses, doubles, delays and cuts; nodes crash at any operation of their disk, pause,
 * and have clocks that drift. One event at a time, off a heap; after every event the oracles look.
 * world_run() is first a faulty phase, then a healed one in which everything must come to rest
 * equal. The same options give the same run, to the last event.
 *
 * Who is a member may change (members.c): machines join and leave, disks are lost and come back
 * empty under another identity; each leader moves the group towards what the operator wants, as far
 * as it has heard of that; in the end who is wanted must be who is.
 *
 * What runs on top (the state machine, the coordinator, the checkpoint agent) is an extension: a
 * table of functions, one object for each node and incarnation. Everything an extension does must
 * come from the world: time, randomness, files, messages. Not threaded. */
#ifndef COPPELIUS_TESTS_SIM_WORLD_H
#define COPPELIUS_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rand.h"
#include "control/control.h"
#include "tests/sim/fs_sim.h"

#define WORLD_NODES_MAX 104

struct world;

/* A seed's swarm: all of it is printed when the seed fails. */
#define WORLD_OPTIONS(X)                                                    \
    X(nodes, "machines")                                                    \
    X(voters, "of them the cluster begins with; the others may join")       \
    X(member_ms, "mean time between changes of who is wanted, 0: none")     \
    X(wipe_ms, "mean time between lost disks, 0: none")                     \
    X(fault_ms, "length of the faulty phase")                               \
    X(heal_ms, "the most that the healed phase may take")                   \
    X(delay_us_max, "a message's delay, usually")                           \
    X(delay_tail_permille, "messages that take up to a second")             \
    X(loss_permille, "messages lost")                                       \
    X(double_permille, "messages doubled")                                  \
    X(disk_us_max, "a log write's time, usually")                           \
    X(disk_tail_permille, "writes that take up to 1.5 s")                   \
    X(crash_ms, "mean time between crashes, 0: none")                       \
    X(crash_op_percent, "crashes that strike at a numbered disk operation") \
    X(down_ms, "mean time until a restart")                                 \
    X(cut_ms, "mean time between network cuts, 0: none")                    \
    X(cut_length_ms, "mean length of a cut")                                \
    X(pause_ms, "mean time between pauses of a node, 0: none")              \
    X(pause_length_ms, "mean length of a pause")                            \
    X(sync_fail_ms, "mean time between failing syncs, 0: none")             \
    X(full_ms, "mean time between full disks, 0: none")                     \
    X(drift_permille, "clocks run that much faster or slower")              \
    X(torn, "unsynced sectors live or die one by one")                      \
    X(propose_ms, "mean time between a client's proposals")                 \
    X(command_size_max, "bytes of a client's command")                      \
    X(election_ms_min, "control_settings")                                  \
    X(election_ms_max, "control_settings")                                  \
    X(heartbeat_ms, "control_settings")                                     \
    X(snapshot_entries, "control_settings")                                 \
    X(trailing_entries, "control_settings")                                 \
    X(append_size, "control_settings")                                      \
    X(chunk_size, "control_settings")                                       \
    X(inflight_max, "control_settings")                                     \
    X(segment_size, "control_settings")

struct world_options {
    uint64_t seed;
#define WORLD_OPTION_FIELD(name, text) uint32_t name;
    WORLD_OPTIONS(WORLD_OPTION_FIELD)
#undef WORLD_OPTION_FIELD
};

/* The swarm of a seed: each kind of fault is on or off, mild or wild. */
void world_options_of_seed(uint64_t seed, struct world_options *options);
void world_options_print(const struct world_options *options);
/* No faults at all, default control settings, `nodes` nodes: for directed tests. */
void world_options_calm(uint32_t nodes, struct world_options *options);

/* What becomes of a node at an operation (crash_points.c). */
enum world_moment { WORLD_GO_ON, WORLD_DIE_BEFORE, WORLD_DIE_AFTER };

/* What runs on each node. `self` is what node_open made; functions may be NULL but node_open,
 * node_close and fsm. Nodes are numbered from 0 here; their control id is node + 1. */
struct world_extension {
    /* A node starts (incarnation 1, 2, ...; its disk may hold files). Before control_open(): a
     * snapshot is loaded right after. Crash points may fire in here: then return NULL. */
    void *(*node_open)(struct world *world, unsigned node, uint64_t incarnation, struct fs *fs);
    /* Its end; by a crash always (files open on fs: close them, write nothing). */
    void (*node_close)(void *self);
    /* Its state machine; called once after node_open. */
    void (*fsm)(void *self, struct control_fsm *ret_fsm);
    /* control is there now (also in `world_control`). Not called when recovery fails. */
    void (*on_start)(void *self);
    /* After entries were applied (as control_env.applied). */
    void (*on_applied)(void *self, uint64_t index);
    /* Every 20 ms of the node's clock, after control_tick(). */
    void (*on_tick)(void *self);
    /* A message of world_send(). Borrowed. */
    void (*on_message)(void *self, unsigned from, const uint8_t *bytes, size_t size);
    /* After every event of the world, with selves[node] (NULL: down): oracles. */
    void (*check)(struct world *world, void *const *selves, unsigned nodes);
    /* The healed phase: is everything at rest as it should be? Asked from time to time; when the
     * phase ends with false the seed is a stall. */
    bool (*settled)(struct world *world, void *const *selves, unsigned nodes);
    /* After the healed phase, all nodes up (those that are no members: NULL): last oracles. */
    void (*finish)(struct world *world, void *const *selves, unsigned nodes);
    /* The faulty phase has ended; stop making new work. */
    void (*on_heal)(struct world *world);
    /* A node's disk was made, before anything happens on it. */
    void (*on_disk)(struct world *world, unsigned node, struct sim_disk *disk);
    /* A node sends something: of the control room, or world_send()'s. It may die at it. */
    enum world_moment (*on_send)(struct world *world, unsigned from, bool is_control,
                                 const uint8_t *bytes, size_t size);
};

/* A state machine of marked commands with its own clients, hashes.h: what tests the core alone. */
extern const struct world_extension world_hashes;

/* `context`: the extension's own global state, for world_context(). All nodes are started here. */
struct world *world_new(const struct world_options *options,
                        const struct world_extension *extension, void *context);
void world_free(struct world *world);
void *world_context(struct world *world);

/* Faulty phase, healed phase, a power cut of all nodes and rest again, last oracles. True: no
 * violation and no stall. */
bool world_run(struct world *world);
/* For directed tests: the world goes on for that long, with the options' faults. */
void world_run_for(struct world *world, uint64_t ms);
/* Runs until done(context) or that long; true when done. */
bool world_run_until(struct world *world, uint64_t ms, bool (*done)(struct world *, void *),
                     void *context);

/* --- what extensions and tests use ----------------------------------------------------------- */
uint64_t world_now_us(const struct world *world);
/* The node's own clock (drifts); monotonic through its restarts. */
uint64_t world_node_now_ms(const struct world *world, unsigned node);
struct rand *world_rand(struct world *world);
const struct world_options *world_options(const struct world *world);
bool world_faulty(const struct world *world); /* in the faulty phase */
/* NULL while the node is down. */
struct control *world_control(const struct world *world, unsigned node);
void *world_self(const struct world *world, unsigned node);
struct sim_disk *world_disk(const struct world *world, unsigned node);
uint64_t world_incarnation(const struct world *world, unsigned node);
uint32_t world_id(const struct world *world, unsigned node);    /* its identity now */
uint32_t world_place(const struct world *world, unsigned node); /* the place of it (group.h) */
/* The machine with that place now; WORLD_NODES_MAX: none. */
unsigned world_node_of(const struct world *world, uint32_t place);
bool world_is_wanted(const struct world *world, unsigned node);
/* What the operator wants from now on. A machine that was a member once gets an empty disk and a
 * new identity before it is one again. */
void world_want(struct world *world, unsigned node, bool member, bool voter);
/* Its disk is lost: it comes back with a new identity, and is wanted as what it was. */
void world_wipe(struct world *world, unsigned node);
/* May a disk be lost for good? All members are up, agree, and could go on without one. */
bool world_may_wipe(const struct world *world);
/* Its disk is lost and its identity wanted no more: it waits, a member of nothing ... */
void world_lose(struct world *world, unsigned node);
/* ... until it comes back, its disk empty, with an identity that nobody had. */
void world_rejoin(struct world *world, unsigned node, uint32_t place, uint32_t life, bool voter);
/* The node that leads (highest term among those who think so), or -1. */
int world_leader(const struct world *world);

/* control_propose() on that node; what it returns. */
int world_propose(struct world *world, unsigned node, const void *command, size_t size);
/* Calls function(self, argument) on the node after a time, unless it crashes or stops meanwhile;
 * what `argument` points to must live as long as the world or be freed by the extension. A paused
 * node runs it when it wakes. */
void world_after(struct world *world, unsigned node, uint64_t us,
                 void (*function)(void *self, void *argument), void *argument);
/* A message through the same faulty network, to on_message(). Copied. */
void world_send(struct world *world, unsigned from, unsigned to, const void *bytes, size_t size);
/* The node answers there and then, as another one reads from it: it is a message as any other (to
 * crash at), but not one that waits on the way. False: it has not answered. */
bool world_serve(struct world *world, unsigned node, const void *bytes, size_t size);
/* File operations off the loop: see world_after(); call them inside it. When a crash point fires
 * (an fs call fails and sim_disk_dead()) just return: the world sees it and crashes the node. A
 * disk fault that must end the process: world_die(). */
void world_die(struct world *world, unsigned node, const char *why);

/* Directed faults. */
void world_crash(struct world *world, unsigned node);
void world_restart(struct world *world, unsigned node); /* must be down */
void world_pause(struct world *world, unsigned node, uint64_t ms);
/* Messages from -> to are dropped while cut. */
void world_cut(struct world *world, unsigned from, unsigned to, bool cut);
void world_isolate(struct world *world, unsigned node, bool cut); /* both ways, from all */
/* The sentence why the node's last start was refused; empty when it was not. A refused start counts
 * as a violation unless expected. */
const char *world_refusal(const struct world *world, unsigned node);
void world_expect_refusal(struct world *world, unsigned node);

/* An oracle speaks: printed with seed, time and options; the run ends. */
void world_violation(struct world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool world_violated(const struct world *world);
const char *world_violation_text(const struct world *world);
/* Violations are not printed: for mutants, whose runs are to find some. */
void world_set_quiet(struct world *world, bool quiet);

struct world_stats {
    uint64_t events;
    uint64_t crashes;
    uint64_t elections;
    uint64_t entries_committed;
    uint64_t snapshots_installed;
    uint64_t messages;
    uint64_t disk_ops;
    uint64_t group_changes; /* committed */
    uint64_t wipes;
};
void world_stats(const struct world *world, struct world_stats *ret_stats);

#endif

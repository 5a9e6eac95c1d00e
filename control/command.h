/* The entries of the replicated log, as fixed little-endian bytes.
 *
 * docs/architecture.md has the table: who proposes what, and its effect. A command is a header
 * (u8 format, u8 kind, u16 zero, u64 wall time) and the fields of its kind in the order written
 * here; texts are a u32 length and bytes. The bytes are the same on every machine. Wall times are
 * the proposer's milliseconds since 1970: they are for people, nothing is decided by them.
 * Floating-point results travel as their bits; nothing computes with them.
 *
 * command_decode borrows: `text` points into the bytes given. Every size is checked against the
 * limits below and what is there before it is used. Any thread; no state. */
#ifndef COPPELIUS_CONTROL_COMMAND_H
#define COPPELIUS_CONTROL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"

#define COMMAND_FORMAT       3     /* 3: copies are of an identity */
#define COMMAND_FORMAT_LEAST 2     /* that is read, as older logs have it */
#define COMMAND_NODES_MAX    64    /* node ids are 1 .. 64 */
#define COMMAND_HOLDERS_MAX  8     /* of a shard, the node itself included */
#define COMMAND_JOB_TEXT_MAX 65536 /* bytes of a job's canonical YAML */
#define COMMAND_SIZE_MAX     (COMMAND_JOB_TEXT_MAX + 4096)
#define COMMAND_KEEP_MAX     32 /* checkpoint.keep */
#define COMMAND_NAME_SIZE    64 /* with the terminating zero, as all *_SIZE of texts */
#define COMMAND_ADDRESS_SIZE 64
#define COMMAND_DEVICE_SIZE  128
#define COMMAND_POLICY_SIZE  64
#define COMMAND_REASON_SIZE  256 /* a longer reason is cut when it is encoded */
#define COMMAND_UUID_SIZE    16
#define COMMAND_LIFE_MAX     0xffffffU  /* identities that a place may have had */
#define COMMAND_LIFE_UNSAID  UINT32_MAX /* of an entry of format 2 */

/* value, label. Append only: the values are in logs. */
#define COMMAND_MAP(X)                      \
    X(COMMAND_NODE, 1, "node")              \
    X(COMMAND_SUBMIT, 2, "submit")          \
    X(COMMAND_PLACE, 3, "place")            \
    X(COMMAND_PARTITION, 4, "partition")    \
    X(COMMAND_RUNNING, 5, "running")        \
    X(COMMAND_INTERRUPT, 6, "interrupt")    \
    X(COMMAND_STOP, 7, "stop")              \
    X(COMMAND_RESUME, 8, "resume")          \
    X(COMMAND_BEGIN, 9, "begin")            \
    X(COMMAND_PREPARED, 10, "prepared")     \
    X(COMMAND_ABORT, 11, "abort")           \
    X(COMMAND_PUBLISHED, 12, "published")   \
    X(COMMAND_COLLECT, 13, "collect")       \
    X(COMMAND_FINISH, 14, "finish")         \
    X(COMMAND_REMOVE, 15, "remove")         \
    X(COMMAND_REPLICATED, 16, "replicated") \
    X(COMMAND_DROPPED, 17, "dropped")       \
    X(COMMAND_MEMBER, 18, "member")         \
    X(COMMAND_DRAIN, 19, "drain")           \
    X(COMMAND_RECOVER, 20, "recover")       \
    X(COMMAND_ASSIGN, 32, "assign")         \
    X(COMMAND_PRUNE, 33, "prune")

#define COMMAND_ENUM(name, value, label) name = (value),
enum command_kind { COMMAND_NONE = 0, COMMAND_MAP(COMMAND_ENUM) };
#undef COMMAND_ENUM

enum command_role { ROLE_TRAINER = 1, ROLE_ARBITER = 2, ROLE_SPARE = 3 };
/* REGROUP: stop after a capture, and go on with other participants. */
enum command_stop { STOP_CAPTURE = 1, STOP_DROP = 2, STOP_REGROUP = 3 };
enum command_member_how {
    MEMBER_EXPECT = 1, /* an operator names who may join; a node of that name that is in goes out */
    MEMBER_JOIN = 2,   /* the expected node of that name is this identity */
    MEMBER_ADMIT = 3,  /* both at once, where the asker was authorised otherwise */
};
enum command_outcome { OUTCOME_SUCCEEDED = 1, OUTCOME_FAILED = 2 };

struct command_node {
    uint32_t node;
    uint64_t incarnation; /* grows with every start of the node's process; a smaller one is late */
    uint8_t role;         /* enum command_role */
    uint32_t life;        /* of its identity (group.h); 0: one that the cluster began with */
    uint8_t uuid[COMMAND_UUID_SIZE]; /* made with its state folder */
    char name[COMMAND_NAME_SIZE];
    char address[COMMAND_ADDRESS_SIZE];
    char device[COMMAND_DEVICE_SIZE];
    uint8_t binding[16];
};

struct command_member {
    uint8_t how;   /* enum command_member_how */
    uint32_t node; /* the free place that the proposer saw; JOIN: not looked at, as life and role */
    uint32_t life;
    uint8_t role;
    uint8_t uuid[COMMAND_UUID_SIZE]; /* EXPECT: zeros */
    char name[COMMAND_NAME_SIZE];
    char address[COMMAND_ADDRESS_SIZE]; /* "": it says when it joins */
};

struct command_remove {
    uint32_t node;
    uint32_t life;
    char name[COMMAND_NAME_SIZE]; /* of one that the cluster began with and that never came */
    char reason[COMMAND_REASON_SIZE];
};

struct command_drain {
    uint32_t node;
    uint32_t life;
    bool drained;
};

struct command_recover {
    uint32_t node; /* the survivor: everybody else is out */
    uint32_t life;
};

struct command_submit {
    uint8_t uuid[COMMAND_UUID_SIZE]; /* the client's: one job for each, however often it comes */
    char name[COMMAND_NAME_SIZE];
    char client[COMMAND_NAME_SIZE]; /* who asked, for people */
    char policy[COMMAND_POLICY_SIZE];
    uint8_t identity_inputs[SHA256_SIZE]; /* digest of model, optimizer and numerics */
    uint32_t keep;                        /* 1 .. COMMAND_KEEP_MAX */
    uint32_t replicas;                    /* copies on other nodes, as asked for */
    uint32_t nodes;                       /* participants wanted; 0: all trainers */
    bool elastic;
    const char *text; /* canonical YAML, text_size bytes, no terminating zero; borrowed */
    size_t text_size;
};

struct command_place {
    uint64_t job;
    uint64_t generation; /* one more than any before, of any job */
    uint32_t nodes_count;
    uint32_t nodes[COMMAND_NODES_MAX]; /* in order of rank */
    uint64_t incarnations[COMMAND_NODES_MAX];
};

struct command_partition {
    uint64_t job;
    uint64_t generation;
    uint8_t dataset[SHA256_SIZE];
    uint8_t identity[SHA256_SIZE]; /* the job's identity, data included */
    uint64_t rows;                 /* training rows */
    uint64_t features;
    uint64_t steps;                         /* total, passes resolved */
    uint32_t ranges_count;                  /* at most the participants; the rest takes no part */
    uint64_t bounds[COMMAND_NODES_MAX + 1]; /* range r is [bounds[r], bounds[r + 1]); bounds[0] 0 */
};

struct command_running {
    uint64_t job;
    uint64_t generation;
};

struct command_interrupt {
    uint64_t job;
    uint64_t generation;
    uint32_t node; /* the culprit, 0: not known */
    char reason[COMMAND_REASON_SIZE];
};

struct command_stop_job {
    uint64_t job;
    uint64_t turn; /* the job's (state_job.turn) when it was proposed: a late one stops nothing that
                      was resumed since; not looked at for STOP_DROP */
    uint8_t how;   /* enum command_stop */
    uint32_t node; /* that goes away (SIGTERM), or 0: a person asked */
    uint64_t incarnation;
    char reason[COMMAND_REASON_SIZE];
};

struct command_resume {
    uint64_t job;
    uint64_t turn; /* as in command_stop_job: a late one wakes no later pause */
};

struct command_begin {
    uint64_t job;
    uint64_t epoch;
    uint64_t step;
    uint64_t generation;
    bool ends; /* the participants stopped at this step */
    /* Nodes that may be given copies: bit id - 1 of those that the leader hears. Who holds which is
     * a function of this and the state (control/placement.h). */
    uint64_t live;
};

struct command_prepared {
    uint64_t job;
    uint64_t epoch;
    uint32_t node;
    uint64_t incarnation;
    uint64_t generation;
    uint64_t step;
    uint8_t sha256[SHA256_SIZE]; /* of the shard file */
    uint64_t size;
    uint32_t holders_count; /* the node itself and those that stored a copy: as BEGIN placed them */
    uint32_t holders[COMMAND_HOLDERS_MAX];
    bool has_vectors; /* the rest counts; owed by rank 0, others may leave it */
    uint8_t parameter_sha256[SHA256_SIZE];
    uint8_t accumulator_sha256[SHA256_SIZE];
    uint64_t loss_bits; /* of the captured step */
};

struct command_abort {
    uint64_t job;
    uint64_t epoch;
    uint32_t node; /* with the fault, 0: none */
    char reason[COMMAND_REASON_SIZE];
};

struct command_published {
    uint64_t job;
    uint64_t epoch;
    uint32_t node;
};

struct command_collect {
    uint64_t job;
    uint64_t epoch;
};

/* A copy of a committed shard that its node has, durable and checked (REPLICATED), or that it has
 * lost or found damaged (DROPPED); ASSIGN: the leader wants the node to make one. It is of one
 * identity: a late word of one that was removed says nothing of the next one at its place. */
struct command_copy {
    uint64_t job;
    uint64_t epoch;
    uint32_t rank; /* of the shard */
    uint32_t node;
    uint8_t sha256[SHA256_SIZE]; /* of the shard; another one is of another epoch */
    uint32_t life; /* of the node's identity; COMMAND_LIFE_UNSAID: whoever has its place */
};

struct command_prune {
    uint64_t job;
    uint32_t keep; /* from now on */
};

struct command_finish {
    uint64_t job;
    uint64_t generation;
    uint8_t outcome; /* enum command_outcome */
    uint64_t step;
    bool has_loss;
    uint64_t loss_bits; /* of the last step */
    bool has_objective;
    uint64_t objective_bits;
    char reason[COMMAND_REASON_SIZE]; /* failed: step and coordinate in words; else what to know */
};

struct command {
    enum command_kind kind;
    uint64_t wall_ms;
    union {
        struct command_node node;
        struct command_submit submit;
        struct command_place place;
        struct command_partition partition;
        struct command_running running;
        struct command_interrupt interrupt;
        struct command_stop_job stop;
        struct command_resume resume;
        struct command_begin begin;
        struct command_prepared prepared;
        struct command_abort abort;
        struct command_published published;
        struct command_collect collect;
        struct command_finish finish;
        struct command_copy copy; /* REPLICATED, DROPPED, ASSIGN */
        struct command_prune prune;
        struct command_remove remove;
        struct command_member member;
        struct command_drain drain;
        struct command_recover recover;
    };
};

/* "begin" for COMMAND_BEGIN; "unknown" for what is none. */
const char *command_label(enum command_kind kind);

/* Appends the bytes. What the program itself got wrong (a size over its limit, no such kind) is an
 * assertion, except a job text that is too long, which is the user's: ERR_JOB. */
int command_encode(const struct command *command, struct buf *out, struct err *err);

/* ERR_PROTO for anything that command_encode would not have written, trailing bytes included. */
int command_decode(const uint8_t *bytes, size_t size, struct command *ret_command, struct err *err);

/* binary64 and its bits. */
uint64_t command_bits_of(double value);
double command_double_of(uint64_t bits);

#endif

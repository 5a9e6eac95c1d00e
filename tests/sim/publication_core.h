/* The insides of publication.h. */
#ifndef COPPELIUS_TESTS_SIM_PUBLICATION_CORE_H
#define COPPELIUS_TESTS_SIM_PUBLICATION_CORE_H

#include "checkpoint/checkpoint.h"
#include "control/coordinator.h"
#include "control/state.h"
#include "tests/sim/publication.h"

#define JOBS_MAX   4U
#define EPOCHS_MAX 512U
#define SHARDS_MAX 16U /* machines in a world with publication, at most */

/* The first byte of a world_send(). */
enum pub_mail { MAIL_BEAT = 1, MAIL_STEP, MAIL_ACK, MAIL_WORD, MAIL_COPY, MAIL_ASK, MAIL_OUT };
/* MAIL_STEP, MAIL_ACK: publication_run.c. MAIL_COPY: a copy's bytes, world_serve(); the second byte
 * is 1 where it is another node's shard. MAIL_ASK: a node without a leader asks whether it was
 * removed; MAIL_OUT: it was. */

enum decision { UNDECIDED, DECIDED_COMMIT, DECIDED_ABORT };

/* What the first node that applied it saw. */
struct pub_truth {
    enum decision decision;
    uint8_t digest[SHA256_SIZE]; /* of the manifest, where committed */
    uint64_t step;
    bool collected; /* somebody applied that it goes */
    uint32_t shards_count;
    struct {
        uint32_t copies; /* that it was decided with */
        uint32_t due;    /* the fewest that any agreed state has asked for since */
        uint8_t sha256[SHA256_SIZE];
        uint64_t size;
    } shards[SHARDS_MAX];
};

struct pub_job {
    bool submitted;
    unsigned client; /* the node that keeps asking */
    uint64_t tried_us;
    bool acknowledged;
    uint64_t id;        /* 0: not yet known */
    uint64_t last;      /* the newest epoch that was committed; by id - 1, as the truths */
    uint64_t collected; /* up to here they are */
    struct pub_truth truths[EPOCHS_MAX];
};

struct publication {
    struct publication_options options;
    uint32_t jobs_made;
    struct pub_job jobs[JOBS_MAX]; /* by number; truths by id - 1 */
    /* What survives crashes: by node and job id - 1. */
    uint64_t durable_current[WORLD_NODES_MAX][JOBS_MAX];
    uint64_t ever_current[WORLD_NODES_MAX][JOBS_MAX]; /* also of disks that were lost */
    uint64_t seen_current[WORLD_NODES_MAX][JOBS_MAX]; /* in this incarnation */
    uint64_t seen_in[WORLD_NODES_MAX];                /* the incarnation */
    uint64_t verified[WORLD_NODES_MAX][JOBS_MAX];     /* CURRENT that was looked at wholly */
    bool hold_votes[WORLD_NODES_MAX];
    bool hold_publish[WORLD_NODES_MAX];
    bool full[WORLD_NODES_MAX];
    bool joining;     /* the last machine is wanted */
    unsigned removed; /* node + 1; 0: none */
    /* A machine that lost its disk for good, until its new identity has a place. */
    unsigned lost;      /* node + 1; 0: none */
    uint32_t lost_id;   /* the identity that was lost last; 0: none */
    bool lost_voter;    /* it voted */
    bool lost_replaced; /* nobody says REMOVE: the newcomer of its name takes its place */
    uint32_t lost_count;
    bool healed;
    bool looking;
    uint64_t generation; /* the greatest seen */
    uint64_t applied;    /* the greatest index that anybody has applied */
    /* A disk that was wiped or has rotten, until all copies are there again: one at a time. */
    unsigned hurt;                 /* node + 1; 0: none */
    uint64_t hurt_epoch[JOBS_MAX]; /* the next number of each job then */
    uint64_t checked_ms;
    struct publication_counts counts;
};

/* The disk's file system with somebody who looks after every change, and who forgets to fsync where
 * a mutant does. */
struct pub_fs {
    struct fs fs; /* first */
    struct fs *real;
    struct pub_node *owner;
    enum agent_kind doing;  /* the action under way */
    bool current_made;      /* in it CURRENT.new was created */
    const char *job_folder; /* of it */
};

struct pub_peer {
    bool heard;
    uint64_t heard_ms;
    uint64_t incarnation;
    struct coordinator_report captured;
    uint64_t loaded; /* generation that it has loaded, 0: none */
};

enum run_phase { RUN_NONE, RUN_SEEDING, RUN_LOADED, RUN_STEPPING, RUN_ENDED };

struct pub_run {
    uint64_t job, generation;
    enum run_phase phase;
    uint64_t step;        /* completed */
    uint64_t progress_ms; /* when it was */
    uint64_t asked_step;  /* rank 0: the step under way */
    bool capture, ends;   /* its directive */
    uint64_t asked_ms;
    bool acked[WORLD_NODES_MAX];
    uint64_t proposed_ms;
};

struct pub_agent {
    struct agent agent;
    struct agent_action action; /* under way */
    uint64_t proposed_ms;
    uint64_t retry_ms;
    uint64_t vectors_ms;      /* when rank 0's digests will be there */
    struct shard_about about; /* of the shard being staged */
    uint64_t checked;         /* epochs up to here were compared with what was decided */
    uint64_t words_ms;
    struct agent_word old; /* the last STORED that was said */
    uint64_t scrub_ms;
    bool spoilt; /* a mutant has struck */
};

struct pub_node {
    struct world *world;
    struct publication *all;
    unsigned node;
    uint64_t incarnation;
    struct pub_fs fs;
    struct state *state;
    struct coordinator coordinator;
    bool was_leading;
    struct pub_peer peers[WORLD_NODES_MAX];
    struct pub_run run;
    struct pub_agent agents[JOBS_MAX]; /* by job id - 1 */
    uint64_t beat_ms;
    uint64_t node_ms;
    uint64_t members_ms;
    uint64_t led_ms;   /* when it last knew of a leader */
    uint64_t asked_ms; /* whether it was removed */
    bool out;          /* it was: it does nothing any more */
    uint64_t disturb_ms;
    uint64_t term_ms; /* SIGTERM came: the node ends when its job has stopped, or later */
    struct control_fsm inner;
};

/* publication.c */
uint64_t pub_now_ms(const struct pub_node *node);
void pub_propose(struct pub_node *node, struct command *command);
/* The machine that has the place now; WORLD_NODES_MAX: none, it was lost. */
unsigned pub_peer_of(const struct world *world, uint32_t node_id);
uint32_t pub_id(const struct pub_node *node); /* what the state machine calls it */

/* publication_members.c */
void pub_members_tick(struct pub_node *node);
bool pub_is_member(const struct pub_node *node, unsigned number); /* as far as this node knows */
bool pub_is_out(const struct publication *all, unsigned number);
/* The identity whose disk was lost is still in, as far as this node knows. */
bool pub_lost_is_in(const struct pub_node *node);
/* A node without a leader asks the others whether it was removed; their answers. */
void pub_ask_tick(struct pub_node *node);
void pub_on_ask(struct pub_node *node, unsigned from, struct reader *in);
void pub_on_out(struct pub_node *node, struct reader *in);

/* publication_run.c */
double pub_value(uint64_t job, uint64_t coordinate, uint64_t step);
void pub_run_tick(struct pub_node *node);
void pub_run_message(struct pub_node *node, unsigned from, struct reader *in);

/* publication_files.c */
void pub_fs_init(struct pub_node *node, struct fs *real);
void pub_files_tick(struct pub_node *node);
void pub_capture(struct pub_node *node, uint64_t job, uint64_t step, bool ends);

/* publication_copies.c */
void pub_say(struct pub_node *node, const struct agent_word *word);
void pub_words_tick(struct pub_node *node, struct pub_agent *a);
void pub_on_word(struct pub_node *node, unsigned from, struct reader *in);
void pub_copy(struct pub_node *node, const struct agent_action *action,
              struct agent_result *result);
void pub_hurt_tick(struct pub_node *node);
/* One loss at a time, a disk or a node, and of nothing that is agreed to be there alone. */
bool pub_may_lose(struct world *world, unsigned node);
void pub_note_hurt(struct world *world, unsigned node);
void pub_check_copies(struct world *world);
/* One that has applied all that anybody ever has; NULL: those that are up know less, so far. */
const struct pub_node *pub_informed(struct world *world);
/* All copies of all kept epochs are where they should be. */
bool pub_copies_whole(struct world *world);

/* publication_oracle.c */
void pub_folder_of(uint64_t job, char path[FOLDER_PATH_SIZE]);
void pub_watch_state(struct pub_node *node);
void pub_look(struct pub_node *node, uint64_t job, bool wholly);
/* CURRENT is durable there, and says that epoch or a newer one. */
void pub_note_current(struct publication *all, unsigned node, uint64_t job, uint64_t epoch);
void pub_published(struct pub_node *node, uint64_t job, uint64_t epoch);
bool pub_settled(struct world *world, void *const *selves, unsigned nodes);
void pub_finish(struct world *world, void *const *selves, unsigned nodes);

#endif

/* Commands and flags as tables: parsing, help and completion come from them. */
#ifndef COPPELIUS_CTL_COMMAND_H
#define COPPELIUS_CTL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

#define CTL_VERSION    "0.1.0"
#define ARGS_SETS_MAX  64
#define ARGS_FLAGS_MAX 32 /* of one command */

/* id, name, placeholder of its value (NULL: none), one line */
#define FLAG_MAP(X)                                                                              \
    X(FLAG_ENDPOINT, "endpoint", "ADDRESS", "the daemon: unix:PATH or IP:PORT")                  \
    X(FLAG_IDENTITY, "identity", "DIR", "ca.crt, node.crt, node.key for IP:PORT over TLS")       \
    X(FLAG_OUTPUT_AS, "output-as", "FORM", "-o: table, wide, json, jsonl or name")               \
    X(FLAG_JSON, "json", NULL, "the same as -o json")                                            \
    X(FLAG_TIMEOUT, "timeout", "TIME", "give up after it: 500ms, 10s, 10min")                    \
    X(FLAG_NO_COLOR, "no-color", NULL, "no colours")                                             \
    X(FLAG_QUIET, "quiet", NULL, "-q: nothing but data and errors")                              \
    X(FLAG_HELP, "help", NULL, "-h: help for the command")                                       \
    X(FLAG_SET, "set", "KEY=VALUE", "put over the job file; may be given again")                 \
    X(FLAG_FROM, "from", "CHECKPOINT", "continue from a checkpoint folder of the same identity") \
    X(FLAG_WATCH, "watch", NULL, "stay and watch until the job ends")                            \
    X(FLAG_FOLLOW, "follow", NULL, "stay for what comes")                                        \
    X(FLAG_LINES, "lines", "N", "only the last N lines")                                         \
    X(FLAG_FOR, "for", "STATE", "the state to wait for; ended when absent")                      \
    X(FLAG_NODES, "nodes", "N", "how many daemons; 1 when absent")                               \
    X(FLAG_DEVICE, "device", "DEVICE", "cpu (when absent) or cuda")                              \
    X(FLAG_THREADS, "threads", "N", "threads of each daemon's CPU session")                      \
    X(FLAG_DIR, "dir", "DIR", "keep the checkpoint in DIR/checkpoint/epoch-NUMBER")              \
    X(FLAG_KEEP, "keep", NULL, "keep everything: configs, logs, state folders")                  \
    X(FLAG_JOB, "job", "JOB", "an id or a name; the newest job when absent")                     \
    X(FLAG_OUTPUT, "output", "PATH", "where to write")                                           \
    X(FLAG_CHECKPOINT, "checkpoint", "DIR", "a checkpoint folder with all shards")               \
    X(FLAG_DATA, "data", "FILE", "the rows to predict")                                          \
    X(FLAG_ROWS, "rows", "WHICH", "all (when absent), train or test")                            \
    X(FLAG_METRICS, "metrics", NULL, "compare with the target: RMSE, MAE, R2")                   \
    X(FLAG_CONFIG, "config", "FILE", "the daemon's file")                                        \
    X(FLAG_FORMAT, "format", "FORMAT", "the form of the data or of the export")                  \
    X(FLAG_HEADER, "header", "yes|no", "the first line has names")                               \
    X(FLAG_SEPARATOR, "separator", "S", "between fields")                                        \
    X(FLAG_DECIMAL, "decimal", "MARK", "the decimal mark")                                       \
    X(FLAG_TARGET, "target", "T", "a name, first, last or a 1-based column")                     \
    X(FLAG_DROP, "drop", "A,B", "columns to leave out")                                          \
    X(FLAG_MISSING, "missing", "HOW", "refuse or drop-row")                                      \
    X(FLAG_MISSING_VALUES, "missing-values", "A,B", "texts that mean a missing field")           \
    X(FLAG_STORAGE, "storage", "HOW", "auto, dense or sparse")                                   \
    X(FLAG_FEATURES, "features", "N", "svm: the declared width")                                 \
    X(FLAG_TEST, "test", "FRACTION", "the last rows kept for testing")                           \
    X(FLAG_SHUFFLE, "shuffle", "SEED", "order of the training rows")                             \
    X(FLAG_VOCABULARY, "vocabulary", "N", "tokens: ids are below it")                            \
    X(FLAG_AUTHORITY, "authority", "DIR", "the authority's folder")                              \
    X(FLAG_CLUSTER, "cluster", "NAME", "the cluster's name; coppelius when absent")              \
    X(FLAG_NAME, "name", "NAME", "the node's name; the host's when absent")                      \
    X(FLAG_KEY, "key", "KIND", "p256 (when absent) or ed25519")                                  \
    X(FLAG_DAYS, "days", "N", "how long the certificate is valid; 30 when absent")               \
    X(FLAG_TTL, "ttl", "TIME", "how long the token is valid; 24h when absent")                   \
    X(FLAG_USES, "uses", "N", "how many nodes it lets in; 1 when absent")                        \
    X(FLAG_ROLE, "role", "ROLE", "what the holder may: see below")                               \
    X(FLAG_ADVERTISE, "advertise", "IP:PORT", "what the others dial")                            \
    X(FLAG_STATE_DIR, "state-dir", "DIR", "the daemon's state folder")                           \
    X(FLAG_YES, "yes", NULL, "do it without asking")

#define FLAG_ENUM(id, name, value, about) id,
enum flag { FLAG_MAP(FLAG_ENUM) FLAGS_COUNT, FLAG_END = FLAGS_COUNT };
#undef FLAG_ENUM

struct flag_about {
    const char *name;
    const char *value; /* NULL: a switch */
    const char *about;
};
extern const struct flag_about flags_about[FLAGS_COUNT];

enum output { OUTPUT_TABLE, OUTPUT_WIDE, OUTPUT_JSON, OUTPUT_JSONL, OUTPUT_NAME };

/* What was given; texts are argv's. */
struct args {
    const struct ctl_command *command; /* NULL: none was named */
    const char *value[FLAGS_COUNT];    /* NULL: not given; "" for a switch that was given */
    const char *sets[ARGS_SETS_MAX];
    size_t sets_count;
    char **words; /* what is not a flag */
    int words_count;
    enum output output;
    uint64_t timeout_ms; /* UINT64_MAX where not given */
    const char *about;   /* `help job` and the like: the words behind help, else NULL */
};

/* An error with what to do about it. */
struct problem {
    struct err err;
    char hint[ERR_TEXT_SIZE];
    struct buf faults; /* lines, where there are several: shown before the error, listed in JSON */
    bool printed;      /* the document that says it is on stdout: no error document follows */
};

int problem_set(struct problem *problem, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void problem_hint(struct problem *problem, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Shows the lines on stderr and keeps them for the JSON form of the error. */
void problem_faults(struct problem *problem, const char *lines);
void problem_done(struct problem *problem);

struct ctl {
    struct args args;
    bool quiet;
    bool color; /* on stdout */
};

struct ctl_command {
    const char *noun;
    const char *verb;  /* NULL: the noun alone */
    const char *alias; /* a short form, or NULL */
    const char *words; /* usage of what is not a flag: "JOB.yaml", "[JOB]" */
    int words_least;
    int words_most;
    const char *about;    /* one line */
    const char *details;  /* further lines, or NULL */
    const char *examples; /* lines, or NULL */
    /* Where stdout's data is a document, whatever the form. Returns 0, or the code that is the exit
     * status' source, having filled *problem (an empty text there: everything was said already). */
    int (*run)(struct ctl *ctl, struct problem *problem);
    enum flag flags[ARGS_FLAGS_MAX]; /* besides the global ones; ends with FLAG_END */
};

extern const struct ctl_command commands[];
extern const size_t commands_count;
extern const enum flag flags_global[]; /* ends with FLAG_END */

/* Fills *ret_args, pointing into argv (which getopt may reorder). ERR_USAGE with a suggestion. */
int args_parse(int argc, char **argv, struct args *ret_args, struct problem *problem);

/* Help, from the table. words: `help job submit`; NULL or "" is the overview. False: no such. */
void help_overview(struct buf *out);
void help_command(const struct ctl_command *command, struct buf *out);
bool help_noun(const char *noun, struct buf *out);
void help_usage(const struct ctl_command *command, struct buf *out); /* "coppeliusctl job show …" */
#define HELP_LEFT_SIZE 64
/* "-q, --quiet" or "--job JOB" into left; returns what it means. */
const char *help_flag(enum flag flag, char left[HELP_LEFT_SIZE]);
extern const char help_exits[];
int completion_bash(struct buf *out);
int completion_zsh(struct buf *out);

/* The commands. */
int run_submit(struct ctl *ctl, struct problem *problem);
int run_jobs(struct ctl *ctl, struct problem *problem);
int run_show(struct ctl *ctl, struct problem *problem);
int run_watch(struct ctl *ctl, struct problem *problem);
int run_wait(struct ctl *ctl, struct problem *problem);
int run_logs(struct ctl *ctl, struct problem *problem);
int run_pause(struct ctl *ctl, struct problem *problem);
int run_resume(struct ctl *ctl, struct problem *problem);
int run_cancel(struct ctl *ctl, struct problem *problem);
int run_nodes(struct ctl *ctl, struct problem *problem);
int run_session(struct ctl *ctl, struct problem *problem);
int run_cluster_status(struct ctl *ctl, struct problem *problem);
int run_cluster_init(struct ctl *ctl, struct problem *problem);
int run_cluster_token(struct ctl *ctl, struct problem *problem);
int run_cluster_join(struct ctl *ctl, struct problem *problem);
int run_cluster_add(struct ctl *ctl, struct problem *problem);
int run_cluster_remove(struct ctl *ctl, struct problem *problem);
int run_drain(struct ctl *ctl, struct problem *problem);
int run_undrain(struct ctl *ctl, struct problem *problem);
int run_cluster_recover(struct ctl *ctl, struct problem *problem);
int run_pki_bundle(struct ctl *ctl, struct problem *problem);
int run_pki_user(struct ctl *ctl, struct problem *problem);
int run_doctor(struct ctl *ctl, struct problem *problem);
int run_checkpoints(struct ctl *ctl, struct problem *problem);
int run_checkpoint_show(struct ctl *ctl, struct problem *problem);
int run_checkpoint_verify(struct ctl *ctl, struct problem *problem);
int run_checkpoint_copies(struct ctl *ctl, struct problem *problem);
int run_checkpoint_prune(struct ctl *ctl, struct problem *problem);
int run_checkpoint_fetch(struct ctl *ctl, struct problem *problem);
int run_checkpoint_export(struct ctl *ctl, struct problem *problem);
int run_bench_tiles(struct ctl *ctl, struct problem *problem);
int run_bench_images(struct ctl *ctl, struct problem *problem);
int run_images(struct ctl *ctl, struct problem *problem);
int run_predict(struct ctl *ctl, struct problem *problem);
int run_data_tokens(struct ctl *ctl, struct problem *problem); /* import --format tokens */
int run_data_import(struct ctl *ctl, struct problem *problem);
int run_data_info(struct ctl *ctl, struct problem *problem);
int run_data_verify(struct ctl *ctl, struct problem *problem);
int run_local(struct ctl *ctl, struct problem *problem);
int run_config_check(struct ctl *ctl, struct problem *problem);
int run_config_show(struct ctl *ctl, struct problem *problem);
int run_completion(struct ctl *ctl, struct problem *problem);
int run_version(struct ctl *ctl, struct problem *problem);
int run_help(struct ctl *ctl, struct problem *problem);

#endif

/* cluster recover: this node goes on alone, when a majority of the voters is gone for good. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "control/survive.h"
#include "ctl/document.h"

#define STATE_DIR "/var/lib/coppelius"

/* The daemon must not run: it holds this lock as long as it lives. */
static int lock(const char *folder, int *ret_fd, struct problem *problem)
{
    char path[1100];
    (void)snprintf(path, sizeof(path), "%.1024s/lock", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        problem_hint(problem, "give --state-dir as the daemon's config has it, and run it as the "
                              "daemon's user");
        return problem_set(problem, ERR_NOT_FOUND,
                           "'%s' is no state folder of a coppeliusd that "
                           "can be opened",
                           folder);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        problem_hint(problem, "stop it first: systemctl stop coppeliusd");
        return problem_set(problem, ERR_BUSY, "a coppeliusd runs on '%s'", folder);
    }
    *ret_fd = fd;
    return 0;
}

/* Shards of the newest checkpoint that no copy here can give back. */
static uint32_t shards_elsewhere(const struct state_epoch *epoch, uint32_t self)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        bool here = false;
        for (uint32_t k = 0; k < epoch->shards[i].holders_count; k++) {
            here = here || epoch->shards[i].holders[k] == self;
        }
        missing += here ? 0 : 1;
    }
    return missing;
}

static json_t *describe(const struct survivor *survivor)
{
    const struct state *state = survivor->state;
    uint32_t self = member_place(survivor->self);
    json_t *fenced = json_array();
    json_t *jobs = json_array();
    for (uint32_t i = 0; i < state->nodes_count; i++) {
        if (state->nodes[i].id != self && state->nodes[i].standing != STANDING_REMOVED) {
            (void)json_array_append_new(fenced, json_string(state->nodes[i].name));
        }
    }
    for (uint32_t i = 0; i < survivor->silent.count; i++) {
        (void)json_array_append_new(
            fenced, json_string(state_node_name(state, survivor->silent.items[i].id)));
    }
    for (uint32_t i = 0; i < state->jobs_count; i++) {
        const struct state_job *job = state->jobs[i];
        const struct state_epoch *newest = state_newest_epoch(job);
        uint64_t kept = 0;
        for (uint32_t k = 0; k < job->epochs_count; k++) {
            kept = shards_elsewhere(job->epochs[k], self) == 0 ? job->epochs[k]->step : kept;
        }
        (void)json_array_append_new(
            jobs, json_pack("{s:s, s:s, s:I, s:I, s:i}", "name", job->name, "state",
                            state_job_label(job->state), "newest_step",
                            (json_int_t)(newest == NULL ? 0 : newest->step), "kept_step",
                            (json_int_t)kept, "shards_elsewhere",
                            newest == NULL ? 0 : (int)shards_elsewhere(newest, self)));
    }
    return json_pack("{s:i, s:s, s:I, s:I, s:o, s:o}", "schema", 1, "survivor",
                     state_node_name(state, self), "last_index", (json_int_t)survivor->last_index,
                     "term", (json_int_t)survivor->term, "fenced", fenced, "jobs", jobs);
}

static void draw_cost(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    size_t index = 0;
    json_t *item = NULL;
    (void)ctl;
    buf_print(
        out, "Node '%s' would go on alone with its own log (up to entry %lld, term %lld).\n\n",
        document_text(document, "survivor"), (long long)document_integer(document, "last_index"),
        (long long)document_integer(document, "term"));
    buf_print(out,
              "What it may cost:\n"
              "- Whatever the others agreed on and this log has not heard of is lost: jobs handed "
              "in,\n  checkpoints published, members added or removed in their last moments.\n"
              "- What this log holds and no majority had agreed on becomes true.\n");
    json_array_foreach(document_list(document, "fenced"), index, item)
    {
        buf_print(
            out,
            "- Node '%s' is out for good, and what lies on it with it. Do not start it again: "
            "those\n  that are out could form a cluster of their own. Empty its state folder "
            "and add it anew.\n",
            json_string_value(item));
    }
    json_array_foreach(document_list(document, "jobs"), index, item)
    {
        long long newest = (long long)document_integer(item, "newest_step");
        long long kept = (long long)document_integer(item, "kept_step");
        long long missing = (long long)document_integer(item, "shards_elsewhere");
        if (newest == 0) {
            buf_print(out, "- Job '%s' (%s) has no checkpoint.\n", document_text(item, "name"),
                      document_text(item, "state"));
        } else if (missing == 0) {
            buf_print(out, "- Job '%s' (%s) keeps its newest checkpoint, of step %lld.\n",
                      document_text(item, "name"), document_text(item, "state"), newest);
        } else {
            buf_print(out,
                      "- Job '%s' (%s): %lld shards of its newest checkpoint (step %lld) lie on "
                      "others only; %s",
                      document_text(item, "name"), document_text(item, "state"), missing, newest,
                      kept > 0 ? "" : "it has no other that is whole here, and is lost.\n");
            if (kept > 0) {
                buf_print(out, "it goes back to step %lld.\n", kept);
            }
        }
    }
}

/* Typed by a person, or --yes. */
static int confirm(const struct ctl *ctl, const char *name, struct problem *problem)
{
    char line[256];
    if (ctl->args.value[FLAG_YES] != NULL) {
        return 0;
    }
    if (!isatty(STDIN_FILENO)) {
        problem_hint(problem, "where that is what you want, say it with --yes");
        return problem_set(problem, ERR_USAGE, "nothing was changed");
    }
    (void)fprintf(stderr,
                  "\nType the node's name ('%s') to go on, anything else to leave it: ", name);
    if (fgets(line, sizeof(line), stdin) == NULL) {
        line[0] = '\0';
    }
    line[strcspn(line, "\r\n")] = '\0';
    return strcmp(line, name) == 0 ? 0 : problem_set(problem, ERR_CANCELED, "nothing was changed");
}

int run_cluster_recover(struct ctl *ctl, struct problem *problem)
{
    const char *folder =
        ctl->args.value[FLAG_STATE_DIR] != NULL ? ctl->args.value[FLAG_STATE_DIR] : STATE_DIR;
    struct survivor survivor = {0};
    struct fs *fs = NULL;
    json_t *document = NULL;
    int lock_fd = -1;
    int code = lock(folder, &lock_fd, problem);
    code = code != 0 ? code : fs_posix_open(folder, &fs, &problem->err);
    code = code != 0 ? code : survive_look(fs, "log", &survivor, &problem->err);
    if (code == 0) {
        document = describe(&survivor);
        code = output_document(ctl, document, NULL, "survivor", draw_cost, problem);
    }
    code = code != 0 ? code : confirm(ctl, document_text(document, "survivor"), problem);
    code = code != 0 ? code : survive_act(&survivor, (uint64_t)clock_wall_ms(), &problem->err);
    if (code == 0) {
        say(ctl, "done: start the daemon; it goes on alone, in a new generation");
    }
    json_decref(document);
    survivor_done(&survivor);
    fs_posix_close(fs);
    if (lock_fd >= 0) {
        (void)close(lock_fd);
    }
    return code;
}

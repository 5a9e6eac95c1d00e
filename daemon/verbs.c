/* What a person may ask for: submit, cancel, pause, resume. Each becomes an entry of the log,
 * proposed until it is seen applied here; then the answer is given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/core.h"
#include "proto/job.h"

#define VERB_AGAIN_MS     500
#define VERB_TIMEOUT_MS   30000
#define VERIFY_TIMEOUT_MS 3600000
#define VERBS_MAX         256

struct verb {
    struct verb *next;
    struct command command; /* COMMAND_NONE: verify, which proposes nothing */
    uint64_t verify;        /* publish_verify()'s */
    char *text;             /* submit: what command.submit.text points at */
    uint64_t job;
    uint64_t until_ms;
    uint64_t proposed_ms;
    bool existed;
    char *faults; /* a refused job file's, one a line */
    facts_done_fn *done;
    void *context;
};

static void verb_free(struct verb *verb)
{
    free(verb->text);
    free(verb->faults);
    free(verb);
}

static struct verb *verb_new(struct daemon *daemon, facts_done_fn *done, void *context,
                             struct err *err)
{
    size_t count = 0;
    for (struct verb *verb = daemon->verbs; verb != NULL; verb = verb->next) {
        count++;
    }
    if (daemon->stopping) {
        (void)err_set(err, ERR_UNHEALTHY, "node %s is stopping; ask another one", daemon->name);
        return NULL;
    }
    if (count >= VERBS_MAX) {
        (void)err_set(err, ERR_BUSY, "%zu requests are waiting already; try again", count);
        return NULL;
    }
    struct verb *verb = calloc(1, sizeof(*verb));
    if (verb == NULL) {
        (void)err_set(err, ERR_NOMEM, "no memory for a request");
        return NULL;
    }
    verb->until_ms = clock_now_ms() + VERB_TIMEOUT_MS;
    verb->done = done;
    verb->context = context;
    return verb;
}

static void verb_put(struct daemon *daemon, struct verb *verb)
{
    verb->next = daemon->verbs;
    daemon->verbs = verb;
    daemon_soon(daemon);
}

/* ---- is it so by now? ---- */

static bool is_settled(const struct daemon *daemon, struct verb *verb)
{
    const struct state_job *job = NULL;
    if (verb->faults != NULL) {
        return true;
    }
    switch (verb->command.kind) {
    case COMMAND_SUBMIT:
        job = state_job_by_uuid(&daemon->state, verb->command.submit.uuid);
        verb->job = job != NULL ? job->id : 0;
        return job != NULL;
    case COMMAND_STOP:
        job = state_job(&daemon->state, verb->job);
        return job == NULL || state_job_ended(job) ||
               (verb->command.stop.how == STOP_CAPTURE &&
                ((job->state == JOB_PAUSED && job->hold == HOLD_USER) ||
                 (job->stopping && job->stop_node == 0)));
    case COMMAND_RESUME:
        job = state_job(&daemon->state, verb->job);
        return job == NULL || state_job_ended(job) || job->hold != HOLD_USER;
    case COMMAND_PRUNE:
        job = state_job(&daemon->state, verb->job);
        return job == NULL || job->keep == verb->command.prune.keep;
    case COMMAND_MEMBER:
    case COMMAND_REMOVE:
    case COMMAND_DRAIN:
        return membership_settled(daemon, &verb->command);
    case COMMAND_NONE:
        return publish_verified(daemon, verb->job, verb->verify);
    case COMMAND_RECOVER:
    case COMMAND_REPLICATED:
    case COMMAND_DROPPED:
    case COMMAND_ASSIGN:
    case COMMAND_NODE:
    case COMMAND_PLACE:
    case COMMAND_PARTITION:
    case COMMAND_RUNNING:
    case COMMAND_INTERRUPT:
    case COMMAND_BEGIN:
    case COMMAND_PREPARED:
    case COMMAND_ABORT:
    case COMMAND_PUBLISHED:
    case COMMAND_COLLECT:
    case COMMAND_FINISH:
        break;
    }
    ASSERT(false);
    return true;
}

static void answer(struct verb *verb, int code, const char *text, const char *hint)
{
    struct facts_result *result = calloc(1, sizeof(*result));
    ASSERT(result != NULL);
    result->job = verb->job;
    result->existed = verb->existed;
    result->faults = verb->faults;
    if (code != 0) {
        (void)err_set(&result->err, code, "%s", text);
        (void)snprintf(result->hint, sizeof(result->hint), "%s", hint);
    }
    verb->done(verb->context, result);
    free(result);
    verb_free(verb);
}

/* Stops and resumes name the turn that they saw; a person's wish outlives a turn, so each proposal
 * names the newest. */
static void name_turn(const struct daemon *daemon, struct verb *verb)
{
    const struct state_job *job = state_job(&daemon->state, verb->job);
    if (job != NULL && verb->command.kind == COMMAND_STOP) {
        verb->command.stop.turn = job->turn;
    }
    if (job != NULL && verb->command.kind == COMMAND_RESUME) {
        verb->command.resume.turn = job->turn;
    }
    membership_name(daemon, &verb->command);
}

void verbs_turn(struct daemon *daemon)
{
    uint64_t now = clock_now_ms();
    struct verb *ready = NULL;
    for (struct verb **at = &daemon->verbs; *at != NULL;) {
        struct verb *verb = *at;
        if (is_settled(daemon, verb) || now >= verb->until_ms) {
            *at = verb->next;
            verb->next = ready;
            ready = verb;
            continue;
        }
        if (verb->command.kind == COMMAND_NONE) {
            at = &verb->next;
            continue;
        }
        if (verb->proposed_ms == 0 || now - verb->proposed_ms >= VERB_AGAIN_MS) {
            verb->proposed_ms = now;
            name_turn(daemon, verb);
            daemon_propose(daemon, &verb->command);
        }
        at = &verb->next;
    }
    while (ready != NULL) {
        struct verb *verb = ready;
        ready = verb->next;
        if (verb->faults != NULL) {
            char first[FACTS_TEXT_SIZE];
            (void)snprintf(first, sizeof(first), "%.*s", (int)strcspn(verb->faults, "\n"),
                           verb->faults);
            answer(verb, ERR_JOB, first, "mend the job file; nothing was submitted");
        } else if (is_settled(daemon, verb)) {
            answer(verb, 0, "", "");
        } else {
            answer(verb, ERR_UNHEALTHY,
                   verb->command.kind == COMMAND_NONE ? "the files could not be read in an hour"
                   : daemon_leader(daemon) == 0
                       ? "the cluster has no leader now, so nothing can be written down"
                       : "the cluster did not write it down in 30 s",
                   "'coppeliusctl cluster status' shows who is missing; it may still take effect, "
                   "and asking again is safe");
        }
    }
}

void verbs_cancel(struct daemon *daemon)
{
    while (daemon->verbs != NULL) {
        struct verb *verb = daemon->verbs;
        daemon->verbs = verb->next;
        answer(verb, ERR_CANCELED, "the daemon is stopping", "ask another node");
    }
}

/* ---- the verbs ---- */

/* A job file with faults is answered like everything else: later, with all of them. */
static int refuse_faults(struct daemon *daemon, struct faults *faults, facts_done_fn *done,
                         void *context, struct err *err)
{
    struct buf text = BUF_NONE;
    faults_print(faults, &text);
    faults_done(faults);
    while (text.size > 0 && text.bytes[text.size - 1] == '\n') {
        text.size--;
    }
    buf_put_u8(&text, 0);
    struct verb *verb = verb_new(daemon, done, context, err);
    if (verb == NULL) {
        buf_done(&text);
        return err->code;
    }
    verb->faults = (char *)text.bytes; /* Takes. */
    verb_put(daemon, verb);
    return 0;
}

int verbs_submit(void *context, const struct facts_submit *asked, facts_done_fn *done,
                 void *done_context, struct err *err)
{
    struct daemon *daemon = context;
    struct faults faults = FAULTS_NONE;
    struct job job;
    if (job_parse(asked->text, asked->text_size, asked->file_name, asked->folder, asked->overrides,
                  asked->overrides_count, &job, &faults) != 0) {
        return refuse_faults(daemon, &faults, done, done_context, err);
    }
    if (asked->from != NULL && asked->from[0] != '\0') {
        free(job.checkpoint.from);
        job.checkpoint.from = strdup(asked->from);
        ASSERT(job.checkpoint.from != NULL);
    }
    struct verb *verb = verb_new(daemon, done, done_context, err);
    if (verb == NULL) {
        job_done(&job);
        return err->code;
    }
    struct buf text = BUF_NONE;
    job_write(&job, &text);
    struct command_submit *submit = &verb->command.submit;
    verb->command.kind = COMMAND_SUBMIT;
    memcpy(submit->uuid, asked->uuid, sizeof(submit->uuid));
    (void)snprintf(submit->name, sizeof(submit->name), "%s", job.name);
    (void)snprintf(submit->client, sizeof(submit->client), "%s", daemon->name);
    (void)snprintf(submit->policy, sizeof(submit->policy), "%s", job_policy(&job));
    static const uint8_t no_dataset[SHA256_SIZE];
    job_identity(&job, no_dataset, submit->identity_inputs);
    submit->keep =
        job.checkpoint.keep > COMMAND_KEEP_MAX ? COMMAND_KEEP_MAX : (uint32_t)job.checkpoint.keep;
    submit->replicas = (uint32_t)job.checkpoint.replicas;
    submit->elastic = job.elastic;
    job_done(&job);
    if (text.size > COMMAND_JOB_TEXT_MAX) {
        int code = err_set(err, ERR_JOB, "%s: the job has %zu bytes; the most is %d",
                           asked->file_name, text.size, COMMAND_JOB_TEXT_MAX);
        buf_done(&text);
        verb_free(verb);
        return code;
    }
    verb->text = (char *)text.bytes; /* Takes. */
    submit->text = verb->text;
    submit->text_size = text.size;
    verb->existed = state_job_by_uuid(&daemon->state, submit->uuid) != NULL;
    verb_put(daemon, verb);
    return 0;
}

int verbs_member(void *context, const struct facts_member *ask, facts_done_fn *done,
                 void *done_context, struct err *err)
{
    struct daemon *daemon = context;
    struct command command;
    if (membership_command(daemon, ask, &command, err) != 0) {
        return err->code;
    }
    struct verb *verb = verb_new(daemon, done, done_context, err);
    if (verb == NULL) {
        return err->code;
    }
    verb->command = command;
    verb_put(daemon, verb);
    return 0;
}

static int job_verb(struct daemon *daemon, uint64_t id, const struct command *command,
                    facts_done_fn *done, void *context, struct err *err)
{
    const struct state_job *job = state_job(&daemon->state, id);
    if (job == NULL) {
        return err_set(err, ERR_NOT_FOUND, "there is no job %llu", (unsigned long long)id);
    }
    if (state_job_ended(job)) {
        return err_set(err, ERR_STATE, "job %llu has %s", (unsigned long long)id,
                       state_job_label(job->state));
    }
    struct verb *verb = verb_new(daemon, done, context, err);
    if (verb == NULL) {
        return err->code;
    }
    verb->command = *command;
    verb->job = id;
    verb_put(daemon, verb);
    return 0;
}

int verbs_cancel_job(void *context, uint64_t job, facts_done_fn *done, void *done_context,
                     struct err *err)
{
    struct command command = {.kind = COMMAND_STOP};
    command.stop.job = job;
    command.stop.how = STOP_DROP;
    (void)snprintf(command.stop.reason, sizeof(command.stop.reason), "cancelled by a person");
    return job_verb(context, job, &command, done, done_context, err);
}

int verbs_pause(void *context, uint64_t job, facts_done_fn *done, void *done_context,
                struct err *err)
{
    struct command command = {.kind = COMMAND_STOP};
    command.stop.job = job;
    command.stop.how = STOP_CAPTURE;
    (void)snprintf(command.stop.reason, sizeof(command.stop.reason), "paused by a person");
    return job_verb(context, job, &command, done, done_context, err);
}

int verbs_verify(void *context, uint64_t id, facts_done_fn *done, void *done_context,
                 struct err *err)
{
    struct daemon *daemon = context;
    if (state_job(&daemon->state, id) == NULL) {
        return err_set(err, ERR_NOT_FOUND, "there is no job %llu", (unsigned long long)id);
    }
    struct verb *verb = verb_new(daemon, done, done_context, err);
    if (verb == NULL) {
        return err->code;
    }
    verb->job = id;
    verb->until_ms = clock_now_ms() + VERIFY_TIMEOUT_MS;
    verb->verify = publish_verify(daemon, id);
    verb_put(daemon, verb);
    return 0;
}

int verbs_prune(void *context, uint64_t id, uint32_t keep, facts_done_fn *done, void *done_context,
                struct err *err)
{
    struct daemon *daemon = context;
    if (state_job(&daemon->state, id) == NULL) {
        return err_set(err, ERR_NOT_FOUND, "there is no job %llu", (unsigned long long)id);
    }
    if (keep < 1 || keep > COMMAND_KEEP_MAX) {
        return err_set(err, ERR_USAGE, "prune: %u checkpoints; 1 to %d can be kept", keep,
                       COMMAND_KEEP_MAX);
    }
    struct verb *verb = verb_new(daemon, done, done_context, err);
    if (verb == NULL) {
        return err->code;
    }
    verb->job = id;
    verb->command = (struct command){.kind = COMMAND_PRUNE};
    verb->command.prune.job = id;
    verb->command.prune.keep = keep;
    verb_put(daemon, verb);
    return 0;
}

int verbs_resume(void *context, uint64_t id, facts_done_fn *done, void *done_context,
                 struct err *err)
{
    struct command command = {.kind = COMMAND_RESUME};
    command.resume.job = id;
    return job_verb(context, id, &command, done, done_context, err);
}

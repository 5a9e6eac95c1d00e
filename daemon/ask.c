#include "daemon/ask.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/api_room.h"
#include "daemon/ask_room.h"
#include "daemon/connection.h"
#include "daemon/documents.h"

#define LOG_LINES_A_REPLY 256

/* Large ones: the loop's only copies. */
static struct facts_job job_read;
static struct facts_epoch epoch_read;

const struct facts *ask_facts(const struct connection *connection)
{
    return connection->api->settings.facts;
}

/* ---- replies ---- */

static void reply_error(struct connection *connection, int code, const char *text, const char *hint)
{
    union {
        const char *in;
        char *out;
    } text_out = {text}, hint_out = {hint}; /* Generated structs have no const. */
    ASSERT(code != 0);
    Ctl__Reply reply;
    ctl__reply__init(&reply);
    reply.id = connection->ask.id;
    reply.code = code;
    reply.text = text_out.out;
    reply.hint = hint_out.out;
    connection_reply(connection, &reply);
}

static void reply_document(struct connection *connection, json_t *document, bool more)
{
    struct buf text = BUF_NONE;
    document_put(document, &text);
    Ctl__Reply reply;
    ctl__reply__init(&reply);
    reply.id = connection->ask.id;
    reply.json = (ProtobufCBinaryData){.len = text.size, .data = text.bytes};
    reply.more = more;
    connection_reply(connection, &reply);
    buf_done(&text);
}

/* The last reply was made. */
void ask_finish(struct connection *connection)
{
    connection->ask.state = ASK_IDLE;
    connection_flush(connection);
}

void ask_fail(struct connection *connection, int code, const char *text, const char *hint)
{
    reply_error(connection, code, text, hint);
    ask_finish(connection);
}

void ask_answer(struct connection *connection, json_t *document)
{
    reply_document(connection, document, /* more= */ false);
    ask_finish(connection);
}

/* ---- jobs ---- */

/* A job by its id, or the newest of a name, or the newest of all. 0 after a failure was replied. */
uint64_t ask_find_job(struct connection *connection, const char *wanted)
{
    static uint64_t ids[FACTS_JOBS_MAX];
    const struct facts *facts = ask_facts(connection);
    size_t count = facts->job_ids(facts->daemon, ids, FACTS_JOBS_MAX);
    ASSERT(count <= FACTS_JOBS_MAX);
    if (wanted[0] == '\0' && count > 0) {
        return ids[count - 1];
    }
    if (wanted[0] == '\0') {
        ask_fail(connection, ERR_NOT_FOUND, "there is no job yet",
                 "hand one in: coppeliusctl submit JOB.yaml");
        return 0;
    }
    bool is_number = strspn(wanted, "0123456789") == strlen(wanted) && strlen(wanted) < 20;
    uint64_t number = is_number ? strtoull(wanted, NULL, 10) : 0;
    for (size_t i = count; i > 0; i--) {
        if (number != 0 && ids[i - 1] == number) {
            return number;
        }
    }
    for (size_t i = count; i > 0; i--) { /* The newest first. */
        if (facts->job(facts->daemon, ids[i - 1], &job_read) &&
            strcmp(job_read.name, wanted) == 0) {
            return ids[i - 1];
        }
    }
    char text[128];
    (void)snprintf(text, sizeof(text), "there is no job '%.63s'", wanted);
    ask_fail(connection, ERR_NOT_FOUND, text,
             "`coppeliusctl jobs` lists them; a job has an id and a name");
    return 0;
}

static void answer_job(struct connection *connection, uint64_t id)
{
    const struct facts *facts = ask_facts(connection);
    if (!facts->job(facts->daemon, id, &job_read)) {
        ask_fail(connection, ERR_NOT_FOUND, "the job is not known here any more",
                 "`coppeliusctl jobs` lists those that are");
        return;
    }
    ask_answer(connection, document_job(facts, &job_read));
}

static bool losses_pending(struct connection *connection)
{
    const struct facts *facts = ask_facts(connection);
    return facts->losses_pending != NULL &&
           facts->losses_pending(facts->daemon, connection->ask.job);
}

static void show_tick(struct connection *connection)
{
    if (!losses_pending(connection)) {
        answer_job(connection, connection->ask.job);
    }
}

/* What a verb came to. */
void ask_on_done(void *context, const struct facts_result *result)
{
    struct connection *connection = context;
    ASSERT(connection->ask.busy);
    connection->ask.busy = false;
    if (connection->state == CONNECTION_CLOSED) {
        connection_release(connection); /* It may be gone now: touch nothing after. */
        return;
    }
    if (result->err.code != 0) {
        ask_fail(connection, result->err.code,
                 result->faults != NULL ? result->faults : result->err.text, result->hint);
        return;
    }
    answer_job(connection, result->job);
}

/* A verb was begun, or it failed at once. */
void ask_began(struct connection *connection, int status, const struct err *err)
{
    if (status != 0) {
        ask_fail(connection, err->code, err->text, "");
        return;
    }
    connection->ask.state = ASK_VERB;
    connection->ask.busy = true;
}

static void submit(struct connection *connection, const Ctl__Submit *request)
{
    const struct facts *facts = ask_facts(connection);
    struct facts_submit job = {.text = request->job_text,
                               .text_size = strlen(request->job_text),
                               .file_name = request->file_name,
                               .folder = request->folder,
                               .overrides = (const char *const *)request->overrides,
                               .overrides_count = request->n_overrides,
                               .from = request->from};
    if (request->uuid.len != sizeof(job.uuid)) {
        ask_fail(connection, ERR_PROTO, "submit: the uuid has not 16 bytes",
                 "use this version's coppeliusctl");
        return;
    }
    if (job.text_size > FACTS_JOB_TEXT_MAX || job.overrides_count > 64) {
        ask_fail(connection, ERR_JOB, "the job file is over 1 MiB, or there are over 64 --set",
                 "put large lists into files of their own");
        return;
    }
    if ((job.folder[0] != '\0' && job.folder[0] != '/') ||
        (job.from[0] != '\0' && job.from[0] != '/')) {
        ask_fail(connection, ERR_PROTO, "submit: folder and from must be absolute paths",
                 "use this version's coppeliusctl");
        return;
    }
    memcpy(job.uuid, request->uuid.data, sizeof(job.uuid));
    struct err err = {0};
    ask_began(connection, facts->submit(facts->daemon, &job, ask_on_done, connection, &err), &err);
}

typedef int verb_fn(void *daemon, uint64_t job, facts_done_fn *done, void *context,
                    struct err *err);

static void job_verb(struct connection *connection, verb_fn *verb, const char *wanted)
{
    uint64_t id = ask_find_job(connection, wanted);
    if (id != 0) {
        struct err err = {0};
        ask_began(connection,
                  verb(ask_facts(connection)->daemon, id, ask_on_done, connection, &err), &err);
    }
}

/* ---- predictions ---- */

static void send_values(struct connection *connection)
{
    struct ask *ask = &connection->ask;
    size_t left = ask->values_count - ask->values_sent;
    Ctl__Reply reply;
    ctl__reply__init(&reply);
    reply.id = ask->id;
    if (left > 0) {
        size_t count =
            left < API_PIECE_SIZE / sizeof(double) ? left : API_PIECE_SIZE / sizeof(double);
        /* Both ends are little endian: base/ refuses to compile elsewhere. */
        reply.data = (ProtobufCBinaryData){
            .len = count * sizeof(double),
            .data = (uint8_t *)(ask->values + ask->values_sent),
        };
        reply.more = true;
        ask->values_sent += count;
        connection_reply(connection, &reply);
        connection_flush(connection);
        return;
    }
    reply.json = (ProtobufCBinaryData){.len = ask->document.size, .data = ask->document.bytes};
    connection_reply(connection, &reply);
    buf_done(&ask->document);
    free(ask->values);
    ask->values = NULL;
    ask_finish(connection);
}

static void on_predicted(void *context, struct facts_prediction *prediction)
{
    struct connection *connection = context;
    struct ask *ask = &connection->ask;
    ASSERT(ask->busy);
    ask->busy = false;
    if (connection->state == CONNECTION_CLOSED) {
        free(prediction->values);
        connection_release(connection); /* It may be gone now: touch nothing after. */
        return;
    }
    if (prediction->err.code != 0) {
        ASSERT(prediction->values == NULL);
        ask_fail(connection, prediction->err.code, prediction->err.text, prediction->hint);
        return;
    }
    document_put(document_predict(prediction), &ask->document);
    ask->values = prediction->values;
    ask->values_count = prediction->values_count;
    ask->values_sent = 0;
    ask->state = ASK_VALUES;
    send_values(connection);
}

/* How far it is, where that is new. */
static void verb_tick(struct connection *connection)
{
    struct ask *ask = &connection->ask;
    uint64_t done = atomic_load(&ask->meter.done_bytes);
    if (atomic_load(&ask->meter.phase) != NULL && done != ask->meter_told) {
        ask->meter_told = done;
        reply_document(connection, document_work(&ask->meter), /* more= */ true);
        connection_flush(connection);
    }
}

static void predict(struct connection *connection, const Ctl__Predict *request)
{
    const struct facts *facts = ask_facts(connection);
    struct facts_predict question = {.checkpoint = request->checkpoint,
                                     .data_path = request->data_path,
                                     .data_settings = request->data_settings,
                                     .rows = request->rows[0] == '\0' ? "all" : request->rows,
                                     .metrics = request->metrics,
                                     .meter = &connection->ask.meter};
    if (question.checkpoint[0] != '/' || question.data_path[0] != '/') {
        ask_fail(connection, ERR_USAGE,
                 "predict: checkpoint and data must be absolute paths on the daemon's machine", "");
        return;
    }
    if (strcmp(question.rows, "all") != 0 && strcmp(question.rows, "train") != 0 &&
        strcmp(question.rows, "test") != 0) {
        ask_fail(connection, ERR_USAGE, "predict: rows must be all, train or test", "");
        return;
    }
    struct err err = {0};
    ask_began(connection, facts->predict(facts->daemon, &question, on_predicted, connection, &err),
              &err);
}

/* ---- streams ---- */

/* An epoch that was published since the last look. */
static void tell_epoch(struct connection *connection)
{
    struct ask *ask = &connection->ask;
    const struct facts *facts = ask_facts(connection);
    if (!job_read.has_epoch || (ask->has_epoch && job_read.epoch == ask->epoch)) {
        return;
    }
    ask->has_epoch = true;
    ask->epoch = job_read.epoch;
    if (facts->epoch(facts->daemon, ask->job, ask->epoch, &epoch_read)) {
        reply_document(connection, document_checkpoint(&job_read, &epoch_read), /* more= */ true);
    }
}

/* What is new of a watched job, all events in one write. An epoch comes before the state that
 * follows from it: a job that has succeeded publishes nothing more. */
static void watch_tick(struct connection *connection)
{
    struct ask *ask = &connection->ask;
    const struct facts *facts = ask_facts(connection);
    if (!facts->job(facts->daemon, ask->job, &job_read)) {
        ask_fail(connection, ERR_NOT_FOUND, "the job is not known here any more", "");
        return;
    }
    if (!ask->begun && losses_pending(connection)) {
        return;
    }
    uint64_t version = facts->job_version(facts->daemon, ask->job);
    bool changed = version != ask->version;
    ask->version = version;
    if (!ask->begun) {
        reply_document(connection, document_history(facts, &job_read), /* more= */ true);
        ask->has_epoch = job_read.has_epoch;
        ask->epoch = job_read.epoch;
    } else {
        tell_epoch(connection);
        if (strcmp(ask->job_state, job_read.state) != 0) {
            reply_document(connection, document_state(&job_read), /* more= */ true);
        }
    }
    (void)snprintf(ask->job_state, sizeof(ask->job_state), "%s", job_read.state);
    if (changed || !ask->begun) {
        reply_document(connection, document_progress(&job_read), /* more= */ true);
    }
    ask->begun = true;
    if (job_read.ended || !ask->follow) {
        ask_answer(connection, document_end(facts, &job_read));
        return;
    }
    connection_flush(connection);
}

static void watch(struct connection *connection, const Ctl__JobWatch *request)
{
    uint64_t id = ask_find_job(connection, request->job);
    if (id != 0) {
        connection->ask.state = ASK_WATCH;
        connection->ask.job = id;
        connection->ask.follow = request->follow;
        watch_tick(connection);
    }
}

static void logs_tick(struct connection *connection)
{
    static struct log_ring_line lines[LOG_LINES_A_REPLY];
    struct ask *ask = &connection->ask;
    struct log_ring *ring = connection->api->settings.log_ring;
    const char *needles[2] = {ask->needles[0], ask->needles[1]};
    size_t count = log_ring_read(ring, ask->log_after, needles, ask->needles_count, lines,
                                 LOG_LINES_A_REPLY, &ask->log_after);
    bool last = count < LOG_LINES_A_REPLY && !ask->follow;
    if (count > 0 || last) {
        reply_document(connection, document_logs(connection->api->settings.node, lines, count),
                       !last);
    }
    if (last) {
        ask_finish(connection);
    } else {
        connection_flush(connection);
    }
}

static void logs(struct connection *connection, const Ctl__JobLogs *request)
{
    struct ask *ask = &connection->ask;
    const struct facts *facts = ask_facts(connection);
    ask->needles_count = 0;
    if (request->job[0] != '\0') {
        uint64_t id = ask_find_job(connection, request->job);
        if (id == 0) {
            return;
        }
        if (facts->job(facts->daemon, id, &job_read)) {
            ask->needles_count = 2; /* What rooms log of a job has one of these. */
            (void)snprintf(ask->needles[0], sizeof(ask->needles[0]), "job=%llu",
                           (unsigned long long)id);
            (void)snprintf(ask->needles[1], sizeof(ask->needles[1]), "run=%s", job_read.name);
        }
    }
    const char *needles[2] = {ask->needles[0], ask->needles[1]};
    ask->log_after = log_ring_before_last(connection->api->settings.log_ring, request->lines,
                                          needles, ask->needles_count);
    ask->state = ASK_LOGS;
    ask->follow = request->follow;
    logs_tick(connection);
}

/* ---- doctor ---- */

static void on_doctor(void *context, const struct document_check *checks, size_t checks_count)
{
    struct connection *connection = context;
    ASSERT(connection->ask.busy);
    connection->ask.busy = false;
    if (connection->state == CONNECTION_CLOSED) {
        connection_release(connection);
        return;
    }
    ask_answer(connection, document_doctor(checks, checks_count));
}

/* ---- the door ---- */

void ask_begin(struct connection *connection, const Ctl__Request *request)
{
    struct ask *ask = &connection->ask;
    ASSERT(ask->state == ASK_IDLE);
    ASSERT(!ask->busy);
    *ask = (struct ask){.id = request->id};
    if (connection->stranger && !ask_for_itself(connection, request)) {
        ask_fail(connection, ERR_AUTH,
                 "your certificate is of a node that is no member: it may ask to be one, no more",
                 "use a certificate of `coppeliusctl pki user`");
        return;
    }
    if (!connection->may_change && !ask_for_itself(connection, request) &&
        !ask_only_looks(request)) {
        ask_fail(
            connection, ERR_AUTH,
            connection->local ? "as another user of this machine you may look and not change"
                              : "your certificate lets you look and not change",
            connection->local
                ? "be root or in the group that the daemon's config names"
                : "use a certificate of `coppeliusctl pki user NAME --role admin`, or the admin "
                  "socket on the node itself");
        return;
    }
    const struct facts *facts = ask_facts(connection);
    struct err err = {0};
    switch (request->ask_case) {
    case CTL__REQUEST__ASK_SUBMIT:
        submit(connection, request->submit);
        break;
    case CTL__REQUEST__ASK_JOB_LIST:
        ask_answer(connection, document_jobs(facts));
        break;
    case CTL__REQUEST__ASK_JOB_SHOW: {
        uint64_t id = ask_find_job(connection, request->job_show->job);
        if (id != 0) {
            connection->ask.state = ASK_SHOW;
            connection->ask.job = id;
            show_tick(connection);
        }
        break;
    }
    case CTL__REQUEST__ASK_JOB_CANCEL:
        job_verb(connection, facts->cancel, request->job_cancel->job);
        break;
    case CTL__REQUEST__ASK_JOB_PAUSE:
        job_verb(connection, facts->pause, request->job_pause->job);
        break;
    case CTL__REQUEST__ASK_JOB_RESUME:
        job_verb(connection, facts->resume, request->job_resume->job);
        break;
    case CTL__REQUEST__ASK_JOB_WATCH:
        watch(connection, request->job_watch);
        break;
    case CTL__REQUEST__ASK_JOB_LOGS:
        logs(connection, request->job_logs);
        break;
    case CTL__REQUEST__ASK_NODES:
        ask_answer(connection, document_nodes(facts));
        break;
    case CTL__REQUEST__ASK_CHECKPOINT_LIST:
        ask_checkpoint_list(connection, request->checkpoint_list);
        break;
    case CTL__REQUEST__ASK_CHECKPOINT_FILE:
        ask_checkpoint_file(connection, request->checkpoint_file);
        break;
    case CTL__REQUEST__ASK_CHECKPOINT_VERIFY:
        ask_checkpoint_verify(connection, request->checkpoint_verify->job);
        break;
    case CTL__REQUEST__ASK_CHECKPOINT_PRUNE:
        ask_checkpoint_prune(connection, request->checkpoint_prune);
        break;
    case CTL__REQUEST__ASK_PREDICT:
        predict(connection, request->predict);
        break;
    case CTL__REQUEST__ASK_SESSION:
        ask_answer(connection, document_session(facts));
        break;
    case CTL__REQUEST__ASK_CLUSTER_STATUS:
        ask_answer(connection, document_cluster(facts));
        break;
    case CTL__REQUEST__ASK_MEMBER:
        ask_member(connection, request->member);
        break;
    case CTL__REQUEST__ASK_DOCTOR:
        ask_began(connection,
                  doctor_run(connection->api->loop, connection->api->settings.doctor, facts,
                             on_doctor, connection, &err),
                  &err);
        break;
    case CTL__REQUEST__ASK__NOT_SET:
    case _CTL__REQUEST__ASK__CASE_IS_INT_SIZE:
    default:
        ask_fail(connection, ERR_PROTO, "a question that this daemon does not know",
                 "use the coppeliusctl of this daemon's version");
        break;
    }
}

void ask_tick(struct connection *connection)
{
    if (connection->ask.state == ASK_SHOW) {
        show_tick(connection);
    } else if (connection->ask.state == ASK_VERB) {
        verb_tick(connection);
    } else if (connection->ask.state == ASK_WATCH) {
        watch_tick(connection);
    } else if (connection->ask.state == ASK_LOGS) {
        logs_tick(connection);
    }
}

void ask_on_written(struct connection *connection)
{
    if (connection->ask.state == ASK_VALUES) {
        send_values(connection);
    }
}

void ask_drop(struct connection *connection)
{
    struct ask *ask = &connection->ask;
    free(ask->values);
    ask->values = NULL;
    buf_done(&ask->document);
    ask->state = ASK_IDLE;
}

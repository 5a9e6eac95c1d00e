#include "daemon/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <peer.pb-c.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/core.h"
#include "proto/message.h"

#define MEET_MS   1000U   /* for the others to meet it too */
#define ANSWER_MS 2000U   /* for their records */
#define FORGET_MS 120000U /* a verdict that never came */
#define FRESH_MS                                                                                 \
    600000U              /* a pause that a new leader did not see is judged when it is not older \
                          */
#define RECORD_SIZE 400U /* of JSON, about */

static void drop(struct verdict_pending *pending)
{
    for (size_t i = 0; i < STATE_NODES_MAX; i++) {
        json_decref(pending->records[i]);
    }
    *pending = (struct verdict_pending){0};
}

void verdict_close(struct daemon *daemon)
{
    for (size_t i = 0; daemon->verdicts != NULL && i < VERDICT_PENDING_MAX; i++) {
        drop(&daemon->verdicts->pending[i]);
    }
    verdict_files_close(daemon);
    recorder_done(&daemon->recorder);
}

/* ---- what is to be judged ---- */

static void add_pending(struct daemon *daemon, const struct verdict_pending *given)
{
    struct verdicts *v = daemon->verdicts;
    struct verdict_pending *place = NULL;
    for (size_t i = 0; i < VERDICT_PENDING_MAX; i++) {
        struct verdict_pending *at = &v->pending[i];
        if (at->job == given->job && at->generation == given->generation &&
            strcmp(at->state, given->state) == 0) {
            return;
        }
        if (at->job == 0 && (place == NULL || place->job != 0)) {
            place = at;
        } else if (place == NULL || (place->job != 0 && at->since_ms < place->since_ms)) {
            place = at; /* Full: the oldest gives way. */
        }
    }
    drop(place);
    *place = *given;
    place->since_ms = clock_now_ms();
}

static uint64_t furthest(const struct daemon *daemon, uint64_t job, uint64_t generation)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct progress *progress = &daemon->members[i].progress;
        if (progress->job == job && progress->generation == generation && progress->step > step) {
            step = progress->step;
        }
    }
    return step;
}

void verdict_before(struct daemon *daemon, const struct command *command,
                    struct verdict_before *ret_before)
{
    const struct state_job *job = state_active_job(&daemon->state);
    *ret_before = (struct verdict_before){0};
    if (job == NULL && command != NULL && command->kind == COMMAND_FINISH) {
        job = state_job(&daemon->state, command->finish.job);
    }
    if (job != NULL) {
        *ret_before = (struct verdict_before){job->id, job->generation, job->state,
                                              furthest(daemon, job->id, job->generation)};
    }
}

/* Who wanted it, where somebody did; else whom the entry means. */
static void set_node(const struct daemon *daemon, struct verdict_pending *pending,
                     const struct state_job *job, const struct command *command)
{
    pending->asked_for = job->state == JOB_PAUSED && job->hold != HOLD_NONE;
    if (pending->asked_for) {
        pending->node = job->hold == HOLD_NODE ? job->hold_node : 0;
    } else if (command != NULL && command->kind == COMMAND_INTERRUPT &&
               command->interrupt.node != 0) {
        pending->node = command->interrupt.node;
    } else if (command != NULL && command->kind == COMMAND_NODE) {
        pending->node = command->node.node;
    } else {
        pending->node = verdict_named(daemon, job->reason);
    }
}

static void begin(struct daemon *daemon, const struct state_job *job, const struct command *command,
                  uint64_t generation, uint64_t wall_ms, uint64_t step)
{
    struct verdict_pending pending = {
        .job = job->id, .generation = generation, .wall_ms = wall_ms, .step = step};
    (void)snprintf(pending.state, sizeof(pending.state), "%s", state_job_label(job->state));
    (void)snprintf(pending.why, sizeof(pending.why), "%s", job->reason);
    set_node(daemon, &pending, job, command);
    add_pending(daemon, &pending);
}

void verdict_after(struct daemon *daemon, const struct command *command,
                   const struct verdict_before *before)
{
    const struct state_job *job = before->job != 0 ? state_job(&daemon->state, before->job) : NULL;
    if (job == NULL || job->state == before->state || before->generation == 0 ||
        daemon->control == NULL || !control_caught_up(daemon->control)) {
        return; /* Nothing happened, or it is being told what happened before it came. */
    }
    daemon_record(daemon, "job", "job %llu is %s%s%.160s", (unsigned long long)job->id,
                  state_job_label(job->state), job->reason[0] != '\0' ? ": " : "", job->reason);
    if (job->state == JOB_PAUSED || job->state == JOB_FAILED) {
        begin(daemon, job, command, before->generation,
              command != NULL && command->wall_ms != 0 ? command->wall_ms : daemon_wall_ms(),
              before->step);
    }
}

/* A new leader: what lies there unjudged since before it could see it. */
static void look_back(struct daemon *daemon)
{
    for (uint32_t i = 0; i < daemon->state.jobs_count; i++) {
        const struct state_job *job = daemon->state.jobs[i];
        if ((job->state == JOB_PAUSED || job->state == JOB_FAILED) && job->generation != 0 &&
            daemon_wall_ms() - job->changed_ms < FRESH_MS) {
            const struct facts_verdict *told =
                verdict_find(daemon->verdicts, job->id, job->generation);
            if (told == NULL || strcmp(told->state, state_job_label(job->state)) != 0) {
                begin(daemon, job, NULL, job->generation, job->changed_ms, 0);
            }
        }
    }
}

/* ---- the leader asks ---- */

static void send_message(struct daemon *daemon, uint32_t to, uint16_t kind,
                         const ProtobufCMessage *message)
{
    struct err err = {0};
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    ASSERT(bytes != NULL);
    (void)protobuf_c_message_pack(message, bytes);
    if (mesh_send(daemon->mesh, to, kind, bytes, size, &err) != 0) {
        log_debug("verdict.send", "to=%u error=\"%s\"", to, err.text);
    }
    free(bytes);
}

static size_t records_max(const struct daemon *daemon)
{
    size_t share = VERDICT_TEXT_MAX / RECORD_SIZE / daemon->members_count;
    return share < VERDICT_RECORDS_MAX ? share : VERDICT_RECORDS_MAX;
}

static json_t *own_records(const struct daemon *daemon, size_t most)
{
    json_t *list = json_array();
    size_t size = recorder_size(&daemon->recorder);
    ASSERT(list != NULL);
    for (size_t i = size > most ? size - most : 0; i < size; i++) {
        const struct record *r = recorder_at(&daemon->recorder, i);
        (void)json_array_append_new(
            list, verdict_record(r->wall_ms, r->event, r->job, r->generation, r->step, r->phase,
                                 r->sent_bytes, r->received_bytes, r->text));
    }
    return list;
}

static void ask(struct daemon *daemon, struct verdict_pending *pending)
{
    Peer__RecordsAsk question;
    peer__records_ask__init(&question);
    question.job = pending->job;
    question.generation = pending->generation;
    question.records_max = (uint32_t)records_max(daemon);
    pending->asked_ms = clock_now_ms();
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        if (member->self) {
            json_decref(pending->records[member->id - 1]);
            pending->records[member->id - 1] = own_records(daemon, records_max(daemon));
        } else if (mesh_is_up(daemon->mesh, member->id)) {
            send_message(daemon, member->id, FRAME_RECORDS_ASK, &question.base);
        }
    }
}

static bool all_answered(const struct daemon *daemon, const struct verdict_pending *pending)
{
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        if (pending->records[member->id - 1] == NULL &&
            (member->self || mesh_is_up(daemon->mesh, member->id))) {
            return false;
        }
    }
    return true;
}

static void send_text(struct daemon *daemon, uint32_t to)
{
    struct err err = {0};
    const struct buf *text = &daemon->verdicts->newest;
    if (text->size > 0 &&
        mesh_send(daemon->mesh, to, FRAME_VERDICT, text->bytes, text->size, &err) != 0) {
        log_debug("verdict.send", "to=%u error=\"%s\"", to, err.text);
    }
}

static void judge(struct daemon *daemon, struct verdict_pending *pending)
{
    struct buf text = BUF_NONE;
    struct err err = {0};
    struct facts_verdict *told = calloc(1, sizeof(*told));
    ASSERT(told != NULL);
    verdict_compose(daemon, pending, &text);
    ASSERT(verdict_parse(text.bytes, text.size, told, &err) == 0);
    verdict_keep(daemon, told, text.bytes, text.size);
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        if (!daemon->members[i].self && mesh_is_up(daemon->mesh, daemon->members[i].id)) {
            send_text(daemon, daemon->members[i].id);
        }
    }
    free(told);
    buf_done(&text);
    drop(pending);
}

void verdict_turn(struct daemon *daemon)
{
    struct verdicts *v = daemon->verdicts;
    uint64_t now = clock_now_ms();
    bool leads = daemon->mesh != NULL && control_leads(daemon->control);
    if (leads && !v->led) {
        look_back(daemon);
    }
    v->led = leads;
    for (size_t i = 0; i < VERDICT_PENDING_MAX; i++) {
        struct verdict_pending *pending = &v->pending[i];
        if (pending->job == 0) {
            continue;
        }
        const struct facts_verdict *told = verdict_find(v, pending->job, pending->generation);
        if ((told != NULL && strcmp(told->state, pending->state) == 0) ||
            now - pending->since_ms > FORGET_MS) {
            drop(pending);
        } else if (leads && pending->asked_ms == 0 && now - pending->since_ms >= MEET_MS) {
            ask(daemon, pending);
        }
        if (leads && pending->asked_ms != 0 &&
            (all_answered(daemon, pending) || now - pending->asked_ms >= ANSWER_MS)) {
            judge(daemon, pending);
        }
    }
}

/* ---- frames ---- */

void verdict_on_ask(struct daemon *daemon, uint32_t from, const uint8_t *bytes, size_t size)
{
    struct err err = {0};
    ProtobufCMessage *message = NULL;
    if (message_unpack(&peer__records_ask__descriptor, bytes, size, &message, &err) != 0) {
        log_warning("verdict.ask", "from=%u error=\"%s\" next=\"dropped\"", from, err.text);
        return;
    }
    const Peer__RecordsAsk *question = (const Peer__RecordsAsk *)message;
    size_t most =
        question->records_max < VERDICT_RECORDS_MAX ? question->records_max : VERDICT_RECORDS_MAX;
    size_t all = recorder_size(&daemon->recorder);
    size_t count = all < most ? all : most;
    Peer__Record *records = calloc(count + 1, sizeof(*records));
    Peer__Record **list = calloc(count + 1, sizeof(*list));
    ASSERT(records != NULL);
    ASSERT(list != NULL);
    for (size_t i = 0; i < count; i++) {
        /* The library's strings are not const; it only reads them. */
        struct record *r =
            &daemon->recorder
                 .records[(daemon->recorder.count - count + i) % daemon->recorder.records_max];
        peer__record__init(&records[i]);
        records[i].at_ms = r->wall_ms;
        records[i].event = r->event;
        records[i].job = r->job;
        records[i].generation = r->generation;
        records[i].step = r->step;
        records[i].phase = r->phase;
        records[i].sent_bytes = r->sent_bytes;
        records[i].received_bytes = r->received_bytes;
        records[i].text = r->text;
        list[i] = &records[i];
    }
    Peer__Records answer;
    peer__records__init(&answer);
    answer.job = question->job;
    answer.generation = question->generation;
    answer.n_record = count;
    answer.record = list;
    send_message(daemon, from, FRAME_RECORDS, &answer.base);
    free(list);
    free(records);
    message_free(message);
}

void verdict_on_records(struct daemon *daemon, uint32_t from, const uint8_t *bytes, size_t size)
{
    struct err err = {0};
    ProtobufCMessage *message = NULL;
    if (message_unpack(&peer__records__descriptor, bytes, size, &message, &err) != 0) {
        log_warning("verdict.records", "from=%u error=\"%s\" next=\"dropped\"", from, err.text);
        return;
    }
    const Peer__Records *said = (const Peer__Records *)message;
    for (size_t i = 0; i < VERDICT_PENDING_MAX; i++) {
        struct verdict_pending *pending = &daemon->verdicts->pending[i];
        if (pending->job == 0 || pending->job != said->job ||
            pending->generation != said->generation || pending->asked_ms == 0 || from == 0 ||
            from > STATE_NODES_MAX || pending->records[from - 1] != NULL) {
            continue;
        }
        json_t *list = json_array();
        ASSERT(list != NULL);
        for (size_t k = 0; k < said->n_record && k < VERDICT_RECORDS_MAX; k++) {
            const Peer__Record *r = said->record[k];
            (void)json_array_append_new(
                list, verdict_record(r->at_ms, r->event, r->job, r->generation, r->step, r->phase,
                                     r->sent_bytes, r->received_bytes, r->text));
        }
        pending->records[from - 1] = list;
    }
    message_free(message);
    daemon_soon(daemon);
}

void verdict_on_text(struct daemon *daemon, uint32_t from, const uint8_t *bytes, size_t size)
{
    struct err err = {0};
    struct facts_verdict *told = calloc(1, sizeof(*told));
    ASSERT(told != NULL);
    if (size > VERDICT_TEXT_MAX + 1 || verdict_parse(bytes, size, told, &err) != 0) {
        log_warning("verdict.text", "from=%u error=\"%s\" next=\"dropped\"", from, err.text);
    } else {
        const struct facts_verdict *known =
            verdict_find(daemon->verdicts, told->job, told->generation);
        if (known == NULL || strcmp(known->state, told->state) != 0 ||
            known->answered < told->answered) {
            verdict_keep(daemon, told, bytes, size);
        }
    }
    free(told);
}

void verdict_on_up(struct daemon *daemon, uint32_t node)
{
    if (daemon->verdicts->led) {
        send_text(daemon, node);
    }
}

void daemon_record(struct daemon *daemon, const char *event, const char *format, ...)
{
    const struct progress *progress = &members_self(daemon)->progress;
    struct record record = {.wall_ms = daemon_wall_ms(),
                            .job = progress->job,
                            .generation = progress->generation,
                            .step = progress->step,
                            .sent_bytes = progress->sent_bytes,
                            .received_bytes = progress->received_bytes};
    va_list arguments;
    (void)snprintf(record.event, sizeof(record.event), "%s", event);
    (void)snprintf(record.phase, sizeof(record.phase), "%s", progress->phase);
    va_start(arguments, format);
    (void)vsnprintf(record.text, sizeof(record.text), format, arguments);
    va_end(arguments);
    recorder_put(&daemon->recorder, &record);
}

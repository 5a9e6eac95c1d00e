/* A verdict's file: made from the records of all, read back for people. */
#include "daemon/verdict.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/core.h"
#include "daemon/document_values.h"

json_t *verdict_record(uint64_t wall_ms, const char *event, uint64_t job, uint64_t generation,
                       uint64_t step, const char *phase, uint64_t sent_bytes,
                       uint64_t received_bytes, const char *words)
{
    json_t *object = must(json_object());
    set(object, "at_ms", integer(wall_ms));
    set(object, "event", text(event));
    set(object, "job", integer_if(job != 0, job));
    set(object, "generation", integer_if(job != 0, generation));
    set(object, "step", integer_if(job != 0, step));
    set(object, "phase", text_or_null(phase));
    set(object, "sent_bytes", integer_if(job != 0, sent_bytes));
    set(object, "received_bytes", integer_if(job != 0, received_bytes));
    set(object, "text", text_or_null(words));
    return object;
}

static const char *words_of(const json_t *record, const char *name)
{
    const char *value = json_string_value(json_object_get(record, name));
    return value != NULL ? value : "";
}

static uint64_t number_of(const json_t *record, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(record, name));
    return value > 0 ? (uint64_t)value : 0;
}

/* Whether this is the loss of that node in that generation. */
static bool is_loss(const json_t *record, const struct verdict_pending *pending, const char *name)
{
    char begin[FACTS_NAME_SIZE + 8];
    int size = snprintf(begin, sizeof(begin), "node %s ", name);
    return strcmp(words_of(record, "event"), "lost") == 0 &&
           number_of(record, "generation") == pending->generation &&
           strncmp(words_of(record, "text"), begin, (size_t)size) == 0;
}

static unsigned votes_against(const struct daemon *daemon, const struct verdict_pending *pending,
                              const struct member *member)
{
    unsigned votes = 0;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const json_t *records = pending->records[daemon->members[i].id - 1];
        bool blames = false;
        for (size_t k = 0; k < json_array_size(records); k++) {
            blames = blames || is_loss(json_array_get(records, k), pending, member->name);
        }
        votes += blames ? 1 : 0;
    }
    return votes;
}

uint32_t verdict_blamed(const struct daemon *daemon, const struct verdict_pending *pending)
{
    uint32_t blamed = pending->node;
    unsigned most = 0;
    if (pending->asked_for) {
        return blamed;
    }
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        unsigned votes = votes_against(daemon, pending, member);
        if (votes > most || (votes == most && votes > 0 && member->id == pending->node)) {
            most = votes;
            blamed = member->id;
        }
    }
    return blamed;
}

uint32_t verdict_named(const struct daemon *daemon, const char *sentence)
{
    uint32_t named = 0;
    const char *last = NULL;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        for (int form = 0; form < 3; form++) {
            char name[FACTS_NAME_SIZE + 16];
            (void)snprintf(name, sizeof(name), "node %s%s%s", form == 0 ? "'" : "", member->name,
                           form == 0   ? "'"
                           : form == 1 ? ":"
                                       : " ");
            for (const char *at = strstr(sentence, name); at != NULL; at = strstr(at + 1, name)) {
                if (last == NULL || at > last) {
                    last = at;
                    named = member->id;
                }
            }
        }
    }
    return named;
}

/* How far the blamed one was last heard to be; else the furthest of all. */
static void set_where(json_t *object, const struct daemon *daemon,
                      const struct verdict_pending *pending, const char *who)
{
    const json_t *best = NULL;
    uint64_t step = pending->step;
    for (int pass = 0; pass < 2 && best == NULL; pass++) {
        for (uint32_t i = 0; i < daemon->members_count; i++) {
            const json_t *records = pending->records[daemon->members[i].id - 1];
            for (size_t k = 0; k < json_array_size(records); k++) {
                const json_t *record = json_array_get(records, k);
                bool counts = pass == 0
                                  ? who[0] != '\0' && is_loss(record, pending, who)
                                  : number_of(record, "job") == pending->job &&
                                        number_of(record, "generation") == pending->generation &&
                                        words_of(record, "phase")[0] != '\0';
                if (counts &&
                    (best == NULL || number_of(record, "step") >= number_of(best, "step"))) {
                    best = record;
                }
            }
        }
    }
    if (best != NULL && number_of(best, "step") > step) {
        step = number_of(best, "step");
    }
    set(object, "step", integer(step));
    set(object, "phase", text_or_null(best != NULL ? words_of(best, "phase") : ""));
    set(object, "sent_bytes", integer(best != NULL ? number_of(best, "sent_bytes") : 0));
}

static json_t *witnesses(const struct daemon *daemon, const struct verdict_pending *pending,
                         size_t records_max)
{
    json_t *list = must(json_array());
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        const json_t *given = pending->records[member->id - 1];
        size_t count = json_array_size(given);
        json_t *object = must(json_object());
        json_t *records = must(json_array());
        for (size_t k = count > records_max ? count - records_max : 0; k < count; k++) {
            add(records, json_incref(json_array_get(given, k)));
        }
        set(object, "node", integer(member->id));
        set(object, "name", text(member->name));
        set(object, "answered", boolean(given != NULL));
        set(object, "records", records);
        add(list, object);
    }
    return list;
}

static json_t *compose(struct daemon *daemon, const struct verdict_pending *pending,
                       size_t records_max)
{
    const struct state_job *job = state_job(&daemon->state, pending->job);
    uint32_t blamed = verdict_blamed(daemon, pending);
    const char *who = blamed != 0 ? members_find(daemon, blamed)->name : "";
    json_t *object = document();
    set(object, "cluster", text(daemon->cluster));
    set(object, "job", integer(pending->job));
    set(object, "name", text(job != NULL ? job->name : ""));
    set(object, "generation", integer(pending->generation));
    set(object, "state", text(pending->state));
    set(object, "who", text_or_null(who));
    set(object, "at_ms", integer(pending->wall_ms));
    set_where(object, daemon, pending, who);
    set(object, "why", text(pending->why));
    set(object, "by", text(daemon->name));
    set(object, "nodes", witnesses(daemon, pending, records_max));
    return object;
}

void verdict_compose(struct daemon *daemon, const struct verdict_pending *pending, struct buf *out)
{
    size_t records_max = VERDICT_RECORDS_MAX;
    for (;;) { /* Without any record it fits in any case. */
        json_t *object = compose(daemon, pending, records_max);
        char *written = json_dumps(object, JSON_INDENT(1));
        json_decref(object);
        ASSERT(written != NULL);
        size_t size = strlen(written);
        if (size < VERDICT_TEXT_MAX || records_max == 0) {
            buf_put(out, written, size);
            buf_put_u8(out, '\n');
            free(written);
            return;
        }
        free(written);
        records_max /= 2;
    }
}

/* ---- read back ---- */

static void take(char *to, size_t capacity, const json_t *object, const char *name)
{
    (void)snprintf(to, capacity, "%s", words_of(object, name));
}

static void read_witness(const json_t *object, uint64_t generation, struct facts_witness *ret)
{
    const json_t *records = json_object_get(object, "records");
    memset(ret, 0, sizeof(*ret));
    take(ret->name, sizeof(ret->name), object, "name");
    ret->answered = json_is_true(json_object_get(object, "answered"));
    ret->records = (uint32_t)json_array_size(records);
    for (size_t k = 0; k < json_array_size(records); k++) {
        const json_t *record = json_array_get(records, k);
        if (number_of(record, "generation") != generation ||
            strcmp(words_of(record, "event"), "lost") == 0) {
            continue; /* A loss has the numbers of the lost one. */
        }
        ret->at_ms = (int64_t)number_of(record, "at_ms");
        if (words_of(record, "phase")[0] != '\0') {
            ret->step = number_of(record, "step");
            take(ret->phase, sizeof(ret->phase), record, "phase");
        }
        if (words_of(record, "text")[0] != '\0') {
            take(ret->text, sizeof(ret->text), record, "text");
        }
    }
}

int verdict_parse(const void *bytes, size_t size, struct facts_verdict *ret, struct err *err)
{
    json_error_t fault;
    json_t *object = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &fault);
    const json_t *nodes = json_object_get(object, "nodes");
    if (object == NULL || number_of(object, "job") == 0 || number_of(object, "generation") == 0 ||
        words_of(object, "state")[0] == '\0' || !json_is_array(nodes)) {
        json_decref(object);
        return err_set(err, ERR_DAMAGED, "it is no verdict");
    }
    memset(ret, 0, sizeof(*ret));
    ret->job = number_of(object, "job");
    ret->generation = number_of(object, "generation");
    ret->at_ms = (int64_t)number_of(object, "at_ms");
    ret->step = number_of(object, "step");
    ret->sent_bytes = number_of(object, "sent_bytes");
    take(ret->name, sizeof(ret->name), object, "name");
    take(ret->state, sizeof(ret->state), object, "state");
    take(ret->who, sizeof(ret->who), object, "who");
    take(ret->phase, sizeof(ret->phase), object, "phase");
    take(ret->why, sizeof(ret->why), object, "why");
    take(ret->by, sizeof(ret->by), object, "by");
    for (size_t i = 0; i < json_array_size(nodes) && i < FACTS_NODES_MAX; i++) {
        struct facts_witness *witness = &ret->nodes[ret->nodes_count++];
        read_witness(json_array_get(nodes, i), ret->generation, witness);
        ret->answered += witness->answered ? 1 : 0;
    }
    json_decref(object);
    return 0;
}

/* The documents of jobs: one, all, and the events of a watched one. */
#include "daemon/document_values.h"
#include "daemon/meter.h"

/* Facts are large: the loop's only copies. */
static struct facts_job listed;
static struct facts_point points[FACTS_LOSSES_MAX];

static json_t *share(const struct facts_job *job)
{
    if (job->elapsed_ns == 0) {
        return json_null();
    }
    double elapsed = (double)job->elapsed_ns;
    json_t *object = must(json_object());
    set(object, "compute", number((double)job->compute_ns / elapsed));
    set(object, "exchange", number((double)job->exchange_ns / elapsed));
    set(object, "publication", number((double)job->publication_ns / elapsed));
    return object;
}

static void set_work(json_t *object, const char *work, uint64_t done_bytes, uint64_t total_bytes)
{
    bool is_known = work[0] != '\0';
    set(object, "work", text_or_null(work));
    set(object, "work_done_bytes", integer_if(is_known, done_bytes));
    set(object, "work_total_bytes", integer_if(is_known && total_bytes > 0, total_bytes));
}

json_t *document_work(const struct work_meter *meter)
{
    const char *work = atomic_load(&meter->phase);
    json_t *object = document();
    set(object, "event", text("work"));
    set_work(object, work != NULL ? work : "", atomic_load(&meter->done_bytes),
             atomic_load(&meter->total_bytes));
    return object;
}

static void set_progress(json_t *object, const struct facts_job *job)
{
    set(object, "state", text(job->state));
    set(object, "step", integer(job->step));
    set(object, "steps", integer_if(job->steps > 0, job->steps));
    set(object, "loss", number_if(job->has_loss, job->loss));
    set(object, "loss_hex", hex_if(job->has_loss, job->loss));
    set(object, "first_loss", number_if(job->has_loss, job->first_loss));
    set(object, "nodes", integer(job->nodes));
    set(object, "generation", integer(job->generation));
    set(object, "rows_per_s", number_if(job->rows_per_second > 0, job->rows_per_second));
    set(object, "eta_s", number_if(job->eta_s >= 0, job->eta_s));
    set(object, "elapsed_s", number_if(job->elapsed_ns > 0, (double)job->elapsed_ns / 1e9));
    set(object, "share", share(job));
    set_work(object, job->work, job->work_done_bytes, job->work_total_bytes);
}

static json_t *dataset(const struct facts_job *job)
{
    if (!job->dataset_known) {
        return json_null();
    }
    json_t *object = must(json_object());
    set(object, "digest", text_or_null(job->dataset));
    set(object, "rows", integer(job->rows));
    set(object, "test_rows", integer_if(job->storage[0] != '\0', job->test_rows));
    set(object, "features", integer(job->features));
    set(object, "coordinates", integer(job->coordinates));
    set(object, "storage", text_or_null(job->storage));
    set(object, "nonzeros", integer_if(job->nonzeros > 0, job->nonzeros));
    json_t *holders = must(json_array());
    ASSERT(job->holders_count <= FACTS_NODES_MAX);
    for (uint32_t i = 0; i < job->holders_count; i++) {
        add(holders, text(job->holders[i]));
    }
    set(object, "holders", holders);
    return object;
}

static json_t *participants(const struct facts_job *job)
{
    ASSERT(job->parts_count <= FACTS_NODES_MAX);
    double all = 0;
    for (uint32_t i = 0; i < job->parts_count; i++) {
        all += (double)job->parts[i].weight;
    }
    json_t *list = must(json_array());
    for (uint32_t i = 0; i < job->parts_count; i++) {
        const struct facts_part *part = &job->parts[i];
        json_t *object = must(json_object());
        set(object, "node", text(part->node));
        set(object, "rank", integer(i));
        set(object, "first", integer(part->first));
        set(object, "end", integer(part->end));
        set(object, "weight", integer(part->weight));
        set(object, "share", number_if(all > 0, (double)part->weight / all));
        set(object, "state", text_or_null(part->state));
        set(object, "step", integer(part->step));
        add(list, object);
    }
    return list;
}

static void set_job(json_t *object, const struct facts *facts, const struct facts_job *job)
{
    set_name(object, job);
    set_progress(object, job);
    set(object, "reason", text_or_null(job->reason));
    set(object, "objective", number_if(job->has_objective, job->objective));
    set(object, "checkpoint", text_or_null(job->checkpoint));
    set(object, "epoch", integer_if(job->has_epoch, job->epoch));
    set(object, "parameter_sha256", text_or_null(job->parameter_sha256));
    set(object, "accumulator_sha256", text_or_null(job->accumulator_sha256));
    set(object, "kind", text(job->kind));
    set(object, "policy", text(job->policy));
    set(object, "identity", text_or_null(job->identity));
    set(object, "submitted_at_ms", time_or_null(job->submitted_ms));
    set(object, "started_at_ms", time_or_null(job->started_ms));
    set(object, "progress_at_ms", time_or_null(job->progress_ms));
    set(object, "ended_at_ms", time_or_null(job->ended_ms));
    set(object, "dataset", dataset(job));
    set(object, "participants", participants(job));
    const char *job_text = facts->job_text(facts->daemon, job->id);
    set(object, "text", job_text == NULL ? json_null() : text(job_text));
    json_t *notes = must(json_array());
    ASSERT(job->notes_count <= FACTS_NOTES_MAX);
    for (uint32_t i = 0; i < job->notes_count; i++) {
        add(notes, text(job->notes[i]));
    }
    set(object, "notes", notes);
}

static json_t *verdict_or_null(const struct facts *facts, const struct facts_job *job)
{
    static struct facts_verdict verdict; /* Large: the loop's only copy. */
    if (facts->verdict == NULL || !facts->verdict(facts->daemon, job->id, &verdict)) {
        return json_null();
    }
    ASSERT(verdict.nodes_count <= FACTS_NODES_MAX);
    json_t *object = must(json_object());
    set(object, "state", text(verdict.state));
    set(object, "generation", integer(verdict.generation));
    set(object, "who", text_or_null(verdict.who));
    set(object, "at_ms", time_or_null(verdict.at_ms));
    set(object, "step", integer(verdict.step));
    set(object, "phase", text_or_null(verdict.phase));
    set(object, "sent_bytes", integer(verdict.sent_bytes));
    set(object, "why", text_or_null(verdict.why));
    set(object, "by", text_or_null(verdict.by));
    set(object, "file", text_or_null(verdict.file));
    json_t *list = must(json_array());
    for (uint32_t i = 0; i < verdict.nodes_count; i++) {
        const struct facts_witness *witness = &verdict.nodes[i];
        json_t *node = must(json_object());
        set(node, "name", text(witness->name));
        set(node, "answered", boolean(witness->answered));
        set(node, "records", integer(witness->records));
        set(node, "at_ms", time_or_null(witness->at_ms));
        set(node, "step", integer_if(witness->phase[0] != '\0', witness->step));
        set(node, "phase", text_or_null(witness->phase));
        set(node, "text", text_or_null(witness->text));
        add(list, node);
    }
    set(object, "nodes", list);
    return object;
}

json_t *document_job(const struct facts *facts, const struct facts_job *job)
{
    json_t *object = document();
    set_job(object, facts, job);
    set(object, "verdict", verdict_or_null(facts, job));
    return object;
}

/* At most points_max of all losses, evenly spread, the last one always. Returns how many of
 * `points` are to be told, at indexes spread_index(i, …). */
static size_t spread_index(size_t i, size_t told, size_t count)
{
    return told < 2 ? count - 1 : i * (count - 1) / (told - 1);
}

json_t *document_jobs(const struct facts *facts)
{
    static uint64_t ids[FACTS_JOBS_MAX];
    size_t count = facts->job_ids(facts->daemon, ids, FACTS_JOBS_MAX);
    ASSERT(count <= FACTS_JOBS_MAX);
    json_t *list = must(json_array());
    for (size_t i = 0; i < count; i++) {
        if (!facts->job(facts->daemon, ids[i], &listed)) {
            continue;
        }
        json_t *object = must(json_object());
        set_name(object, &listed);
        set(object, "state", text(listed.state));
        set(object, "reason", text_or_null(listed.reason));
        set(object, "kind", text(listed.kind));
        set(object, "step", integer(listed.step));
        set(object, "steps", integer_if(listed.steps > 0, listed.steps));
        set(object, "loss", number_if(listed.has_loss, listed.loss));
        set(object, "nodes", integer(listed.nodes));
        set(object, "generation", integer(listed.generation));
        set(object, "epoch", integer_if(listed.has_epoch, listed.epoch));
        set(object, "submitted_at_ms", time_or_null(listed.submitted_ms));
        set(object, "ended_at_ms", time_or_null(listed.ended_ms));
        set(object, "eta_s", number_if(listed.eta_s >= 0, listed.eta_s));
        size_t losses =
            facts->losses(facts->daemon, listed.id, /* after= */ 0, points, FACTS_LOSSES_MAX);
        size_t told = losses < DOCUMENTS_SPARK_MAX ? losses : DOCUMENTS_SPARK_MAX;
        json_t *spark = must(json_array());
        for (size_t k = 0; k < told; k++) {
            add(spark, number(points[spread_index(k, told, losses)].loss));
        }
        set(object, "losses", spark);
        add(list, object);
    }
    json_t *object = document();
    set(object, "jobs", list);
    return object;
}

static json_t *event(const char *name, const struct facts_job *job)
{
    json_t *object = document();
    set(object, "event", text(name));
    set_name(object, job);
    return object;
}

json_t *document_history(const struct facts *facts, const struct facts_job *job)
{
    json_t *object = event("history", job);
    set(object, "state", text(job->state));
    set(object, "step", integer(job->step));
    set(object, "steps", integer_if(job->steps > 0, job->steps));
    size_t count = facts->losses(facts->daemon, job->id, /* after= */ 0, points, FACTS_LOSSES_MAX);
    size_t told = count < DOCUMENTS_POINTS_MAX ? count : DOCUMENTS_POINTS_MAX;
    json_t *list = must(json_array());
    for (size_t i = 0; i < told; i++) {
        const struct facts_point *point = &points[spread_index(i, told, count)];
        json_t *pair = must(json_array());
        add(pair, integer(point->step));
        add(pair, number(point->loss));
        add(list, pair);
    }
    set(object, "points", list);
    return object;
}

json_t *document_progress(const struct facts_job *job)
{
    json_t *object = event("progress", job);
    set_progress(object, job);
    return object;
}

json_t *document_state(const struct facts_job *job)
{
    json_t *object = event("state", job);
    set(object, "state", text(job->state));
    set(object, "reason", text_or_null(job->reason));
    set(object, "step", integer(job->step));
    set(object, "steps", integer_if(job->steps > 0, job->steps));
    set(object, "loss", number_if(job->has_loss, job->loss)); /* of that step */
    set(object, "loss_hex", hex_if(job->has_loss, job->loss));
    set(object, "generation", integer(job->generation));
    return object;
}

json_t *document_checkpoint(const struct facts_job *job, const struct facts_epoch *epoch)
{
    json_t *object = event("checkpoint", job);
    set(object, "epoch", integer(epoch->epoch));
    set(object, "step", integer(epoch->step));
    set(object, "parameter_sha256", text_or_null(epoch->parameter_sha256));
    set(object, "accumulator_sha256", text_or_null(epoch->accumulator_sha256));
    set(object, "bytes", integer(epoch->bytes));
    return object;
}

json_t *document_end(const struct facts *facts, const struct facts_job *job)
{
    json_t *object = document();
    set(object, "event", text("end"));
    set_job(object, facts, job);
    return object;
}

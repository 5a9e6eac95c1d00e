#include "daemon/documents.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/meter.h"

/* Facts are large: the loop's only copies. */
static struct facts_cluster cluster;
static struct facts_node nodes[FACTS_NODES_MAX];
static struct facts_session session;
static struct facts_job listed;
static struct facts_epoch epoch_read;
static struct facts_point points[FACTS_LOSSES_MAX];

static json_t *must(json_t *made)
{
    ASSERT(made != NULL); /* No memory: see documents.h. */
    return made;
}

static json_t *text(const char *value)
{
    json_t *made = json_string(value);
    if (made != NULL) {
        return made;
    }
    char *clean = strdup(value); /* Not UTF-8: a file's name, say. */
    ASSERT(clean != NULL);
    for (char *at = clean; *at != '\0'; at++) {
        *at = (unsigned char)*at >= 0x80 ? '?' : *at;
    }
    made = must(json_string(clean));
    free(clean);
    return made;
}

static json_t *text_or_null(const char *value)
{
    return value[0] == '\0' ? json_null() : text(value);
}

static json_t *integer(uint64_t value)
{
    return must(json_integer((json_int_t)value));
}

static json_t *integer_if(bool known, uint64_t value)
{
    return known ? integer(value) : json_null();
}

static json_t *number(double value)
{
    json_t *made = json_real(value); /* NULL where it is not finite. */
    return made == NULL ? json_null() : made;
}

static json_t *number_if(bool known, double value)
{
    return known ? number(value) : json_null();
}

static json_t *hex_if(bool known, double value)
{
    char hex[64];
    (void)snprintf(hex, sizeof(hex), "%a", value);
    return known ? text(hex) : json_null();
}

static json_t *time_or_null(int64_t wall_ms)
{
    return wall_ms == 0 ? json_null() : must(json_integer(wall_ms));
}

static void set(json_t *object, const char *name, json_t *value)
{
    int status = json_object_set_new(object, name, value);
    ASSERT(status == 0);
}

static void add(json_t *list, json_t *value)
{
    int status = json_array_append_new(list, value);
    ASSERT(status == 0);
}

static json_t *document(void)
{
    json_t *object = must(json_object());
    set(object, "schema", integer(1));
    return object;
}

/* ---- jobs ---- */

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

static void set_name(json_t *object, const struct facts_job *job)
{
    set(object, "job", integer(job->id));
    set(object, "name", text(job->name));
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

json_t *document_job(const struct facts *facts, const struct facts_job *job)
{
    json_t *object = document();
    set_job(object, facts, job);
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

/* ---- cluster ---- */

static const char *node_state(enum facts_node_state state)
{
    static const char *const names[] = {
        [FACTS_ALIVE] = "alive", [FACTS_SUSPECT] = "suspect", [FACTS_DOWN] = "down"};
    ASSERT(state <= FACTS_DOWN);
    return names[state];
}

static size_t read_nodes(const struct facts *facts)
{
    facts->cluster(facts->daemon, &cluster);
    size_t count = facts->nodes(facts->daemon, nodes, FACTS_NODES_MAX);
    ASSERT(count <= FACTS_NODES_MAX);
    return count;
}

static json_t *boolean(bool value)
{
    return json_boolean(value);
}

static json_t *node_object(const struct facts_node *node)
{
    json_t *object = must(json_object());
    set(object, "node", integer(node->id));
    set(object, "name", text(node->name));
    set(object, "address", text_or_null(node->address));
    set(object, "role", text_or_null(node->role));
    set(object, "state", text(node_state(node->state)));
    set(object, "reason", text_or_null(node->reason));
    set(object, "leader", boolean(node->id == cluster.leader_id));
    set(object, "self", boolean(node->self));
    set(object, "device", text_or_null(node->device));
    set(object, "backend", text_or_null(node->backend));
    set(object, "binding", text_or_null(node->binding));
    set(object, "threads", integer_if(node->known, node->threads));
    set(object, "version", text_or_null(node->version));
    char incarnation[17];
    (void)snprintf(incarnation, sizeof(incarnation), "%016" PRIx64, node->incarnation);
    set(object, "incarnation", node->known ? text(incarnation) : json_null());
    set(object, "job", integer_if(node->job != 0, node->job));
    set(object, "step", integer_if(node->job != 0, node->step));
    set(object, "phase", text_or_null(node->phase));
    set(object, "seen_ms", integer_if(node->heard_ms_ago != UINT64_MAX, node->heard_ms_ago));
    set(object, "round_trip_ms", number_if(node->round_trip_s >= 0, node->round_trip_s * 1e3));
    set(object, "storage_free_bytes",
        integer_if(node->storage_free_bytes != UINT64_MAX, node->storage_free_bytes));
    return object;
}

json_t *document_nodes(const struct facts *facts)
{
    size_t count = read_nodes(facts);
    json_t *list = must(json_array());
    for (size_t i = 0; i < count; i++) {
        add(list, node_object(&nodes[i]));
    }
    json_t *object = document();
    set(object, "nodes", list);
    return object;
}

json_t *document_cluster(const struct facts *facts)
{
    size_t count = read_nodes(facts);
    json_t *object = document();
    set(object, "cluster", text(cluster.cluster));
    set(object, "node", text(cluster.node));
    set(object, "leader", text_or_null(cluster.leader));
    set(object, "term", integer(cluster.term));
    set(object, "last_index", integer(cluster.last_index));
    set(object, "commit_index", integer(cluster.commit_index));
    set(object, "applied_index", integer(cluster.applied_index));
    uint32_t quorum = cluster.voters / 2 + 1;
    bool healthy = cluster.leader_id != 0 && cluster.voters_alive >= quorum;
    set(object, "voters", integer(cluster.voters));
    set(object, "quorum", integer(quorum));
    set(object, "alive", integer(cluster.voters_alive));
    set(object, "healthy", boolean(healthy));
    set(object, "reason", text_or_null(cluster.reason));
    set(object, "tls", boolean(cluster.tls));
    json_t *members = must(json_array());
    for (size_t i = 0; i < count; i++) {
        const struct facts_node *node = &nodes[i];
        bool known = node->match_index != UINT64_MAX;
        json_t *member = must(json_object());
        set(member, "node", integer(node->id));
        set(member, "name", text(node->name));
        set(member, "address", text_or_null(node->address));
        set(member, "role", text_or_null(node->role));
        set(member, "state", text(node_state(node->state)));
        set(member, "leader", boolean(node->id == cluster.leader_id));
        set(member, "match_index", integer_if(known, node->match_index));
        set(member, "lag",
            integer_if(known, cluster.last_index > node->match_index
                                  ? cluster.last_index - node->match_index
                                  : 0));
        set(member, "seen_ms", integer_if(node->heard_ms_ago != UINT64_MAX, node->heard_ms_ago));
        add(members, member);
    }
    set(object, "members", members);
    json_t *events = must(json_array());
    ASSERT(cluster.events_count <= FACTS_EVENTS_MAX);
    for (uint32_t i = 0; i < cluster.events_count; i++) {
        json_t *happened = must(json_object());
        set(happened, "at_ms", time_or_null(cluster.events[i].at_ms));
        set(happened, "text", text(cluster.events[i].text));
        add(events, happened);
    }
    set(object, "events", events);
    return object;
}

/* ---- checkpoints ---- */

static json_t *epoch_object(const struct facts_job *job, const struct facts_epoch *epoch)
{
    ASSERT(epoch->shards_count <= FACTS_NODES_MAX);
    json_t *object = must(json_object());
    set_name(object, job);
    set(object, "epoch", integer(epoch->epoch));
    set(object, "step", integer(epoch->step));
    set(object, "state", text(epoch->state));
    set(object, "reason", text_or_null(epoch->reason));
    set(object, "current", boolean(epoch->current));
    set(object, "generation", integer(epoch->generation));
    set(object, "bytes", integer(epoch->bytes));
    set(object, "shards", integer(epoch->shards_count));
    set(object, "replicas", integer(epoch->replicas));
    set(object, "loss", number_if(epoch->has_loss, epoch->loss));
    set(object, "loss_hex", hex_if(epoch->has_loss, epoch->loss));
    set(object, "objective", number_if(epoch->has_objective, epoch->objective));
    set(object, "parameter_sha256", text_or_null(epoch->parameter_sha256));
    set(object, "accumulator_sha256", text_or_null(epoch->accumulator_sha256));
    set(object, "policy", text_or_null(epoch->policy));
    set(object, "published_at_ms", time_or_null(epoch->committed_ms));
    set(object, "folder", text_or_null(epoch->folder));
    json_t *holders = must(json_array());
    json_t *files = must(json_array());
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        add(holders, text(epoch->shards[i].node));
        json_t *file = must(json_object());
        set(file, "node", text(epoch->shards[i].node));
        set(file, "name", text(epoch->shards[i].name));
        set(file, "bytes", integer(epoch->shards[i].size));
        set(file, "sha256", text_or_null(epoch->shards[i].sha256));
        add(files, file);
    }
    set(object, "holders", holders);
    set(object, "files", files);
    return object;
}

json_t *document_checkpoints(const struct facts *facts, uint64_t job)
{
    static uint64_t ids[FACTS_JOBS_MAX];
    static uint64_t epochs[FACTS_EPOCHS_MAX];
    size_t count = 1;
    ids[0] = job;
    if (job == 0) {
        count = facts->job_ids(facts->daemon, ids, FACTS_JOBS_MAX);
        ASSERT(count <= FACTS_JOBS_MAX);
    }
    json_t *list = must(json_array());
    for (size_t i = 0; i < count; i++) {
        if (!facts->job(facts->daemon, ids[i], &listed)) {
            continue;
        }
        size_t epochs_count = facts->epoch_ids(facts->daemon, ids[i], epochs, FACTS_EPOCHS_MAX);
        ASSERT(epochs_count <= FACTS_EPOCHS_MAX);
        for (size_t k = 0; k < epochs_count; k++) {
            if (facts->epoch(facts->daemon, ids[i], epochs[k], &epoch_read)) {
                add(list, epoch_object(&listed, &epoch_read));
            }
        }
    }
    json_t *object = document();
    set(object, "checkpoints", list);
    return object;
}

/* ---- the rest ---- */

json_t *document_session(const struct facts *facts)
{
    facts->cluster(facts->daemon, &cluster);
    facts->session(facts->daemon, &session);
    json_t *object = document();
    set(object, "node", text(cluster.node));
    set(object, "device", text_or_null(session.device));
    set(object, "device_uuid", text_or_null(session.device_uuid));
    set(object, "driver", text_or_null(session.driver));
    set(object, "backend", text_or_null(session.backend));
    set(object, "binding", text_or_null(session.binding));
    set(object, "threads", integer(session.threads));
    set(object, "state", text(session.open ? session.state : "none"));
    set(object, "job", integer_if(session.open && session.job != 0, session.job));
    set(object, "generation", integer_if(session.open, session.generation));
    json_t *issues = must(json_object());
    set(issues, "expected", integer_if(session.open, session.issues_expected));
    set(issues, "retired", integer_if(session.open, session.issues));
    set(object, "issues", issues);
    json_t *regions = must(json_array());
    ASSERT(session.regions_count <= FACTS_REGIONS_MAX);
    for (uint32_t i = 0; i < session.regions_count; i++) {
        json_t *region = must(json_object());
        set(region, "name", text(session.regions[i].name));
        set(region, "offset", integer(session.regions[i].offset));
        set(region, "bytes", integer(session.regions[i].bytes));
        set(region, "alignment", integer(session.regions[i].alignment));
        add(regions, region);
    }
    json_t *arena = must(json_object());
    set(arena, "bytes", integer_if(session.open, session.arena_bytes));
    set(arena, "alignment", integer_if(session.open, session.arena_alignment));
    set(arena, "regions", regions);
    set(object, "arena", arena);
    json_t *images = must(json_array());
    ASSERT(session.images_count <= FACTS_IMAGES_MAX);
    for (uint32_t i = 0; i < session.images_count; i++) {
        json_t *image = must(json_object());
        set(image, "name", text(session.images[i].name));
        set(image, "state", text(session.images[i].state));
        add(images, image);
    }
    set(object, "images", images);
    return object;
}

static json_t *check_object(const char *name, const char *state, const char *sentence,
                            const char *hint)
{
    json_t *object = must(json_object());
    set(object, "name", text(name));
    set(object, "state", text(state));
    set(object, "text", text(sentence));
    set(object, "hint", text_or_null(hint));
    return object;
}

json_t *document_doctor(const struct document_check *checks, size_t checks_count)
{
    static const char *const states[] = {[DOCUMENT_OK] = "ok",
                                         [DOCUMENT_WARNING] = "warning",
                                         [DOCUMENT_FAILED] = "failed",
                                         [DOCUMENT_SKIPPED] = "skipped"};
    bool ok = true;
    json_t *list = must(json_array());
    for (size_t i = 0; i < checks_count; i++) {
        ASSERT(checks[i].state <= DOCUMENT_SKIPPED);
        ok &= checks[i].state != DOCUMENT_FAILED;
        add(list,
            check_object(checks[i].name, states[checks[i].state], checks[i].text, checks[i].hint));
    }
    json_t *object = document();
    set(object, "ok", boolean(ok));
    set(object, "checks", list);
    return object;
}

json_t *document_predict(const struct facts_prediction *prediction)
{
    json_t *object = document();
    set(object, "rows", integer(prediction->values_count));
    set(object, "rmse", number_if(prediction->has_metrics, prediction->rmse));
    set(object, "mae", number_if(prediction->has_metrics, prediction->mae));
    set(object, "r2", number_if(prediction->has_metrics, prediction->r2));
    set(object, "target", text_or_null(prediction->target));
    set(object, "checkpoint", text_or_null(prediction->checkpoint));
    set(object, "epoch", integer(prediction->epoch));
    set(object, "step", integer(prediction->step));
    set(object, "parameter_sha256", text_or_null(prediction->parameter_sha256));
    set(object, "prediction_sha256", text_or_null(prediction->prediction_sha256));
    set(object, "device", text_or_null(prediction->device));
    json_t *first = must(json_array());
    ASSERT(prediction->first_count <= FACTS_FIRST_MAX);
    for (uint32_t i = 0; i < prediction->first_count; i++) {
        ASSERT(i < prediction->values_count);
        json_t *pair = must(json_array());
        add(pair, number(prediction->values[i]));
        add(pair, number_if(prediction->first_has_target, prediction->first_target[i]));
        add(first, pair);
    }
    set(object, "first", first);
    return object;
}

json_t *document_logs(const char *node, const struct log_ring_line *lines, size_t lines_count)
{
    json_t *list = must(json_array());
    for (size_t i = 0; i < lines_count; i++) {
        json_t *line = must(json_object());
        set(line, "at_ms", must(json_integer(lines[i].wall_ms)));
        set(line, "level", integer((uint64_t)lines[i].level));
        set(line, "node", text(node));
        set(line, "line", text(lines[i].text));
        add(list, line);
    }
    json_t *object = document();
    set(object, "lines", list);
    return object;
}

/* Puts one name of another document into this one; the other is let go. */
static void take(json_t *object, json_t *other, const char *name)
{
    int status = json_object_set(object, name, json_object_get(other, name));
    ASSERT(status == 0);
    json_decref(other);
}

json_t *document_status(const struct facts *facts)
{
    static struct facts_check checks[FACTS_CHECKS_MAX];
    json_t *object = document();
    set(object, "ready", boolean(facts_ready(facts)));
    set(object, "cluster", document_cluster(facts));
    take(object, document_nodes(facts), "nodes");
    take(object, document_jobs(facts), "jobs");
    size_t count = facts->checks(facts->daemon, checks, FACTS_CHECKS_MAX);
    ASSERT(count <= FACTS_CHECKS_MAX);
    json_t *list = must(json_array());
    for (size_t i = 0; i < count; i++) {
        add(list, check_object(checks[i].name, checks[i].ok ? "ok" : "failed", checks[i].sentence,
                               checks[i].hint));
    }
    set(object, "checks", list);
    return object;
}

json_t *document_targets(const struct facts *facts, uint16_t http_port)
{
    size_t count = read_nodes(facts);
    json_t *list = must(json_array());
    for (size_t i = 0; i < count; i++) {
        const char *colon = strrchr(nodes[i].address, ':');
        if (colon == NULL) {
            continue;
        }
        char address[FACTS_NAME_SIZE + 8];
        (void)snprintf(address, sizeof(address), "%.*s:%u", (int)(colon - nodes[i].address),
                       nodes[i].address, http_port);
        json_t *targets = must(json_array());
        add(targets, text(address));
        json_t *labels = must(json_object());
        set(labels, "cluster", text(cluster.cluster));
        set(labels, "node", text(nodes[i].name));
        json_t *group = must(json_object());
        set(group, "targets", targets);
        set(group, "labels", labels);
        add(list, group);
    }
    return list;
}

static int on_piece(const char *piece, size_t size, void *context)
{
    buf_put(context, piece, size);
    return 0;
}

void document_put(json_t *object, struct buf *out)
{
    int status = json_dump_callback(object, on_piece, out, JSON_COMPACT | JSON_REAL_PRECISION(17));
    ASSERT(status == 0);
    json_decref(object);
}

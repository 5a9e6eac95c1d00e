/* The documents of everything but jobs: nodes, cluster, checkpoints, session, doctor, predictions,
 * log lines, status, targets. */
#include "daemon/document_values.h"

/* Facts are large: the loop's only copies. */
static struct facts_cluster cluster;
static struct facts_node nodes[FACTS_NODES_MAX];
static struct facts_pair pairs[FACTS_NODES_MAX];
static struct facts_session session;
static struct facts_job listed;
static struct facts_epoch epoch_read;

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

static json_t *lost_or_null(const struct facts_node *node)
{
    if (!node->lost) {
        return must(json_null());
    }
    json_t *object = must(json_object());
    set(object, "at_ms", time_or_null(node->lost_ms));
    set(object, "job", integer_if(node->lost_job != 0, node->lost_job));
    set(object, "generation", integer_if(node->lost_job != 0, node->lost_generation));
    set(object, "step", integer_if(node->lost_job != 0, node->lost_step));
    set(object, "phase", text_or_null(node->lost_phase));
    set(object, "sent_bytes", integer(node->lost_sent_bytes));
    set(object, "received_bytes", integer(node->lost_received_bytes));
    return object;
}

static json_t *pairs_of(const struct facts *facts, uint32_t node)
{
    json_t *list = must(json_array());
    size_t count =
        facts->pairs == NULL ? 0 : facts->pairs(facts->daemon, node, pairs, FACTS_NODES_MAX);
    ASSERT(count <= FACTS_NODES_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct facts_pair *pair = &pairs[i];
        bool known = pair->state != FACTS_LINE_UNKNOWN;
        bool measured = known && pair->bytes_per_s != 0;
        json_t *object = must(json_object());
        set(object, "to", text(pair->name));
        set(object, "address", text(pair->address));
        set(object, "state", text(facts_line(pair->state)));
        set(object, "reason", text_or_null(pair->reason));
        set(object, "round_trip_ms",
            number_if(known && pair->round_trip_s > 0, pair->round_trip_s * 1e3));
        set(object, "bytes_per_s", integer_if(measured, pair->bytes_per_s));
        set(object, "measured_bytes", integer_if(measured, pair->bytes));
        set(object, "age_ms", integer_if(known, pair->age_ms));
        set(object, "tls", known ? boolean(pair->tls) : json_null());
        add(list, object);
    }
    return list;
}

static json_t *node_object(const struct facts *facts, const struct facts_node *node)
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
    set(object, "losses", integer_if(!node->self, node->losses));
    set(object, "lost", lost_or_null(node));
    set(object, "seen_ms", integer_if(node->heard_ms_ago != UINT64_MAX, node->heard_ms_ago));
    set(object, "round_trip_ms", number_if(node->round_trip_s >= 0, node->round_trip_s * 1e3));
    set(object, "storage_free_bytes",
        integer_if(node->storage_free_bytes != UINT64_MAX, node->storage_free_bytes));
    set(object, "pairs", pairs_of(facts, node->id));
    return object;
}

json_t *document_nodes(const struct facts *facts)
{
    size_t count = read_nodes(facts);
    json_t *list = must(json_array());
    for (size_t i = 0; i < count; i++) {
        add(list, node_object(facts, &nodes[i]));
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
        set(member, "votes", boolean(node->votes));
        set(member, "drained", boolean(node->drained));
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

json_t *document_members(const struct facts *facts, const char *name)
{
    size_t count = facts->nodes(facts->daemon, nodes, FACTS_NODES_MAX);
    json_t *object = document();
    json_t *members = must(json_array());
    set(object, "name", text(name));
    for (size_t i = 0; i < count; i++) {
        const struct facts_node *node = &nodes[i];
        json_t *member = must(json_object());
        if (strcmp(node->name, name) == 0) {
            set(object, "node", integer(node->id));
            set(object, "life", integer(node->life));
        }
        set(member, "node", integer(node->id));
        set(member, "life", integer(node->life));
        set(member, "name", text(node->name));
        set(member, "address", text(node->address));
        set(member, "role", text(node->role));
        set(member, "votes", boolean(node->votes));
        set(member, "drained", boolean(node->drained));
        add(members, member);
    }
    set(object, "members", members);
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
        json_t *copies = must(json_array());
        for (uint32_t k = 0; k < epoch->shards[i].copies_count; k++) {
            add(copies, text(epoch->shards[i].copies[k]));
        }
        set(file, "copies", copies);
        set(file, "copies_due", integer(epoch->shards[i].copies_due));
        set(file, "here", text_or_null(epoch->shards[i].here));
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

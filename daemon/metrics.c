#include "daemon/metrics.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/exposition.h"

/* The facts are large: the loop's only copy, read anew for every scrape. */
static struct facts_cluster cluster;
static struct facts_node nodes[FACTS_NODES_MAX];
static struct facts_pair pairs[FACTS_NODES_MAX];
static struct facts_session session;
static struct facts_publication publication;
static struct facts_job jobs[METRICS_JOBS_MAX];

static size_t nodes_count;
static size_t pairs_count; /* from this node */
static size_t jobs_count;  /* with series of their own */

static const char *const job_states[] = {
    "submitted", "placed", "loading",   "running",   "finishing",
    "paused",    "failed", "succeeded", "cancelled",
};
#define JOB_STATES (sizeof(job_states) / sizeof(job_states[0]))
static uint64_t jobs_by_state[JOB_STATES];

static const char *const phase_names[FACTS_PHASES] = {
    [FACTS_PHASE_COMPUTE] = "compute",
    [FACTS_PHASE_EXCHANGE] = "exchange",
    [FACTS_PHASE_PUBLICATION] = "publication",
};

static void read_jobs(const struct facts *facts)
{
    static uint64_t ids[FACTS_JOBS_MAX];
    size_t count = facts->job_ids(facts->daemon, ids, FACTS_JOBS_MAX);
    ASSERT(count <= FACTS_JOBS_MAX);
    memset(jobs_by_state, 0, sizeof(jobs_by_state));
    jobs_count = 0;
    int64_t now_ms = clock_wall_ms();
    for (size_t i = count; i > 0; i--) { /* The newest first: they get the series. */
        struct facts_job *job = &jobs[jobs_count < METRICS_JOBS_MAX ? jobs_count : 0];
        static struct facts_job spare;
        if (jobs_count == METRICS_JOBS_MAX) {
            job = &spare;
        }
        if (!facts->job(facts->daemon, ids[i - 1], job)) {
            continue;
        }
        for (size_t state = 0; state < JOB_STATES; state++) {
            jobs_by_state[state] += strcmp(job->state, job_states[state]) == 0;
        }
        bool stale = job->ended && now_ms - job->ended_ms > METRICS_ENDED_MS;
        if (job != &spare && !stale) {
            jobs_count++;
        }
    }
}

static struct exposition_labels run_label(const struct facts_job *job)
{
    char run[FACTS_NAME_SIZE + 24];
    (void)snprintf(run, sizeof(run), "%llu-%s", (unsigned long long)job->id, job->name);
    return exposition_labels("run", run, NULL);
}

static struct exposition_labels run_labels(const struct facts_job *job, const char *name,
                                           const char *value)
{
    char run[FACTS_NAME_SIZE + 24];
    (void)snprintf(run, sizeof(run), "%llu-%s", (unsigned long long)job->id, job->name);
    return exposition_labels("run", run, name, value, NULL);
}

static void gauge(struct exposition *out, const char *name, const char *help, uint64_t value)
{
    exposition_family(out, name, EXPOSITION_GAUGE, help);
    exposition_u64(out, NULL, value);
}

static void put_daemon(struct exposition *out, const struct metrics *metrics)
{
    struct exposition_labels labels =
        exposition_labels("version", metrics->version, "revision", metrics->revision, "backend",
                          session.backend, "cuda_driver", session.driver, NULL);
    exposition_family(out, "build_info", EXPOSITION_GAUGE,
                      "Build and backend of this daemon; the value is always 1.");
    exposition_u64(out, &labels, 1);
    gauge(out, "ready", "1 if every check of /readyz is ok, else 0.", facts_ready(metrics->facts));
    gauge(out, "config_last_reload_successful",
          "1 if the last configuration reload succeeded or there was none.",
          !metrics->reload_failed);
    exposition_family(out, "event_loop_lag_seconds", EXPOSITION_HISTOGRAM,
                      "Delay of a timer of the event loop beyond its due time.");
    exposition_histogram(out, NULL, &metrics->vitals->loop_lag);
    exposition_family(out, "event_loop_lag_max_seconds", EXPOSITION_GAUGE,
                      "Largest delay of a timer of the event loop since start.");
    exposition_f64(out, NULL, (double)metrics->vitals->loop_lag_most_ns / 1e9);
    if (metrics->http != NULL) {
        exposition_family(out, "http_requests_total", EXPOSITION_COUNTER,
                          "HTTP requests answered.");
        for (unsigned path = 0; path < HTTP_PATHS; path++) {
            for (unsigned code = 0; code < HTTP_CODES; code++) {
                uint64_t count = metrics->http->requests[path][code];
                if (count > 0 || (path == HTTP_METRICS && http_code(code) == 200)) {
                    char text[8];
                    (void)snprintf(text, sizeof(text), "%u", http_code(code));
                    labels = exposition_labels("path", http_path_text((enum http_path)path), "code",
                                               text, NULL);
                    exposition_u64(out, &labels, count);
                }
            }
        }
    }
    if (metrics->vitals->storage_free_bytes != UINT64_MAX) {
        labels = exposition_labels("path", metrics->vitals->path, NULL);
        exposition_family(out, "storage_free_bytes", EXPOSITION_GAUGE,
                          "Free bytes of the file system that holds the path.");
        exposition_u64(out, &labels, metrics->vitals->storage_free_bytes);
    }
}

static void put_tls(struct exposition *out)
{
    static const char *const kinds[] = {"certificate", "authority"};
    gauge(out, "tls_enabled", "1 if peers and remote coppeliusctl speak TLS, 0 if plain text.",
          cluster.tls);
    gauge(out, "tls_insecure", "1 if plain text between machines was configured (insecure: yes).",
          cluster.insecure);
    exposition_family(out, "peer_connections_refused_total", EXPOSITION_COUNTER,
                      "Incoming peer connections that were not let in, by reason.");
    const uint64_t refused[] = {cluster.peer_turned_away, cluster.peer_refused, cluster.peer_late};
    static const char *const reasons[] = {"rate", "hello", "late"};
    for (int i = 0; i < 3; i++) {
        struct exposition_labels labels = exposition_labels("reason", reasons[i], NULL);
        exposition_u64(out, &labels, refused[i]);
    }
    if (!cluster.tls) {
        return;
    }
    exposition_family(out, "tls_certificate_not_after_timestamp_seconds", EXPOSITION_GAUGE,
                      "Expiry of the certificate in use.");
    for (int i = 0; i < 2; i++) {
        struct exposition_labels labels = exposition_labels("kind", kinds[i], NULL);
        exposition_f64(out, &labels, (double)cluster.tls_ends[i]);
    }
    exposition_family(out, "peer_handshakes_total", EXPOSITION_COUNTER, "TLS handshakes done.");
    exposition_u64(out, NULL, cluster.tls_handshakes);
    exposition_family(out, "peer_handshake_failures_total", EXPOSITION_COUNTER,
                      "Failed TLS handshakes by reason.");
    for (int i = 0; i < FACTS_TLS_FAILURES; i++) {
        struct exposition_labels labels =
            exposition_labels("reason", facts_tls_failure((enum facts_tls_failure)i), NULL);
        exposition_u64(out, &labels, cluster.tls_failures[i]);
    }
    exposition_family(
        out, "peer_connections_cut_total", EXPOSITION_COUNTER,
        "Connections cut: their node was removed, their person's certificate ended, or "
        "this side has another authority.");
    exposition_u64(out, NULL, cluster.tls_cut);
}

static void put_consensus(struct exposition *out)
{
    gauge(out, "raft_term", "Current raft term.", cluster.term);
    gauge(out, "raft_is_leader", "1 if this node is the raft leader.",
          cluster.role == FACTS_LEADER);
    gauge(out, "raft_has_leader", "1 if this node knows the raft leader.", cluster.leader_id != 0);
    exposition_family(out, "raft_leader_changes_total", EXPOSITION_COUNTER, "Leader changes seen.");
    exposition_u64(out, NULL, cluster.leader_changes);
    gauge(out, "raft_log_last_index", "Last log entry held.", cluster.last_index);
    gauge(out, "raft_commit_index", "Highest log entry known to be committed.",
          cluster.commit_index);
    gauge(out, "raft_applied_index", "Highest log entry applied.", cluster.applied_index);
    exposition_family(out, "raft_proposals_total", EXPOSITION_COUNTER, "Proposals by outcome.");
    const struct {
        const char *outcome;
        uint64_t count;
    } proposals[] = {{"committed", cluster.proposals_committed},
                     {"failed", cluster.proposals_failed},
                     {"dropped", cluster.proposals_dropped}};
    for (size_t i = 0; i < 3; i++) {
        struct exposition_labels labels = exposition_labels("outcome", proposals[i].outcome, NULL);
        exposition_u64(out, &labels, proposals[i].count);
    }
    if (cluster.wal_fsync.first > 0) {
        exposition_family(out, "raft_wal_fsync_duration_seconds", EXPOSITION_HISTOGRAM,
                          "Duration of a write-ahead log's fsync.");
        exposition_histogram(out, NULL, &cluster.wal_fsync);
    }
    if (cluster.commit.first > 0) {
        exposition_family(out, "raft_commit_duration_seconds", EXPOSITION_HISTOGRAM,
                          "Time from proposal to commit on the leader.");
        exposition_histogram(out, NULL, &cluster.commit);
    }
}

/* One family of the lost peers: a sample of each. */
static void put_lost_number(struct exposition *out, const char *name, const char *help,
                            size_t offset)
{
    exposition_family(out, name, EXPOSITION_GAUGE, help);
    for (size_t i = 0; i < nodes_count; i++) {
        if (nodes[i].lost) {
            uint64_t value = 0;
            memcpy(&value, (const char *)&nodes[i] + offset, sizeof(value));
            struct exposition_labels labels = exposition_labels("peer", nodes[i].name, NULL);
            exposition_u64(out, &labels, value);
        }
    }
}

/* Who is lost now, and what it was last heard with. */
static void put_lost(struct exposition *out)
{
    bool any = false;
    exposition_family(out, "peer_losses_total", EXPOSITION_COUNTER,
                      "Times that this daemon has lost the peer: its link, or its part of a job.");
    for (size_t i = 0; i < nodes_count; i++) {
        any = any || nodes[i].lost;
        if (!nodes[i].self) {
            struct exposition_labels labels = exposition_labels("peer", nodes[i].name, NULL);
            exposition_u64(out, &labels, nodes[i].losses);
        }
    }
    if (!any) {
        return;
    }
    exposition_family(out, "peer_lost", EXPOSITION_GAUGE,
                      "A peer that is lost now, with the job (0: none) and phase that it was last "
                      "heard in; the value is always 1.");
    for (size_t i = 0; i < nodes_count; i++) {
        if (nodes[i].lost) {
            char job[24];
            (void)snprintf(job, sizeof(job), "%llu", (unsigned long long)nodes[i].lost_job);
            struct exposition_labels labels = exposition_labels("peer", nodes[i].name, "job", job,
                                                                "phase", nodes[i].lost_phase, NULL);
            exposition_u64(out, &labels, 1);
        }
    }
    put_lost_number(out, "peer_lost_step", "Step that a lost peer was last heard with.",
                    offsetof(struct facts_node, lost_step));
    put_lost_number(out, "peer_lost_sent_bytes",
                    "Bytes that a lost peer had sent in its generation's exchange, as last heard.",
                    offsetof(struct facts_node, lost_sent_bytes));
}

/* What this node found when it looked at its lines last. */
static void put_lines(struct exposition *out)
{
    exposition_family(out, "peer_line_good", EXPOSITION_GAUGE,
                      "1 if the last pre-flight to the peer's advertised address found that it "
                      "works, 0 if not.");
    for (size_t i = 0; i < pairs_count; i++) {
        if (pairs[i].state != FACTS_LINE_UNKNOWN) {
            struct exposition_labels labels = exposition_labels("peer", pairs[i].name, NULL);
            exposition_u64(out, &labels, pairs[i].state != FACTS_LINE_FAILED);
        }
    }
    exposition_family(out, "peer_line_round_trip_seconds", EXPOSITION_GAUGE,
                      "Round trip to the peer on a data connection, as the last pre-flight "
                      "measured it.");
    for (size_t i = 0; i < pairs_count; i++) {
        if (pairs[i].round_trip_s > 0) {
            struct exposition_labels labels = exposition_labels("peer", pairs[i].name, NULL);
            exposition_f64(out, &labels, pairs[i].round_trip_s);
        }
    }
    exposition_family(out, "peer_line_bytes_per_second", EXPOSITION_GAUGE,
                      "Rate from this node to the peer on one data connection, as the last "
                      "pre-flight measured it.");
    for (size_t i = 0; i < pairs_count; i++) {
        if (pairs[i].bytes_per_s > 0) {
            struct exposition_labels labels = exposition_labels("peer", pairs[i].name, NULL);
            exposition_u64(out, &labels, pairs[i].bytes_per_s);
        }
    }
}

static void put_members(struct exposition *out)
{
    static const char *const states[] = {
        [FACTS_ALIVE] = "alive", [FACTS_SUSPECT] = "suspect", [FACTS_DOWN] = "down"};
    uint64_t counts[3] = {0};
    for (size_t i = 0; i < nodes_count; i++) {
        ASSERT(nodes[i].state <= FACTS_DOWN);
        counts[nodes[i].state] += strcmp(nodes[i].role, "spare") != 0;
    }
    exposition_family(out, "members", EXPOSITION_GAUGE, "Raft voters by state.");
    for (size_t i = 0; i < 3; i++) {
        struct exposition_labels labels = exposition_labels("state", states[i], NULL);
        exposition_u64(out, &labels, counts[i]);
    }
    if (nodes_count < 2) {
        return; /* No peers, no families of peers. */
    }
    exposition_family(out, "peer_up", EXPOSITION_GAUGE,
                      "1 if the control connection to the peer is established.");
    for (size_t i = 0; i < nodes_count; i++) {
        if (!nodes[i].self) {
            struct exposition_labels labels = exposition_labels("peer", nodes[i].name, NULL);
            exposition_u64(out, &labels, nodes[i].connected);
        }
    }
    exposition_family(out, "peer_round_trip_seconds", EXPOSITION_GAUGE,
                      "Last heartbeat round trip to the peer.");
    for (size_t i = 0; i < nodes_count; i++) {
        if (!nodes[i].self && nodes[i].round_trip_s >= 0) {
            struct exposition_labels labels = exposition_labels("peer", nodes[i].name, NULL);
            exposition_f64(out, &labels, nodes[i].round_trip_s);
        }
    }
    exposition_family(out, "peer_bytes_total", EXPOSITION_COUNTER,
                      "Bytes moved to and from the peer by class.");
    for (size_t i = 0; i < nodes_count; i++) {
        const struct facts_traffic *traffic = &nodes[i].traffic;
        const struct {
            const char *class;
            const uint64_t *bytes;
        } classes[] = {{"raft", traffic->control},
                       {"gradient", traffic->gradient},
                       {"checkpoint", traffic->checkpoint},
                       {"data", traffic->data}};
        for (size_t c = 0; c < 4 && !nodes[i].self; c++) {
            if (c > 0 && classes[c].bytes[0] == 0 && classes[c].bytes[1] == 0) {
                continue; /* Nothing yet, or not told apart by peer: no series rather than a false
                             0. */
            }
            for (size_t direction = 0; direction < 2; direction++) {
                struct exposition_labels labels = exposition_labels(
                    "peer", nodes[i].name, "direction", direction == 0 ? "sent" : "received",
                    "class", classes[c].class, NULL);
                exposition_u64(out, &labels, classes[c].bytes[direction]);
            }
        }
    }
    exposition_family(out, "peer_queue_bytes", EXPOSITION_GAUGE,
                      "Bytes waiting to be sent to the peer.");
    for (size_t i = 0; i < nodes_count; i++) {
        if (!nodes[i].self) {
            struct exposition_labels labels = exposition_labels("peer", nodes[i].name, NULL);
            exposition_u64(out, &labels, nodes[i].queue_bytes);
        }
    }
    put_lost(out);
    put_lines(out);
}

/* One family with a sample a job, where `has` says so. */
#define FOR_JOBS(out, job, has)                                              \
    for (const struct facts_job *job = jobs; job < jobs + jobs_count; job++) \
        if (has)

static bool any_ended_epoch(void)
{
    FOR_JOBS(out, job, job->has_epoch)
    {
        return true;
    }
    return false;
}

static void put_jobs(struct exposition *out)
{
    exposition_family(out, "jobs", EXPOSITION_GAUGE, "Jobs of the cluster by state.");
    for (size_t i = 0; i < JOB_STATES; i++) {
        struct exposition_labels labels = exposition_labels("state", job_states[i], NULL);
        exposition_u64(out, &labels, jobs_by_state[i]);
    }
    if (jobs_count == 0) {
        return;
    }
    exposition_family(out, "job_info", EXPOSITION_GAUGE,
                      "Static facts of a job; the value is always 1.");
    FOR_JOBS(out, job, true)
    {
        char run[FACTS_NAME_SIZE + 24];
        (void)snprintf(run, sizeof(run), "%llu-%s", (unsigned long long)job->id, job->name);
        struct exposition_labels labels = exposition_labels(
            "run", run, "kind", job->kind, "backend", job->backend, "policy", job->policy, NULL);
        exposition_u64(out, &labels, 1);
    }
    exposition_family(out, "training_step", EXPOSITION_GAUGE, "Last completed optimizer step.");
    FOR_JOBS(out, job, true)
    {
        struct exposition_labels labels = run_label(job);
        exposition_u64(out, &labels, job->step);
    }
    exposition_family(out, "training_last_step_timestamp_seconds", EXPOSITION_GAUGE,
                      "Unix time at which the last step was completed.");
    FOR_JOBS(out, job, job->progress_ms > 0)
    {
        struct exposition_labels labels = run_label(job);
        exposition_f64(out, &labels, (double)job->progress_ms / 1e3);
    }
    exposition_family(out, "training_steps_total", EXPOSITION_COUNTER,
                      "Steps completed by this daemon since it started.");
    FOR_JOBS(out, job, true)
    {
        struct exposition_labels labels = run_label(job);
        exposition_u64(out, &labels, job->steps_done);
    }
    exposition_family(out, "training_rows_total", EXPOSITION_COUNTER,
                      "Rows of the steps completed by this daemon since it started.");
    FOR_JOBS(out, job, true)
    {
        struct exposition_labels labels = run_label(job);
        exposition_u64(out, &labels, job->rows_done);
    }
    exposition_family(out, "training_loss", EXPOSITION_GAUGE, "Data loss of the last step.");
    FOR_JOBS(out, job, job->has_loss)
    {
        struct exposition_labels labels = run_labels(job, "split", "train");
        exposition_f64(out, &labels, job->loss);
    }
    exposition_family(out, "training_step_duration_seconds", EXPOSITION_HISTOGRAM,
                      "Time of a step by phase.");
    FOR_JOBS(out, job, true)
    {
        for (unsigned phase = 0; phase < FACTS_PHASES; phase++) {
            const struct histogram *histogram = &job->phases[phase];
            if (histogram->first > 0) {
                struct exposition_labels labels = run_labels(job, "phase", phase_names[phase]);
                exposition_histogram(out, &labels, histogram);
            }
        }
    }
}

static void put_checkpoints(struct exposition *out)
{
    exposition_family(out, "checkpoints_total", EXPOSITION_COUNTER, "Checkpoints by outcome.");
    struct exposition_labels labels = exposition_labels("outcome", "committed", NULL);
    exposition_u64(out, &labels, publication.committed);
    labels = exposition_labels("outcome", "aborted", NULL);
    exposition_u64(out, &labels, publication.aborted);
    exposition_family(out, "checkpoint_bytes_total", EXPOSITION_COUNTER,
                      "Checkpoint bytes written and read.");
    labels = exposition_labels("direction", "written", NULL);
    exposition_u64(out, &labels, publication.bytes_written);
    labels = exposition_labels("direction", "read", NULL);
    exposition_u64(out, &labels, publication.bytes_read);
    const struct {
        const char *phase;
        const struct histogram *histogram;
    } phases[] = {{"snapshot", &publication.capture},
                  {"write", &publication.write},
                  {"prepare", &publication.prepare},
                  {"commit", &publication.commit}};
    exposition_family(out, "checkpoint_duration_seconds", EXPOSITION_HISTOGRAM,
                      "Duration of a checkpoint by phase.");
    for (size_t i = 0; i < 4; i++) {
        if (phases[i].histogram->first > 0) {
            labels = exposition_labels("phase", phases[i].phase, NULL);
            exposition_histogram(out, &labels, phases[i].histogram);
        }
    }
    if (!any_ended_epoch()) {
        return;
    }
    exposition_family(out, "checkpoint_last_committed_timestamp_seconds", EXPOSITION_GAUGE,
                      "Unix time of the last published checkpoint.");
    FOR_JOBS(out, job, job->has_epoch)
    {
        labels = run_label(job);
        exposition_f64(out, &labels, (double)job->epoch_ms / 1e3);
    }
    exposition_family(out, "checkpoint_last_committed_step", EXPOSITION_GAUGE,
                      "Step of the last published checkpoint.");
    FOR_JOBS(out, job, job->has_epoch)
    {
        labels = run_label(job);
        exposition_u64(out, &labels, job->epoch_step);
    }
}

static void put_session(struct exposition *out)
{
    gauge(out, "session_open", "1 if a compute session is open.", session.open);
    if (session.open) {
        gauge(out, "session_arena_bytes", "Bytes of the session's arena.", session.arena_bytes);
        gauge(out, "session_issues", "Issues retired on the session's counter.", session.issues);
    }
}

static void put_process(struct exposition *out)
{
    struct vitals_process process;
    vitals_process(&process);
    exposition_family(out, "process_cpu_seconds_total", EXPOSITION_COUNTER,
                      "Total user and system CPU time spent in seconds.");
    exposition_f64(out, NULL, process.cpu_s);
    gauge(out, "process_resident_memory_bytes", "Resident memory size in bytes.",
          process.resident_bytes);
    gauge(out, "process_virtual_memory_bytes", "Virtual memory size in bytes.",
          process.virtual_bytes);
    gauge(out, "process_open_fds", "Number of open file descriptors.", process.fds_open);
    gauge(out, "process_max_fds", "Maximum number of open file descriptors.", process.fds_max);
    exposition_family(out, "process_start_time_seconds", EXPOSITION_GAUGE,
                      "Start time of the process since unix epoch in seconds.");
    exposition_f64(out, NULL, process.start_s);
}

void metrics_write(const struct metrics *metrics, bool openmetrics, struct buf *out)
{
    const struct facts *facts = metrics->facts;
    facts->cluster(facts->daemon, &cluster);
    nodes_count = facts->nodes(facts->daemon, nodes, FACTS_NODES_MAX);
    ASSERT(nodes_count <= FACTS_NODES_MAX);
    pairs_count = facts->pairs == NULL
                      ? 0
                      : facts->pairs(facts->daemon, cluster.node_id, pairs, FACTS_NODES_MAX);
    ASSERT(pairs_count <= FACTS_NODES_MAX);
    facts->session(facts->daemon, &session);
    facts->publication(facts->daemon, &publication);
    read_jobs(facts);

    struct exposition exposition;
    exposition_init(&exposition, out, openmetrics);
    put_daemon(&exposition, metrics);
    put_tls(&exposition);
    put_consensus(&exposition);
    put_members(&exposition);
    put_jobs(&exposition);
    put_checkpoints(&exposition);
    put_session(&exposition);
    put_process(&exposition);
    exposition_end(&exposition);
}

/* Fills facts.h out of what the daemon knows. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/core.h"
#include "daemon/preflight.h"
#include "daemon/serve.h"
#include "daemon/run.h"
#include "daemon/verdict.h"

void tell_hex(const uint8_t digest[SHA256_SIZE], char text[FACTS_DIGEST_SIZE])
{
    static const uint8_t none[SHA256_SIZE];
    text[0] = '\0';
    if (memcmp(digest, none, SHA256_SIZE) != 0) {
        sha256_hex(digest, text);
    }
}

/* A binding; nothing before there is one. */
static void hex16(const uint8_t bytes[16], char text[33])
{
    static const uint8_t none[16];
    text[0] = '\0';
    for (size_t i = 0; i < 16 && memcmp(bytes, none, sizeof(none)) != 0; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
}

static bool is_voter(const struct daemon *daemon, const struct member *member)
{
    return daemon->control != NULL && group_is_voter(control_group(daemon->control, NULL),
                                                     member_id(member->id, member->life));
}

static void tell_cluster(void *context, struct facts_cluster *ret)
{
    struct daemon *daemon = context;
    memset(ret, 0, sizeof(*ret));
    struct control_stats stats = {0};
    struct control_uv_stats disk = {0};
    uint32_t leader = daemon_leader(daemon);
    if (daemon->control != NULL) { /* Else a stop has closed the log, and waits for other works. */
        control_stats(daemon->control, &stats);
        control_uv_stats(daemon->control_uv, &disk);
    }
    (void)snprintf(ret->cluster, sizeof(ret->cluster), "%s", daemon->cluster);
    (void)snprintf(ret->node, sizeof(ret->node), "%s", daemon->name);
    (void)snprintf(ret->leader, sizeof(ret->leader), "%s",
                   leader != 0 ? members_find(daemon, leader)->name : "");
    ret->node_id = daemon->node_id;
    ret->leader_id = leader;
    ret->role = leader == 0                          ? FACTS_CANDIDATE
                : control_is_leader(daemon->control) ? FACTS_LEADER
                                                     : FACTS_FOLLOWER;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        if (is_voter(daemon, &daemon->members[i])) {
            ret->voters++;
            ret->voters_alive += members_state(daemon, &daemon->members[i]) == FACTS_ALIVE;
        }
    }
    ret->incarnation = daemon->incarnation;
    ret->term = stats.term;
    ret->last_index = stats.last_index;
    ret->commit_index = stats.commit_index;
    ret->applied_index = stats.applied_index;
    ret->leader_changes = stats.leader_changes;
    ret->proposals_committed = stats.proposals - stats.proposals_refused;
    ret->proposals_dropped = stats.proposals_refused;
    ret->wal_fsync = (struct histogram)HISTOGRAM_LATENCY; /* The same buckets: 0.5 ms * 2^k. */
    static_assert(HISTOGRAM_BUCKETS == CONTROL_UV_SYNC_BUCKETS,
                  "the log's buckets are the histogram's");
    memcpy(ret->wal_fsync.counts, disk.sync_counts, sizeof(ret->wal_fsync.counts));
    ret->wal_fsync.sum = (double)disk.sync_ns_total * 1e-9;
    if (leader == 0) {
        (void)snprintf(ret->reason, sizeof(ret->reason),
                       "no leader: %u of %u voters are alive here, %u are needed",
                       ret->voters_alive, ret->voters, ret->voters / 2 + 1);
        if (standing_reason(daemon)[0] != '\0') {
            size_t size = strlen(ret->reason);
            (void)snprintf(ret->reason + size, sizeof(ret->reason) - size, "; %.400s",
                           standing_reason(daemon));
        }
    }
    tell_trust(daemon, ret);
    ret->events_count = daemon->events_count;
    memcpy(ret->events, daemon->events, sizeof(ret->events));
}

static void tell_member(struct daemon *daemon, const struct member *member, struct facts_node *ret)
{
    static const char *const roles[] = {"", "trainer", "arbiter", "spare"};
    const struct state_node *entry = state_node(&daemon->state, member->id);
    const struct progress *progress = &member->progress;
    memset(ret, 0, sizeof(*ret));
    ret->id = member->id;
    ret->life = member->life;
    ret->drained = entry != NULL && entry->drained;
    ret->votes = is_voter(daemon, member);
    ret->self = member->self;
    ret->connected = member->self || (daemon->mesh != NULL && mesh_is_up(daemon->mesh, member->id));
    ret->known = entry != NULL;
    ret->state = members_state(daemon, member);
    (void)snprintf(ret->name, sizeof(ret->name), "%s", member->name);
    (void)snprintf(ret->address, sizeof(ret->address), "%s", member->address);
    (void)snprintf(ret->role, sizeof(ret->role), "%s", roles[member->role]);
    (void)snprintf(ret->version, sizeof(ret->version), "%s", progress->version);
    (void)snprintf(ret->backend, sizeof(ret->backend), "%s", progress->backend);
    (void)snprintf(ret->phase, sizeof(ret->phase), "%s", progress->phase);
    (void)snprintf(ret->reason, sizeof(ret->reason), "%s",
                   member->reason[0] != '\0' ? member->reason : member->unfit);
    ret->losses = member->lost.times;
    ret->lost = member->lost.times > 0 && member->reason[0] != '\0';
    if (ret->lost) {
        ret->lost_ms = (int64_t)member->lost.wall_ms;
        ret->lost_job = member->lost.job;
        ret->lost_generation = member->lost.generation;
        ret->lost_step = member->lost.step;
        ret->lost_sent_bytes = member->lost.sent_bytes;
        ret->lost_received_bytes = member->lost.received_bytes;
        (void)snprintf(ret->lost_phase, sizeof(ret->lost_phase), "%s", member->lost.phase);
    }
    ret->threads = progress->threads;
    if (entry != NULL) {
        (void)snprintf(ret->device, sizeof(ret->device), "%s", entry->device);
        hex16(entry->binding, ret->binding);
    }
    ret->incarnation = member->incarnation;
    ret->heard_ms_ago = member->self    ? 0
                        : member->heard ? clock_now_ms() - member->heard_ms
                                        : UINT64_MAX;
    ret->round_trip_s = member->self ? 0.0 : -1.0;
    ret->job = progress->job;
    ret->step = progress->step;
    ret->match_index = UINT64_MAX;
    ret->storage_free_bytes = member->heard ? progress->storage_free_bytes : UINT64_MAX;
}

static size_t tell_nodes(void *context, struct facts_node *ret_nodes, size_t nodes_max)
{
    struct daemon *daemon = context;
    size_t count = daemon->members_count < nodes_max ? daemon->members_count : nodes_max;
    for (size_t i = 0; i < count; i++) {
        tell_member(daemon, &daemon->members[i], &ret_nodes[i]);
        struct mesh_peer_stats stats;
        if (daemon->mesh == NULL ||
            !mesh_peer_stats_of(daemon->mesh, daemon->members[i].id, &stats)) {
            continue; /* this node */
        }
        if (stats.round_trip_us != 0) {
            ret_nodes[i].round_trip_s = (double)stats.round_trip_us * 1e-6;
        }
        ret_nodes[i].traffic.control[0] = stats.bytes_out;
        ret_nodes[i].traffic.control[1] = stats.bytes_in;
        serve_traffic(daemon->serve, stats.node_id, ret_nodes[i].traffic.data);
    }
    return count;
}

static size_t tell_job_ids(void *context, uint64_t *ret_ids, size_t ids_max)
{
    struct daemon *daemon = context;
    size_t count = daemon->state.jobs_count < ids_max ? daemon->state.jobs_count : ids_max;
    for (size_t i = 0; i < count; i++) {
        ret_ids[i] = daemon->state.jobs[i]->id;
    }
    return count;
}

/* The participant that is furthest in this generation: any one's loss is everyone's. */
static const struct progress *job_progress(struct daemon *daemon, const struct state_job *job)
{
    const struct progress *best = NULL;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct progress *progress = &daemon->members[i].progress;
        if (progress->job == job->id && progress->generation == job->generation &&
            (best == NULL || progress->step > best->step)) {
            best = progress;
        }
    }
    return best;
}

static void tell_spec(const struct state_job *job, struct facts_job *ret)
{
    struct faults faults = FAULTS_NONE;
    struct job spec;
    if (job_parse(job->text, job->text_size, "job", NULL, NULL, 0, &spec, &faults) != 0) {
        faults_done(&faults);
        return;
    }
    (void)snprintf(ret->kind, sizeof(ret->kind), "%s", job_kind_name(&spec));
    ret->batch = spec.optimizer.batch != 0 ? spec.optimizer.batch : job->rows;
    ret->checkpoint_every = spec.checkpoint.every;
    ret->checkpoint_keep = (uint32_t)spec.checkpoint.keep;
    ret->checkpoint_replicas = (uint32_t)spec.checkpoint.replicas;
    struct buf notes = BUF_NONE;
    (void)job_notes(&spec, &notes);
    buf_put_u8(&notes, 0);
    char *rest = NULL;
    for (char *line = strtok_r((char *)notes.bytes, "\n", &rest);
         line != NULL && ret->notes_count < FACTS_NOTES_MAX; line = strtok_r(NULL, "\n", &rest)) {
        (void)snprintf(ret->notes[ret->notes_count++], FACTS_TEXT_SIZE, "%s", line);
    }
    if (ret->coordinates == 0 && job->partitioned) {
        ret->coordinates = job->features + (spec.model.intercept ? 1 : 0);
    }
    buf_done(&notes);
    job_done(&spec);
}

static void tell_parts(struct daemon *daemon, const struct state_job *job, struct facts_job *ret)
{
    const struct history *history = history_find(daemon, job->id);
    for (uint32_t r = 0; r < job->ranges_count && r < FACTS_NODES_MAX; r++) {
        struct facts_part *part = &ret->parts[ret->parts_count++];
        const struct member *member = members_find(daemon, job->participants[r].node);
        part->node_id = member->id;
        (void)snprintf(part->node, sizeof(part->node), "%s", member->name);
        part->first = job->bounds[r];
        part->end = job->bounds[r + 1];
        /* What was measured here, else what a dense range weighs. */
        uint64_t end = part->end < job->features ? part->end : job->features;
        part->weight = (end > part->first ? end - part->first : 0) * job->rows * sizeof(float);
        if (history != NULL && history->ranges_count == job->ranges_count) {
            part->weight = history->weights[r];
        }
        if (state_job_active(job)) {
            part->step = member->progress.step;
            (void)snprintf(part->state, sizeof(part->state), "%s",
                           members_state(daemon, member) == FACTS_DOWN ? "down"
                                                                       : member->progress.phase);
        } else {
            part->step = ret->step;
        }
    }
}

static void tell_holders(struct daemon *daemon, const struct state_job *job, struct facts_job *ret)
{
    for (uint32_t i = 0; i < daemon->members_count && ret->holders_count < FACTS_NODES_MAX; i++) {
        const struct member *member = &daemon->members[i];
        if (member->data.has && member->data.job == job->id) {
            (void)snprintf(ret->holders[ret->holders_count++], FACTS_NAME_SIZE, "%s", member->name);
        }
    }
}

static bool reads_data(const struct run *run)
{
    return run->state == RUN_PREPARING || run->state == RUN_LOADING;
}

static void tell_progress(struct daemon *daemon, const struct state_job *job, struct facts_job *ret)
{
    const struct history *history = history_find(daemon, job->id);
    const struct progress *progress = job_progress(daemon, job);
    const struct state_epoch *newest = state_newest_epoch(job);
    if (history != NULL && history->last.job == job->id &&
        history->last.generation == job->generation &&
        (progress == NULL || !progress->has_loss || progress->step < history->last.step)) {
        progress = &history->last; /* The run is over here: what it said last, not others before. */
    }
    ret->first_loss = (double)NAN;
    if (newest != NULL) {
        ret->step = newest->step;
        ret->loss = command_double_of(newest->loss_bits);
        ret->has_loss = true;
    }
    if (history != NULL) {
        ret->first_loss = history->has_first ? history->first_loss : (double)NAN;
        if (history->read) {
            ret->test_rows = history->test_rows;
            ret->nonzeros = history->sparse ? history->nonzeros : 0;
            (void)snprintf(ret->storage, sizeof(ret->storage), "%s",
                           history->sparse ? "sparse" : "dense");
        }
        ret->rows_per_second = history_rows_per_s(history);
        ret->progress_ms = history->progress_wall_ms;
        ret->steps_done = history->steps_done;
        ret->rows_done = history->rows_done;
        memcpy(ret->phases, history->phases, sizeof(ret->phases));
    }
    if (progress != NULL && progress->has_loss && progress->step >= ret->step) {
        ret->step = progress->step;
        ret->loss = progress->loss;
        ret->has_loss = true;
    }
    if (progress != NULL && progress->has_loss) {
        ret->elapsed_ns = progress->elapsed_ns;
        ret->compute_ns = progress->compute_ns;
        ret->exchange_ns = progress->exchange_ns;
        ret->publication_ns = progress->publication_ns;
        if (isnan(ret->first_loss)) { /* Seen from the first step of this generation on. */
            ret->first_loss = progress->first_loss;
        }
        if ((ret->rows_per_second == 0.0 || !state_job_active(job)) && progress->elapsed_ns > 0) {
            ret->rows_per_second = (double)progress->rows * 1e9 / (double)progress->elapsed_ns;
        }
    }
    ret->eta_s = -1.0;
    if (progress != NULL && progress->elapsed_ns > 0 && progress->rows > 0 && ret->batch > 0 &&
        ret->steps > ret->step) {
        double step_s =
            (double)progress->elapsed_ns * 1e-9 * (double)ret->batch / (double)progress->rows;
        ret->eta_s = step_s * (double)(ret->steps - ret->step);
    }
    const struct run *run = daemon->run;
    if (run != NULL && run->job == job->id) {
        (void)snprintf(ret->phase, sizeof(ret->phase), "%s", members_self(daemon)->progress.phase);
        (void)snprintf(ret->backend, sizeof(ret->backend), "%s", daemon->backend);
        const char *work = reads_data(run) ? atomic_load(&run->meter.phase) : NULL;
        if (work != NULL) {
            (void)snprintf(ret->work, sizeof(ret->work), "%s", work);
            ret->work_done_bytes = atomic_load(&run->meter.done_bytes);
            ret->work_total_bytes = atomic_load(&run->meter.total_bytes);
        }
    }
}

static void tell_checkpoint(struct daemon *daemon, const struct state_job *job,
                            struct facts_job *ret)
{
    uint64_t current = publish_current(daemon, job->id);
    const struct state_epoch *epoch = current != 0 ? state_epoch(job, current) : NULL;
    if (epoch == NULL) {
        return;
    }
    char folder[FOLDER_PATH_SIZE];
    char path[FOLDER_PATH_SIZE];
    checkpoint_job_folder(job, folder);
    checkpoint_epoch_folder(folder, current, path);
    ret->has_epoch = true;
    ret->epoch = current;
    ret->epoch_step = epoch->step;
    ret->epoch_ms = (int64_t)epoch->decided_ms;
    (void)snprintf(ret->checkpoint, sizeof(ret->checkpoint), "%s/%s", daemon->state_dir, path);
    tell_hex(epoch->parameter_sha256, ret->parameter_sha256);
    tell_hex(epoch->accumulator_sha256, ret->accumulator_sha256);
}

/* Why a job that is under way may not get on: what its participants say. */
static void tell_trouble(struct daemon *daemon, const struct state_job *job, struct facts_job *ret)
{
    if (daemon_leader(daemon) == 0) {
        (void)snprintf(ret->reason, sizeof(ret->reason),
                       "node %s knows no leader now: what it says of the job may be old",
                       daemon->name);
        return;
    }
    for (uint32_t i = 0; i < job->participants_count; i++) {
        const struct member *member = members_find(daemon, job->participants[i].node);
        const struct progress *progress = &member->progress;
        if (progress->job == job->id && progress->generation == job->generation &&
            progress->trouble[0] != '\0') {
            (void)snprintf(ret->reason, sizeof(ret->reason), "node %s: %.480s", member->name,
                           progress->trouble);
            return;
        }
    }
}

static bool tell_job(void *context, uint64_t id, struct facts_job *ret)
{
    struct daemon *daemon = context;
    const struct state_job *job = state_job(&daemon->state, id);
    if (job == NULL) {
        return false;
    }
    memset(ret, 0, sizeof(*ret));
    ret->id = id;
    const uint8_t *u = job->uuid;
    (void)snprintf(ret->uuid, sizeof(ret->uuid),
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                   u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                   u[14], u[15]);
    (void)snprintf(ret->name, sizeof(ret->name), "%s", job->name);
    (void)snprintf(ret->state, sizeof(ret->state), "%s", state_job_label(job->state));
    (void)snprintf(ret->reason, sizeof(ret->reason), "%s", job->reason);
    (void)snprintf(ret->policy, sizeof(ret->policy), "%s", job->policy);
    ret->ended = state_job_ended(job);
    if (!state_job_active(job) && !ret->ended && job->reason[0] == '\0') {
        struct coordinator_view view;
        members_view(daemon, &view);
        coordinator_wait_text(&daemon->state, &view, job, ret->reason, sizeof(ret->reason));
    }
    if (!state_job_active(job) && !ret->ended) {
        (void)preflight_hold_text(daemon, job, ret->reason, sizeof(ret->reason));
    }
    if (state_job_active(job) && job->reason[0] == '\0') {
        tell_trouble(daemon, job, ret);
    }
    tell_hex(job->identity, ret->identity);
    tell_hex(job->dataset, ret->dataset);
    ret->nodes = job->participants_count;
    ret->dataset_known = job->partitioned;
    ret->generation = job->generation;
    ret->steps = job->steps;
    ret->rows = job->rows;
    ret->features = job->features;
    ret->submitted_ms = (int64_t)job->submitted_ms;
    ret->started_ms = (int64_t)job->started_ms;
    ret->ended_ms = (int64_t)job->ended_ms;
    tell_spec(job, ret);
    tell_progress(daemon, job, ret);
    tell_checkpoint(daemon, job, ret);
    if (ret->ended && job->state == JOB_SUCCEEDED) {
        ret->step = job->result.step;
        ret->has_loss = job->result.has_loss;
        ret->loss = command_double_of(job->result.loss_bits);
        ret->has_objective = job->result.has_objective;
        ret->objective = command_double_of(job->result.objective_bits);
    }
    tell_holders(daemon, job, ret);
    tell_parts(daemon, job, ret);
    return true;
}

static const char *tell_job_text(void *context, uint64_t id)
{
    struct daemon *daemon = context;
    const struct state_job *job = state_job(&daemon->state, id);
    return job != NULL ? job->text : NULL;
}

static size_t tell_losses(void *context, uint64_t id, uint64_t after,
                          struct facts_point *ret_points, size_t points_max)
{
    const struct history *history = history_find(context, id);
    return history != NULL ? history_get(history, after, ret_points, points_max) : 0;
}

static bool tell_losses_pending(void *context, uint64_t id)
{
    return recall_pending(context, id);
}

static uint64_t tell_job_version(void *context, uint64_t id)
{
    struct daemon *daemon = context;
    const struct history *history = history_find(daemon, id);
    const struct state_job *job = state_job(&daemon->state, id);
    const struct progress *progress = job != NULL ? job_progress(daemon, job) : NULL;
    const struct run *run = daemon->run;
    uint64_t ticks = run != NULL && run->job == id && reads_data(run) ? run->ticks : 0;
    return daemon->state.changes * 1000003U + ticks + (history != NULL ? history->version : 0) +
           daemon->preflight->version * 104729U + (progress != NULL ? progress->step * 31U : 0) +
           publish_current(daemon, id) * 7919U;
}

static void tell_publication(void *context, struct facts_publication *ret)
{
    struct daemon *daemon = context;
    *ret = daemon->publication_stats;
}

static void tell_session(void *context, struct facts_session *ret)
{
    struct daemon *daemon = context;
    *ret = daemon->session;
    (void)snprintf(ret->backend, sizeof(ret->backend), "%s", daemon->backend);
    (void)snprintf(ret->device, sizeof(ret->device), "%s", daemon->device_text);
    hex16(daemon->binding, ret->binding);
    ret->threads = daemon->threads;
    if (!ret->open) {
        (void)snprintf(ret->state, sizeof(ret->state), "none");
    }
}

static void put_check(struct facts_check *checks, size_t *count, size_t max, const char *name,
                      bool ok, const char *sentence, const char *hint)
{
    if (*count < max) {
        struct facts_check *check = &checks[(*count)++];
        memset(check, 0, sizeof(*check));
        check->ok = ok;
        (void)snprintf(check->name, sizeof(check->name), "%s", name);
        (void)snprintf(check->sentence, sizeof(check->sentence), "%s", sentence);
        (void)snprintf(check->hint, sizeof(check->hint), "%s", ok ? "" : hint);
    }
}

static size_t tell_checks(void *context, struct facts_check *ret_checks, size_t checks_max)
{
    struct daemon *daemon = context;
    size_t count = 0;
    char text[FACTS_TEXT_SIZE];
    put_check(ret_checks, &count, checks_max, "selftest",
              daemon->selftest_done && daemon->selftest.code == 0,
              !daemon->selftest_done       ? "the device's self-test is under way"
              : daemon->selftest.code != 0 ? daemon->selftest.text
                                           : "the device gives the bits of the policy",
              "'coppeliusctl doctor' says more about the device");
    uint32_t leader = daemon_leader(daemon);
    (void)snprintf(text, sizeof(text), "%s leads",
                   leader != 0 ? members_find(daemon, leader)->name : "nobody");
    put_check(ret_checks, &count, checks_max, "raft", leader != 0, text,
              "a majority of the nodes with a vote must be up and reach each other");
    bool caught_up = daemon->control != NULL && control_caught_up(daemon->control);
    put_check(ret_checks, &count, checks_max, "log", caught_up && !daemon->log_failed,
              caught_up ? "this node has all that was agreed"
                        : "this node has not yet heard all that was agreed",
              "it follows by itself once a leader reaches it");
    put_check(ret_checks, &count, checks_max, "stopping", !daemon->stopping,
              daemon->stopping ? "the daemon is stopping" : "the daemon takes jobs",
              "ask another node");
    if (count < checks_max) {
        tell_trust_check(daemon, &ret_checks[count++]);
    }
    return count;
}

static void tell_pulse(void *context, struct facts_pulse *ret)
{
    struct daemon *daemon = context;
    const struct run *run = daemon->run;
    /* A thread that waits for others or for the loop does not tick and is not stuck. */
    ret->busy = run != NULL && (run->state == RUN_PREPARING || run->state == RUN_LOADING);
    ret->ticks = run != NULL ? atomic_load(&run->ticks) : 0;
}

void tell_init(struct daemon *daemon)
{
    daemon->publication_stats.capture = (struct histogram)HISTOGRAM_STEP;
    daemon->publication_stats.write = (struct histogram)HISTOGRAM_STEP;
    daemon->publication_stats.prepare = (struct histogram)HISTOGRAM_STEP;
    daemon->publication_stats.commit = (struct histogram)HISTOGRAM_STEP;
    daemon->facts = (struct facts){
        .daemon = daemon,
        .cluster = tell_cluster,
        .nodes = tell_nodes,
        .pairs = tell_pairs,
        .job_ids = tell_job_ids,
        .job = tell_job,
        .job_text = tell_job_text,
        .losses = tell_losses,
        .losses_pending = tell_losses_pending,
        .verdict = verdict_tell,
        .job_version = tell_job_version,
        .epoch_ids = tell_epoch_ids,
        .epoch = tell_epoch,
        .publication = tell_publication,
        .session = tell_session,
        .checks = tell_checks,
        .pulse = tell_pulse,
        .submit = verbs_submit,
        .cancel = verbs_cancel_job,
        .pause = verbs_pause,
        .resume = verbs_resume,
        .member = verbs_member,
        .standing = standing_answer,
        .verify = verbs_verify,
        .prune = verbs_prune,
        .predict = predict_start,
    };
}

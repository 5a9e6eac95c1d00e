/* Copies of shards between the nodes: what is said about them (FRAME_SHARD), what is fetched, what
 * is served, what a run needs before it starts, and the background check of all that lies here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/publish_room.h"
#include "daemon/serve.h"

#define WORDS_MS       500
#define SCRUB_FIRST_MS 300000
#define SCRUB_MS       3600000
#define CONNECT_MS     5000
#define SILENCE_MS     5000
#define SHARD_PART     0 /* of a fetch: the file itself */

/* ---- words ---- */

#define WORD_SIZE (1 + 8 + 8 + 4 + 8 + SHA256_SIZE)

static void say_word(struct publication *p, const struct agent_word *word)
{
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    buf_put_u8(&bytes, (uint8_t)word->kind);
    buf_put_u64(&bytes, word->job);
    buf_put_u64(&bytes, word->epoch);
    buf_put_u32(&bytes, word->rank);
    buf_put_u64(&bytes, word->size);
    buf_put(&bytes, word->sha256, SHA256_SIZE);
    ASSERT(bytes.size == WORD_SIZE);
    /* What does not get through is said again. */
    (void)mesh_send(p->daemon->mesh, word->node, FRAME_SHARD, bytes.bytes, bytes.size, &err);
    buf_done(&bytes);
}

static void say_words(struct publication *p)
{
    struct agent_word words[AGENT_WORDS_MAX];
    uint64_t now = clock_now_ms();
    if (p->words_ms != 0 && now - p->words_ms < WORDS_MS) {
        return;
    }
    size_t count = agent_words(&p->agent, &p->daemon->state, words);
    p->words_ms = count > 0 ? now : 0;
    for (size_t i = 0; i < count; i++) {
        say_word(p, &words[i]);
    }
}

void publish_on_word(struct daemon *daemon, uint32_t node, const uint8_t *bytes, size_t size)
{
    struct reader in = {bytes, size, false};
    struct agent_word word = {.kind = (enum agent_word_kind)read_u8(&in), .node = node};
    word.job = read_u64(&in);
    word.epoch = read_u64(&in);
    word.rank = read_u32(&in);
    word.size = read_u64(&in);
    read_bytes(&in, word.sha256, SHA256_SIZE);
    if (in.failed || in.size != 0 || word.kind < AGENT_OFFER || word.kind > AGENT_DOUBT) {
        log_warning("publish.word", "from=%u bytes=%zu next=\"dropped\"", node, size);
        return;
    }
    struct publication *p = publication_find(daemon, word.job);
    if (p != NULL && agent_hear(&p->agent, &daemon->state, &word)) {
        p->idle = false;
        daemon_soon(daemon);
    }
}

/* ---- fetching ---- */

bool copies_begin(struct publication *p)
{
    struct daemon *daemon = p->daemon;
    const struct member *member = members_find(daemon, p->action.from);
    struct copy_pull *pull = &p->pull;
    if (member == NULL) {
        return false;
    }
    *pull = (struct copy_pull){.daemon = daemon, .size = p->action.size};
    (void)snprintf(pull->holder, sizeof(pull->holder), "%s", member->name);
    (void)snprintf(pull->address, sizeof(pull->address), "%s", member->address);
    pull->settings = (struct fetch_settings){.cluster = daemon->cluster,
                                             .node = daemon->name,
                                             .node_id = daemon->node_id,
                                             .life = daemon->life,
                                             .incarnation = daemon->incarnation,
                                             .job = p->job,
                                             .generation = daemon->state.generation,
                                             .holder = pull->holder,
                                             .holder_id = member->id,
                                             .holder_life = member->life,
                                             .address = pull->address,
                                             .trust = daemon->trust,
                                             .connect_ms = CONNECT_MS,
                                             .silence_ms = SILENCE_MS,
                                             .answer_ms = 2 * SILENCE_MS,
                                             .cancel = &daemon->copies_cancel};
    memcpy(pull->settings.digest, p->action.sha256, SHA256_SIZE);
    return true;
}

static int on_read(void *context, uint64_t offset, void *bytes, size_t size, struct err *err)
{
    struct copy_pull *pull = context;
    const uint8_t *answer = NULL;
    uint32_t got = 0;
    int code = 0;
    if (pull->fetch == NULL) {
        code = fetch_open(&pull->settings, &pull->fetch, err);
        pull->asked = offset;
    }
    while (code == 0 && pull->asked < pull->size && fetch_unanswered(pull->fetch) < FETCH_WINDOW) {
        uint64_t left = pull->size - pull->asked;
        uint32_t piece = left < FETCH_SIZE_MAX ? (uint32_t)left : FETCH_SIZE_MAX;
        code = fetch_ask(pull->fetch, SHARD_PART, pull->asked, piece, err);
        pull->asked += piece;
    }
    code = code == 0 ? fetch_take(pull->fetch, &answer, &got, err) : code;
    if (code == 0) {
        ASSERT(got == size); /* The agent reads on in steps of FETCH_SIZE_MAX. */
        memcpy(bytes, answer, size);
        pull->bytes += size;
    }
    return code;
}

void copies_run(struct publication *p)
{
    struct agent_source source = {&p->pull, on_read};
    agent_execute_copy(p->daemon->fs, &p->action, &source, &p->result);
    fetch_close(p->pull.fetch);
    p->pull.fetch = NULL;
}

/* ---- what is told ---- */

static uint64_t *bad_of(struct publication *p, uint64_t epoch)
{
    size_t oldest = 0;
    for (size_t i = 0; i < STATE_EPOCHS_MAX; i++) {
        if (p->bad_epoch[i] == epoch) {
            return &p->bad[i];
        }
        oldest = p->bad_epoch[i] < p->bad_epoch[oldest] ? i : oldest;
    }
    p->bad_epoch[oldest] = epoch;
    p->bad[oldest] = 0;
    return &p->bad[oldest];
}

void copies_done(struct publication *p)
{
    const struct agent_action *action = &p->action;
    const struct agent_result *result = &p->result;
    double seconds = (double)(clock_now_ns() - p->started_ns) * 1e-9;
    struct agent_word word;
    p->served = 0;
    p->words_ms = 0;
    if (agent_word_of_failure(action, result, &word)) {
        say_word(p, &word);
    }
    if (action->kind == AGENT_COPY) {
        serve_count_in(p->daemon->serve, action->from, p->pull.bytes);
        p->daemon->publication_stats.bytes_read += p->pull.bytes;
        if (result->code == 0 && action->manifest.decided_index != 0) {
            *bad_of(p, action->epoch) &= ~(UINT64_C(1) << action->rank);
            log_notice("publish.repaired",
                       "job=%llu epoch=%llu file=%s from=%s bytes=%llu seconds=%.3f",
                       (unsigned long long)p->job, (unsigned long long)action->epoch, action->shard,
                       p->pull.holder, (unsigned long long)p->pull.bytes, seconds);
        } else if (result->code == 0) {
            log_info("publish.copied",
                     "job=%llu epoch=%llu file=%s from=%s bytes=%llu seconds=%.3f",
                     (unsigned long long)p->job, (unsigned long long)action->epoch, action->shard,
                     p->pull.holder, (unsigned long long)p->pull.bytes, seconds);
        }
    }
    if (action->kind == AGENT_VERIFY || action->kind == AGENT_PUBLISH) {
        uint64_t *bad = bad_of(p, action->epoch);
        *bad = (*bad & ~result->good) | result->bad;
        for (uint32_t i = 0; i < action->manifest.shards_count; i++) {
            if ((result->bad >> i & 1) != 0) {
                daemon_event(p->daemon, "epoch %llu of job %llu: '%s' is missing or damaged here",
                             (unsigned long long)action->epoch, (unsigned long long)p->job,
                             action->manifest.shards[i].file);
                log_error("publish.damaged",
                          "job=%llu epoch=%llu file=%s error=\"%s\" next=\"put aside, and taken "
                          "from another node's copy\"",
                          (unsigned long long)p->job, (unsigned long long)action->epoch,
                          action->manifest.shards[i].file, result->bad_text);
            }
        }
    }
}

/* An epoch that nobody has any more: loud, on every node. */
static void tell_lost(struct publication *p, const struct state_job *job)
{
    if (job->lost_epoch == p->lost_epoch) {
        return;
    }
    p->lost_epoch = job->lost_epoch;
    const struct state_epoch *newest = state_newest_epoch(job);
    log_error("publish.lost",
              "job=%llu epoch=%llu error=\"it can be had from no copy any more\" next=\"%s\"",
              (unsigned long long)p->job, (unsigned long long)job->lost_epoch,
              newest == NULL ? "there is no older one" : "the one before is gone on from");
    daemon_event(p->daemon, "epoch %llu of job '%s' is lost: no node has a whole copy",
                 (unsigned long long)job->lost_epoch, job->name);
}

/* ---- what is served ---- */

static void add_file(struct serve_file *files, size_t *count, const uint8_t sha256[SHA256_SIZE],
                     const struct publication *p, const char *folder, uint64_t epoch,
                     bool published, uint32_t rank, uint32_t ranks)
{
    char place[FOLDER_PATH_SIZE];
    char name[MANIFEST_TEXT_SIZE];
    struct serve_file *file = &files[(*count)++];
    if (published) {
        checkpoint_epoch_folder(folder, epoch, place);
    } else {
        checkpoint_staging_folder(folder, epoch, place);
    }
    checkpoint_shard_name(rank, ranks, name);
    memcpy(file->digest, sha256, SHA256_SIZE);
    (void)snprintf(file->path, sizeof(file->path), "%s/%s/%s", p->daemon->state_dir, place, name);
}

/* All shards that lie here under the digests that are agreed, and the one that is to be voted for.
 */
static void list_files(struct publication *p, const struct state_job *job)
{
    const struct folder_view *view = &p->agent.view;
    char folder[FOLDER_PATH_SIZE];
    size_t count = 0;
    size_t most = 1;
    for (uint32_t i = 0; i < view->staged_count; i++) {
        most += (size_t)__builtin_popcountll(view->staged_shards[i]);
    }
    for (uint32_t i = 0; i < view->published_count; i++) {
        most += (size_t)__builtin_popcountll(view->published_shards[i]);
    }
    struct serve_file *files = calloc(most, sizeof(*files));
    ASSERT(files != NULL);
    checkpoint_job_folder(job, folder);
    for (uint32_t k = 0; k < job->epochs_count; k++) {
        const struct state_epoch *epoch = job->epochs[k];
        for (int published = 0; published < 2; published++) {
            const uint64_t *epochs = published ? view->published : view->staged;
            const uint64_t *shards = published ? view->published_shards : view->staged_shards;
            uint32_t places = published ? view->published_count : view->staged_count;
            for (uint32_t i = 0; i < places; i++) {
                for (uint32_t r = 0; epochs[i] == epoch->epoch && r < epoch->shards_count; r++) {
                    if ((shards[i] >> r & 1) != 0) {
                        add_file(files, &count, epoch->shards[r].sha256, p, folder, epoch->epoch,
                                 published == 1, r, epoch->shards_count);
                    }
                }
            }
        }
    }
    const struct state_shard *own =
        job->open == NULL ? NULL : state_shard(job->open, p->daemon->node_id);
    if (own != NULL && p->agent.staged_epoch == job->open->epoch) {
        add_file(files, &count, p->agent.staged_sha256, p, folder, job->open->epoch, false,
                 (uint32_t)(own - job->open->shards), job->open->shards_count);
    }
    ASSERT(count <= most);
    serve_put_files(p->daemon->serve, p->job, files, count);
    free(files);
}

/* ---- for people ---- */

bool publish_has(const struct daemon *daemon, uint64_t job, uint64_t epoch)
{
    const struct publication *p = publication_find(daemon, job);
    for (uint32_t i = 0; p != NULL && p->agent.scanned && i < p->agent.view.published_count; i++) {
        if (p->agent.view.published[i] == epoch) {
            return true;
        }
    }
    return false;
}

uint64_t publish_verify(struct daemon *daemon, uint64_t job)
{
    struct publication *p = publication_find(daemon, job);
    if (p == NULL) {
        return 0; /* It has no files here. */
    }
    p->idle = false;
    agent_scrub(&p->agent);
    daemon_soon(daemon);
    return p->agent.scrubs + 1;
}

bool publish_verified(const struct daemon *daemon, uint64_t job, uint64_t since)
{
    const struct publication *p = publication_find(daemon, job);
    return p == NULL || since == 0 || p->agent.scrubs >= since;
}

const char *publish_here(const struct daemon *daemon, uint64_t job, const struct state_epoch *epoch,
                         uint32_t rank)
{
    const struct publication *p = publication_find(daemon, job);
    uint64_t bit = UINT64_C(1) << rank;
    bool held = state_shard_held(&epoch->shards[rank], daemon->node_id);
    if (p == NULL) {
        return held ? "missing" : "";
    }
    for (size_t i = 0; i < STATE_EPOCHS_MAX; i++) {
        if (p->bad_epoch[i] == epoch->epoch && (p->bad[i] & bit) != 0) {
            return "damaged";
        }
    }
    return agent_shard_here(&p->agent, epoch, rank)
               ? agent_shard_good(&p->agent, epoch, rank) ? "verified" : "here"
           : held ? "missing"
                  : "";
}

/* ---- a run starts ---- */

bool publish_seed_ready(struct daemon *daemon, uint64_t id, uint64_t generation, uint64_t epoch,
                        uint64_t first, uint64_t end)
{
    struct publication *p = publication_of(daemon, id);
    const struct state_job *job = state_job(&daemon->state, id);
    const struct state_epoch *from = job == NULL ? NULL : state_epoch(job, epoch);
    uint64_t ranks = 0;
    for (uint32_t i = 0; from != NULL && i < from->shards_count; i++) {
        if (from->shards[i].first < end && from->shards[i].end > first) {
            ranks |= UINT64_C(1) << i;
        }
    }
    if (ranks == 0) {
        return false; /* Its loss ends the generation. */
    }
    if (p->need_generation != generation) {
        p->need_generation = generation;
        p->idle = false;
        agent_doubt(&p->agent, epoch); /* Compared anew before each start. */
    }
    p->idle = p->idle && p->agent.need_epoch == epoch && p->agent.need_ranks == ranks;
    return agent_need(&p->agent, epoch, ranks);
}

/* The run has what it needs, or is gone. */
static void forget_need(struct publication *p, const struct state_job *job)
{
    if (p->need_generation != 0 && (job->generation != p->need_generation ||
                                    (job->state != JOB_PLACED && job->state != JOB_LOADING))) {
        p->need_generation = 0;
        p->idle = false;
        (void)agent_need(&p->agent, 0, 0);
    }
}

/* Changes when the digests of what lies here may have. */
static uint64_t files_version(const struct publication *p, const struct state_job *job)
{
    const struct state_epoch *newest = state_newest_epoch(job);
    uint64_t version = 1 + job->epochs_count + (newest == NULL ? 0 : newest->epoch << 8);
    version += job->open == NULL ? 0 : job->open->epoch << 32;
    return version + (p->agent.staged_epoch << 48);
}

void copies_turn(struct publication *p)
{
    struct daemon *daemon = p->daemon;
    const struct state_job *job = state_job(&daemon->state, p->job);
    uint64_t now = clock_now_ms();
    if (job == NULL || !p->agent.scanned) {
        return;
    }
    tell_lost(p, job);
    forget_need(p, job);
    if (!p->agent.busy && p->served != files_version(p, job)) {
        p->served = files_version(p, job);
        list_files(p, job);
    }
    say_words(p);
    if (p->scrub_ms == 0) {
        p->scrub_ms = now + SCRUB_FIRST_MS;
    }
    if (now >= p->scrub_ms && p->agent.scrub_next == 0) {
        p->scrub_ms = now + SCRUB_MS;
        p->idle = false;
        agent_scrub(&p->agent);
    }
}

/* The agent's part in copies: what is to lie here beside the own shard, what is said to others,
 * what is compared, fetched and let go. */
#include <string.h>

#include "base/assert.h"
#include "checkpoint/agent_room.h"

uint64_t agent_bit(uint32_t rank)
{
    ASSERT(rank < 64);
    return UINT64_C(1) << rank;
}

/* ---- what lies here, and what should ---- */

uint64_t agent_wanted(const struct agent *agent, const struct state_epoch *epoch)
{
    uint64_t ranks = 0;
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        const struct state_shard *shard = &epoch->shards[i];
        if (shard->wanted == agent->node || state_shard_held(shard, agent->node) ||
            (agent->need_epoch == epoch->epoch && (agent->need_ranks & agent_bit(i)) != 0)) {
            ranks |= agent_bit(i);
        }
    }
    return ranks;
}

uint64_t agent_here(const struct agent *agent, uint64_t epoch, bool published)
{
    const struct folder_view *view = &agent->view;
    const uint64_t *epochs = published ? view->published : view->staged;
    const uint64_t *shards = published ? view->published_shards : view->staged_shards;
    uint32_t count = published ? view->published_count : view->staged_count;
    for (uint32_t i = 0; i < count; i++) {
        if (epochs[i] == epoch) {
            return shards[i];
        }
    }
    return 0;
}

static uint64_t good_ranks(const struct agent *agent, uint64_t epoch)
{
    for (uint32_t i = 0; i < AGENT_GOOD_MAX; i++) {
        if (agent->good[i].epoch == epoch) {
            return agent->good[i].ranks;
        }
    }
    return 0;
}

uint64_t agent_trusted(const struct agent *agent, const struct state_epoch *epoch)
{
    uint64_t ranks = good_ranks(agent, epoch->epoch);
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        const struct state_shard *shard = &epoch->shards[i];
        const struct agent_offer *offer = &agent->offers[i];
        bool own = agent->staged_epoch == epoch->epoch && shard->node == agent->node &&
                   memcmp(agent->staged_sha256, shard->sha256, SHA256_SIZE) == 0;
        bool copy = agent->offers_epoch == epoch->epoch && offer->stored &&
                    memcmp(offer->sha256, shard->sha256, SHA256_SIZE) == 0;
        ranks |= own || copy ? agent_bit(i) : 0;
    }
    return ranks;
}

void agent_mark(struct agent *agent, uint64_t epoch, uint64_t good, uint64_t bad)
{
    for (uint32_t i = 0; i < AGENT_GOOD_MAX; i++) {
        if (agent->good[i].epoch == epoch) {
            agent->good[i].ranks = (agent->good[i].ranks | good) & ~bad;
            return;
        }
    }
    if (good != 0) {
        agent->good[agent->good_next] = (struct agent_good){epoch, good & ~bad};
        agent->good_next = (agent->good_next + 1) % AGENT_GOOD_MAX;
    }
}

bool agent_shard_here(const struct agent *agent, const struct state_epoch *epoch, uint32_t rank)
{
    return ((agent_here(agent, epoch->epoch, true) | agent_here(agent, epoch->epoch, false)) &
            agent_bit(rank)) != 0;
}

bool agent_shard_good(const struct agent *agent, const struct state_epoch *epoch, uint32_t rank)
{
    return (agent_trusted(agent, epoch) & agent_bit(rank)) != 0;
}

bool agent_need(struct agent *agent, uint64_t epoch, uint64_t ranks)
{
    agent->need_epoch = epoch;
    agent->need_ranks = ranks;
    return agent->scanned && !agent->busy && epoch != 0 &&
           (agent_here(agent, epoch, true) & good_ranks(agent, epoch) & ranks) == ranks;
}

void agent_doubt(struct agent *agent, uint64_t epoch)
{
    agent_mark(agent, epoch, 0, UINT64_MAX);
}

void agent_scrub(struct agent *agent)
{
    agent->scrub_next = 1;
}

/* ---- words ---- */

bool agent_placed(const struct agent *agent, const struct state_epoch *epoch)
{
    for (uint32_t i = 0; i < epoch->shards_count; i++) {
        if (state_shard_held(&epoch->shards[i], agent->node)) {
            return true;
        }
    }
    return false;
}

size_t agent_words(const struct agent *agent, const struct state *state,
                   struct agent_word words[AGENT_WORDS_MAX])
{
    const struct state_job *job = state_job(state, agent->job);
    const struct state_epoch *open = job == NULL ? NULL : job->open;
    size_t count = 0;
    for (uint32_t i = 0; open != NULL && i < open->shards_count; i++) {
        const struct state_shard *shard = &open->shards[i];
        struct agent_word word = {.job = agent->job, .epoch = open->epoch, .rank = i};
        if (shard->prepared) {
            continue;
        }
        if (shard->node == agent->node) {
            word.kind = AGENT_OFFER;
            word.size = agent->staged_size;
            memcpy(word.sha256, agent->staged_sha256, SHA256_SIZE);
            for (uint32_t k = 0; k < shard->holders_count; k++) {
                word.node = shard->holders[k];
                if (agent->staged_epoch == open->epoch && word.node != agent->node &&
                    (agent->stored_by & agent_bit(word.node - 1)) == 0) {
                    words[count++] = word;
                }
            }
        } else if (agent->offers_epoch == open->epoch && agent->offers[i].stored) {
            word.kind = AGENT_STORED;
            word.node = shard->node;
            word.size = agent->offers[i].size;
            memcpy(word.sha256, agent->offers[i].sha256, SHA256_SIZE);
            words[count++] = word;
        }
    }
    ASSERT(count <= AGENT_WORDS_MAX);
    return count;
}

/* It may come before the entry that begins the epoch is applied here. */
static bool hear_offer(struct agent *agent, const struct state_job *job,
                       const struct agent_word *word)
{
    uint64_t current = job->open != NULL ? job->open->epoch : job->epoch_next;
    if (word->epoch < current || word->epoch > job->epoch_next || word->rank >= STATE_NODES_MAX ||
        word->epoch < agent->offers_epoch) {
        return false;
    }
    if (word->epoch > agent->offers_epoch) {
        memset(agent->offers, 0, sizeof(agent->offers));
        agent->offers_epoch = word->epoch;
    }
    struct agent_offer *offer = &agent->offers[word->rank];
    if (offer->node == word->node && offer->size == word->size &&
        memcmp(offer->sha256, word->sha256, SHA256_SIZE) == 0) {
        return false; /* Said again. */
    }
    *offer = (struct agent_offer){.node = word->node, .size = word->size};
    memcpy(offer->sha256, word->sha256, SHA256_SIZE);
    return true;
}

bool agent_word_of_failure(const struct agent_action *action, const struct agent_result *result,
                           struct agent_word *ret_word)
{
    int code = result->code;
    if (action->kind != AGENT_COPY || action->manifest.decided_index == 0 ||
        (code != ERR_DAMAGED && code != ERR_NOT_FOUND)) {
        return false; /* A connection that broke says nothing of the copy. */
    }
    *ret_word = (struct agent_word){.kind = AGENT_DOUBT,
                                    .node = action->from,
                                    .job = action->job,
                                    .epoch = action->epoch,
                                    .rank = action->rank,
                                    .size = action->size};
    memcpy(ret_word->sha256, action->sha256, SHA256_SIZE);
    return true;
}

static bool hear_doubt(struct agent *agent, const struct state_job *job,
                       const struct agent_word *word)
{
    const struct state_epoch *epoch = state_epoch(job, word->epoch);
    if (epoch == NULL || word->rank >= epoch->shards_count || agent->doubt_epoch == word->epoch) {
        return false; /* Or it is being looked at. */
    }
    agent->doubt_epoch = word->epoch;
    agent->doubt_ranks = agent_bit(word->rank);
    return true;
}

bool agent_hear(struct agent *agent, const struct state *state, const struct agent_word *word)
{
    const struct state_job *job = state_job(state, agent->job);
    if (job == NULL || word->node < 1 || word->node > STATE_NODES_MAX) {
        return false;
    }
    if (word->kind == AGENT_OFFER) {
        return hear_offer(agent, job, word);
    }
    if (word->kind == AGENT_DOUBT) {
        return hear_doubt(agent, job, word);
    }
    uint64_t bit = agent_bit(word->node - 1);
    if (word->epoch != agent->staged_epoch || word->size != agent->staged_size ||
        memcmp(word->sha256, agent->staged_sha256, SHA256_SIZE) != 0 ||
        (agent->stored_by & bit) != 0) {
        return false; /* Of another shard than the one that is to be voted for. */
    }
    agent->stored_by |= bit;
    return true;
}

/* ---- actions ---- */

static void name_shard(struct look *look, const struct state_epoch *epoch, uint32_t rank)
{
    look->action->rank = rank;
    checkpoint_shard_name(rank, epoch->shards_count, look->action->shard);
}

enum agent_kind agent_next_offered(struct look *look)
{
    const struct agent *agent = look->agent;
    const struct state_epoch *open = look->job->open;
    for (uint32_t i = 0; open != NULL && i < open->shards_count; i++) {
        const struct state_shard *shard = &open->shards[i];
        const struct agent_offer *offer = &agent->offers[i];
        if (agent->offers_epoch != open->epoch || shard->prepared || offer->stored ||
            offer->node != shard->node || shard->node == agent->node ||
            !state_shard_held(shard, agent->node)) {
            continue;
        }
        name_shard(look, open, i);
        look->action->manifest.decided_index = 0;
        look->action->published = false;
        look->action->from = offer->node;
        look->action->size = offer->size;
        memcpy(look->action->sha256, offer->sha256, SHA256_SIZE);
        return agent_files(look, AGENT_COPY, open->epoch);
    }
    return AGENT_IDLE;
}

static enum agent_kind propose_copy(struct look *look, enum command_kind kind,
                                    const struct state_epoch *epoch, uint32_t rank)
{
    struct command *c = &look->action->command;
    *c = (struct command){.kind = kind};
    c->copy.job = look->job->id;
    c->copy.epoch = epoch->epoch;
    c->copy.rank = rank;
    c->copy.node = look->agent->node;
    c->copy.life = look->agent->life;
    memcpy(c->copy.sha256, epoch->shards[rank].sha256, SHA256_SIZE);
    look->action->rank = rank;
    return agent_propose(look, kind, epoch->epoch);
}

/* A committed epoch by its place in the list, and what lies here of it. */
struct here {
    const struct state_epoch *epoch;
    bool published;
    uint64_t ranks; /* that lie in its folder, or in staging before it is published */
    uint64_t wanted;
};

static struct here at(const struct look *look, uint32_t index)
{
    const struct agent *agent = look->agent;
    struct here here = {.epoch = look->job->epochs[index]};
    here.published =
        agent_contains(agent->view.published, agent->view.published_count, here.epoch->epoch);
    here.ranks = agent_here(agent, here.epoch->epoch, here.published);
    here.wanted = agent_wanted(agent, here.epoch);
    return here;
}

enum agent_kind agent_next_dropped(struct look *look)
{
    for (uint32_t k = 0; k < look->job->epochs_count; k++) {
        struct here here = at(look, k);
        for (uint32_t i = 0; i < here.epoch->shards_count; i++) {
            if (state_shard_held(&here.epoch->shards[i], look->agent->node) &&
                (here.ranks & agent_bit(i)) == 0) {
                return propose_copy(look, COMMAND_DROPPED, here.epoch, i);
            }
        }
    }
    return AGENT_IDLE;
}

/* Of what lies here and nobody asked for: shards that have too few copies elsewhere. */
static uint64_t welcome_ranks(const struct look *look, const struct here *here)
{
    uint64_t ranks = 0;
    for (uint32_t i = 0; i < here->epoch->shards_count; i++) {
        const struct state_shard *shard = &here->epoch->shards[i];
        bool few = shard->holders_count < 1 + shard->copies;
        ranks |= !state_shard_held(shard, look->agent->node) &&
                         (few || shard->wanted == look->agent->node)
                     ? agent_bit(i)
                     : 0;
    }
    return ranks & here->ranks;
}

enum agent_kind agent_next_verify(struct look *look)
{
    struct agent *agent = look->agent;
    for (uint32_t k = 0; k < look->job->epochs_count; k++) {
        struct here here = at(look, k);
        uint64_t number = here.epoch->epoch;
        uint64_t doubtful = welcome_ranks(look, &here);
        doubtful |= agent->need_epoch == number ? agent->need_ranks & here.ranks : 0;
        doubtful &= ~good_ranks(agent, number);
        if (agent->doubt_epoch == number) {
            doubtful |= agent->doubt_ranks & here.ranks;
            agent->doubt_epoch = 0;
        }
        if (agent->scrub_next != 0 && number >= agent->scrub_next) {
            doubtful |= here.ranks;
            agent->scrub_next = number + 1;
        }
        if (here.published && doubtful != 0) {
            manifest_of_state(look->state, look->job, here.epoch, &look->action->manifest);
            look->action->ranks = doubtful;
            look->action->keep = here.ranks;
            return agent_files(look, AGENT_VERIFY, number);
        }
    }
    if (agent->scrub_next != 0) {
        agent->scrub_next = 0;
        agent->scrubs++;
    }
    return AGENT_IDLE;
}

enum agent_kind agent_next_fetch(struct look *look)
{
    for (uint32_t k = look->job->epochs_count; k > 0; k--) { /* the newest first */
        struct here here = at(look, k - 1);
        for (uint32_t i = 0; i < here.epoch->shards_count; i++) {
            const struct state_shard *shard = &here.epoch->shards[i];
            if ((here.wanted & ~here.ranks & agent_bit(i)) == 0 ||
                state_shard_held(shard, look->agent->node) || shard->holders_count == 0) {
                continue;
            }
            manifest_of_state(look->state, look->job, here.epoch, &look->action->manifest);
            name_shard(look, here.epoch, i);
            look->action->published = here.published;
            look->action->keep = here.ranks;
            look->action->from = shard->holders[look->agent->tries % shard->holders_count];
            look->action->size = shard->size;
            memcpy(look->action->sha256, shard->sha256, SHA256_SIZE);
            return agent_files(look, AGENT_COPY, here.epoch->epoch);
        }
    }
    return AGENT_IDLE;
}

enum agent_kind agent_next_replicated(struct look *look)
{
    for (uint32_t k = 0; k < look->job->epochs_count; k++) {
        struct here here = at(look, k);
        uint64_t ranks = welcome_ranks(look, &here) & good_ranks(look->agent, here.epoch->epoch);
        for (uint32_t i = 0; here.published && i < here.epoch->shards_count; i++) {
            if ((ranks & agent_bit(i)) != 0) {
                return propose_copy(look, COMMAND_REPLICATED, here.epoch, i);
            }
        }
    }
    return AGENT_IDLE;
}

enum agent_kind agent_next_trim(struct look *look)
{
    for (uint32_t k = 0; k < look->job->epochs_count; k++) {
        struct here here = at(look, k);
        uint64_t number = here.epoch->epoch;
        uint64_t strays = here.ranks & ~here.wanted & ~welcome_ranks(look, &here);
        if (here.published && strays != 0 && number != look->agent->view.current) {
            manifest_of_state(look->state, look->job, here.epoch, &look->action->manifest);
            look->action->ranks = strays;
            look->action->keep = here.ranks & ~strays;
            return agent_files(look, AGENT_TRIM, number);
        }
    }
    return AGENT_IDLE;
}

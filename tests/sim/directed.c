#include "tests/sim/directed.h"

#include "base/assert.h"
#include "base/hash.h"
#include "control/raft.h"

/* One core, driven by hand. */
struct scene {
    struct raft *raft;
    struct raft_output output;
    uint64_t now_ms;
    uint64_t written;
};

static void scene_begin(struct scene *scene, uint32_t self, uint32_t nodes, uint64_t term,
                        const uint64_t *entry_terms, size_t entries_count)
{
    struct control_settings settings;
    control_settings_default(&settings);
    settings.self = self;
    settings.chunk_size = 4;
    settings.trailing_entries = 0;
    struct raft_recovered recovered = {.term = term};
    for (uint32_t i = 0; i < nodes; i++) {
        group_set(&recovered.first, i + 1, true);
    }
    for (size_t i = 0; i < entries_count; i++) {
        struct message_entry entry = {entry_terms[i], ENTRY_COMMAND, (const uint8_t *)"x", 1};
        raft_log_append(&recovered.log, &entry, 0);
    }
    *scene = (struct scene){.now_ms = 1000};
    scene->raft = raft_new(&settings, &recovered, 1, scene->now_ms);
}

static void scene_end(struct scene *scene)
{
    raft_output_done(&scene->output);
    raft_free(scene->raft);
}

static void scene_step(struct scene *scene, const struct raft_input *input)
{
    raft_output_clear(&scene->output);
    raft_step(scene->raft, input, &scene->output);
    if (scene->output.write != 0) {
        scene->written = scene->output.write;
    }
}

static void scene_persist(struct scene *scene)
{
    struct raft_input input = {.kind = RAFT_PERSISTED, .write = scene->written};
    scene_step(scene, &input);
}

static void scene_receive(struct scene *scene, uint32_t from, struct raft_message message)
{
    message.from = from;
    struct raft_input input = {.kind = RAFT_RECEIVE, .message = &message};
    scene_step(scene, &input);
}

/* Leads the next term with the votes of `voters`. */
static void scene_lead(struct scene *scene, uint32_t self, const uint32_t *voters, size_t count)
{
    scene->now_ms += 2000;
    struct raft_input tick = {.kind = RAFT_TICK, .now_ms = scene->now_ms};
    scene_step(scene, &tick);
    uint64_t term = raft_term(scene->raft) + 1;
    for (size_t i = 0; i < count; i++) {
        scene_receive(scene, voters[i],
                      (struct raft_message){
                          .kind = MESSAGE_PREVOTE_ANSWER, .to = self, .term = term, .ok = true});
    }
    ASSERT(raft_role(scene->raft) == RAFT_CANDIDATE);
    scene_persist(scene);
    for (size_t i = 0; i < count; i++) {
        scene_receive(scene, voters[i],
                      (struct raft_message){
                          .kind = MESSAGE_VOTE_ANSWER, .to = self, .term = term, .ok = true});
    }
    ASSERT(raft_role(scene->raft) == RAFT_LEADER);
}

/* S1 has 1:1 2:2, leads term 4 (c); entry 2 reaches S3 and so a majority. It is not committed: S5,
 * with an entry 2 of term 3, could still lead (d). Only behind S1's entry 3 of term 4 it is (e). */
bool directed_old_term_is_not_committed_by_counting(void)
{
    struct scene scene;
    scene_begin(&scene, 1, 5, 3, (const uint64_t[]){1, 2}, 2);
    scene_lead(&scene, 1, (const uint32_t[]){2, 3}, 2);
    ASSERT(raft_term(scene.raft) == 4);
    ASSERT(raft_log_last(raft_log(scene.raft)) == 3);
    struct raft_message answer = {
        .kind = MESSAGE_APPEND_ANSWER, .to = 1, .term = 4, .ok = true, .index = 2, .verified = 2};
    scene_receive(&scene, 2, answer);
    scene_receive(&scene, 3, answer);
    bool waits = raft_commit(scene.raft) == 0;
    scene_persist(&scene);
    waits = waits && raft_commit(scene.raft) == 0;
    answer.index = 3;
    answer.verified = 3;
    scene_receive(&scene, 2, answer);
    waits = waits && raft_commit(scene.raft) == 0; /* two of five */
    scene_receive(&scene, 3, answer);
    bool commits = raft_commit(scene.raft) == 3;
    scene_end(&scene);
    return waits && commits;
}

/* A follower has 1:1 and, of a leader that is gone, 2:2 3:2. The leader of term 3 has committed
 * 1:1 2:3 3:3, and its small append brings only entry 2 ... or none: its commit index of 3 says
 * nothing yet about the follower's own entry 3. */
bool directed_commit_stays_within_what_matched(void)
{
    struct scene scene;
    scene_begin(&scene, 2, 3, 2, (const uint64_t[]){1, 2, 2}, 3);
    struct raft_message append = {
        .kind = MESSAGE_APPEND, .to = 2, .term = 3, .index = 1, .log_term = 1, .commit = 3};
    scene_receive(&scene, 1, append);
    bool within = raft_commit(scene.raft) == 1;
    scene_end(&scene);
    return within;
}

static void scene_snapshot(struct scene *scene, uint64_t index)
{
    struct buf bytes = BUF_NONE;
    buf_put(&bytes, "0123456789ab", 12);
    struct raft_input input = {.kind = RAFT_SNAPSHOT_TAKEN, .index = index, .snapshot = &bytes};
    scene_step(scene, &input);
    scene_persist(scene);
}

/* An entry that the disks of 1 and 2 have. */
static void scene_commit_one(struct scene *scene)
{
    struct raft_input propose = {.kind = RAFT_PROPOSE, .bytes = (const uint8_t *)"y", .size = 1};
    scene_step(scene, &propose);
    uint64_t last = raft_log_last(raft_log(scene->raft));
    scene_persist(scene);
    scene_receive(scene, 2,
                  (struct raft_message){.kind = MESSAGE_APPEND_ANSWER,
                                        .to = 1,
                                        .term = raft_term(scene->raft),
                                        .ok = true,
                                        .index = last,
                                        .verified = last});
    ASSERT(raft_commit(scene->raft) == last);
}

/* The chunk that the step sent to node 3; index 0: none. */
static struct raft_message chunk_to_3(const struct scene *scene)
{
    struct raft_message message = {0};
    for (size_t i = 0; i < scene->output.letters_count; i++) {
        const struct raft_letter *letter = &scene->output.letters[i];
        struct raft_message one;
        ASSERT(message_decode(letter->bytes.bytes, letter->bytes.size, &one, NULL) == 0);
        if (letter->to == 3 && one.kind == MESSAGE_SNAPSHOT) {
            message = one;
        }
    }
    return message;
}

/* Node 3 has nothing and node 1 no log any more: it sends its snapshot of entry 4, three chunks.
 * Before each is answered, newer snapshots are taken; 3 gets the rest of the one that was begun,
 * and then the entries behind it. When it falls silent, nothing is kept for it any more. */
bool directed_a_snapshot_on_its_way_is_finished(void)
{
    struct scene scene;
    scene_begin(&scene, 1, 3, 1, (const uint64_t[]){1, 1}, 2);
    scene_lead(&scene, 1, (const uint32_t[]){2}, 1);
    scene_persist(&scene);
    scene_commit_one(&scene);
    scene_snapshot(&scene, 4);
    ASSERT(raft_log(scene.raft)->base_index == 4);
    bool good = chunk_to_3(&scene).index == 4;
    struct raft_message answer;
    for (uint64_t offset = 4; offset <= 8; offset += 4) {
        for (int i = 0; i < 3; i++) {
            scene_commit_one(&scene);
            scene_snapshot(&scene, raft_commit(scene.raft));
        }
        answer = (struct raft_message){
            .kind = MESSAGE_SNAPSHOT_ANSWER, .to = 1, .term = 2, .index = 4, .offset = offset};
        scene_receive(&scene, 3, answer);
        struct raft_message chunk = chunk_to_3(&scene);
        good = good && chunk.index == 4 && chunk.offset == offset;
    }
    good = good && raft_log(scene.raft)->base_index == 4; /* what follows it is kept */
    answer = (struct raft_message){
        .kind = MESSAGE_APPEND_ANSWER, .to = 1, .term = 2, .ok = true, .index = 4, .verified = 4};
    scene_receive(&scene, 3, answer);
    bool appended = false;
    for (size_t i = 0; i < scene.output.letters_count; i++) {
        appended = appended || scene.output.letters[i].to == 3;
    }
    good = good && appended && raft_counts(scene.raft)->snapshots_sent == 1;
    scene_commit_one(&scene);
    scene_snapshot(&scene, raft_commit(scene.raft));
    good = good && raft_log(scene.raft)->base_index == raft_commit(scene.raft);
    scene_end(&scene);
    return good;
}

/* Check-quorum (6.2): within about an election timeout without answers it leads no more. */
bool directed_a_leader_that_hears_nobody_steps_down(void)
{
    struct scene scene;
    scene_begin(&scene, 1, 3, 1, (const uint64_t[]){1}, 1);
    scene_lead(&scene, 1, (const uint32_t[]){2}, 1);
    for (int i = 0; i < 25; i++) {
        scene.now_ms += 100;
        struct raft_input tick = {.kind = RAFT_TICK, .now_ms = scene.now_ms};
        scene_step(&scene, &tick);
    }
    bool follows = raft_role(scene.raft) != RAFT_LEADER;
    scene_end(&scene);
    return follows;
}

/* A crash after the others' votes and before its own write: it could vote for another one. */
bool directed_a_candidate_waits_for_its_own_vote(void)
{
    struct scene scene;
    scene_begin(&scene, 1, 3, 1, (const uint64_t[]){1}, 1);
    scene.now_ms += 2000;
    struct raft_input tick = {.kind = RAFT_TICK, .now_ms = scene.now_ms};
    scene_step(&scene, &tick);
    scene_receive(
        &scene, 2,
        (struct raft_message){.kind = MESSAGE_PREVOTE_ANSWER, .to = 1, .term = 2, .ok = true});
    scene_receive(
        &scene, 2,
        (struct raft_message){.kind = MESSAGE_VOTE_ANSWER, .to = 1, .term = 2, .ok = true});
    bool waits = raft_role(scene.raft) == RAFT_CANDIDATE;
    if (waits) {
        scene_persist(&scene);
    }
    bool leads = raft_role(scene.raft) == RAFT_LEADER;
    scene_end(&scene);
    return waits && leads;
}

/* A follower has taken a whole snapshot in and an append comes before its write: the answer says
 * that nothing of it is durable; after the write, all. */
bool directed_a_snapshot_counts_when_it_is_durable(void)
{
    struct scene scene;
    scene_begin(&scene, 2, 3, 1, NULL, 0);
    const uint8_t bytes[] = "state";
    const uint8_t group[] = {3, 1, 0, 0, 0, 1, 2, 0, 0, 0, 1, 3, 0, 0, 0, 1};
    struct raft_message chunk = {.kind = MESSAGE_SNAPSHOT,
                                 .to = 2,
                                 .term = 2,
                                 .index = 9,
                                 .log_term = 2,
                                 .group = group,
                                 .group_size = sizeof(group),
                                 .total = sizeof(bytes),
                                 .hash = hash_xxh3(bytes, sizeof(bytes)),
                                 .bytes = bytes,
                                 .size = sizeof(bytes)};
    scene_receive(&scene, 1, chunk);
    ASSERT(raft_installing(scene.raft));
    struct raft_message append = {
        .kind = MESSAGE_APPEND, .to = 2, .term = 2, .index = 9, .log_term = 2};
    scene_receive(&scene, 1, append);
    bool nothing = scene.output.letters_count == 1;
    struct raft_message answer;
    ASSERT(nothing);
    ASSERT(message_decode(scene.output.letters[0].bytes.bytes, scene.output.letters[0].bytes.size,
                          &answer, NULL) == 0);
    nothing = answer.kind == MESSAGE_APPEND_ANSWER && answer.index == 0;
    scene_persist(&scene);
    ASSERT(scene.output.letters_count >= 1);
    ASSERT(message_decode(scene.output.letters[0].bytes.bytes, scene.output.letters[0].bytes.size,
                          &answer, NULL) == 0);
    bool all = answer.kind == MESSAGE_APPEND_ANSWER && answer.index == 9;
    scene_end(&scene);
    return nothing && all;
}

/* What node 2 held in term 1 may have been replaced since: its late answer says nothing about the
 * entry that is there now. */
bool directed_an_answer_of_an_older_term_counts_nothing(void)
{
    struct scene scene;
    scene_begin(&scene, 1, 3, 1, (const uint64_t[]){1}, 1);
    scene_lead(&scene, 1, (const uint32_t[]){3}, 1);
    scene_persist(&scene);
    struct raft_message answer = {
        .kind = MESSAGE_APPEND_ANSWER, .to = 1, .term = 1, .ok = true, .index = 2, .verified = 2};
    scene_receive(&scene, 2, answer);
    bool nothing = raft_commit(scene.raft) == 0;
    answer.term = 2;
    scene_receive(&scene, 2, answer);
    bool commits = raft_commit(scene.raft) == 2;
    scene_end(&scene);
    return nothing && commits;
}

#include "control/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "tests/lib/unit.h"

static void fill_text(struct rand *rand, char *text, size_t capacity)
{
    size_t size = rand_below(rand, capacity);
    memset(text, 'a' + (int)rand_below(rand, 26), size);
    text[size] = '\0';
}

/* Random fields within their limits; only those of the kind. */
static void fill(struct rand *rand, enum command_kind kind, struct command *c)
{
    *c = (struct command){.kind = kind, .wall_ms = rand_next(rand)};
    switch (kind) {
    case COMMAND_NODE:
        c->node.node = 1 + (uint32_t)rand_below(rand, 64);
        c->node.incarnation = rand_next(rand);
        c->node.role = (uint8_t)(1 + rand_below(rand, 3));
        c->node.life = (uint32_t)rand_below(rand, 1000);
        c->node.uuid[15] = 3;
        fill_text(rand, c->node.name, sizeof(c->node.name));
        fill_text(rand, c->node.address, sizeof(c->node.address));
        fill_text(rand, c->node.device, sizeof(c->node.device));
        break;
    case COMMAND_SUBMIT:
        c->submit.uuid[3] = 9;
        fill_text(rand, c->submit.name, sizeof(c->submit.name));
        fill_text(rand, c->submit.client, sizeof(c->submit.client));
        c->submit.keep = 1 + (uint32_t)rand_below(rand, COMMAND_KEEP_MAX);
        c->submit.nodes = (uint32_t)rand_below(rand, 65);
        c->submit.elastic = rand_below(rand, 2) == 1;
        c->submit.text = "kind: regression\n";
        c->submit.text_size = strlen(c->submit.text);
        break;
    case COMMAND_PLACE:
        c->place.job = rand_next(rand);
        c->place.generation = rand_next(rand);
        c->place.nodes_count = 1 + (uint32_t)rand_below(rand, 64);
        for (uint32_t i = 0; i < c->place.nodes_count; i++) {
            c->place.nodes[i] = i + 1;
            c->place.incarnations[i] = rand_next(rand);
        }
        break;
    case COMMAND_PARTITION:
        c->partition.job = rand_next(rand);
        c->partition.steps = 1 + rand_below(rand, 1000);
        c->partition.ranges_count = 1 + (uint32_t)rand_below(rand, 64);
        for (uint32_t i = 1; i <= c->partition.ranges_count; i++) {
            c->partition.bounds[i] = c->partition.bounds[i - 1] + 1 + rand_below(rand, 100);
        }
        break;
    case COMMAND_RUNNING:
        c->running.job = rand_next(rand);
        c->running.generation = rand_next(rand);
        break;
    case COMMAND_INTERRUPT:
        c->interrupt.node = (uint32_t)rand_below(rand, 65);
        fill_text(rand, c->interrupt.reason, sizeof(c->interrupt.reason));
        break;
    case COMMAND_STOP:
        c->stop.how = (uint8_t)(1 + rand_below(rand, 3));
        c->stop.turn = rand_next(rand);
        fill_text(rand, c->stop.reason, sizeof(c->stop.reason));
        break;
    case COMMAND_RESUME:
        c->resume.turn = rand_next(rand);
        break;
    case COMMAND_BEGIN:
        c->begin.epoch = rand_next(rand);
        c->begin.ends = rand_below(rand, 2) == 1;
        c->begin.live = rand_next(rand);
        break;
    case COMMAND_PREPARED:
        c->prepared.node = 1 + (uint32_t)rand_below(rand, 64);
        c->prepared.sha256[31] = 7;
        c->prepared.holders_count = 1 + (uint32_t)rand_below(rand, COMMAND_HOLDERS_MAX);
        for (uint32_t i = 0; i < c->prepared.holders_count; i++) {
            c->prepared.holders[i] = i + 1;
        }
        c->prepared.has_vectors = rand_below(rand, 2) == 1;
        c->prepared.loss_bits = c->prepared.has_vectors ? rand_next(rand) : 0;
        break;
    case COMMAND_ABORT:
        c->abort.epoch = rand_next(rand);
        fill_text(rand, c->abort.reason, sizeof(c->abort.reason));
        break;
    case COMMAND_PUBLISHED:
        c->published.node = 1 + (uint32_t)rand_below(rand, 64);
        break;
    case COMMAND_COLLECT:
        c->collect.epoch = rand_next(rand);
        break;
    case COMMAND_REPLICATED:
    case COMMAND_DROPPED:
    case COMMAND_ASSIGN:
        c->copy.epoch = rand_next(rand);
        c->copy.rank = (uint32_t)rand_below(rand, 64);
        c->copy.node = 1 + (uint32_t)rand_below(rand, 64);
        c->copy.sha256[3] = 9;
        c->copy.life = (uint32_t)rand_below(rand, 100);
        break;
    case COMMAND_PRUNE:
        c->prune.keep = 1 + (uint32_t)rand_below(rand, COMMAND_KEEP_MAX);
        break;
    case COMMAND_FINISH:
        c->finish.outcome = (uint8_t)(1 + rand_below(rand, 2));
        c->finish.has_objective = rand_below(rand, 2) == 1;
        c->finish.objective_bits = c->finish.has_objective ? rand_next(rand) : 0;
        fill_text(rand, c->finish.reason, sizeof(c->finish.reason));
        break;
    case COMMAND_REMOVE:
        c->remove.node = 1 + (uint32_t)rand_below(rand, 64);
        c->remove.life = (uint32_t)rand_below(rand, 100);
        fill_text(rand, c->remove.name, sizeof(c->remove.name));
        fill_text(rand, c->remove.reason, sizeof(c->remove.reason));
        break;
    case COMMAND_MEMBER:
        c->member.how = (uint8_t)(1 + rand_below(rand, 3));
        c->member.node = 1 + (uint32_t)rand_below(rand, 64);
        c->member.role = (uint8_t)(1 + rand_below(rand, 3));
        c->member.uuid[4] = (uint8_t)rand_next(rand);
        fill_text(rand, c->member.name, sizeof(c->member.name));
        fill_text(rand, c->member.address, sizeof(c->member.address));
        break;
    case COMMAND_DRAIN:
        c->drain.node = 1 + (uint32_t)rand_below(rand, 64);
        c->drain.drained = rand_below(rand, 2) == 1;
        break;
    case COMMAND_RECOVER:
        c->recover.node = 1 + (uint32_t)rand_below(rand, 64);
        c->recover.life = COMMAND_LIFE_MAX;
        break;
    case COMMAND_NONE:
    default:
        break;
    }
}

START_TEST(what_is_encoded_is_decoded_and_encoded_to_the_same_bytes)
{
    struct rand rand = {1};
    for (int turn = 0; turn < 300; turn++) {
        for (unsigned kind = COMMAND_NODE; kind <= COMMAND_PRUNE; kind++) {
            if (strcmp(command_label((enum command_kind)kind), "unknown") == 0) {
                continue; /* Kept for later. */
            }
            struct command given;
            struct command got;
            struct buf bytes = BUF_NONE;
            struct buf again = BUF_NONE;
            struct err err = {0};
            fill(&rand, (enum command_kind)kind, &given);
            ck_assert_int_eq(command_encode(&given, &bytes, &err), 0);
            ck_assert_int_eq(command_decode(bytes.bytes, bytes.size, &got, &err), 0);
            ck_assert_int_eq(got.kind, given.kind);
            ck_assert_uint_eq(got.wall_ms, given.wall_ms);
            ck_assert_int_eq(command_encode(&got, &again, &err), 0);
            ck_assert_uint_eq(bytes.size, again.size);
            ck_assert_mem_eq(bytes.bytes, again.bytes, bytes.size);
            if (kind != COMMAND_SUBMIT) { /* Its text is a pointer. */
                ck_assert_mem_eq(&given, &got, sizeof(given));
            }
            for (size_t size = 0; turn == 0 && size < bytes.size; size++) {
                ck_assert_int_eq(command_decode(bytes.bytes, size, &got, &err), ERR_PROTO);
            }
            buf_put_u8(&bytes, 0);
            ck_assert_int_eq(command_decode(bytes.bytes, bytes.size, &got, &err), ERR_PROTO);
            buf_done(&bytes);
            buf_done(&again);
        }
    }
}
END_TEST

/* As logs have it that were written before a copy's entry named an identity. */
START_TEST(an_entry_of_the_format_before_is_read)
{
    struct command c = {.kind = COMMAND_REPLICATED, .wall_ms = 5};
    struct command got;
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    c.copy.job = 1;
    c.copy.epoch = 2;
    c.copy.rank = 3;
    c.copy.node = 4;
    c.copy.life = 7;
    memset(c.copy.sha256, 9, sizeof(c.copy.sha256));
    ck_assert_int_eq(command_encode(&c, &bytes, &err), 0);
    bytes.bytes[0] = 2;
    ck_assert_int_eq(command_decode(bytes.bytes, bytes.size, &got, &err), ERR_PROTO);
    ck_assert_int_eq(command_decode(bytes.bytes, bytes.size - 4, &got, &err), 0);
    c.copy.life = COMMAND_LIFE_UNSAID;
    ck_assert_mem_eq(&c, &got, sizeof(c));
    buf_clear(&bytes);
    ck_assert_int_eq(command_encode(&got, &bytes, &err), 0); /* in the format of now */
    ck_assert_int_eq(command_decode(bytes.bytes, bytes.size, &got, &err), 0);
    ck_assert_mem_eq(&c, &got, sizeof(c));
    bytes.bytes[0] = 1;
    ck_assert_int_eq(command_decode(bytes.bytes, bytes.size, &got, &err), ERR_PROTO);
    ck_assert_str_eq(err.text, "a log entry of format 1; this version knows 2 to 3");
    bytes.bytes[0] = COMMAND_FORMAT;
    bytes.bytes[bytes.size - 1] = 2; /* more lives than a place may have had */
    ck_assert_int_eq(command_decode(bytes.bytes, bytes.size, &got, &err), ERR_PROTO);
    buf_done(&bytes);
}
END_TEST

START_TEST(a_text_that_is_too_long_is_the_users_error)
{
    static char text[COMMAND_JOB_TEXT_MAX + 1];
    memset(text, 'x', sizeof(text));
    struct command c = {.kind = COMMAND_SUBMIT};
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    c.submit.keep = 1;
    c.submit.text = text;
    c.submit.text_size = sizeof(text);
    ck_assert_int_eq(command_encode(&c, &bytes, &err), ERR_JOB);
    ck_assert_str_eq(err.text, "the job's text has 65537 bytes; the most is 65536");
    buf_done(&bytes);
}
END_TEST

START_TEST(a_long_reason_is_cut_between_characters)
{
    struct command c = {.kind = COMMAND_ABORT};
    struct command got;
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    for (size_t i = 0; i + 1 < sizeof(c.abort.reason); i += 2) {
        memcpy(&c.abort.reason[i], "\xc3\xa9", 2); /* no terminating zero at all */
    }
    ck_assert_int_eq(command_encode(&c, &bytes, &err), 0);
    ck_assert_int_eq(command_decode(bytes.bytes, bytes.size, &got, &err), 0);
    ck_assert_uint_eq(strlen(got.abort.reason), COMMAND_REASON_SIZE - 2);
    buf_done(&bytes);
}
END_TEST

START_TEST(nodes_twice_and_bounds_that_do_not_rise_are_malformed)
{
    struct command c = {.kind = COMMAND_PLACE};
    struct command got;
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    c.place.nodes_count = 2;
    c.place.nodes[0] = 3;
    c.place.nodes[1] = 3;
    ck_assert_int_eq(command_encode(&c, &bytes, &err), 0);
    ck_assert_int_eq(command_decode(bytes.bytes, bytes.size, &got, &err), ERR_PROTO);
    ck_assert_str_eq(err.text, "a malformed 'place' entry of 56 bytes");
    buf_clear(&bytes);
    c = (struct command){.kind = COMMAND_PARTITION};
    c.partition.steps = 1;
    c.partition.ranges_count = 2;
    c.partition.bounds[1] = 5;
    c.partition.bounds[2] = 5;
    ck_assert_int_eq(command_encode(&c, &bytes, &err), 0);
    ck_assert_int_eq(command_decode(bytes.bytes, bytes.size, &got, &err), ERR_PROTO);
    buf_done(&bytes);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("command");
    TCase *tests = tcase_create("command");
    tcase_add_test(tests, what_is_encoded_is_decoded_and_encoded_to_the_same_bytes);
    tcase_add_test(tests, an_entry_of_the_format_before_is_read);
    tcase_add_test(tests, a_text_that_is_too_long_is_the_users_error);
    tcase_add_test(tests, a_long_reason_is_cut_between_characters);
    tcase_add_test(tests, nodes_twice_and_bounds_that_do_not_rise_are_malformed);
    suite_add_tcase(suite, tests);
    return suite;
}

/* Who may come in: only whom somebody expects, whatever certificate speaks for it. */
#include <stdlib.h>
#include <string.h>

#include "daemon/core.h"
#include "daemon/joins.h"
#include "tests/lib/agreed.h"
#include "tests/lib/unit.h"

static struct daemon *daemon_of_one;
static struct err err;

static void setup(void)
{
    daemon_of_one = calloc(1, sizeof(*daemon_of_one));
    ASSERT(daemon_of_one != NULL);
    err = (struct err){0};
    state_init(&daemon_of_one->state);
    daemon_of_one->node_id = 1;
    daemon_of_one->members_count = 1;
    daemon_of_one->members[0].id = 1;
    daemon_of_one->members[0].self = true;
    (void)snprintf(daemon_of_one->members[0].name, sizeof(daemon_of_one->members[0].name), "a");
}

static void teardown(void)
{
    state_done(&daemon_of_one->state);
    free(daemon_of_one);
}

/* With an identity all of whose bytes are that one; 0: `cluster add`. */
static int ask(const char *name, uint8_t uuid, struct command *ret_command)
{
    struct facts_member wish = {.how = uuid != 0 ? FACTS_JOIN : FACTS_ADD,
                                .name = name,
                                .address = "127.0.0.9:7620",
                                .role = "trainer"};
    memset(wish.uuid, uuid, sizeof(wish.uuid));
    err = (struct err){0};
    return membership_command(daemon_of_one, &wish, ret_command, &err);
}

static void apply(struct command *command)
{
    membership_name(daemon_of_one, command);
    ck_assert_int_eq(agreed_apply(&daemon_of_one->state, command, NULL), STATE_CHANGED);
}

#define SAYS(wanted) ck_assert_msg(strstr(err.text, (wanted)) != NULL, "said: '%s'", err.text)

START_TEST(nobody_comes_in_whom_nobody_expects)
{
    struct command command;
    ck_assert_int_eq(agreed_node(&daemon_of_one->state, 1, 10), STATE_CHANGED);
    ck_assert_int_eq(ask("d", 7, &command), ERR_AUTH);
    SAYS("nobody expects a node 'd'");
    ck_assert_int_eq(ask("d", 0, &command), 0);
    apply(&command);
    ck_assert_int_eq(ask("d", 7, &command), 0);
    ck_assert_int_eq(command.member.how, MEMBER_JOIN); /* what is expected is looked at anew */
    apply(&command);
    ck_assert_int_eq(ask("d", 8, &command), ERR_AUTH); /* another identity */
    SAYS("with another identity");
    ck_assert_int_eq(ask("x", 7, &command), ERR_AUTH); /* d's identity, another name */
    ck_assert_int_eq(ask("d", 7, &command), 0);        /* it asks again */
}
END_TEST

START_TEST(a_removed_name_stays_out_when_its_place_is_given_to_another)
{
    struct command command;
    struct state *state = &daemon_of_one->state;
    ck_assert_int_eq(agreed_node(state, 1, 10), STATE_CHANGED);
    for (uint8_t node = 2; node <= STATE_NODES_MAX; node++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%u", node);
        ck_assert_int_eq(ask(name, 0, &command), 0);
        apply(&command);
        ck_assert_int_eq(ask(name, node, &command), 0);
        apply(&command);
    }
    struct command out = {.kind = COMMAND_REMOVE};
    out.remove.node = 3;
    (void)snprintf(out.remove.name, sizeof(out.remove.name), "n3");
    (void)snprintf(out.remove.reason, sizeof(out.remove.reason), "removed");
    ck_assert_int_eq(agreed_apply(state, &out, NULL), STATE_CHANGED);
    ck_assert_int_eq(ask("new", 0, &command), 0);
    apply(&command);
    ck_assert_ptr_null(state_node_named(state, "n3")); /* forgotten; its certificate is not */
    ck_assert_int_eq(ask("n3", 100, &command), ERR_AUTH);
    SAYS("nobody expects a node 'n3'");
}
END_TEST

START_TEST(a_token_does_not_give_the_name_of_who_is_asked)
{
    const struct join_wish wish = {.name = "a", .address = "127.0.0.9:7620", .role = "trainer"};
    struct buf lines = BUF_NONE;
    ck_assert_int_eq(members_admit(daemon_of_one, &wish, &lines, &err), ERR_STATE);
    SAYS("node 'a' is the one that you ask");
    buf_done(&lines);
}
END_TEST

static char told[ERR_TEXT_SIZE];

static void on_failed(void *context, const struct err *why)
{
    (void)context;
    (void)snprintf(told, sizeof(told), "%s", why->text);
}

static void hear_out(uint32_t place, uint32_t life, size_t size)
{
    struct buf bytes = BUF_NONE;
    buf_put_u32(&bytes, place);
    buf_put_u32(&bytes, life);
    buf_put_u32(&bytes, 0);
    standing_on_out(daemon_of_one, 2, bytes.bytes, size);
    buf_done(&bytes);
}

START_TEST(a_node_ends_when_a_member_says_that_this_very_identity_was_removed)
{
    static const struct {
        uint32_t place, life;
        size_t size;
    } others[] = {{2, 3, 8}, {1, 2, 8}, {1, 4, 8}, {0, 0, 8},
                  {1, 3, 0}, {1, 3, 7}, {1, 3, 9}, {1, 3, 12}};
    told[0] = '\0';
    daemon_of_one->life = 3;
    daemon_of_one->hooks.on_failed = on_failed;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        hear_out(others[i].place, others[i].life, others[i].size);
        ck_assert_str_eq(told, "");
        ck_assert(!daemon_of_one->log_failed);
    }
    hear_out(1, 3, 8);
    ck_assert_msg(strstr(told, "was removed from the cluster") != NULL, "told: '%s'", told);
    ck_assert(daemon_of_one->log_failed);
    told[0] = '\0';
    hear_out(1, 3, 8); /* of the next member: it knows */
    ck_assert_str_eq(told, "");
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("membership");
    TCase *claims = tcase_create("claims");
    tcase_add_checked_fixture(claims, setup, teardown);
    tcase_add_test(claims, nobody_comes_in_whom_nobody_expects);
    tcase_add_test(claims, a_removed_name_stays_out_when_its_place_is_given_to_another);
    tcase_add_test(claims, a_token_does_not_give_the_name_of_who_is_asked);
    tcase_add_test(claims, a_node_ends_when_a_member_says_that_this_very_identity_was_removed);
    suite_add_tcase(suite, claims);
    return suite;
}

/* The group as a value. */
#include "control/group.h"
#include "tests/lib/unit.h"

static struct control_group of(uint32_t voters, uint32_t learners)
{
    struct control_group group = {0};
    for (uint32_t i = 0; i < voters + learners; i++) {
        group_set(&group, i + 1, i < voters);
    }
    return group;
}

START_TEST(keeps_ids_in_order_and_once)
{
    struct control_group group = {0};
    group_set(&group, 7, true);
    group_set(&group, member_id(2, 3), false);
    group_set(&group, 1, true);
    group_set(&group, 7, false);
    ck_assert_uint_eq(group.count, 3);
    ck_assert_uint_eq(group.items[0].id, 1);
    ck_assert_uint_eq(group.items[1].id, 7);
    ck_assert_uint_eq(group.items[2].id, 770);
    ck_assert_uint_eq(member_place(group.items[2].id), 2);
    ck_assert(!group_is_voter(&group, 7));
    ck_assert_uint_eq(group_voters(&group), 1);
    group_drop(&group, 7);
    group_drop(&group, 7);
    ck_assert_uint_eq(group.count, 2);
    ck_assert_ptr_null(group_get(&group, 7));
}
END_TEST

START_TEST(one_step_is_one_member)
{
    struct control_group now = of(3, 1);
    struct control_group next = now;
    ck_assert(!group_is_one_step(&now, &next));
    group_set(&next, 4, true);
    ck_assert(group_is_one_step(&now, &next));
    group_drop(&next, 1);
    ck_assert(!group_is_one_step(&now, &next));
    next = now;
    group_drop(&next, 4);
    ck_assert(group_is_one_step(&now, &next));
    /* The same place with another identity is two members. */
    group_set(&next, member_id(4, 1), false);
    ck_assert(!group_is_one_step(&now, &next));
    /* At least one votes, and at most seven. */
    now = of(1, 1);
    next = of(0, 0);
    group_set(&next, 2, false);
    ck_assert(!group_is_one_step(&now, &next));
    now = of(CONTROL_VOTERS_MAX, 1);
    next = of(CONTROL_VOTERS_MAX + 1, 0);
    ck_assert(!group_is_one_step(&now, &next));
}
END_TEST

START_TEST(bytes_come_back_and_odd_ones_are_refused)
{
    struct control_group group = of(3, 2);
    struct control_group back = {0};
    struct buf bytes = BUF_NONE;
    group_put(&bytes, &group);
    ck_assert(group_parse(bytes.bytes, bytes.size, &back));
    ck_assert(group_equal(&group, &back));
    ck_assert(!group_parse(bytes.bytes, bytes.size - 1, &back));
    for (size_t at = 0; at < bytes.size; at++) { /* a zero id, ids out of order, a voter of 2 */
        uint8_t kept = bytes.bytes[at];
        bytes.bytes[at] = 0xff;
        bool good = group_parse(bytes.bytes, bytes.size, &back);
        ck_assert(!good || back.items[group.count - 1].id > group.items[group.count - 1].id);
        bytes.bytes[at] = kept;
    }
    buf_clear(&bytes);
    buf_put_u8(&bytes, 0);
    ck_assert(!group_parse(bytes.bytes, bytes.size, &back));
    buf_done(&bytes);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("group");
    TCase *tcase = tcase_create("group");
    tcase_add_test(tcase, keeps_ids_in_order_and_once);
    tcase_add_test(tcase, one_step_is_one_member);
    tcase_add_test(tcase, bytes_come_back_and_odd_ones_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

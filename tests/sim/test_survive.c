/* The survivor's log (control/survive.h), as real nodes leave it. */
#include <string.h>

#include "base/assert.h"
#include "control/survive.h"
#include "tests/lib/unit.h"
#include "tests/sim/publication.h"

static struct publication *all;
static struct world *world;

static void open_world(void)
{
    struct world_options options;
    struct publication_options own = {.jobs = 1,
                                      .steps = 30,
                                      .every = 10,
                                      .keep = 2,
                                      .coordinates = 9,
                                      .step_ms = 10,
                                      .file_ms_max = 5,
                                      .suspect_ms = 1000,
                                      .prepare_ms = 60000,
                                      .replicas = 1};
    world_options_calm(5, &options);
    all = publication_new(&own);
    world = world_new(&options, &world_publication, all);
}

static bool knows_three(struct world *of, void *context)
{
    const void *self = world_self(of, 0);
    (void)context;
    return self != NULL && publication_state(self)->nodes_count == 3;
}

/* What the node would make of an entry that comes after its recovery. */
static enum state_outcome after(struct survivor *survivor, uint32_t node)
{
    struct command c = {.kind = COMMAND_NODE};
    struct buf bytes = BUF_NONE;
    c.node.node = node;
    c.node.incarnation = 99;
    c.node.role = ROLE_TRAINER;
    c.node.name[0] = (char)('a' + (char)(node - 1));
    ASSERT(command_encode(&c, &bytes, NULL) == 0);
    enum state_outcome outcome = state_apply(survivor->state, survivor->state->applied_index + 1,
                                             bytes.bytes, bytes.size, NULL);
    buf_done(&bytes);
    return outcome;
}

/* Two of five were never heard of but as members of the first group: they have logs and votes as
 * the others, and are out like them. */
START_TEST(who_had_never_registered_is_fenced_by_its_identity_too)
{
    struct survivor survivor = {0};
    struct err err = {0};
    open_world();
    world_isolate(world, 3, true);
    world_isolate(world, 4, true);
    ck_assert(world_run_until(world, 20000, knows_three, NULL));
    world_run_for(world, 500);
    world_crash(world, 0);
    struct fs *fs = sim_disk_fs(world_disk(world, 0));
    ck_assert_msg(survive_look(fs, "log", &survivor, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(survivor.self, 1);
    ck_assert_uint_eq(survivor.silent.count, 2);
    ck_assert_ptr_eq(state_node(survivor.state, 4), NULL);
    ck_assert_msg(survive_act(&survivor, 1, &err) == 0, "%s", err.text);
    survivor_done(&survivor);

    ck_assert_msg(survive_look(fs, "log", &survivor, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(group_voters(&survivor.group), 1);
    ck_assert_uint_eq(survivor.silent.count, 0);
    ck_assert(!state_is_removed(survivor.state, 1, 0));
    for (uint32_t node = 2; node <= 5; node++) {
        ck_assert_msg(state_is_removed(survivor.state, node, 0), "node %u", node);
        ck_assert_int_eq(after(&survivor, node), STATE_IGNORED);
    }
    ck_assert_int_eq(survive_act(&survivor, 2, &err), ERR_STATE); /* It is alone already. */
    survivor_done(&survivor);
    world_free(world);
    publication_free(all);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("survive");
    TCase *tests = tcase_create("survive");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, who_had_never_registered_is_fenced_by_its_identity_too);
    suite_add_tcase(suite, tests);
    return suite;
}

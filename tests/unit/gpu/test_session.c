#include "tests/unit/gpu/session_fixture.h"

START_TEST(no_stage_can_be_skipped)
{
    static const struct {
        enum stage stage;
        const char *next; /* what the state allows; all else is tried */
    } lives[] = {{NEW, "admit"},
                 {ADMITTED, "bind"},
                 {BOUND, "load"},
                 {LOADED, "certify"},
                 {CERTIFIED, "seed"}};
    static const char *const calls[] = {"admit", "bind",  "load",    "certify", "seed",
                                        "begin", "local", "capture", "read",    "read back"};
    char folder[] = "/tmp/coppelius-session-XXXXXX";
    struct fs *fs = make_folder(folder);
    struct session_plan plan = make_plan(true);
    struct session_matrix matrix = make_matrix();
    struct session_seed seed = {.matrix = &matrix, .targets = targets};
    double vector[2 * COORDINATES];
    for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
        for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
            if (strcmp(calls[c], lives[i].next) == 0) {
                continue;
            }
            struct session *session = live(lives[i].stage, true, NULL);
            struct err err = {0};
            int code = 0;
            switch (c) {
            case 0:
                code = session_admit(session, &plan, &err);
                break;
            case 1:
                code = session_bind(session, &err);
                break;
            case 2:
                code = session_load(session, &err);
                break;
            case 3:
                code = session_certify(session, &err);
                break;
            case 4:
                code = session_seed(session, &seed, &err);
                break;
            case 5:
                code = session_step_begin(session, &batch, &err);
                break;
            case 6:
                code = session_local_step(session, &batch, &hyper, &err);
                break;
            case 7:
                code = session_capture(session, &err);
                break;
            case 8:
                code = session_capture_read(session, vector, vector + COORDINATES, &err);
                break;
            default:
                code = session_read_back(session, fs, "readback.bin", 0, &err);
                break;
            }
            ck_assert_msg(code == ERR_STATE, "stage %zu, call %s: %s", i, calls[c], err.text);
            failed_then_abandoned(session);
        }
    }
    drop_folder(fs, folder);
}
END_TEST

START_TEST(a_whole_life_ends_released_with_its_readback)
{
    char folder[] = "/tmp/coppelius-session-XXXXXX";
    struct fs *fs = make_folder(folder);
    struct session *session = live(SEEDED, true, NULL);
    struct err err = {0};
    for (unsigned i = 0; i < 4; i++) {
        local_step(session);
    }
    ck_assert_int_eq(session_capture(session, &err), 0);
    double state[2 * COORDINATES];
    ck_assert_int_eq(session_capture_read(session, state, state + COORDINATES, &err), 0);
    ck_assert_msg(session_read_back(session, fs, "readback.bin", 4, &err) == 0, "%s", err.text);
    ck_assert_int_eq(session_state(session), SESSION_READ_BACK);
    ck_assert_int_eq(session_release(session, &err), 0);
    ck_assert_int_eq(session_state(session), SESSION_RELEASED);
    struct readback readback;
    double again[2 * COORDINATES];
    ck_assert_msg(readback_read(fs, "readback.bin", COORDINATES, &readback, again,
                                again + COORDINATES, &err) == 0,
                  "%s", err.text);
    ck_assert(memcmp(state, again, sizeof(state)) == 0);
    ck_assert_uint_eq(readback.issues_device, 4);
    ck_assert_uint_eq(readback.issues_expected, 4);
    ck_assert(memcmp(readback.binding.bytes, session_binding(session)->bytes, BINDING_SIZE) == 0);
    session_free(session);
    drop_folder(fs, folder);
}
END_TEST

START_TEST(a_changed_byte_of_the_readback_is_found)
{
    char folder[] = "/tmp/coppelius-session-XXXXXX";
    struct fs *fs = make_folder(folder);
    double state[2] = {1.0, 2.0};
    struct readback readback = {.coordinate_first = 3, .coordinate_end = 5};
    struct err err = {0};
    ck_assert_int_eq(readback_write(fs, "readback.bin", &readback, state, state, &err), 0);
    struct buf bytes = BUF_NONE;
    ck_assert_int_eq(fs_read_all(fs, "readback.bin", 1000, &bytes, &err), 0);
    for (size_t i = 0; i < bytes.size; i++) {
        bytes.bytes[i] ^= 1;
        ck_assert_int_eq(fs_replace(fs, "readback.bin", bytes.bytes, bytes.size, &err), 0);
        ck_assert_int_eq(readback_read(fs, "readback.bin", 2, &readback, NULL, NULL, &err),
                         ERR_DAMAGED);
        bytes.bytes[i] ^= 1;
    }
    buf_done(&bytes);
    drop_folder(fs, folder);
}
END_TEST

START_TEST(the_readback_never_replaces_a_file)
{
    char folder[] = "/tmp/coppelius-session-XXXXXX";
    struct fs *fs = make_folder(folder);
    ck_assert_int_eq(fs_create(fs, "readback.bin", "old", 3, NULL), 0);
    struct session *session = live(SEEDED, true, NULL);
    struct err err = {0};
    local_step(session);
    ck_assert_int_eq(session_capture(session, &err), 0);
    ck_assert_int_eq(session_read_back(session, fs, "readback.bin", 1, &err), ERR_DISK);
    failed_then_abandoned(session);
    drop_folder(fs, folder);
}
END_TEST

START_TEST(a_readback_without_a_capture_behind_the_last_step_fails_the_run)
{
    char folder[] = "/tmp/coppelius-session-XXXXXX";
    struct fs *fs = make_folder(folder);
    struct session *session = live(SEEDED, true, NULL);
    struct err err = {0};
    local_step(session);
    ck_assert_int_eq(session_capture(session, &err), 0);
    local_step(session);
    ck_assert_int_eq(session_read_back(session, fs, "readback.bin", 2, &err), ERR_STATE);
    failed_then_abandoned(session);
    drop_folder(fs, folder);
}
END_TEST

START_TEST(a_release_without_the_readback_is_no_success)
{
    struct session *session = live(SEEDED, true, NULL);
    struct err err = {0};
    local_step(session);
    ck_assert_int_eq(session_release(session, &err), ERR_STATE);
    ck_assert_int_eq(session_state(session), SESSION_ABANDONED);
    ck_assert_int_eq(session_release(session, &err), ERR_STATE);
    session_free(session);
}
END_TEST

/* A device that is the CPU but for what a test breaks. */
static struct session_backend broken;
static int64_t counter_is_off_by;

static int read_wrong_counter(struct session_device *device, double *parameter, double *accumulator,
                              uint64_t *ret_issues, struct err *err)
{
    int code = session_backend_cpu()->capture_read(device, parameter, accumulator, ret_issues, err);
    *ret_issues += (uint64_t)counter_is_off_by;
    return code;
}

START_TEST(a_wrong_counter_fails_the_run)
{
    broken = *session_backend_cpu();
    broken.capture_read = read_wrong_counter;
    for (counter_is_off_by = -1; counter_is_off_by <= 1; counter_is_off_by++) {
        for (int64_t expected_off = -1; expected_off <= 1; expected_off++) {
            char folder[] = "/tmp/coppelius-session-XXXXXX";
            struct fs *fs = make_folder(folder);
            struct session *session = live(SEEDED, true, &broken);
            struct err err = {0};
            local_step(session);
            local_step(session);
            ck_assert_int_eq(session_capture(session, &err), 0);
            int code =
                session_read_back(session, fs, "readback.bin", (uint64_t)(2 + expected_off), &err);
            bool right = counter_is_off_by == 0 && expected_off == 0;
            ck_assert_int_eq(code, right ? 0 : ERR_STATE);
            if (right) {
                ck_assert_int_eq(session_release(session, &err), 0);
                session_free(session);
            } else {
                ck_assert(strstr(err.text, "issues") != NULL);
                failed_then_abandoned(session);
            }
            drop_folder(fs, folder);
        }
    }
}
END_TEST

START_TEST(a_lost_counter_is_found_when_the_capture_is_read)
{
    broken = *session_backend_cpu();
    broken.capture_read = read_wrong_counter;
    counter_is_off_by = -1;
    struct session *session = live(SEEDED, true, &broken);
    struct err err = {0};
    double state[2 * COORDINATES];
    local_step(session);
    ck_assert_int_eq(session_capture(session, &err), 0);
    ck_assert_int_eq(session_capture_read(session, state, state + COORDINATES, &err), ERR_STATE);
    failed_then_abandoned(session);
}
END_TEST

static int overlapping_layout(struct session_device *device, const struct session_shape *shape,
                              struct arena *arena, struct err *err)
{
    int code = session_backend_cpu()->layout(device, shape, arena, err);
    arena->regions[2].offset = arena->regions[1].offset;
    return code;
}

static int lacking_layout(struct session_device *device, const struct session_shape *shape,
                          struct arena *arena, struct err *err)
{
    int code = session_backend_cpu()->layout(device, shape, arena, err);
    memcpy(arena->regions[3].name, "capturedparameter", 18);
    return code;
}

START_TEST(an_arena_that_cannot_be_proven_is_not_allocated)
{
    broken = *session_backend_cpu();
    broken.layout = overlapping_layout;
    struct session *session = live(LOADED, true, &broken);
    struct err err = {0};
    ck_assert_int_eq(session_certify(session, &err), ERR_STATE);
    ck_assert_str_eq(err.text, "arena: regions 'parameter' and 'accumulator' overlap");
    ck_assert(session_arena(session) == NULL);
    failed_then_abandoned(session);
    broken.layout = lacking_layout;
    session = live(LOADED, true, &broken);
    ck_assert_int_eq(session_certify(session, &err), ERR_STATE);
    ck_assert(strstr(err.text, "'captured_parameter'") != NULL);
    failed_then_abandoned(session);
}
END_TEST

START_TEST(sizes_beyond_the_memory_are_refused_with_the_numbers)
{
    struct session_settings small = cpu;
    small.memory_bytes = 100000;
    struct session_plan plan = make_plan(true);
    struct session *session = NULL;
    struct err err = {0};
    ck_assert_int_eq(session_new(&small, NULL, &session, &err), 0);
    ck_assert_int_eq(session_admit(session, &plan, &err), ERR_NOMEM);
    ck_assert_msg(strstr(err.text, "5000 rows and 7 columns need at least 1 MiB") != NULL, "%s",
                  err.text);
    failed_then_abandoned(session);
    small.memory_bytes = 142000; /* the matrix fits, the rest does not */
    ck_assert_int_eq(session_new(&small, NULL, &session, &err), 0);
    ck_assert_int_eq(session_admit(session, &plan, &err), 0);
    ck_assert_int_eq(session_bind(session, &err), 0);
    ck_assert_int_eq(session_load(session, &err), 0);
    ck_assert_int_eq(session_certify(session, &err), ERR_NOMEM);
    failed_then_abandoned(session);
}
END_TEST

START_TEST(a_seed_that_differs_from_the_plan_is_refused)
{
    struct err err = {0};
    struct session_matrix matrix = make_matrix();
    double parameter[COORDINATES] = {0.0};
    parameter[5] = 1e39;
    for (unsigned fault = 0; fault < 5; fault++) {
        struct session_matrix other = matrix;
        struct session_seed seed = {.matrix = &other, .targets = targets};
        other.columns -= fault == 0 ? 1 : 0;
        other.rows -= fault == 1 ? 1 : 0;
        other.stride -= fault == 2 ? 1 : 0;
        seed.targets = fault == 3 ? NULL : targets;
        seed.parameter = fault == 4 ? parameter : NULL;
        struct session *session = live(CERTIFIED, true, NULL);
        int code = session_seed(session, &seed, &err);
        ck_assert_msg(code == ERR_DATA || code == ERR_STATE || code == ERR_DAMAGED, "fault %u",
                      fault);
        failed_then_abandoned(session);
    }
    ck_assert(strstr(err.text, "coordinate 5") != NULL);
}
END_TEST

START_TEST(a_matrix_out_of_order_is_refused_with_its_place)
{
    uint64_t starts[] = {0, 2, 3};
    uint32_t rows[] = {4, 2, 0};
    float values[] = {1.0F, 2.0F, 3.0F};
    struct session_plan plan = {.coordinate_end = 2,
                                .storage = SESSION_CSC,
                                .rows = 5,
                                .entries = 3,
                                .batch_rows = 5,
                                .chunk_rows = 2048};
    struct session_matrix matrix = {.storage = SESSION_CSC,
                                    .rows = 5,
                                    .columns = 2,
                                    .starts = starts,
                                    .row = rows,
                                    .value = values};
    struct session_seed seed = {.matrix = &matrix};
    struct session *session = NULL;
    struct err err = {0};
    ck_assert_int_eq(session_new(&cpu, NULL, &session, &err), 0);
    ck_assert_int_eq(session_admit(session, &plan, &err), 0);
    ck_assert_int_eq(session_bind(session, &err), 0);
    ck_assert_int_eq(session_load(session, &err), 0);
    ck_assert_int_eq(session_certify(session, &err), 0);
    ck_assert_int_eq(session_seed(session, &seed, &err), ERR_DATA);
    ck_assert_str_eq(err.text, "session: column 0 of the matrix: row 2 is out of order");
    failed_then_abandoned(session);
}
END_TEST

START_TEST(an_unknown_instruction_set_and_an_absent_gpu_are_refused)
{
    struct session_settings settings = {.device = "cpu", .isa = "avx1024"};
    struct session_plan plan = make_plan(true);
    struct session *session = NULL;
    struct err err = {0};
    ck_assert_int_eq(session_new(&settings, NULL, &session, &err), 0);
    ck_assert_int_eq(session_admit(session, &plan, &err), 0);
    ck_assert_int_eq(session_bind(session, &err), ERR_CONFIG);
    ck_assert_str_eq(err.text, "COPPELIUS_CPU: 'avx1024' is none of plain, avx2, avx512, auto");
    failed_then_abandoned(session);
    if (session_backend_cuda() == NULL) {
        settings.device = "auto";
        ck_assert_int_eq(session_new(&settings, NULL, &session, &err), ERR_DEVICE);
        ck_assert(strstr(err.text, "device: cpu") != NULL);
    }
}
END_TEST

START_TEST(the_binding_depends_on_machine_and_threads_alone)
{
    struct session_binding a;
    struct session_binding b;
    char text[BINDING_TEXT_SIZE];
    binding_of_cpu("avx2", 2, &a);
    binding_of_cpu("plain", 2, &b);
    ck_assert(memcmp(a.bytes, b.bytes, BINDING_SIZE) == 0);
    binding_of_cpu("avx2", 3, &b);
    ck_assert(memcmp(a.bytes, b.bytes, BINDING_SIZE) != 0);
    binding_print(&a, text);
    ck_assert_uint_eq(strlen(text), 36);
    ck_assert_str_eq(b.device, "cpu (avx2, 3 threads)");
}
END_TEST

START_TEST(a_session_that_only_evaluated_may_be_released_at_once)
{
    struct session *session = live(SEEDED, true, NULL);
    struct session_batch window = batch;
    struct err err = {0};
    const double *losses = NULL;
    size_t panels = 0;
    window.evaluate = true;
    ck_assert_int_eq(session_local_step(session, &window, &hyper, &err), 0);
    ck_assert_int_eq(session_local_wait(session, &losses, &panels, &err), 0);
    ck_assert_int_eq(session_release(session, &err), 0);
    ck_assert_int_eq(session_state(session), SESSION_RELEASED);
    session_free(session);
    session_free(NULL);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("session");
    TCase *tcase = tcase_create("session");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, no_stage_can_be_skipped);
    tcase_add_test(tcase, a_whole_life_ends_released_with_its_readback);
    tcase_add_test(tcase, a_changed_byte_of_the_readback_is_found);
    tcase_add_test(tcase, the_readback_never_replaces_a_file);
    tcase_add_test(tcase, a_readback_without_a_capture_behind_the_last_step_fails_the_run);
    tcase_add_test(tcase, a_release_without_the_readback_is_no_success);
    tcase_add_test(tcase, a_wrong_counter_fails_the_run);
    tcase_add_test(tcase, a_lost_counter_is_found_when_the_capture_is_read);
    tcase_add_test(tcase, an_arena_that_cannot_be_proven_is_not_allocated);
    tcase_add_test(tcase, sizes_beyond_the_memory_are_refused_with_the_numbers);
    tcase_add_test(tcase, a_seed_that_differs_from_the_plan_is_refused);
    tcase_add_test(tcase, a_matrix_out_of_order_is_refused_with_its_place);
    tcase_add_test(tcase, an_unknown_instruction_set_and_an_absent_gpu_are_refused);
    tcase_add_test(tcase, the_binding_depends_on_machine_and_threads_alone);
    tcase_add_test(tcase, a_session_that_only_evaluated_may_be_released_at_once);
    suite_add_tcase(suite, tcase);
    return suite;
}

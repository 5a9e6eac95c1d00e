#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/exposition.h"
#include "daemon/metrics.h"
#include "tests/lib/unit.h"
#include "tests/unit/daemon/facts_fixture.h"

static struct vitals vitals;
static struct http_stats http;

static void write_all(const struct facts *facts, bool openmetrics, struct buf *out)
{
    vitals = (struct vitals){
        .loop_lag = HISTOGRAM_LATENCY, .path = "/var/lib/coppelius", .storage_free_bytes = 1000};
    struct metrics metrics = {
        .facts = facts, .vitals = &vitals, .http = &http, .version = "0.1.0", .revision = "test"};
    metrics_write(&metrics, openmetrics, out);
    buf_put_u8(out, 0);
}

#define HAS(text, what) \
    ck_assert_msg(strstr((text), (what)) != NULL, "no %s in:\n%s", (what), (text))
#define HAS_NOT(text, what) ck_assert_msg(strstr((text), (what)) == NULL, "there is %s", (what))

START_TEST(tells_what_the_facts_tell)
{
    struct buf out = BUF_NONE;
    const struct facts *facts = fixture_facts();
    fixture.step = 30;
    write_all(facts, false, &out);
    const char *text = (const char *)out.bytes;
    HAS(text, "coppelius_ready 1\n");
    HAS(text, "coppelius_raft_term 7\n");
    HAS(text, "coppelius_raft_is_leader 0\n");
    HAS(text, "coppelius_members{state=\"alive\"} 2\n");
    HAS(text, "coppelius_members{state=\"down\"} 1\n");
    HAS(text, "coppelius_peer_up{peer=\"b\"} 1\n");
    HAS(text, "coppelius_peer_up{peer=\"c\"} 0\n");
    HAS_NOT(text, "peer=\"a\"");
    HAS(text,
        "coppelius_peer_bytes_total{peer=\"b\",direction=\"sent\",class=\"gradient\"} 1000\n");
    HAS(text, "coppelius_peer_bytes_total{peer=\"b\",direction=\"received\",class=\"data\"} 300\n");
    HAS(text, "coppelius_training_step{run=\"1-california\"} 30\n");
    HAS(text,
        "coppelius_training_loss{run=\"1-california\",split=\"train\"} 0.10000000000000001\n");
    HAS(text,
        "coppelius_training_step_duration_seconds_bucket{run=\"1-california\",phase=\"compute\","
        "le=\"0.08\"} 1\n");
    HAS(text, "coppelius_jobs{state=\"running\"} 1\n");
    HAS(text, "coppelius_checkpoint_last_committed_step{run=\"1-california\"} 20\n");
    HAS(text, "coppelius_storage_free_bytes{path=\"/var/lib/coppelius\"} 1000\n");
    HAS(text, "\nprocess_resident_memory_bytes ");
    HAS_NOT(text, "process_resident_memory_bytes 0\n");
    HAS_NOT(text, "process_open_fds 0\n");
    HAS_NOT(text, "job=\""); /* Prometheus renames it. */
    buf_done(&out);
}
END_TEST

START_TEST(not_ready_is_zero)
{
    struct buf out = BUF_NONE;
    const struct facts *facts = fixture_facts();
    fixture.not_ready = true;
    write_all(facts, false, &out);
    HAS((const char *)out.bytes, "coppelius_ready 0\n");
    buf_done(&out);
}
END_TEST

START_TEST(a_hostile_name_forges_no_line)
{
    struct buf out = BUF_NONE;
    const struct facts *facts = fixture_facts();
    FIXTURE_TEXT(fixture.job_name, "x\"} 1\nforged 1 \\");
    write_all(facts, false, &out);
    HAS_NOT((const char *)out.bytes, "\nforged");
    HAS((const char *)out.bytes, "run=\"1-x\\\"} 1\\nforged 1 \\\\\"");
    buf_done(&out);
}
END_TEST

START_TEST(series_of_a_job_end_after_its_end)
{
    struct buf out = BUF_NONE;
    const struct facts *facts = fixture_facts();
    FIXTURE_TEXT(fixture.job_state, "succeeded"); /* Its end is long ago: ended_ms is 0. */
    write_all(facts, false, &out);
    HAS((const char *)out.bytes, "coppelius_jobs{state=\"succeeded\"} 1\n");
    HAS_NOT((const char *)out.bytes, "run=\"");
    buf_done(&out);
}
END_TEST

START_TEST(openmetrics_counters_drop_the_suffix_in_their_family_and_end_with_eof)
{
    struct buf out = BUF_NONE;
    write_all(fixture_facts(), true, &out);
    const char *text = (const char *)out.bytes;
    HAS(text,
        "# TYPE coppelius_raft_leader_changes counter\ncoppelius_raft_leader_changes_total 0\n");
    ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
    buf_done(&out);
}
END_TEST

/* Runs `promtool check metrics` over the text; -1 where there is none. */
static int promtool(const char *text, size_t size)
{
    if (system("command -v promtool >/dev/null 2>&1") != 0) {
        return -1;
    }
    FILE *pipe = popen("promtool check metrics", "w");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_uint_eq(fwrite(text, 1, size, pipe), size);
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

START_TEST(promtool_finds_nothing_to_say)
{
    for (int alone = 0; alone < 2; alone++) {
        struct buf out = BUF_NONE;
        const struct facts *facts = fixture_facts();
        fixture.alone = alone == 1;
        write_all(facts, false, &out);
        int status = promtool((const char *)out.bytes, out.size - 1);
        if (status == -1) {
            (void)fprintf(stderr,
                          "skipped: promtool_finds_nothing_to_say (no promtool here; it is in "
                          "Debian's package prometheus)\n");
        } else {
            ck_assert_int_eq(status, 0);
        }
        buf_done(&out);
    }
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tcase = tcase_create("text");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, tells_what_the_facts_tell);
    tcase_add_test(tcase, not_ready_is_zero);
    tcase_add_test(tcase, a_hostile_name_forges_no_line);
    tcase_add_test(tcase, series_of_a_job_end_after_its_end);
    tcase_add_test(tcase, openmetrics_counters_drop_the_suffix_in_their_family_and_end_with_eof);
    tcase_add_test(tcase, promtool_finds_nothing_to_say);
    suite_add_tcase(suite, tcase);
    return suite;
}

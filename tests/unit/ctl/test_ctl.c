/* coppeliusctl as a whole against a daemon's mouth: what it prints where, and its exit status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "tests/lib/ctl_server.h"
#include "tests/lib/unit.h"

#define RUN(run, ...) ctl_run(run, (const char *const[]){__VA_ARGS__, NULL})

static struct ctl_server server;
static struct ctl_run run;

static const char job_document[] =
    "{\"schema\":1,\"job\":3,\"name\":\"iris\",\"state\":\"running\",\"reason\":null,\"step\":40,"
    "\"steps\":100,\"loss\":0.25,\"loss_hex\":\"0x1p-2\",\"first_loss\":4.5,\"nodes\":3,"
    "\"generation\":2,\"checkpoint\":\"/var/lib/coppelius/jobs/3-iris/epoch-00000001\",\"epoch\":1,"
    "\"notes\":[\"checkpoint.replicas: 1 is not honoured yet\"],\"participants\":[{\"node\":\"a\","
    "\"rank\":0,\"first\":0,\"end\":4,\"weight\":640,\"share\":0.5,\"state\":\"training\",\"step\":"
    "40},{\"node\":\"b\",\"rank\":1,\"first\":4,\"end\":9,\"weight\":640,\"share\":0.5,\"state\":"
    "\"training\",\"step\":40}],\"text\":\"name: iris\\n\"}";

static void on_watch(struct ctl_server_answer *answer, const char *job)
{
    char end[512];
    const char *state = strcmp(job, "bad") == 0 ? "failed" : "succeeded";
    ctl_server_json(answer,
                    "{\"schema\":1,\"event\":\"history\",\"job\":3,\"name\":\"iris\",\"state\":"
                    "\"running\",\"step\":2,\"steps\":4,\"points\":[[1,4.5],[2,2.0]]}",
                    1);
    ctl_server_json(answer, /* Nothing new: no second line of it. */
                    "{\"schema\":1,\"event\":\"progress\",\"job\":3,\"name\":\"iris\",\"state\":"
                    "\"running\",\"step\":2,\"steps\":4}",
                    1);
    ctl_server_json(answer,
                    "{\"schema\":1,\"event\":\"progress\",\"job\":3,\"name\":\"iris\",\"state\":"
                    "\"running\",\"step\":3,\"steps\":4,\"loss\":1.0,\"rows_per_s\":123456,"
                    "\"eta_s\":12.4,\"share\":{\"compute\":0.62,\"exchange\":0.3,\"publication\":"
                    "0.01}}",
                    1);
    ctl_server_json(answer,
                    "{\"schema\":1,\"event\":\"checkpoint\",\"job\":3,\"name\":\"iris\",\"epoch\":"
                    "1,\"step\":4}",
                    1);
    (void)snprintf(end, sizeof(end),
                   "{\"schema\":1,\"event\":\"end\",\"job\":3,\"name\":\"iris\",\"state\":\"%s\","
                   "\"reason\":\"step 3: coordinate 7 is not finite\",\"step\":4,\"steps\":4,"
                   "\"loss\":0.5,\"first_loss\":4.5,\"objective\":0.75,\"elapsed_s\":3.0}",
                   state);
    ctl_server_json(answer, end, 0);
}

static void on_request(const Ctl__Request *request, struct ctl_server_answer *answer)
{
    const double values[] = {1.5, -0.1, 1e-300};
    switch (request->ask_case) {
    case CTL__REQUEST__ASK_JOB_LIST:
        ctl_server_json(
            answer,
            "{\"schema\":1,\"jobs\":[{\"job\":1,\"name\":\"a\",\"state\":\"succeeded\",\"step\":5,"
            "\"steps\":5,\"loss\":0.125,\"losses\":[4,2,1],\"eta_s\":null,\"submitted_at_ms\":null,"
            "\"kind\":\"regression\"},{\"job\":12,\"name\":\"longer\",\"state\":\"paused\",\"step\""
            ":0,\"steps\":null,\"loss\":null,\"losses\":[],\"eta_s\":90,\"submitted_at_ms\":null,"
            "\"kind\":\"regression\",\"reason\":\"node b is away\"}]}",
            0);
        break;
    case CTL__REQUEST__ASK_JOB_SHOW:
        if (strcmp(request->job_show->job, "nope") == 0) {
            ctl_server_error(answer, ERR_NOT_FOUND, "no job 'nope'",
                             "'coppeliusctl jobs' lists them");
        } else {
            ctl_server_json(answer, job_document, 0);
        }
        break;
    case CTL__REQUEST__ASK_JOB_WATCH:
        on_watch(answer, request->job_watch->job);
        break;
    case CTL__REQUEST__ASK_SUBMIT:
        if (strstr(request->submit->job_text, "refuse") != NULL) {
            ctl_server_error(answer, ERR_JOB, "job.yaml:1:1: one\njob.yaml:2:1: two", "mend it");
        } else if (request->submit->uuid.len == 16 && request->submit->folder[0] == '/' &&
                   request->submit->n_overrides == 1) {
            ctl_server_json(answer, job_document, 0);
        } else {
            ctl_server_error(answer, ERR_PROTO, "not what was expected", "");
        }
        break;
    case CTL__REQUEST__ASK_CLUSTER_STATUS:
        ctl_server_json(answer,
                        "{\"schema\":1,\"cluster\":\"c\",\"leader\":null,\"term\":4,\"alive\":1,"
                        "\"voters\":3,\"quorum\":2,\"healthy\":false,\"reason\":\"no majority\","
                        "\"last_index\":9,\"commit_index\":8,\"applied_index\":8,\"tls\":false,"
                        "\"members\":[],\"events\":[]}",
                        0);
        break;
    case CTL__REQUEST__ASK_JOB_LOGS:
        ctl_server_json(answer,
                        "{\"schema\":1,\"lines\":[{\"at_ms\":1000,\"level\":6,\"node\":\"a\","
                        "\"line\":\"run.step step=1\"}]}",
                        1);
        ctl_server_json(answer,
                        "{\"schema\":1,\"lines\":[{\"at_ms\":2000,\"level\":6,\"node\":\"a\","
                        "\"line\":\"run.step step=2\"}]}",
                        0);
        break;
    case CTL__REQUEST__ASK_PREDICT:
        ctl_server_data(answer, values, 16, 0, 1);
        ctl_server_data(answer, values + 2, 8, 0, 1);
        ctl_server_json(answer,
                        "{\"schema\":1,\"rows\":3,\"rmse\":0.5,\"mae\":0.25,\"r2\":0.875,"
                        "\"epoch\":1,\"step\":4,\"device\":\"cpu\",\"first\":[[1.5,1.0]]}",
                        0);
        break;
    case CTL__REQUEST__ASK_DOCTOR:
    case CTL__REQUEST__ASK_CHECKPOINT_VERIFY:
    case CTL__REQUEST__ASK_CHECKPOINT_PRUNE:
        ctl_server_json(answer, "[1,2", 0); /* no JSON */
        break;
    case CTL__REQUEST__ASK_MEMBER:
    case CTL__REQUEST__ASK__NOT_SET:
    case CTL__REQUEST__ASK_JOB_CANCEL:
    case CTL__REQUEST__ASK_JOB_PAUSE:
    case CTL__REQUEST__ASK_JOB_RESUME:
    case CTL__REQUEST__ASK_NODES:
    case CTL__REQUEST__ASK_CHECKPOINT_LIST:
    case CTL__REQUEST__ASK_CHECKPOINT_FILE:
    case CTL__REQUEST__ASK_SESSION:
    case _CTL__REQUEST__ASK__CASE_IS_INT_SIZE:
    default:
        ctl_server_error(answer, ERR_STATE, "not in this test", "");
        break;
    }
}

static void setup(void)
{
    (void)setenv("LC_ALL", "C.UTF-8", 1);
    ctl_server_start(&server, CTL_SERVER_GOOD, on_request);
}

static void teardown(void)
{
    ctl_server_stop(&server);
}

START_TEST(a_listing_is_a_table_names_or_json)
{
    RUN(&run, "jobs", "--endpoint", server.endpoint);
    ck_assert_str_eq(run.err, "");
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.out, "JOB  NAME    STATE      STEP  STEPS   LOSS  CURVE    ETA  AGE\n"
                              "  1  a       succeeded     5      5  0.125  █▃▁        -    -\n"
                              " 12  longer  paused        0      -      -  -      1m30s    -\n");
    RUN(&run, "jobs", "-o", "name", "--endpoint", server.endpoint);
    ck_assert_str_eq(run.out, "a\nlonger\n");
    RUN(&run, "--endpoint", server.endpoint, "jobs", "-o", "jsonl");
    ck_assert_ptr_nonnull(strstr(run.out, "{\"job\":1,\"name\":\"a\","));
    ck_assert_ptr_nonnull(strstr(run.out, "\n{\"job\":12,"));
    RUN(&run, "jobs", "--json", "--endpoint", server.endpoint);
    ck_assert_int_eq(strncmp(run.out, "{\n  \"schema\": 1,\n  \"jobs\": [", 28), 0);
}
END_TEST

START_TEST(a_job_is_shown_with_its_partition_and_notes)
{
    RUN(&run, "job", "show", "iris", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.out, "job          3\n"
                              "name         iris\n"
                              "state        running\n"
                              "step         40 of 100\n"
                              "first loss   4.5\n"
                              "loss         0.25\n"
                              "             0x1p-2\n"
                              "placed on    3 nodes, generation 2\n"
                              "checkpoint   /var/lib/coppelius/jobs/3-iris/epoch-00000001\n"
                              "note         checkpoint.replicas: 1 is not honoured yet\n"
                              "\n"
                              "RANK  NODE  FIRST  END  WEIGHT   SHARE  STATE     STEP\n"
                              "   0  a         0    4     640  50.0 %  training    40\n"
                              "   1  b         4    9     640  50.0 %  training    40\n");
}
END_TEST

START_TEST(an_absent_object_is_status_4_with_a_hint)
{
    RUN(&run, "job", "show", "nope", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 4);
    ck_assert_str_eq(run.out, "");
    ck_assert_str_eq(run.err, "coppeliusctl: no job 'nope'\n"
                              "hint: 'coppeliusctl jobs' lists them\n");
    RUN(&run, "job", "show", "nope", "--json", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 4);
    ck_assert_ptr_nonnull(strstr(run.out, "\"code\": \"not-found\""));
}
END_TEST

START_TEST(watching_into_a_pipe_gives_a_line_a_report_and_the_jobs_status)
{
    RUN(&run, "watch", "iris", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.out,
                     "iris: running  step 2/4 50 %\n"
                     "iris: running  step 3/4 75 %  loss 1  123k rows/s  ETA 12s  compute 62 %  "
                     "exchange 30 %  publication 1 %\n"
                     "iris: published epoch 1 of step 4\n"
                     "iris: succeeded at step 4, first loss 4.5, last loss 0.5, objective 0.75\n"
                     "  3.0s\n");
    RUN(&run, "watch", "bad", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 6);
    ck_assert_str_eq(run.err, "coppeliusctl: job 'iris' failed: step 3: coordinate 7 is not "
                              "finite\n"
                              "hint: 'coppeliusctl logs iris' has the story\n");
    RUN(&run, "watch", "iris", "-o", "jsonl", "--endpoint", server.endpoint);
    ck_assert_int_eq(strncmp(run.out, "{\"schema\":1,\"event\":\"history\"", 29), 0);
    RUN(&run, "watch", "iris", "--json", "--endpoint", server.endpoint);
    ck_assert_ptr_nonnull(strstr(run.out, "\"objective\": 0.75"));
    ck_assert_ptr_null(strstr(run.out, "event"));
}
END_TEST

START_TEST(an_unhealthy_cluster_is_status_3)
{
    RUN(&run, "cluster", "status", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 3);
    ck_assert_int_eq(strncmp(run.out,
                             "● c: not healthy, leader none, term 4, 1 of 3 voters alive (2 "
                             "decide)\nno majority\n",
                             70),
                     0);
    ck_assert_str_eq(run.err, "coppeliusctl: the cluster is not healthy: no majority\n");
}
END_TEST

START_TEST(log_lines_come_until_the_end)
{
    (void)setenv("TZ", "UTC", 1);
    RUN(&run, "logs", "iris", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.out, "00:00:01.000 a run.step step=1\n00:00:02.000 a run.step step=2\n");
}
END_TEST

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(a_job_is_checked_here_before_it_is_handed_in)
{
    char path[128];
    char text[2048];
    (void)snprintf(path, sizeof(path), "%s/job.yaml", server.folder);
    write_file(path, "name: iris\ndata: {path: a.csv, fromat: csv}\noptimizer: {rate: 0}\n");
    RUN(&run, "submit", path, "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 2);
    ck_assert_str_eq(run.out, "");
    (void)snprintf(text, sizeof(text),
                   "%s:2:21: data.fromat: unknown key (did you mean \"data.format\"?)\n"
                   "%s:2:1: data.format: is missing; give csv, space, svm, npy or native\n"
                   "%s:3:19: optimizer.rate: must be above 0 and at most 1e+30, got 0\n"
                   "%s: optimizer.steps: is missing; give steps, or passes over all training rows\n"
                   "coppeliusctl: %s: 4 faults; nothing was submitted\n",
                   path, path, path, path, path);
    ck_assert_str_eq(run.err, text);
    RUN(&run, "submit", path, "--json", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 2);
    ck_assert_ptr_nonnull(strstr(run.out, ":2:1: data.format: is missing; give csv"));
    ck_assert_ptr_nonnull(strstr(run.out, "4 faults; nothing was submitted"));
    write_file(path, "name: iris\ndata: {path: a.csv, format: csv}\noptimizer: {rate: 1}\n");
    RUN(&run, "submit", path, "--set", "optimizer.steps=3", "--endpoint", server.endpoint);
    ck_assert_str_eq(run.err, "note: checkpoint.replicas: 1 is not honoured yet\n"
                              "'coppeliusctl watch iris' shows it\n");
    ck_assert_str_eq(run.out, "job 3 'iris' running\n");
    ck_assert_int_eq(run.status, 0);
    write_file(path, "name: refuse\ndata: {path: a.csv, format: csv}\noptimizer: {rate: 1}\n");
    RUN(&run, "submit", path, "--set", "optimizer.steps=3", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 2);
    ck_assert_str_eq(run.err, "job.yaml:1:1: one\njob.yaml:2:1: two\n"
                              "coppeliusctl: the daemon refuses it\nhint: mend it\n");
    (void)unlink(path);
}
END_TEST

START_TEST(predictions_are_written_whole_with_17_digits)
{
    char data[128];
    char output[128];
    char text[256] = "";
    (void)snprintf(data, sizeof(data), "%s/data.csv", server.folder);
    (void)snprintf(output, sizeof(output), "%s/y.txt", server.folder);
    write_file(data, "1,2\n");
    RUN(&run, "predict", "--checkpoint", server.folder, "--data", data, "--format", "csv",
        "--output", output, "--metrics", "--endpoint", server.endpoint);
    ck_assert_str_eq(run.err, "");
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.out, "3 rows with epoch 1 of step 4 on cpu\nRMSE 0.5\nMAE  0.25\n"
                              "R^2  0.875\nPREDICTED  ACTUAL\n      1.5       1\n");
    FILE *file = fopen(output, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    ck_assert_str_eq(text, "1.5\n-0.10000000000000001\n1e-300\n");
    RUN(&run, "predict", "--checkpoint", server.folder, "--data", data, "--format", "csv", "--rows",
        "test", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 2);
    ck_assert_str_eq(run.err, "coppeliusctl: --rows test needs --test\n"
                              "hint: give the job's split: --test 0.2 (and --shuffle SEED where it "
                              "has one)\n");
    (void)unlink(output);
    (void)unlink(data);
}
END_TEST

START_TEST(what_is_no_json_is_said)
{
    RUN(&run, "doctor", "--endpoint", server.endpoint);
    ck_assert_int_eq(run.status, 5);
    ck_assert_ptr_nonnull(strstr(run.err, "sent a document that is no JSON"));
}
END_TEST

static void expect_from(enum ctl_server_manner manner, int status, const char *sentence)
{
    ctl_server_start(&server, manner, on_request);
    RUN(&run, "jobs", "--timeout", "300ms", "--endpoint", server.endpoint);
    ctl_server_stop(&server);
    ck_assert_int_eq(run.status, status);
    ck_assert_str_eq(run.out, "");
    ck_assert_msg(strstr(run.err, sentence) != NULL, "%s", run.err);
}

START_TEST(a_daemon_that_does_not_answer_well_is_said)
{
    expect_from(CTL_SERVER_REFUSES, 1, "refuses: too many clients");
    expect_from(CTL_SERVER_SILENT, 124, "no answer from unix:");
    expect_from(CTL_SERVER_GARBAGE, 5, "a frame of 1347703880 bytes came; the most here is");
    expect_from(CTL_SERVER_CLOSES, 5, "closed the connection");
}
END_TEST

START_TEST(nobody_there_is_status_5_with_a_hint)
{
    RUN(&run, "jobs", "--endpoint", "unix:/nonexistent/sock");
    ck_assert_int_eq(run.status, 5);
    ck_assert_str_eq(
        run.err,
        "coppeliusctl: cannot reach unix:/nonexistent/sock: No such file or directory\n"
        "hint: is coppeliusd running there? 'systemctl status coppeliusd' tells; another daemon is "
        "named by --endpoint unix:PATH or IP:PORT\n");
    RUN(&run, "jobs", "--endpoint", "127.0.0.1:1");
    ck_assert_int_eq(run.status, 5);
    RUN(&run, "jobs", "--endpoint", "localhost:7620");
    ck_assert_int_eq(run.status, 2);
    ck_assert_str_eq(run.err, "coppeliusctl: endpoint 'localhost:7620': 'localhost' is not an "
                              "IPv4 address\n"
                              "hint: give unix:PATH, such as "
                              "unix:/run/coppelius/coppeliusd.sock, or IP:PORT, such as "
                              "127.0.0.1:7620\n");
}
END_TEST

START_TEST(usage_is_status_2_and_help_is_0)
{
    RUN(&run, "jbos");
    ck_assert_int_eq(run.status, 2);
    ctl_run(&run, (const char *const[]){NULL});
    ck_assert_int_eq(run.status, 2);
    ck_assert_str_eq(run.out, "");
    RUN(&run, "--help");
    ck_assert_int_eq(run.status, 0);
    ck_assert_ptr_nonnull(strstr(run.out, "job submit JOB.yaml"));
    RUN(&run, "job", "--help");
    ck_assert_int_eq(run.status, 0);
    RUN(&run, "job", "submit", "--help");
    ck_assert_int_eq(run.status, 0);
    RUN(&run, "help", "checkpoint", "fetch");
    ck_assert_int_eq(run.status, 0);
    RUN(&run, "help", "nonsense");
    ck_assert_int_eq(run.status, 2);
    RUN(&run, "checkpoint", "show", "/nonexistent");
    ck_assert_int_eq(run.status, 4);
    RUN(&run, "local", "/nonexistent.yaml");
    ck_assert_int_eq(run.status, 2);
    RUN(&run, "predict");
    ck_assert_int_eq(run.status, 2);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("ctl");
    TCase *good = tcase_create("good");
    TCase *bad = tcase_create("bad");
    tcase_add_checked_fixture(good, setup, teardown);
    tcase_set_timeout(good, 60);
    tcase_set_timeout(bad, 60);
    tcase_add_test(good, a_listing_is_a_table_names_or_json);
    tcase_add_test(good, a_job_is_shown_with_its_partition_and_notes);
    tcase_add_test(good, an_absent_object_is_status_4_with_a_hint);
    tcase_add_test(good, watching_into_a_pipe_gives_a_line_a_report_and_the_jobs_status);
    tcase_add_test(good, an_unhealthy_cluster_is_status_3);
    tcase_add_test(good, log_lines_come_until_the_end);
    tcase_add_test(good, a_job_is_checked_here_before_it_is_handed_in);
    tcase_add_test(good, predictions_are_written_whole_with_17_digits);
    tcase_add_test(good, what_is_no_json_is_said);
    tcase_add_test(bad, a_daemon_that_does_not_answer_well_is_said);
    tcase_add_test(bad, nobody_there_is_status_5_with_a_hint);
    tcase_add_test(bad, usage_is_status_2_and_help_is_0);
    suite_add_tcase(suite, good);
    suite_add_tcase(suite, bad);
    return suite;
}

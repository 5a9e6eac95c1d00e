#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/job.h"
#include "tests/lib/unit.h"

static const char example[] = "name: california\n"
                              "kind: regression                # or language-model\n"
                              "data:\n"
                              "  path: california.csv          # relative to the job file\n"
                              "  format: csv                   # csv | space | svm | npy | native\n"
                              "  header: yes\n"
                              "  separator: \",\"\n"
                              "  target: median_house_value\n"
                              "  drop: [ocean_proximity]\n"
                              "  missing: drop-row             # or refuse (the default)\n"
                              "  missing_values: [\"\", \"NA\"]\n"
                              "  decimal: \".\"                  # or \",\"\n"
                              "  storage: auto                 # dense | sparse | auto\n"
                              "  test: 0.2\n"
                              "  shuffle: 7\n"
                              "  standardize: yes\n"
                              "model:\n"
                              "  intercept: yes\n"
                              "  l2: 0.0\n"
                              "optimizer:\n"
                              "  rate: 0.02\n"
                              "  decay: 0.9\n"
                              "  batch: 2048                   # rows, or all\n"
                              "  steps: 400                    # or passes: N\n"
                              "checkpoint:\n"
                              "  every: 100                    # steps; a last one always\n"
                              "  keep: 3\n"
                              "  replicas: 1\n"
                              "elastic: no\n"
                              "numerics: f32-products-f64-accumulation-v1\n";

static const char least[] = "name: x\ndata: {path: a.txt, format: space}\n"
                            "optimizer: {rate: 0.1, steps: 5}\n";

static struct job parse_with(const char *text, const char *folder, const char *const *overrides,
                             size_t count)
{
    struct job job;
    struct faults faults = FAULTS_NONE;
    struct buf out = BUF_NONE;
    int code = job_parse(text, strlen(text), "job.yaml", folder, overrides, count, &job, &faults);
    faults_print(&faults, &out);
    ck_assert_msg(code == 0, "%s", (const char *)out.bytes);
    buf_done(&out);
    return job;
}

static struct job parse(const char *text)
{
    return parse_with(text, NULL, NULL, 0);
}

static void expect_faults(const char *text, const char *const *overrides, size_t count,
                          const char *lines)
{
    struct job job;
    struct faults faults = FAULTS_NONE;
    struct buf out = BUF_NONE;
    int code = job_parse(text, strlen(text), "job.yaml", "/d", overrides, count, &job, &faults);
    faults_print(&faults, &out);
    ck_assert_int_eq(code, ERR_JOB);
    ck_assert_str_eq((const char *)out.bytes, lines);
    buf_done(&out);
    faults_done(&faults);
}

START_TEST(the_designs_example_is_read)
{
    struct job job = parse_with(example, "/home/u/jobs/", NULL, 0);
    ck_assert_str_eq(job.name, "california");
    ck_assert_int_eq(job.kind, JOB_REGRESSION);
    ck_assert_uint_eq(job.data.path.count, 1);
    ck_assert_str_eq(job.data.path.items[0], "/home/u/jobs/california.csv");
    ck_assert_int_eq(job.data.format, JOB_CSV);
    ck_assert(job.data.header);
    ck_assert_str_eq(job.data.separator, ",");
    ck_assert_str_eq(job.data.target, "median_house_value");
    ck_assert_str_eq(job.data.drop.items[0], "ocean_proximity");
    ck_assert_int_eq(job.data.missing, JOB_MISSING_DROP_ROW);
    ck_assert_uint_eq(job.data.missing_values.count, 2);
    ck_assert(job.data.test == 0.2);
    ck_assert(job.data.shuffle_given);
    ck_assert_uint_eq(job.data.shuffle, 7);
    ck_assert(job.data.standardize);
    ck_assert(job.optimizer.rate == 0.02);
    ck_assert_uint_eq(job.optimizer.batch, 2048);
    ck_assert_uint_eq(job.optimizer.steps, 400);
    ck_assert_uint_eq(job.optimizer.passes, 0);
    ck_assert_uint_eq(job.checkpoint.every, 100);
    ck_assert_str_eq(job_policy(&job), JOB_POLICY);
    job_done(&job);
    job_done(&job);
}
END_TEST

START_TEST(what_is_not_said_has_the_designs_defaults)
{
    struct job job = parse(least);
    ck_assert(job.optimizer.decay == 0.9);
    ck_assert_uint_eq(job.optimizer.batch, 0);
    ck_assert(job.model.l2 == 0);
    ck_assert(job.model.intercept);
    ck_assert(!job.data.standardize);
    ck_assert(job.data.test == 0);
    ck_assert(!job.data.header);
    ck_assert_str_eq(job.data.target, "last");
    ck_assert_str_eq(job.data.decimal, ".");
    ck_assert_int_eq(job.data.missing, JOB_MISSING_REFUSE);
    ck_assert_uint_eq(job.data.missing_values.count, 0);
    ck_assert_int_eq(job.data.storage, JOB_STORAGE_AUTO);
    ck_assert(!job.data.shuffle_given);
    ck_assert_uint_eq(job.checkpoint.every, 0);
    ck_assert_uint_eq(job.checkpoint.keep, 3);
    ck_assert_uint_eq(job.checkpoint.replicas, 1);
    ck_assert(!job.elastic);
    job_done(&job);
}
END_TEST

START_TEST(every_fault_of_a_job_in_one_pass)
{
    expect_faults(
        "name: my job\n"
        "kind: regresion\n"
        "data:\n"
        "  path: a.csv\n"
        "  fromat: csv\n"
        "  test: 1.5\n"
        "model:\n"
        "  l2: -1\n"
        "rate: 0.1\n"
        "optimizer:\n"
        "  rate: 0\n"
        "  batch: none\n"
        "checkpoint: {every: 0}\n",
        NULL, 0,
        "job.yaml:1:7: name: must be letters, digits, \"-\", \"_\" and \".\", a letter or "
        "a digit first, got \"my job\"\n"
        "job.yaml:2:7: kind: expected regression or language-model, got \"regresion\" "
        "(did you mean \"regression\"?)\n"
        "job.yaml:5:3: data.fromat: unknown key (did you mean \"data.format\"?)\n"
        "job.yaml:6:9: data.test: must be at least 0 and below 1, got 1.5\n"
        "job.yaml:3:1: data.format: is missing; give csv, space, svm, npy or native\n"
        "job.yaml:8:7: model.l2: must be in 0..1e+30, got -1\n"
        "job.yaml:9:1: rate: unknown key (did you mean \"optimizer.rate\"?)\n"
        "job.yaml:11:9: optimizer.rate: must be above 0 and at most 1e+30, got 0\n"
        "job.yaml:12:10: optimizer.batch: expected a whole number or all, got \"none\"\n"
        "job.yaml:13:21: checkpoint.every: must be in 1..1099511627776, got 0\n"
        "job.yaml: optimizer.steps: is missing; give steps, or passes over all training "
        "rows\n");
}
END_TEST

START_TEST(an_empty_job_says_what_is_missing)
{
    expect_faults("", NULL, 0,
                  "job.yaml: name: is missing; give a name for the job\n"
                  "job.yaml: data: is missing; give what is trained on: path, format, …\n"
                  "job.yaml: data.path: is missing; give the file or native folder, relative to "
                  "the job file\n"
                  "job.yaml: data.format: is missing; give csv, space, svm, npy or native\n"
                  "job.yaml: optimizer: is missing; give rate, and steps or passes\n"
                  "job.yaml: optimizer.rate: is missing; give the step size, such as 0.1\n"
                  "job.yaml: optimizer.steps: is missing; give steps, or passes over all training "
                  "rows\n");
}
END_TEST

START_TEST(keys_that_contradict_each_other_are_refused)
{
    expect_faults("name: x\n"
                  "kind: language-model\n"
                  "data: {path: [a, b, c], format: npy, header: yes, features: 3}\n"
                  "optimizer: {rate: 1, steps: 3, passes: 2}\n",
                  NULL, 0,
                  "job.yaml:2:7: kind: language models are not trained by this version yet; "
                  "regression is\n"
                  "job.yaml:4:40: optimizer.passes: steps is given too (job.yaml:4:29); leave one "
                  "of them out\n"
                  "job.yaml:3:46: data.header: only csv and space files have a header line; leave "
                  "it out\n"
                  "job.yaml:3:61: data.features: only svm files need it declared; leave it out\n"
                  "job.yaml:3:14: data.path: 3 paths; this format takes at most 2\n");
    expect_faults("name: x\ndata: {path: a, format: csv, decimal: \",\"}\n"
                  "optimizer: {rate: 1, steps: 3}\n",
                  NULL, 0,
                  "job.yaml:2:39: data.decimal: is the separator too; give a separator such as "
                  "\";\" beside a decimal comma\n");
}
END_TEST

START_TEST(set_options_win_and_are_named)
{
    const char *good[] = {"optimizer.rate=0.5", "data.drop=[a, b]", "checkpoint.every=last",
                          "data.test=0.25"};
    const char *bad[] = {"optimizer.rat=0.5", "steps", "optimizer.passes=3", "data.test=[]"};
    struct job job = parse_with(least, NULL, good, 4);
    ck_assert(job.optimizer.rate == 0.5);
    ck_assert_uint_eq(job.data.drop.count, 2);
    ck_assert(job.data.test == 0.25);
    job_done(&job);
    expect_faults(least, bad, 4,
                  "--set: expected KEY=VALUE such as optimizer.rate=0.1, got \"steps\"\n"
                  "--set data.test: data.test: expected a number, got a list\n"
                  "--set optimizer.rat: optimizer.rat: unknown key (did you mean "
                  "\"optimizer.rate\"?)\n"
                  "--set optimizer.passes: optimizer.passes: steps is given too (job.yaml:3:31); "
                  "leave one of them out\n");
}
END_TEST

START_TEST(the_canonical_text_reads_back_to_the_same)
{
    static const char from[] = "name: x\ndata: {path: a.txt, format: space}\n"
                               "optimizer: {rate: 0.1, passes: 5}\n"
                               "checkpoint: {from: out/epoch-00000004}\n";
    const char *texts[] = {example, least, from};
    for (size_t i = 0; i < 3; i++) {
        struct buf once = BUF_NONE;
        struct buf twice = BUF_NONE;
        struct job job = parse_with(texts[i], "/d", NULL, 0);
        job_write(&job, &once);
        struct job again = parse((const char *)once.bytes);
        job_write(&again, &twice);
        ck_assert_str_eq((const char *)once.bytes, (const char *)twice.bytes);
        ck_assert(i != 2 || strcmp(again.checkpoint.from, "/d/out/epoch-00000004") == 0);
        ck_assert(i == 2 || again.checkpoint.from == NULL);
        job_done(&job);
        job_done(&again);
        buf_done(&once);
        buf_done(&twice);
    }
}
END_TEST

START_TEST(the_canonical_text_has_every_key)
{
    struct buf out = BUF_NONE;
    struct job job = parse_with(least, "/d", NULL, 0);
    job_write(&job, &out);
    ck_assert_str_eq((const char *)out.bytes,
                     "name: x\nkind: regression\ndata:\n  path: [/d/a.txt]\n  format: space\n"
                     "  header: no\n  separator: \",\"\n  decimal: \".\"\n  target: last\n  drop: "
                     "[]\n  missing: refuse\n  missing_values: []\n  storage: auto\n  features: 0\n"
                     "  test: 0\n  standardize: no\nmodel:\n  intercept: yes\n  l2: 0\n"
                     "optimizer:\n  rate: 0.1\n  decay: 0.9\n  batch: all\n  steps: 5\n"
                     "checkpoint:\n  every: last\n  keep: 3\n  replicas: 1\nelastic: no\n"
                     "numerics: f32-products-f64-accumulation-v1\n");
    job_done(&job);
    buf_done(&out);
}
END_TEST

static void identity_of(const char *text, const char *override, char hex[SHA256_HEX_SIZE])
{
    uint8_t digest[SHA256_SIZE] = {1, 2, 3};
    uint8_t identity[SHA256_SIZE];
    struct job job = parse_with(text, NULL, &override, override != NULL ? 1 : 0);
    job_identity(&job, digest, identity);
    sha256_hex(identity, hex);
    job_done(&job);
}

START_TEST(the_identity_is_stable_and_counts_only_what_decides_the_bits)
{
    static const char policy[] = "numerics=" JOB_POLICY;
    static const char *const same[] = {"name=other",
                                       "optimizer.steps=9",
                                       "checkpoint.every=3",
                                       "elastic=yes",
                                       "data.path=/elsewhere/b",
                                       "checkpoint.replicas=0",
                                       "checkpoint.keep=9",
                                       policy,
                                       "optimizer.rate=1e-1"};
    static const char *const other[] = {
        "optimizer.rate=0.2", "optimizer.decay=0.5", "optimizer.batch=64", "model.l2=1",
        "model.intercept=no", "data.test=0.5",       "data.shuffle=0",     "data.standardize=yes"};
    char hex[SHA256_HEX_SIZE];
    char changed[SHA256_HEX_SIZE];
    identity_of(least, NULL, hex);
    ck_assert_str_eq(hex, "73ad28fbed9142757e11ab2154941126bdee847b83821a5eba9f3aa823160ed0");
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        identity_of(least, same[i], changed);
        ck_assert_msg(strcmp(hex, changed) == 0, "%s changes the identity", same[i]);
    }
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        identity_of(least, other[i], changed);
        ck_assert_msg(strcmp(hex, changed) != 0, "%s does not change the identity", other[i]);
    }
}
END_TEST

START_TEST(what_is_not_honoured_yet_is_said)
{
    struct buf notes = BUF_NONE;
    const char *elastic = "elastic=yes";
    const char *none = "checkpoint.replicas=0";
    struct job job = parse_with(least, NULL, &elastic, 1);
    ck_assert_uint_eq(job_notes(&job, &notes), 1);
    ck_assert_str_eq((const char *)notes.bytes,
                     "elastic: yes is not honoured yet: the job pauses while a node is away\n");
    job_done(&job);
    buf_clear(&notes);
    job = parse_with(least, NULL, &none, 1);
    ck_assert_uint_eq(job_notes(&job, &notes), 0);
    job_done(&job);
    buf_done(&notes);
}
END_TEST

START_TEST(a_data_block_alone_is_read)
{
    struct job_data data;
    struct faults faults = FAULTS_NONE;
    struct buf out = BUF_NONE;
    const char text[] = "format: csv\nheader: yes\ntarget: y\n";
    const char bad[] = "fromat: csv\n";
    ck_assert_int_eq(job_data_parse(text, strlen(text), "data", NULL, &data, &faults), 0);
    ck_assert_str_eq(data.target, "y");
    ck_assert_uint_eq(data.path.count, 0);
    job_data_done(&data);
    ck_assert_int_eq(job_data_parse(bad, strlen(bad), "data", NULL, &data, &faults), ERR_JOB);
    faults_print(&faults, &out);
    ck_assert_str_eq((const char *)out.bytes,
                     "data:1:1: fromat: unknown key (did you mean \"format\"?)\n"
                     "data: format: is missing; give csv, space, svm, npy or native\n");
    buf_done(&out);
    faults_done(&faults);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("job");
    TCase *tcase = tcase_create("job");
    tcase_add_test(tcase, the_designs_example_is_read);
    tcase_add_test(tcase, what_is_not_said_has_the_designs_defaults);
    tcase_add_test(tcase, every_fault_of_a_job_in_one_pass);
    tcase_add_test(tcase, an_empty_job_says_what_is_missing);
    tcase_add_test(tcase, keys_that_contradict_each_other_are_refused);
    tcase_add_test(tcase, set_options_win_and_are_named);
    tcase_add_test(tcase, the_canonical_text_reads_back_to_the_same);
    tcase_add_test(tcase, the_canonical_text_has_every_key);
    tcase_add_test(tcase, the_identity_is_stable_and_counts_only_what_decides_the_bits);
    tcase_add_test(tcase, what_is_not_honoured_yet_is_said);
    tcase_add_test(tcase, a_data_block_alone_is_read);
    suite_add_tcase(suite, tcase);
    return suite;
}

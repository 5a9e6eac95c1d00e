#include "tests/unit/daemon/api_fixture.h"

START_TEST(questions_get_their_documents)
{
    start();
    fixture.step = 30;
    FIXTURE_TEXT(fixture.folder, "/somewhere/epoch-00000002");
    struct client client = dial_welcome();
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    ASK(&client, CTL__REQUEST__ASK_JOB_LIST, job_list, &empty);
    JSON_HAS("{\"schema\":1,\"jobs\":[{\"job\":1,\"name\":\"california\",\"state\":\"running\"");
    JSON_HAS("\"losses\":[1.0,");
    Ctl__JobName name;
    ctl__job_name__init(&name);
    ASK(&client, CTL__REQUEST__ASK_JOB_SHOW, job_show, &name); /* The newest. */
    JSON_HAS("\"loss_hex\":\"0x1.999999999999ap-4\"");
    JSON_HAS("\"participants\":[{\"node\":\"a\",\"rank\":0,\"first\":0,\"end\":4,\"weight\":3,"
             "\"share\":0.375");
    JSON_HAS("\"checkpoint\":\"/somewhere/epoch-00000002\"");
    JSON_HAS("\"objective\":null");
    name.job = (char[]){"california"};
    ASK(&client, CTL__REQUEST__ASK_JOB_SHOW, job_show, &name);
    ck_assert_int_eq(reply.code, 0);
    name.job = (char[]){"nobody"};
    ASK(&client, CTL__REQUEST__ASK_JOB_SHOW, job_show, &name);
    ck_assert_int_eq(reply.code, ERR_NOT_FOUND);
    ck_assert_str_eq(reply.text, "there is no job 'nobody'");
    ASK(&client, CTL__REQUEST__ASK_NODES, nodes, &empty);
    JSON_HAS("\"name\":\"c\",\"address\":\"127.0.0.1:7622\",\"role\":\"trainer\",\"state\":"
             "\"down\"");
    ASK(&client, CTL__REQUEST__ASK_SESSION, session, &empty);
    JSON_HAS("\"regions\":[{\"name\":\"parameter\",\"offset\":0,\"bytes\":72,\"alignment\":256}]");
    ASK(&client, CTL__REQUEST__ASK_CLUSTER_STATUS, cluster_status, &empty);
    JSON_HAS("\"quorum\":2,\"alive\":2,\"healthy\":true");
    Ctl__CheckpointList list;
    ctl__checkpoint_list__init(&list);
    ASK(&client, CTL__REQUEST__ASK_CHECKPOINT_LIST, checkpoint_list, &list);
    JSON_HAS("\"epoch\":2,\"step\":20,\"state\":\"published\"");
    ASK(&client, CTL__REQUEST__ASK_DOCTOR, doctor, &empty);
    JSON_HAS("{\"name\":\"device\",\"state\":\"ok\",\"text\":\"device: cpu, ");
    JSON_HAS("{\"name\":\"peer\",\"state\":\"failed\",\"text\":\"c (127.0.0.1:7622) is not "
             "connected\"");
    hang_up(&client);
    stop();
}
END_TEST

START_TEST(a_verb_is_answered_when_it_is_done)
{
    start();
    struct client client = dial_welcome();
    uint8_t uuid[16] = {1};
    Ctl__Submit submit;
    ctl__submit__init(&submit);
    submit.uuid = (ProtobufCBinaryData){sizeof(uuid), uuid};
    submit.job_text = (char[]){"name: california\n"};
    submit.file_name = (char[]){"job.yaml"};
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_SUBMIT;
    request.submit = &submit;
    ask(&client, &request);
    ck_assert(!hear_reply(&client, 100)); /* Not before it is in the log. */
    ck_assert_str_eq(fixture.submitted, "name: california\n");
    struct facts_result result = {.job = 1};
    facts_done_fn *done = fixture.done;
    fixture.done = NULL;
    done(fixture.done_context, &result);
    ck_assert(hear_reply(&client, 50000));
    JSON_HAS("\"job\":1,\"name\":\"california\"");

    ask(&client, &request); /* All faults of a refused file come as they are. */
    (void)hear_reply(&client, 50);
    result =
        (struct facts_result){.err = {ERR_JOB, "job.yaml:1:1: a: unknown key (and 1 more)"},
                              .faults = "job.yaml:1:1: a: unknown key\njob.yaml:2:1: b: unknown "
                                        "key\n"};
    done = fixture.done;
    fixture.done = NULL;
    done(fixture.done_context, &result);
    ck_assert(hear_reply(&client, 50000));
    ck_assert_int_eq(reply.code, ERR_JOB);
    ck_assert_str_eq(reply.text, "job.yaml:1:1: a: unknown key\njob.yaml:2:1: b: unknown key\n");

    submit.uuid.len = 3;
    ask(&client, &request);
    ck_assert(hear_reply(&client, 50000));
    ck_assert_int_eq(reply.code, ERR_PROTO);
    hang_up(&client);
    stop();
}
END_TEST

START_TEST(a_client_may_leave_while_its_verb_is_under_way)
{
    start();
    struct client client = dial_welcome();
    Ctl__JobName name;
    ctl__job_name__init(&name);
    name.job = (char[]){"1"};
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_JOB_CANCEL;
    request.job_cancel = &name;
    ask(&client, &request);
    (void)hear_reply(&client, 50);
    ck_assert_str_eq(fixture.verb, "cancel");
    hang_up(&client);
    struct facts_result result = {.job = 1};
    facts_done_fn *done = fixture.done;
    fixture.done = NULL;
    done(fixture.done_context, &result); /* Must touch nothing that is freed. */
    client = dial_welcome();
    ask(&client, &request);
    (void)hear_reply(&client, 50);
    stop(); /* With the verb unanswered: it is cancelled. */
    (void)close(client.fd);
    buf_done(&client.in);
}
END_TEST

START_TEST(watch_tells_states_checkpoints_and_the_end)
{
    start();
    fixture.step = 20;
    fixture.one_epoch = true;
    struct client client = dial_welcome();
    Ctl__JobWatch watch;
    ctl__job_watch__init(&watch);
    watch.follow = true;
    ASK(&client, CTL__REQUEST__ASK_JOB_WATCH, job_watch, &watch);
    JSON_HAS("\"event\":\"history\"");
    JSON_HAS("\"points\":[[1,1.0],[2,0.5]");
    ck_assert(reply.more);
    ck_assert(hear_reply(&client, 50000));
    JSON_HAS("\"event\":\"progress\"");
    ck_assert(!hear_reply(&client, 600)); /* Nothing new, nothing said. */
    fixture.step = 21;
    fixture.version++;
    ck_assert(hear_reply(&client, 50000));
    JSON_HAS("\"event\":\"progress\"");
    JSON_HAS("\"step\":21");
    FIXTURE_TEXT(fixture.job_state, "succeeded");
    fixture.one_epoch = false;
    fixture.version++;
    ck_assert(hear_reply(&client, 50000)); /* What was published, then the state that follows. */
    JSON_HAS("\"event\":\"checkpoint\"");
    JSON_HAS("\"epoch\":2");
    ck_assert(hear_reply(&client, 50000));
    JSON_HAS("\"event\":\"state\"");
    JSON_HAS("\"loss\":0.1000"); /* its own: progress may have told an earlier step's */
    ck_assert(hear_reply(&client, 50000));
    ck_assert(hear_reply(&client, 50000));
    JSON_HAS("\"event\":\"end\"");
    ck_assert(!reply.more);
    watch.follow = false;
    ASK(&client, CTL__REQUEST__ASK_JOB_WATCH, job_watch, &watch); /* The connection serves on. */
    JSON_HAS("\"event\":\"history\"");
    hang_up(&client);
    stop();
}
END_TEST

START_TEST(logs_are_of_the_job_asked_for_and_follow)
{
    start();
    struct client client = dial_welcome();
    static const char *const lines[] = {"<6>run.step run=california step=1", "<6>x.y job=12 a=b",
                                        "<4>z.z job=1"};
    for (size_t i = 0; i < 3; i++) {
        log_ring_sink(&ring, i == 2 ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, lines[i],
                      strlen(lines[i]));
    }
    Ctl__JobLogs logs;
    ctl__job_logs__init(&logs);
    logs.job = (char[]){"1"};
    ASK(&client, CTL__REQUEST__ASK_JOB_LOGS, job_logs, &logs);
    JSON_HAS("\"line\":\"run.step run=california step=1\"");
    JSON_HAS("\"level\":4,\"node\":\"a\",\"line\":\"z.z job=1\"");
    ck_assert_ptr_null(strstr(reply.json, "job=12"));
    ck_assert(!reply.more);
    logs.lines = 1;
    logs.follow = true;
    ASK(&client, CTL__REQUEST__ASK_JOB_LOGS, job_logs, &logs);
    ck_assert_ptr_null(strstr(reply.json, "run.step"));
    ck_assert(reply.more);
    log_ring_sink(&ring, LOG_LEVEL_INFO, "<6>late.line job=1", 18);
    ck_assert(hear_reply(&client, 50000));
    JSON_HAS("late.line");
    hang_up(&client);
    ck_assert_uint_eq(api_stats(api)->connections, 0);
    stop();
}
END_TEST

START_TEST(predictions_come_in_pieces)
{
    start();
    struct client client = dial_welcome();
    Ctl__Predict predict;
    ctl__predict__init(&predict);
    predict.checkpoint = (char[]){"/c"};
    predict.data_path = (char[]){"/d"};
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_PREDICT;
    request.predict = &predict;
    ask(&client, &request);
    (void)hear_reply(&client, 50);
    struct facts_prediction prediction = {.values_count = 300000, .first_count = 2};
    prediction.values = malloc(prediction.values_count * sizeof(double));
    ASSERT(prediction.values != NULL);
    for (size_t i = 0; i < prediction.values_count; i++) {
        prediction.values[i] = (double)i;
    }
    fixture.predicted(fixture.predicted_context, &prediction);
    size_t count = 0;
    do {
        ck_assert(hear_reply(&client, 50000));
        for (size_t i = 0; i < reply.data_size / sizeof(double); i++) {
            double value;
            memcpy(&value, reply.data + i * sizeof(double), sizeof(value));
            ck_assert_double_eq(value, (double)count);
            count++;
        }
    } while (reply.more);
    ck_assert_uint_eq(count, 300000);
    JSON_HAS("\"rows\":300000");
    JSON_HAS("\"first\":[[0.0,null],[1.0,null]]");
    predict.data_path = (char[]){"relative"};
    ask(&client, &request);
    ck_assert(hear_reply(&client, 50000));
    ck_assert_int_eq(reply.code, ERR_USAGE);
    predict.data_path = (char[]){"/absent"};
    ask(&client, &request);
    ck_assert(hear_reply(&client, 50000));
    ck_assert_int_eq(reply.code, ERR_DATA);
    ck_assert_str_eq(reply.text, "/absent: no such file");
    hang_up(&client);
    stop();
}
END_TEST

START_TEST(checkpoint_files_come_in_bounded_pieces_and_nothing_else_does)
{
    start();
    char path[FACTS_PATH_SIZE + 32];
    FIXTURE_TEXT(fixture.folder, "%s/epoch-00000002", folder);
    ck_assert_int_eq(mkdir(fixture.folder, 0700), 0);
    FIXTURE_TEXT(path, "%s/shard-1.safetensors", fixture.folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(ftruncate(fd, 3 * 1024 * 1024 / 2), 0);
    ck_assert_int_eq(pwrite(fd, "end", 3, 3 * 1024 * 1024 / 2 - 3), 3);
    (void)close(fd);
    FIXTURE_TEXT(path, "%s/link", fixture.folder);
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    struct client client = dial_welcome();
    Ctl__CheckpointFile file;
    ctl__checkpoint_file__init(&file);
    file.name = (char[]){"shard-1.safetensors"};
    ASK(&client, CTL__REQUEST__ASK_CHECKPOINT_FILE, checkpoint_file, &file);
    ck_assert_uint_eq(reply.total, 3 * 1024 * 1024 / 2);
    ck_assert_uint_eq(reply.data_size, API_PIECE_SIZE);
    file.offset = reply.data_size;
    ASK(&client, CTL__REQUEST__ASK_CHECKPOINT_FILE, checkpoint_file, &file);
    ck_assert_uint_eq(reply.data_size, API_PIECE_SIZE / 2);
    ck_assert_mem_eq(reply.data + reply.data_size - 3, "end", 3);
    file.offset = UINT64_MAX;
    ASK(&client, CTL__REQUEST__ASK_CHECKPOINT_FILE, checkpoint_file, &file);
    ck_assert_int_eq(reply.code, ERR_USAGE);
    file.offset = 0;
    static const char *const bad[] = {
        "../../etc/passwd", "/etc/passwd", "..", ".hidden", "", "a/b", "a\nb"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char name[64];
        FIXTURE_TEXT(name, "%s", bad[i]);
        file.name = name;
        ASK(&client, CTL__REQUEST__ASK_CHECKPOINT_FILE, checkpoint_file, &file);
        ck_assert_int_eq(reply.code, ERR_USAGE);
        ck_assert_uint_eq(reply.data_size, 0);
    }
    file.name = (char[]){"link"}; /* Not followed. */
    ASK(&client, CTL__REQUEST__ASK_CHECKPOINT_FILE, checkpoint_file, &file);
    ck_assert_int_eq(reply.code, ERR_DISK);
    file.name = (char[]){"absent"};
    ASK(&client, CTL__REQUEST__ASK_CHECKPOINT_FILE, checkpoint_file, &file);
    ck_assert_int_eq(reply.code, ERR_NOT_FOUND);
    file.epoch = 1; /* Collected. */
    ASK(&client, CTL__REQUEST__ASK_CHECKPOINT_FILE, checkpoint_file, &file);
    ck_assert_int_eq(reply.code, ERR_NOT_FOUND);
    hang_up(&client);
    stop();
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("api");
    TCase *tcase = tcase_create("ctl");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, questions_get_their_documents);
    tcase_add_test(tcase, a_verb_is_answered_when_it_is_done);
    tcase_add_test(tcase, a_client_may_leave_while_its_verb_is_under_way);
    tcase_add_test(tcase, watch_tells_states_checkpoints_and_the_end);
    tcase_add_test(tcase, logs_are_of_the_job_asked_for_and_follow);
    tcase_add_test(tcase, predictions_come_in_pieces);
    tcase_add_test(tcase, checkpoint_files_come_in_bounded_pieces_and_nothing_else_does);
    suite_add_tcase(suite, tcase);
    return suite;
}

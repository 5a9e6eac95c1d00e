/* Who may connect, how many, and how much each may ask for. */
#include "tests/unit/daemon/api_fixture.h"

START_TEST(who_says_no_good_hello_is_refused_by_a_sentence)
{
    start();
    struct client client = dial();
    Peer__Hello hello;
    peer__hello__init(&hello);
    hello.protocol_version = 99;
    hello.class_ = PEER__CLASS__CLASS_CTL;
    say(&client, FRAME_HELLO, &hello.base);
    struct frame frame = hear(&client, 50000);
    ck_assert_uint_eq(frame.kind, FRAME_REFUSAL);
    ProtobufCMessage *message = NULL;
    ck_assert_int_eq(
        message_unpack(&peer__refusal__descriptor, frame.body, frame.body_size, &message, NULL), 0);
    ck_assert_str_eq(
        ((const Peer__Refusal *)(const void *)message)->text,
        "protocol 1 is spoken here, yours is 99; use the coppeliusctl of this daemon's "
        "version (0.1.0)");
    message_free(message);
    ck_assert_uint_eq(hear(&client, 50000).kind, 0); /* And the end. */
    hang_up(&client);
    client = dial();
    say_bytes(&client, "GET / HTTP/1.1\r\nHost: a-name-long-enough-for-a-header\r\n\r\n", 57);
    ck_assert_uint_eq(hear(&client, 50000).kind, 0);
    hang_up(&client);
    client = dial(); /* Says nothing at all. */
    ck_assert_uint_eq(hear(&client, 50000).kind, 0);
    hang_up(&client);
    client = dial_welcome();
    say(&client, FRAME_HELLO, &hello.base); /* No question. */
    ck_assert_uint_eq(hear(&client, 50000).kind, 0);
    hang_up(&client);
    ck_assert_uint_eq(api_stats(api)->connections, 0);
    stop();
}
END_TEST

START_TEST(idle_connections_make_way_for_others)
{
    start();
    struct client clients[2 * API_CONNECTIONS_MAX];
    for (unsigned i = 0; i < 2 * API_CONNECTIONS_MAX; i++) { /* Some silent, some welcomed. */
        clients[i] = i % 2 == 0 ? dial_welcome() : dial();
    }
    ck_assert_uint_le(api_stats(api)->connections, API_OF_A_SOURCE_MAX);
    struct client late = dial_welcome();
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    ASK(&late, CTL__REQUEST__ASK_NODES, nodes, &empty);
    hang_up(&late);
    for (unsigned i = 0; i < 2 * API_CONNECTIONS_MAX; i++) {
        hang_up(&clients[i]);
    }
    stop();
}
END_TEST

START_TEST(connections_at_work_are_bounded)
{
    start();
    struct client clients[API_OF_A_SOURCE_MAX];
    Ctl__JobLogs logs;
    ctl__job_logs__init(&logs);
    logs.job = (char[]){"1"};
    logs.follow = true;
    for (unsigned i = 0; i < API_OF_A_SOURCE_MAX; i++) {
        clients[i] = dial_welcome();
        Ctl__Request request;
        ctl__request__init(&request);
        request.ask_case = CTL__REQUEST__ASK_JOB_LOGS;
        request.job_logs = &logs;
        ask(&clients[i], &request); /* A stream: never idle. */
    }
    for (unsigned i = 0; i < 200; i++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    struct client late = dial_hello();
    struct frame frame = hear(&late, 50000);
    ck_assert_uint_eq(frame.kind, FRAME_REFUSAL);
    hang_up(&late);
    hang_up(&clients[0]);
    for (unsigned i = 0; i < 200; i++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    late = dial_welcome();
    hang_up(&late);
    for (unsigned i = 1; i < API_OF_A_SOURCE_MAX; i++) {
        hang_up(&clients[i]);
    }
    stop();
}
END_TEST

START_TEST(many_questions_in_a_row_are_answered_in_order_and_bounded)
{
    start();
    struct client client = dial_welcome();
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_NODES;
    request.nodes = &empty;
    for (unsigned i = 0; i < 500; i++) {
        ask(&client, &request);
    }
    for (unsigned i = 0; i < 500; i++) {
        ck_assert(hear_reply(&client, 50000));
    }
    hang_up(&client);
    stop();
}
END_TEST

START_TEST(who_does_not_take_its_answers_is_cut)
{
    write_ms = 1000;
    start();
    write_ms = 60000;
    struct client client = dial_welcome();
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_NODES;
    request.nodes = &empty;
    uint64_t end = clock_now_ms() + 50000;
    unsigned asked = 0;
    while (api_stats(api)->cut == 0 && clock_now_ms() < end) {
        if (asked < 2000) { /* More than the socket's buffers hold of answers. */
            ask(&client, &request);
            asked++;
        }
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    ck_assert_uint_eq(api_stats(api)->cut, 1);
    hang_up(&client);
    ck_assert_uint_eq(api_stats(api)->connections, 0);
    stop();
}
END_TEST

START_TEST(a_socket_of_a_living_daemon_is_not_taken)
{
    start();
    struct err err = {0};
    struct api *second = NULL;
    struct api_settings settings = {.facts = fixture_facts(),
                                    .log_ring = &ring,
                                    .doctor = &doctor,
                                    .socket_path = socket_path,
                                    .group = "coppelius",
                                    .cluster = "home",
                                    .node = "b",
                                    .version = "0.1.0"};
    ck_assert_int_eq(api_open(&loop, &settings, &second, &err), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "another daemon listens there"));
    struct stat stat_;
    ck_assert_int_eq(stat(socket_path, &stat_), 0);
    ck_assert_uint_eq(stat_.st_mode & 0777, 0660);
    stop();
    start(); /* A left-over of a killed daemon is replaced. */
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/left", folder);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    (void)close(fd);
    settings.socket_path = address.sun_path;
    ck_assert_int_eq(api_open(&loop, &settings, &second, &err), 0);
    api_close(second, NULL, NULL);
    stop();
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("api_limits");
    TCase *tests = tcase_create("api_limits");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, who_says_no_good_hello_is_refused_by_a_sentence);
    tcase_add_test(tests, idle_connections_make_way_for_others);
    tcase_add_test(tests, connections_at_work_are_bounded);
    tcase_add_test(tests, many_questions_in_a_row_are_answered_in_order_and_bounded);
    tcase_add_test(tests, who_does_not_take_its_answers_is_cut);
    tcase_add_test(tests, a_socket_of_a_living_daemon_is_not_taken);
    suite_add_tcase(suite, tests);
    return suite;
}

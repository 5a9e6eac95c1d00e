#include <errno.h>
#include <fcntl.h>
#include <peer.pb-c.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "daemon/api.h"
#include "daemon/ask.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "tests/lib/unit.h"
#include "tests/unit/daemon/facts_fixture.h"

static uv_loop_t loop;
static struct api *api;
static struct log_ring ring;
static struct doctor_settings doctor = {.device = "cpu"};
static char folder[64];
static char socket_path[96];

static void start(void)
{
    struct err err = {0};
    (void)signal(SIGPIPE, SIG_IGN); /* As main does: libuv writes to sockets that are gone. */
    (void)snprintf(folder, sizeof(folder), "api-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(socket_path, sizeof(socket_path), "%s/ctl.sock", folder);
    FIXTURE_TEXT(doctor.state_dir, "%s", folder);
    ck_assert_int_eq(log_ring_init(&ring, 32, &err), 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct api_settings settings = {.facts = fixture_facts(),
                                    .log_ring = &ring,
                                    .doctor = &doctor,
                                    .socket_path = socket_path,
                                    .group = "coppelius",
                                    .cluster = "home",
                                    .node = "a",
                                    .version = "0.1.0",
                                    .node_id = 1,
                                    .write_ms = 1000};
    int status = api_open(&loop, &settings, &api, &err);
    ck_assert_msg(status == 0, "%s", err.text);
}

static void stop(void)
{
    api_close(api, NULL, NULL);
    if (fixture.done != NULL) { /* As a stopping daemon does. */
        struct facts_result result = {.err = {.code = ERR_CANCELED, .text = "the daemon stops"}};
        facts_done_fn *done = fixture.done;
        fixture.done = NULL;
        done(fixture.done_context, &result);
    }
    while (uv_run(&loop, UV_RUN_DEFAULT) != 0) {
    }
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    log_ring_done(&ring);
    ck_assert_int_eq(access(socket_path, F_OK), -1);
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

struct client {
    int fd;
    uint64_t sequence;
    struct buf in;
    size_t used; /* of in, the frame last heard */
};

static struct client dial(void)
{
    struct client client = {.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    ck_assert_int_eq(connect(client.fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return client;
}

static void hang_up(struct client *client)
{
    (void)close(client->fd);
    buf_done(&client->in);
    for (unsigned i = 0; i < 20; i++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        (void)usleep(500);
    }
}

static void say_bytes(struct client *client, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t sent = send(client->fd, at, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
            size -= (size_t)sent;
        } else if (errno != EAGAIN) {
            return;
        }
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static void say(struct client *client, uint16_t kind, const ProtobufCMessage *message)
{
    struct buf out = BUF_NONE;
    ck_assert_int_eq(
        message_frame(&out, kind, 0, client->sequence++, message, FRAME_LIMIT_CTL, NULL), 0);
    say_bytes(client, out.bytes, out.size);
    buf_done(&out);
}

/* The next frame; kind 0: the connection ended, 1000: nothing within ms. */
static struct frame hear(struct client *client, uint64_t ms)
{
    uint64_t end = clock_now_ms() + ms;
    struct frame frame = {0};
    if (client->used > 0) {
        client->in.size -= client->used;
        memmove(client->in.bytes, client->in.bytes + client->used, client->in.size);
        client->used = 0;
    }
    for (;;) {
        struct err err = {0};
        ck_assert_int_eq(frame_parse(client->in.bytes, client->in.size, FRAME_LIMIT_CTL, &frame,
                                     &client->used, &err),
                         0);
        if (client->used > 0) {
            return frame;
        }
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        buf_reserve(&client->in, 65536);
        ssize_t got = recv(client->fd, client->in.bytes + client->in.size, 65536, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            frame.kind = 0;
            return frame;
        }
        if (got > 0) {
            client->in.size += (size_t)got;
        } else if (clock_now_ms() > end) {
            frame.kind = 1000;
            return frame;
        } else {
            (void)usleep(500);
        }
    }
}

static struct client dial_hello(void)
{
    struct client client = dial();
    Peer__Hello hello;
    peer__hello__init(&hello);
    hello.node = (char[]){"ctl"};
    hello.protocol_version = FRAME_PROTOCOL_VERSION;
    hello.class_ = PEER__CLASS__CLASS_CTL;
    say(&client, FRAME_HELLO, &hello.base);
    return client;
}

static struct client dial_welcome(void)
{
    struct client client = dial_hello();
    struct frame frame = hear(&client, 2000);
    ck_assert_uint_eq(frame.kind, FRAME_WELCOME);
    return client;
}

/* What a reply held, until the next one. */
static struct {
    int code;
    bool more;
    uint64_t total;
    char text[8192];
    char json[65536];
    uint8_t data[API_PIECE_SIZE];
    size_t data_size;
} reply;

static bool hear_reply(struct client *client, uint64_t ms)
{
    struct frame frame = hear(client, ms);
    if (frame.kind != FRAME_REPLY) {
        return false;
    }
    ProtobufCMessage *message = NULL;
    ck_assert_int_eq(
        message_unpack(&ctl__reply__descriptor, frame.body, frame.body_size, &message, NULL), 0);
    const Ctl__Reply *heard = (const Ctl__Reply *)(const void *)message;
    ck_assert_uint_eq(heard->id, 42);
    reply.code = heard->code;
    reply.more = heard->more;
    reply.total = heard->total;
    FIXTURE_TEXT(reply.text, "%s", heard->text);
    FIXTURE_TEXT(reply.json, "%.*s", (int)heard->json.len, (const char *)heard->json.data);
    ck_assert_uint_le(heard->data.len, sizeof(reply.data));
    reply.data_size = heard->data.len;
    if (heard->data.len > 0) {
        memcpy(reply.data, heard->data.data, heard->data.len);
    }
    message_free(message);
    return true;
}

static void ask(struct client *client, Ctl__Request *request)
{
    request->id = 42;
    say(client, FRAME_REQUEST, &request->base);
}

#define ASK(client, kind, member, init)        \
    do {                                       \
        Ctl__Request request_;                 \
        ctl__request__init(&request_);         \
        request_.ask_case = (kind);            \
        request_.member = (init);              \
        ask((client), &request_);              \
        ck_assert(hear_reply((client), 5000)); \
    } while (0)

#define JSON_HAS(what) \
    ck_assert_msg(strstr(reply.json, (what)) != NULL, "no %s in %s", (what), reply.json)

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
    ck_assert(hear_reply(&client, 10000));
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
    ck_assert(hear_reply(&client, 10000));
    ck_assert_int_eq(reply.code, ERR_JOB);
    ck_assert_str_eq(reply.text, "job.yaml:1:1: a: unknown key\njob.yaml:2:1: b: unknown key\n");

    submit.uuid.len = 3;
    ask(&client, &request);
    ck_assert(hear_reply(&client, 10000));
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
    ck_assert(hear_reply(&client, 1000));
    JSON_HAS("\"event\":\"progress\"");
    ck_assert(!hear_reply(&client, 600)); /* Nothing new, nothing said. */
    fixture.step = 21;
    fixture.version++;
    ck_assert(hear_reply(&client, 1000));
    JSON_HAS("\"event\":\"progress\"");
    JSON_HAS("\"step\":21");
    FIXTURE_TEXT(fixture.job_state, "succeeded");
    fixture.one_epoch = false;
    fixture.version++;
    ck_assert(hear_reply(&client, 1000)); /* What was published, then the state that follows. */
    JSON_HAS("\"event\":\"checkpoint\"");
    JSON_HAS("\"epoch\":2");
    ck_assert(hear_reply(&client, 1000));
    JSON_HAS("\"event\":\"state\"");
    JSON_HAS("\"loss\":0.1000"); /* its own: progress may have told an earlier step's */
    ck_assert(hear_reply(&client, 1000));
    ck_assert(hear_reply(&client, 1000));
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
    ck_assert(hear_reply(&client, 1000));
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
        ck_assert(hear_reply(&client, 10000));
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
    ck_assert(hear_reply(&client, 10000));
    ck_assert_int_eq(reply.code, ERR_USAGE);
    predict.data_path = (char[]){"/absent"};
    ask(&client, &request);
    ck_assert(hear_reply(&client, 10000));
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

START_TEST(who_says_no_good_hello_is_refused_by_a_sentence)
{
    start();
    struct client client = dial();
    Peer__Hello hello;
    peer__hello__init(&hello);
    hello.protocol_version = 99;
    hello.class_ = PEER__CLASS__CLASS_CTL;
    say(&client, FRAME_HELLO, &hello.base);
    struct frame frame = hear(&client, 2000);
    ck_assert_uint_eq(frame.kind, FRAME_REFUSAL);
    ProtobufCMessage *message = NULL;
    ck_assert_int_eq(
        message_unpack(&peer__refusal__descriptor, frame.body, frame.body_size, &message, NULL), 0);
    ck_assert_str_eq(
        ((const Peer__Refusal *)(const void *)message)->text,
        "protocol 1 is spoken here, yours is 99; use the coppeliusctl of this daemon's "
        "version (0.1.0)");
    message_free(message);
    ck_assert_uint_eq(hear(&client, 2000).kind, 0); /* And the end. */
    hang_up(&client);
    client = dial();
    say_bytes(&client, "GET / HTTP/1.1\r\nHost: a-name-long-enough-for-a-header\r\n\r\n", 57);
    ck_assert_uint_eq(hear(&client, 2000).kind, 0);
    hang_up(&client);
    client = dial(); /* Says nothing at all. */
    uint64_t began_ms = clock_now_ms();
    ck_assert_uint_eq(hear(&client, 8000).kind, 0);
    ck_assert_uint_le(clock_now_ms() - began_ms, 6500);
    hang_up(&client);
    client = dial_welcome();
    say(&client, FRAME_HELLO, &hello.base); /* No question. */
    ck_assert_uint_eq(hear(&client, 2000).kind, 0);
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
    uint64_t begun_ms = clock_now_ms();
    struct client late = dial_welcome();
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    ASK(&late, CTL__REQUEST__ASK_NODES, nodes, &empty);
    ck_assert_uint_lt(clock_now_ms() - begun_ms, 2000);
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
    struct frame frame = hear(&late, 2000);
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
        ck_assert(hear_reply(&client, 10000));
    }
    hang_up(&client);
    stop();
}
END_TEST

START_TEST(who_does_not_take_its_answers_is_cut)
{
    start();
    struct client client = dial_welcome();
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_NODES;
    request.nodes = &empty;
    uint64_t end = clock_now_ms() + 10000;
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
    Suite *suite = suite_create("api");
    TCase *tcase = tcase_create("ctl");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, questions_get_their_documents);
    tcase_add_test(tcase, a_verb_is_answered_when_it_is_done);
    tcase_add_test(tcase, a_client_may_leave_while_its_verb_is_under_way);
    tcase_add_test(tcase, watch_tells_states_checkpoints_and_the_end);
    tcase_add_test(tcase, logs_are_of_the_job_asked_for_and_follow);
    tcase_add_test(tcase, predictions_come_in_pieces);
    tcase_add_test(tcase, checkpoint_files_come_in_bounded_pieces_and_nothing_else_does);
    tcase_add_test(tcase, who_says_no_good_hello_is_refused_by_a_sentence);
    tcase_add_test(tcase, idle_connections_make_way_for_others);
    tcase_add_test(tcase, connections_at_work_are_bounded);
    tcase_add_test(tcase, many_questions_in_a_row_are_answered_in_order_and_bounded);
    tcase_add_test(tcase, who_does_not_take_its_answers_is_cut);
    tcase_add_test(tcase, a_socket_of_a_living_daemon_is_not_taken);
    suite_add_tcase(suite, tcase);
    return suite;
}

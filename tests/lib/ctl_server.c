#include "tests/lib/ctl_server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <peer.pb-c.h>

#include "base/assert.h"
#include "ctl/ctl.h"
#include "proto/message.h"

static void put(int fd, enum frame_kind kind, uint64_t sequence, const ProtobufCMessage *message)
{
    struct buf out = BUF_NONE;
    struct err err = {0};
    ASSERT(message_frame(&out, (uint16_t)kind, 0, sequence, message, FRAME_LIMIT_CTL, &err) == 0);
    for (size_t sent = 0; sent < out.size;) {
        ssize_t got = send(fd, out.bytes + sent, out.size - sent, MSG_NOSIGNAL);
        if (got <= 0) {
            break; /* The client has gone; so it may. */
        }
        sent += (size_t)got;
    }
    buf_done(&out);
}

void ctl_server_json(struct ctl_server_answer *answer, const char *json, int more)
{
    char *copy = strdup(json);
    Ctl__Reply reply;
    ctl__reply__init(&reply);
    reply.id = answer->id;
    reply.json.data = (uint8_t *)copy;
    reply.json.len = strlen(copy);
    reply.more = more;
    put(answer->fd, FRAME_REPLY, answer->sequence++, &reply.base);
    free(copy);
}

void ctl_server_data(struct ctl_server_answer *answer, const void *data, size_t size,
                     uint64_t total, int more)
{
    uint8_t *copy = malloc(size + 1);
    ASSERT(copy != NULL);
    memcpy(copy, data, size);
    Ctl__Reply reply;
    ctl__reply__init(&reply);
    reply.id = answer->id;
    reply.data.data = copy;
    reply.data.len = size;
    reply.total = total;
    reply.more = more;
    put(answer->fd, FRAME_REPLY, answer->sequence++, &reply.base);
    free(copy);
}

void ctl_server_error(struct ctl_server_answer *answer, int code, const char *text,
                      const char *hint)
{
    char *text_copy = strdup(text);
    char *hint_copy = strdup(hint);
    Ctl__Reply reply;
    ctl__reply__init(&reply);
    reply.id = answer->id;
    reply.code = code;
    reply.text = text_copy;
    reply.hint = hint_copy;
    put(answer->fd, FRAME_REPLY, answer->sequence++, &reply.base);
    free(text_copy);
    free(hint_copy);
}

/* The next frame of the connection, its body in *bytes; false at its end. */
static bool get(int fd, struct buf *bytes, struct frame *ret_frame)
{
    struct err err = {0};
    size_t used = 0;
    for (;;) {
        ASSERT(frame_parse(bytes->bytes, bytes->size, FRAME_LIMIT_CTL, ret_frame, &used, &err) ==
               0);
        if (used > 0) {
            return true;
        }
        buf_reserve(bytes, 4096);
        ssize_t got = recv(fd, bytes->bytes + bytes->size, 4096, 0);
        if (got <= 0) {
            return false;
        }
        bytes->size += (size_t)got;
    }
}

static void say_hello(int fd, enum ctl_server_manner manner)
{
    static char text[] = "too many clients";
    Peer__Welcome welcome;
    peer__welcome__init(&welcome);
    Peer__Refusal refusal;
    peer__refusal__init(&refusal);
    switch (manner) {
    case CTL_SERVER_REFUSES:
        refusal.code = ERR_BUSY;
        refusal.text = text;
        put(fd, FRAME_REFUSAL, 0, &refusal.base);
        break;
    case CTL_SERVER_SILENT:
        break;
    case CTL_SERVER_GARBAGE:
        (void)send(fd, "HTTP/1.1 400 Bad Request\r\n\r\nwhatever this is", 44, MSG_NOSIGNAL);
        break;
    case CTL_SERVER_GOOD:
    case CTL_SERVER_CLOSES:
    default:
        put(fd, FRAME_WELCOME, 0, &welcome.base);
        break;
    }
}

static void serve(int fd, enum ctl_server_manner manner, ctl_server_fn *answer_fn)
{
    struct buf bytes = BUF_NONE;
    struct frame frame;
    struct ctl_server_answer answer = {.fd = fd, .sequence = 1};
    bool greeted = false;
    while (get(fd, &bytes, &frame)) {
        struct err err = {0};
        ProtobufCMessage *message = NULL;
        size_t used = FRAME_HEADER_SIZE + frame.body_size;
        if (!greeted) {
            ASSERT(frame.kind == FRAME_HELLO);
            ASSERT(message_unpack(&peer__hello__descriptor, frame.body, frame.body_size, &message,
                                  &err) == 0);
            const Peer__Hello *hello = (const Peer__Hello *)(const void *)message;
            ASSERT(hello->class_ == PEER__CLASS__CLASS_CTL);
            ASSERT(hello->protocol_version == FRAME_PROTOCOL_VERSION);
            say_hello(fd, manner);
            greeted = true;
            if (manner == CTL_SERVER_CLOSES) {
                message_free(message);
                break;
            }
        } else if (manner == CTL_SERVER_GOOD) {
            ASSERT(frame.kind == FRAME_REQUEST);
            ASSERT(message_unpack(&ctl__request__descriptor, frame.body, frame.body_size, &message,
                                  &err) == 0);
            const Ctl__Request *request = (const Ctl__Request *)(const void *)message;
            answer.id = request->id;
            answer_fn(request, &answer);
        }
        message_free(message);
        memmove(bytes.bytes, bytes.bytes + used, bytes.size - used);
        bytes.size -= used;
    }
    buf_done(&bytes);
    (void)close(fd);
}

void ctl_server_start(struct ctl_server *server, enum ctl_server_manner manner,
                      ctl_server_fn *answer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(server->folder, sizeof(server->folder), "/tmp/ctl-test-XXXXXX");
    ASSERT(mkdtemp(server->folder) != NULL);
    (void)snprintf(server->endpoint, sizeof(server->endpoint), "unix:%s/sock", server->folder);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", server->folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(fd >= 0);
    ASSERT(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    ASSERT(listen(fd, 4) == 0);
    server->pid = fork();
    ASSERT(server->pid >= 0);
    if (server->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int client = accept(fd, NULL, NULL);
            if (client >= 0) {
                serve(client, manner, answer);
            }
        }
    }
    (void)close(fd);
}

void ctl_server_stop(struct ctl_server *server)
{
    int status = 0;
    char path[96];
    (void)kill(server->pid, SIGKILL);
    (void)waitpid(server->pid, &status, 0);
    ASSERT(WIFSIGNALED(status)); /* It did not fail an assertion of its own. */
    ASSERT(WTERMSIG(status) == SIGKILL);
    (void)snprintf(path, sizeof(path), "%s/sock", server->folder);
    (void)unlink(path);
    (void)rmdir(server->folder);
}

static void take_back(FILE *file, char *text, size_t capacity)
{
    rewind(file);
    size_t size = fread(text, 1, capacity - 1, file);
    text[size] = '\0';
    (void)fclose(file);
}

void ctl_run(struct ctl_run *run, const char *const *arguments)
{
    FILE *out = tmpfile();
    FILE *err = tmpfile();
    ASSERT(out != NULL);
    ASSERT(err != NULL);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        char *argv[32] = {strdup("coppeliusctl")};
        int argc = 1;
        for (; arguments[argc - 1] != NULL; argc++) {
            argv[argc] = strdup(arguments[argc - 1]);
        }
        (void)dup2(fileno(out), 1);
        (void)dup2(fileno(err), 2);
        (void)unsetenv("COPPELIUS_ENDPOINT");
        int status = ctl_main(argc, argv);
        for (int i = 0; i < 32; i++) {
            free(argv[i]);
        }
        (void)fflush(stdout);
        (void)fflush(stderr);
        _exit(status);
    }
    int status = 0;
    ASSERT(waitpid(pid, &status, 0) == pid);
    run->status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    take_back(out, run->out, sizeof(run->out));
    take_back(err, run->err, sizeof(run->err));
}

/* A small daemon's mouth for tests of coppeliusctl: a unix socket that speaks ctl.proto for real
 * (frames, HELLO, requests, replies), in a process of its own, answering by a function of the test.
 *
 * And running coppeliusctl itself: arguments in, exit status and both outputs out. */
#ifndef COPPELIUS_TESTS_CTL_SERVER_H
#define COPPELIUS_TESTS_CTL_SERVER_H

#include <sys/types.h>

#include <ctl.pb-c.h>

/* What the answering function calls, once or (with more) several times for a request. */
struct ctl_server_answer {
    int fd;
    uint64_t id;
    uint64_t sequence;
};
void ctl_server_json(struct ctl_server_answer *answer, const char *json, int more);
void ctl_server_data(struct ctl_server_answer *answer, const void *data, size_t size,
                     uint64_t total, int more);
void ctl_server_error(struct ctl_server_answer *answer, int code, const char *text,
                      const char *hint);

typedef void ctl_server_fn(const Ctl__Request *request, struct ctl_server_answer *answer);

struct ctl_server {
    pid_t pid;
    char endpoint[128]; /* unix:… */
    char folder[64];
};

enum ctl_server_manner {
    CTL_SERVER_GOOD,
    CTL_SERVER_REFUSES, /* answers HELLO with a refusal */
    CTL_SERVER_SILENT,  /* reads and never answers */
    CTL_SERVER_GARBAGE, /* answers HELLO with bytes that are no frame */
    CTL_SERVER_CLOSES,  /* closes after HELLO's welcome */
};

void ctl_server_start(struct ctl_server *server, enum ctl_server_manner manner,
                      ctl_server_fn *answer);
void ctl_server_stop(struct ctl_server *server);

struct ctl_run {
    int status;
    char out[65536];
    char err[16384];
};
/* arguments ends with NULL and begins behind the program's name. */
void ctl_run(struct ctl_run *run, const char *const *arguments);

#endif

#include "daemon/obtain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "peer/peer.h"
#include "trust/join.h"

#define VARIABLE "COPPELIUSD_TOKEN"
#define AGAIN_MS 1000

/* Out of the environment, where whoever comes after us would find it. */
static int take_token(struct token *ret_token, bool *ret_there, struct err *err)
{
    char *text = getenv(VARIABLE); /* Before any thread. */
    *ret_there = text != NULL && text[0] != '\0';
    if (!*ret_there) {
        return 0;
    }
    int code = token_parse(text, ret_token, err);
    explicit_bzero(text, strlen(text));
    (void)unsetenv(VARIABLE);
    return code == 0 ? 0 : err_prefix(err, VARIABLE ": ");
}

/* The folders that the files lie in, one level each. */
static void make_folder(const char *path)
{
    char folder[4096];
    (void)snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL && slash != folder) {
        *slash = '\0';
        (void)mkdir(folder, 0700); /* What cannot be made is told by who writes there. */
    }
}

static int save(const struct config *config, const struct buf *key,
                const struct join_answer *answer, struct err *err)
{
    make_folder(config->tls.key);
    make_folder(config->tls.ca);
    make_folder(config->tls.certificate);
    int code = authority_write(config->tls.key, /* secret= */ true, key, err);
    code = code != 0 ? code : authority_write(config->tls.ca, false, &answer->ca, err);
    return code != 0 ? code /* The certificate last: where it is, all three are. */
                     : authority_write(config->tls.certificate, false, &answer->certificate, err);
}

static int ask_one(const struct config *config, const char *address, const struct token *token,
                   uint64_t deadline_ms, struct err *err)
{
    static const char *const roles[] = {
        [CONFIG_TRAINER] = "trainer", [CONFIG_ARBITER] = "arbiter", [CONFIG_SPARE] = "spare"};
    struct join_wish wish = {.name = ""};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct buf key = BUF_NONE;
    struct buf request = BUF_NONE;
    int fd = -1;
    (void)snprintf(wish.name, sizeof(wish.name), "%s", config->name);
    (void)snprintf(wish.address, sizeof(wish.address), "%s", config->advertise_address);
    (void)snprintf(wish.role, sizeof(wish.role), "%s", roles[config->role]);
    int code = peer_connect(address, deadline_ms, &fd, err);
    code = code != 0 ? code : authority_new_key(AUTHORITY_P256, &key, &request, err);
    code = code != 0
               ? code
               : join_ask(fd, token, &wish, request.bytes, request.size, deadline_ms, &answer, err);
    code = code != 0 ? code : save(config, &key, &answer, err);
    if (fd >= 0) {
        (void)close(fd);
    }
    authority_wipe(&key);
    buf_done(&request);
    join_answer_done(&answer);
    return code == 0 ? 0 : err_prefix(err, "%s: ", address);
}

/* Each address of `join` in turn, again and again until the deadline where nobody is there yet. */
static int join_by(const struct config *config, const struct token *token, struct err *err)
{
    uint64_t deadline_ms = clock_now_ms() + OBTAIN_MS;
    for (;;) {
        char *copy = strdup(config->join);
        char *rest = NULL;
        int code = err_set(err, ERR_CONFIG, VARIABLE " is given, and `join` names no address");
        ASSERT(copy != NULL);
        for (char *at = strtok_r(copy, ", ", &rest); at != NULL && code != 0;
             at = strtok_r(NULL, ", ", &rest)) {
            struct err why = {0};
            code = ask_one(config, at, token, deadline_ms, &why);
            *err = why;
        }
        free(copy);
        bool again = code == ERR_REACH || code == ERR_PEER || code == ERR_TIMEOUT;
        if (!again || clock_now_ms() + AGAIN_MS >= deadline_ms) {
            return code;
        }
        log_warning("join.token", "reason=\"%s\" next=\"asked again\"", err->text);
        struct timespec pause = {AGAIN_MS / 1000, 0};
        (void)nanosleep(&pause, NULL);
    }
}

int obtain_trust(const struct config *config, struct trust **ret_trust, struct err *err)
{
    struct trust_settings settings = {.ca = config->tls.ca,
                                      .certificate = config->tls.certificate,
                                      .key = config->tls.key,
                                      .cluster = config->cluster,
                                      .name = config->name};
    struct token token = {.id = ""};
    struct trust_identity self;
    bool there = false;
    *ret_trust = NULL;
    int code = take_token(&token, &there, err);
    if (code != 0 || !config->tls_given) {
        return code;
    }
    if (there && access(config->tls.certificate, F_OK) != 0) {
        code = join_by(config, &token, err);
        explicit_bzero(&token, sizeof(token));
        if (code != 0) {
            return code;
        }
        log_notice("join.certificate", "node=%s certificate=%s", config->name,
                   config->tls.certificate);
    }
    explicit_bzero(&token, sizeof(token));
    if (trust_open(&settings, ret_trust, err) != 0) {
        return err->code;
    }
    trust_self(*ret_trust, &self);
    log_info("trust.open", "certificate=%s days_left=%lld", config->tls.certificate,
             ((long long)self.not_after * 1000 - (long long)clock_wall_ms()) / 86400000);
    return 0;
}

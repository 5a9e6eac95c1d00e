/* cluster join: a key is made here, the authority is checked by the token's pin, and both sides prove
 * that they know the token, which is not sent (trust/join.h). */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ctl/document.h"
#include "ctl/pki.h"
#include "trust/join.h"

#define JOIN_MS   30000
#define PEER_PORT 7620

/* A token in argv could be read by every user: it is overwritten as soon as it is copied. */
static int find_token(struct ctl *ctl, struct token *ret_token, struct problem *problem)
{
    char text[TOKEN_TEXT_SIZE + 2] = "";
    bool word = ctl->args.words_count > 1;
    char *given = word ? ctl->args.words[0] : getenv("COPPELIUSD_TOKEN"); /* One thread. */
    if (word && strcmp(given, "-") == 0) {
        if (fgets(text, sizeof(text), stdin) == NULL) {
            return problem_set(problem, ERR_USAGE, "no token came on stdin");
        }
        text[strcspn(text, "\r\n")] = '\0';
    } else if (given != NULL) {
        (void)snprintf(text, sizeof(text), "%s", given);
        if (word) {
            memset(given, 'x', strlen(given));
        } else {
            explicit_bzero(given, strlen(given));
            (void)unsetenv("COPPELIUSD_TOKEN");
        }
    } else {
        problem_hint(problem, "give the line of `coppeliusctl cluster token` on stdin with -, as a "
                              "word, or in $COPPELIUSD_TOKEN");
        return problem_set(problem, ERR_USAGE, "there is no token");
    }
    int code = token_parse(text, ret_token, &problem->err);
    explicit_bzero(text, sizeof(text));
    return code;
}

/* --advertise, or the address that the way to the host leaves from. */
static int find_address(const struct ctl *ctl, int fd, char address[JOIN_ADDRESS_SIZE],
                        struct problem *problem)
{
    struct sockaddr_in own;
    socklen_t size = sizeof(own);
    char ip[INET_ADDRSTRLEN] = "";
    const char *given = ctl->args.value[FLAG_ADVERTISE];
    if (given != NULL && strlen(given) >= JOIN_ADDRESS_SIZE) {
        return problem_set(problem, ERR_USAGE, "--advertise: '%.60s' is no IP:PORT", given);
    }
    if (given != NULL) {
        (void)snprintf(address, JOIN_ADDRESS_SIZE, "%s", given);
        return 0;
    }
    if (getsockname(fd, (struct sockaddr *)&own, &size) != 0 ||
        inet_ntop(AF_INET, &own.sin_addr, ip, sizeof(ip)) == NULL) {
        return problem_set(problem, ERR_INTERNAL, "this side's address cannot be found");
    }
    (void)snprintf(address, JOIN_ADDRESS_SIZE, "%s:%d", ip, PEER_PORT);
    return 0;
}

struct files {
    char key[4200], certificate[4200], ca[4200];
};

static void name_files(const char *folder, struct files *files)
{
    (void)snprintf(files->key, sizeof(files->key), "%.4096s/node.key", folder);
    (void)snprintf(files->certificate, sizeof(files->certificate), "%.4096s/node.crt", folder);
    (void)snprintf(files->ca, sizeof(files->ca), "%.4096s/ca.crt", folder);
}

static void draw_joined(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    size_t index = 0;
    json_t *item = NULL;
    (void)ctl;
    buf_print(out, "node '%s' of cluster '%s': %s\n", document_text(document, "name"),
              document_text(document, "cluster"), document_text(document, "folder"));
    json_array_foreach(document_list(document, "members"), index, item)
    {
        buf_print(out, "  - {name: %s, address: %s, role: %s}\n", document_text(item, "name"),
                  document_text(item, "address"), document_text(item, "role"));
    }
}

static json_t *members_of(const struct buf *lines)
{
    json_t *list = json_array();
    char *text = calloc(1, lines->size + 1);
    char *rest = NULL;
    if (text == NULL) {
        return list;
    }
    if (lines->size > 0) {
        memcpy(text, lines->bytes, lines->size);
    }
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        unsigned id = 0;
        char name[64];
        char address[24];
        char role[16];
        if (sscanf(line, "%u %63s %23s %15s", &id, name, address, role) == 4) {
            (void)json_array_append_new(list,
                                        json_pack("{s:i, s:s, s:s, s:s}", "node", (int)id, "name",
                                                  name, "address", address, "role", role));
        }
    }
    free(text);
    return list;
}

static int show_joined(struct ctl *ctl, const struct join_wish *wish,
                       const struct join_answer *answer, const char *folder,
                       struct problem *problem)
{
    json_t *document =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:o}", "schema", 1, "name", wish->name, "cluster",
                  answer->cluster, "address", wish->address, "role", wish->role, "folder", folder,
                  "members", members_of(&answer->members));
    int code = output_document(ctl, document, NULL, "name", draw_joined, problem);
    if (code == 0) {
        say(ctl,
            "In coppeliusd.yaml: name: %s, cluster: %s, join: the addresses above, tls: {}%s; then "
            "start it",
            wish->name, answer->cluster,
            strcmp(folder, PKI_FOLDER) == 0 ? "" : " with the paths of ca, certificate, key");
    }
    json_decref(document);
    return code;
}

static int write_files(const struct files *files, const struct join_answer *answer, struct err *err)
{
    int code = authority_write(files->ca, /* secret= */ false, &answer->ca, err);
    return code != 0 ? code
                     : authority_write(files->certificate, /* secret= */ false,
                                       &answer->certificate, err);
}

/* The key is on the disk before the token is shown: what is signed can be used. */
static int ask(struct ctl *ctl, const struct token *token, struct join_wish *wish, int fd,
               const char *folder, struct problem *problem)
{
    struct files files;
    enum authority_key kind = AUTHORITY_P256;
    struct buf key = BUF_NONE;
    struct buf request = BUF_NONE;
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct err *err = &problem->err;
    name_files(folder, &files);
    if (access(files.key, F_OK) == 0) {
        problem_hint(problem, "give another --output, or remove it where this node shall get a new "
                              "identity");
        return problem_set(problem, ERR_STATE, "'%s' is there already", files.key);
    }
    int code = pki_key_kind(ctl, &kind, problem);
    code = code != 0 ? code : pki_make_folder(folder, problem);
    code = code != 0 ? code : authority_new_key(kind, &key, &request, err);
    code = code != 0 ? code : authority_write(files.key, /* secret= */ true, &key, err);
    authority_wipe(&key);
    if (code == 0) {
        code = join_ask(fd, token, wish, request.bytes, request.size, clock_now_ms() + JOIN_MS,
                        &answer, err);
        code = code != 0 ? code : write_files(&files, &answer, err);
        if (code != 0) {
            (void)unlink(files.key);
        }
    }
    code = code != 0 ? code : show_joined(ctl, wish, &answer, folder, problem);
    buf_done(&request);
    join_answer_done(&answer);
    return code;
}

int run_cluster_join(struct ctl *ctl, struct problem *problem)
{
    struct token token;
    struct join_wish wish = {.name = ""};
    char host[TRUST_NAME_SIZE];
    int fd = -1;
    const char *endpoint = ctl->args.words[ctl->args.words_count - 1];
    const char *folder =
        ctl->args.value[FLAG_OUTPUT] != NULL ? ctl->args.value[FLAG_OUTPUT] : PKI_FOLDER;
    const char *role = ctl->args.value[FLAG_ROLE] != NULL ? ctl->args.value[FLAG_ROLE] : "trainer";
    uint64_t timeout_ms =
        ctl->args.timeout_ms != UINT64_MAX ? ctl->args.timeout_ms : CLIENT_TIMEOUT_MS;
    pki_host_name(host, sizeof(host));
    const char *name = ctl->args.value[FLAG_NAME] != NULL ? ctl->args.value[FLAG_NAME] : host;
    if (strlen(name) >= sizeof(wish.name) || strlen(role) >= sizeof(wish.role)) {
        return problem_set(problem, ERR_USAGE, "--name or --role is too long");
    }
    memcpy(wish.name, name, strlen(name) + 1);
    memcpy(wish.role, role, strlen(role) + 1);
    int code = find_token(ctl, &token, problem);
    code = code != 0 ? code : client_connect(endpoint, timeout_ms, &fd, problem);
    code = code != 0 ? code : find_address(ctl, fd, wish.address, problem);
    code = code != 0 ? code : ask(ctl, &token, &wish, fd, folder, problem);
    explicit_bzero(&token, sizeof(token));
    if (fd >= 0) {
        (void)close(fd);
    }
    if (code != 0 && problem->err.code == ERR_AUTH && problem->hint[0] == '\0') {
        problem_hint(problem,
                     "%s must be the daemon with the authority (tls.authority in its "
                     "config), of the cluster that the token is of",
                     endpoint);
    }
    return code;
}

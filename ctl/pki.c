/* cluster init, cluster token, pki bundle, pki user: work on the authority's folder, without a
 * daemon (trust/authority.h). */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/document.h"
#include "ctl/pki.h"
#include "proto/yaml.h"
#include "trust/authority.h"

#define TTL_DEFAULT_S 86400
#define TTL_MOST_S    (365 * 86400)
#define USES_MOST     1000
#define DAYS_MOST     3650

static const char *value_or(const struct ctl *ctl, enum flag flag, const char *otherwise)
{
    return ctl->args.value[flag] != NULL ? ctl->args.value[flag] : otherwise;
}

/* A whole number of the flag, or the default. */
static int number_of(const struct ctl *ctl, enum flag flag, unsigned most, unsigned otherwise,
                     unsigned *ret_number, struct problem *problem)
{
    const char *text = ctl->args.value[flag];
    char *end = NULL;
    unsigned long number = text != NULL ? strtoul(text, &end, 10) : otherwise;
    if (text != NULL &&
        (end == text || *end != '\0' || text[0] == '-' || number < 1 || number > most)) {
        return problem_set(problem, ERR_USAGE, "--%s: a number of 1 to %u is needed, got '%s'",
                           flags_about[flag].name, most, text);
    }
    *ret_number = (unsigned)number;
    return 0;
}

int pki_key_kind(const struct ctl *ctl, enum authority_key *ret_kind, struct problem *problem)
{
    const char *text = value_or(ctl, FLAG_KEY, "p256");
    *ret_kind = strcmp(text, "ed25519") == 0 ? AUTHORITY_ED25519 : AUTHORITY_P256;
    if (*ret_kind == AUTHORITY_P256 && strcmp(text, "p256") != 0) {
        return problem_set(problem, ERR_USAGE, "--key: p256 or ed25519 is needed, got '%s'", text);
    }
    return 0;
}

void pki_host_name(char *name, size_t size)
{
    if (gethostname(name, size - 1) != 0 || name[0] == '\0') {
        (void)snprintf(name, size, "node");
    }
    name[size - 1] = '\0';
    name[strcspn(name, ".")] = '\0'; /* As the daemon's default. */
}

int pki_make_folder(const char *path, struct problem *problem)
{
    char part[4096];
    if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part)) {
        return problem_set(problem, ERR_USAGE, "--output: the path is too long");
    }
    for (char *at = part + 1; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '\0';
            (void)mkdir(part, 0755); /* What is missing is told at the end. */
            *at = '/';
        }
    }
    (void)mkdir(part, 0700);
    if (access(part, W_OK | X_OK) != 0) {
        problem_hint(problem, "run it as root or as the daemon's user, or give another --output");
        return problem_set(problem, ERR_DISK, "'%s' cannot be made or written", path);
    }
    return 0;
}

static void draw_made(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    (void)ctl;
    buf_print(out, "%s '%s' of cluster '%s': %s\n", document_text(document, "kind"),
              document_text(document, "name"), document_text(document, "cluster"),
              document_text(document, "folder"));
}

static int show_made(const struct ctl *ctl, const struct trust_identity *identity,
                     const char *authority, const char *folder, struct problem *problem)
{
    json_t *document = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s}", "schema", 1, "kind",
                                 trust_kind_name(identity->kind), "name", identity->name, "cluster",
                                 identity->cluster, "authority", authority, "folder", folder);
    int code = output_document(ctl, document, NULL, "folder", draw_made, problem);
    json_decref(document);
    return code;
}

/* The certificate of --output or the default place. */
static int make_bundle(const struct ctl *ctl, struct trust_identity *identity, const char *output,
                       struct problem *problem)
{
    const char *authority = value_or(ctl, FLAG_AUTHORITY, PKI_AUTHORITY);
    enum authority_key kind = AUTHORITY_P256;
    unsigned days = 0;
    int code = pki_key_kind(ctl, &kind, problem);
    code = code != 0 ? code
                     : number_of(ctl, FLAG_DAYS, DAYS_MOST, AUTHORITY_LEAF_DAYS, &days, problem);
    code = code != 0 ? code : authority_cluster(authority, identity->cluster, &problem->err);
    code = code != 0 ? code : pki_make_folder(output, problem);
    code =
        code != 0 ? code : authority_bundle(authority, identity, days, kind, output, &problem->err);
    return code != 0 ? code : show_made(ctl, identity, authority, output, problem);
}

int run_cluster_init(struct ctl *ctl, struct problem *problem)
{
    struct trust_identity identity = {.kind = TRUST_NODE};
    char host[TRUST_NAME_SIZE];
    const char *authority = value_or(ctl, FLAG_AUTHORITY, PKI_AUTHORITY);
    const char *cluster = value_or(ctl, FLAG_CLUSTER, "coppelius");
    const char *output = value_or(ctl, FLAG_OUTPUT, PKI_FOLDER);
    enum authority_key kind = AUTHORITY_P256;
    char there[TRUST_NAME_SIZE];
    struct err absent = {0};
    pki_host_name(host, sizeof(host));
    (void)snprintf(identity.name, sizeof(identity.name), "%s", value_or(ctl, FLAG_NAME, host));
    if (strlen(value_or(ctl, FLAG_NAME, host)) >= sizeof(identity.name)) {
        return problem_set(problem, ERR_USAGE, "--name: at most 63 characters");
    }
    if (authority_cluster(authority, there, &absent) == 0) {
        problem_hint(problem, "`coppeliusctl pki bundle` or `cluster token` let more nodes in");
        return problem_set(problem, ERR_STATE,
                           "the authority of cluster '%s' is in '%s' already; it was left as it is",
                           there, authority);
    }
    int code = pki_key_kind(ctl, &kind, problem);
    code = code != 0 ? code : pki_make_folder(authority, problem);
    code = code != 0 ? code : authority_make(authority, cluster, kind, &problem->err);
    code = code != 0 ? code : make_bundle(ctl, &identity, output, problem);
    if (code == 0) {
        say(ctl,
            "The authority's key is '%s/ca.key' and nowhere else: keep a copy offline; its loss "
            "means no new nodes.\n"
            "In coppeliusd.yaml: name: %s, cluster: %s, tls: {authority: %s}%s\n"
            "Then `coppeliusctl cluster token` here, and `coppeliusctl cluster join` on the "
            "others.",
            authority, identity.name, cluster, authority,
            strcmp(output, PKI_FOLDER) == 0 ? "" : " and the paths of ca, certificate, key");
    }
    return code;
}

int run_cluster_token(struct ctl *ctl, struct problem *problem)
{
    const char *authority = value_or(ctl, FLAG_AUTHORITY, PKI_AUTHORITY);
    char text[TOKEN_TEXT_SIZE];
    uint64_t ttl_ms = (uint64_t)TTL_DEFAULT_S * 1000;
    unsigned uses = 1;
    if (ctl->args.value[FLAG_TTL] != NULL) {
        static const struct yaml_key key = {.name = "ttl", .type = YAML_DURATION, .offset = 0};
        static const struct yaml_schema schema = {&key, 1, sizeof(uint64_t)};
        struct yaml_override given = {"--ttl", "ttl", ctl->args.value[FLAG_TTL]};
        struct yaml_input input = {
            .text = "", .size = 0, .file_name = "--ttl", .overrides = &given, .overrides_count = 1};
        struct faults faults = FAULTS_NONE;
        bool bad = yaml_read(&schema, &input, &ttl_ms, NULL, &faults) != 0;
        faults_done(&faults);
        if (bad || ttl_ms < 1000 || ttl_ms / 1000 > TTL_MOST_S) {
            return problem_set(problem, ERR_USAGE, "--ttl: 1s to 365d is needed, got '%s'",
                               ctl->args.value[FLAG_TTL]);
        }
    }
    int code = number_of(ctl, FLAG_USES, USES_MOST, 1, &uses, problem);
    code = code != 0 ? code : token_make(authority, ttl_ms / 1000, uses, text, &problem->err);
    if (code != 0) {
        return code;
    }
    struct buf out = BUF_NONE;
    if (ctl->args.output == OUTPUT_JSON || ctl->args.output == OUTPUT_JSONL) {
        json_t *document = json_pack("{s:i, s:s, s:I, s:i}", "schema", 1, "token", text,
                                     "ttl_seconds", (json_int_t)(ttl_ms / 1000), "uses", (int)uses);
        code = output_json(ctl, document, problem);
        json_decref(document);
    } else {
        buf_print(&out, "%s\n", text);
        code = output_bytes(&out, problem);
    }
    explicit_bzero(text, sizeof(text));
    buf_done(&out);
    return code;
}

/* NAME, and --output or "./NAME". */
static int bundle_of(struct ctl *ctl, enum trust_kind kind, struct problem *problem)
{
    struct trust_identity identity = {.kind = kind};
    const char *name = ctl->args.words[0];
    if (strlen(name) >= sizeof(identity.name)) {
        return problem_set(problem, ERR_USAGE, "'%.80s': a name has at most 63 characters", name);
    }
    memcpy(identity.name, name, strlen(name) + 1);
    if (strchr(name, '/') != NULL || name[0] == '.') {
        return problem_set(problem, ERR_USAGE,
                           "'%s' is no name: letters, digits, '-', '_', '.' are possible", name);
    }
    return make_bundle(ctl, &identity, value_or(ctl, FLAG_OUTPUT, name), problem);
}

int run_pki_bundle(struct ctl *ctl, struct problem *problem)
{
    return bundle_of(ctl, TRUST_NODE, problem);
}

int run_pki_user(struct ctl *ctl, struct problem *problem)
{
    const char *role = value_or(ctl, FLAG_ROLE, "viewer");
    if (strcmp(role, "admin") != 0 && strcmp(role, "viewer") != 0) {
        return problem_set(problem, ERR_USAGE, "--role: admin or viewer is needed, got '%s'", role);
    }
    return bundle_of(ctl, strcmp(role, "admin") == 0 ? TRUST_ADMIN : TRUST_VIEWER, problem);
}

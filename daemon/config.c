#include "daemon/config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/config_check.h"

extern char **environ;

static const char name_rule[] =
    "must be 1 to 63 letters, digits, '-', '_' or '.', beginning with a letter or digit";

static const char *check_name(const char *text)
{
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t size = strlen(text);
    bool good = size > 0 && size <= CONFIG_NAME_MAX && strchr(first, text[0]) != NULL &&
                strspn(text, all) == size;
    return good ? NULL : name_rule;
}

/* The empty text means "the default", which is found later. */
static const char *check_name_or_empty(const char *text)
{
    return text[0] == '\0' ? NULL : check_name(text);
}

static const char *check_path(const char *text)
{
    return text[0] == '/' && strlen(text) < 1000
               ? NULL
               : "must be an absolute path of less than 1000 bytes";
}

static const char *check_path_or_empty(const char *text)
{
    return text[0] == '\0' ? NULL : check_path(text);
}

static const char *check_socket(const char *text)
{
    if (text[0] == '\0' || strcmp(text, "off") == 0) {
        return NULL;
    }
    return text[0] == '/' && strlen(text) < 108
               ? NULL
               : "must be an absolute path of at most 107 bytes (a unix socket's limit), or off";
}

static const char *const socket_others[] = {"none", "look", NULL};
static const char *const roles[] = {"trainer", "arbiter", "spare", NULL};
static const char *const levels[] = {"error", "warning", "notice", "info", "debug", NULL};

static const struct yaml_key peer_keys[] = {
    {.name = "name",
     .type = YAML_TEXT,
     .offset = offsetof(struct config_peer, name),
     .required = true,
     .check = check_name,
     .about = "the node's name"},
    {.name = "address",
     .type = YAML_TEXT,
     .offset = offsetof(struct config_peer, address),
     .required = true,
     .about = "IP:PORT that others dial"},
    {.name = "role",
     .type = YAML_CHOICE,
     .offset = offsetof(struct config_peer, role),
     .initial = "trainer",
     .choices = roles,
     .about = "trainer (votes, has a device), arbiter (votes); spare (stands in)"},
};
static const struct yaml_schema peer_schema = YAML_SCHEMA(struct config_peer, peer_keys);

#define HTTP(field) (offsetof(struct config, http.field) - offsetof(struct config, http))
static const struct yaml_key http_keys[] = {
    {.name = "listen",
     .type = YAML_TEXT,
     .offset = HTTP(listen),
     .initial = "127.0.0.1:7621",
     .about = "IP:PORT of metrics, health and status page, or off"},
    {.name = "token_file",
     .type = YAML_TEXT,
     .offset = HTTP(token_file),
     .check = check_path_or_empty,
     .about = "a file with the bearer token that metrics and status ask for"},
};
static const struct yaml_schema http_schema = {http_keys, sizeof(http_keys) / sizeof(http_keys[0]),
                                               sizeof(((struct config *)0)->http)};

#define TLS(field) (offsetof(struct config, tls.field) - offsetof(struct config, tls))
static const struct yaml_key tls_keys[] = {
    {.name = "ca",
     .type = YAML_TEXT,
     .offset = TLS(ca),
     .check = check_path_or_empty,
     .about = "the authority's certificate (PEM); state_dir/tls/ca.crt where absent"},
    {.name = "certificate",
     .type = YAML_TEXT,
     .offset = TLS(certificate),
     .check = check_path_or_empty,
     .about = "this node's certificate (PEM); state_dir/tls/node.crt where absent"},
    {.name = "key",
     .type = YAML_TEXT,
     .offset = TLS(key),
     .check = check_path_or_empty,
     .about = "its key (PEM, mode 0600); state_dir/tls/node.key where absent"},
    {.name = "authority",
     .type = YAML_TEXT,
     .offset = TLS(authority),
     .check = check_path_or_empty,
     .about = "the authority's folder, on the node that lets others join; absent elsewhere"},
    {.name = "renew_days",
     .type = YAML_INTEGER,
     .offset = TLS(renew_days),
     .initial = "10",
     .least = 0,
     .most = 25, /* below AUTHORITY_LEAF_DAYS: else it would never end */
     .about = "the node asks for a new certificate when its own ends in fewer days; 0: never"},
};
static const struct yaml_schema tls_schema = {tls_keys, sizeof(tls_keys) / sizeof(tls_keys[0]),
                                              sizeof(((struct config *)0)->tls)};

#define LIMITS(field) (offsetof(struct config, limits.field) - offsetof(struct config, limits))
static const struct yaml_key limits_keys[] = {
    {.name = "memory",
     .type = YAML_SIZE,
     .offset = LIMITS(memory),
     .initial = "0",
     .about = "the most that a compute session may take; 0: what the device has"},
    {.name = "storage_free",
     .type = YAML_SIZE,
     .offset = LIMITS(storage_free),
     .initial = "1G",
     .about = "free space of state_dir below which doctor complains"},
    {.name = "log_lines",
     .type = YAML_INTEGER,
     .offset = LIMITS(log_lines),
     .initial = "2048",
     .least = 64,
     .most = 65536,
     .about = "lines kept in memory for coppeliusctl logs"},
    {.name = "cache",
     .type = YAML_SIZE,
     .offset = LIMITS(cache),
     .initial = "64G",
     .about = "imported and fetched datasets kept in state_dir; the oldest unused go first"},
};
static const struct yaml_schema limits_schema = {limits_keys,
                                                 sizeof(limits_keys) / sizeof(limits_keys[0]),
                                                 sizeof(((struct config *)0)->limits)};

static const struct yaml_key keys[] = {
    {.name = "name",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, name),
     .check = check_name_or_empty,
     .about = "this node's name; the host's where absent"},
    {.name = "cluster",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, cluster),
     .initial = "coppelius",
     .check = check_name,
     .about = "the cluster's name: nodes of another one are refused"},
    {.name = "listen",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, listen),
     .initial = "127.0.0.1:7620",
     .about = "IP:PORT for peers and coppeliusctl"},
    {.name = "advertise",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, advertise),
     .initial = "auto",
     .about = "IP:PORT that others reach this node at, or auto"},
    {.name = "peers",
     .type = YAML_MAPS,
     .offset = offsetof(struct config, peers),
     .least = 1,
     .most = CONFIG_PEERS_MAX,
     .schema = &peer_schema,
     .about = "the first voters: the same list in the same order on every node"},
    {.name = "join",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, join),
     .about = "IP:PORT of members that let this node in, instead of peers"},
    {.name = "role",
     .type = YAML_CHOICE,
     .offset = offsetof(struct config, role),
     .initial = "trainer",
     .choices = roles,
     .about = "of a node that joins: trainer, arbiter or spare"},
    {.name = "device",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, device),
     .initial = "auto",
     .least = 1,
     .most = 63,
     .about = "cpu, auto (the free GPU), an index, a GPU's or MIG's UUID, a PCI id"},
    {.name = "device_share",
     .type = YAML_YES_NO,
     .offset = offsetof(struct config, device_share),
     .initial = "no",
     .about = "whether other daemons may hold the same GPU"},
    {.name = "tile_choices",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, tile_choices),
     .check = check_path_or_empty,
     .about = "what `coppeliusctl bench tiles` measured on this GPU; absent: the built-in table"},
    {.name = "threads",
     .type = YAML_INTEGER,
     .offset = offsetof(struct config, threads),
     .initial = "0",
     .least = 0,
     .most = 1024,
     .about = "CPU workers; 0: as many as the process may run on"},
    {.name = "streams",
     .type = YAML_INTEGER,
     .offset = offsetof(struct config, streams),
     .initial = "0",
     .least = 0,
     .most = 16,
     .about = "bulk connections to a peer, alike on every node; 0: 4, over TLS 8"},
    {.name = "exchange_threads",
     .type = YAML_INTEGER,
     .offset = offsetof(struct config, exchange_threads),
     .initial = "0",
     .least = 0,
     .most = 16,
     .about = "threads for them, at most one each; 0: one for each two cores, over TLS for each"},
    {.name = "state_dir",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, state_dir),
     .check = check_path_or_empty,
     .about = "log, checkpoints, cache; /var/lib/coppelius where absent"},
    {.name = "socket",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, socket),
     .check = check_socket,
     .about = "the admin socket; /run/coppelius/coppeliusd.sock where absent, or off"},
    {.name = "group",
     .type = YAML_TEXT,
     .offset = offsetof(struct config, group),
     .initial = "coppelius",
     .check = check_name,
     .about = "who may use the admin socket besides root"},
    {.name = "socket_others",
     .type = YAML_CHOICE,
     .offset = offsetof(struct config, socket_others),
     .initial = "none",
     .choices = socket_others,
     .about = "what other users of this machine may do through it: none, or look"},
    {.name = "http",
     .type = YAML_MAP,
     .offset = offsetof(struct config, http),
     .schema = &http_schema,
     .about = "metrics, health, status page"},
    {.name = "tls",
     .type = YAML_MAP,
     .offset = offsetof(struct config, tls),
     .schema = &tls_schema,
     .word = "off",
     .given = YAML_GIVEN(struct config, tls_given),
     .about = "mutual TLS 1.3; off: plain text, for loopback or where insecure says so"},
    {.name = "insecure",
     .type = YAML_YES_NO,
     .offset = offsetof(struct config, insecure),
     .initial = "no",
     .about = "yes: with tls: off, plain text between machines is meant"},
    {.name = "log_level",
     .type = YAML_CHOICE,
     .offset = offsetof(struct config, log_level),
     .initial = "info",
     .choices = levels,
     .about = "error, warning, notice, info or debug"},
    {.name = "limits",
     .type = YAML_MAP,
     .offset = offsetof(struct config, limits),
     .schema = &limits_schema,
     .about = "bounds of what the daemon takes"},
};
static const struct yaml_schema schema = YAML_SCHEMA(struct config, keys);

const struct yaml_schema *config_schema(void)
{
    return &schema;
}

void config_done(struct config *config)
{
    yaml_places_done(&config->places);
    yaml_release(&schema, config);
}

const struct config_peer *config_peer(const struct config *config, uint32_t node_id)
{
    ASSERT(node_id >= 1);
    ASSERT(node_id <= config->peers.count);
    return (const struct config_peer *)config->peers.items + (node_id - 1);
}

/* ---- the environment ---- */

#define PREFIX "COPPELIUSD_"

/* COPPELIUSD_HTTP_LISTEN from "http.listen". */
static void variable_of(const char *outer, const char *inner, char *text, size_t text_size)
{
    (void)snprintf(text, text_size, PREFIX "%s%s%s", outer, inner[0] != '\0' ? "_" : "", inner);
    for (char *at = text + strlen(PREFIX); *at != '\0'; at++) {
        *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
    }
}

struct overrides {
    struct yaml_override *list;
    size_t count;
    size_t capacity;
};

static void overrides_add(struct overrides *overrides, const char *place, const char *key,
                          const char *value)
{
    if (overrides->count == overrides->capacity) {
        overrides->capacity = overrides->capacity == 0 ? 16 : 2 * overrides->capacity;
        overrides->list = realloc(overrides->list, overrides->capacity * sizeof(*overrides->list));
        ASSERT(overrides->list != NULL);
    }
    struct yaml_override *made = &overrides->list[overrides->count++];
    made->place = strdup(place);
    made->key = strdup(key);
    made->value = strdup(value);
    ASSERT(made->place != NULL && made->key != NULL && made->value != NULL);
}

static void overrides_done(struct overrides *overrides)
{
    for (size_t i = 0; i < overrides->count; i++) {
        yaml_override_done(&overrides->list[i]);
    }
    free(overrides->list);
}

/* The key that a variable sets, or false. */
static bool key_of(const char *variable, size_t size, char *key, size_t key_size)
{
    char text[128];
    for (size_t i = 0; i < schema.count; i++) {
        const struct yaml_key *outer = &schema.keys[i];
        variable_of(outer->name, "", text, sizeof(text));
        if (strlen(text) == size && strncmp(text, variable, size) == 0) {
            (void)snprintf(key, key_size, "%s", outer->name);
            return true;
        }
        for (size_t k = 0; outer->type == YAML_MAP && k < outer->schema->count; k++) {
            const char *inner = outer->schema->keys[k].name;
            variable_of(outer->name, inner, text, sizeof(text));
            if (strlen(text) == size && strncmp(text, variable, size) == 0) {
                (void)snprintf(key, key_size, "%s.%s", outer->name, inner);
                return true;
            }
        }
    }
    return false;
}

static void read_environment(const char *const *environment, struct overrides *overrides,
                             struct buf *warnings)
{
    static const char *const others[] = {"COPPELIUSD_CONFIG", "COPPELIUSD_FATBIN",
                                         "COPPELIUSD_TOKEN", "COPPELIUSD_SEEDS"};
    for (; environment != NULL && *environment != NULL; environment++) {
        const char *variable = *environment;
        const char *equals = strchr(variable, '=');
        if (strncmp(variable, PREFIX, strlen(PREFIX)) != 0 || equals == NULL) {
            continue;
        }
        size_t size = (size_t)(equals - variable);
        char key[128];
        char place[128];
        (void)snprintf(place, sizeof(place), "%.*s", (int)size, variable);
        bool other = false;
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
            other |= strcmp(place, others[i]) == 0;
        }
        if (key_of(variable, size, key, sizeof(key))) {
            overrides_add(overrides, place, key, equals + 1);
        } else if (!other) { /* Kubernetes makes some of its own for a service of this name. */
            buf_print(warnings, "%s: no setting has this variable, ignoring\n", place);
        }
    }
}

/* ---- reading ---- */

struct looking {
    struct yaml_input yaml;
    const char *const *environment;
};

static void on_check(const struct yaml_input *input, const void *object,
                     const struct yaml_places *places, struct faults *faults)
{
    const struct looking *looking =
        (const struct looking *)(const void *)((const char *)input -
                                               offsetof(struct looking, yaml));
    struct config copy = *(const struct config *)object;
    struct config_checking checking = {.config = &copy,
                                       .places = places,
                                       .file_name = input->file_name,
                                       .environment = looking->environment,
                                       .faults = faults};
    config_look(&checking);
}

int config_read(const struct config_input *input, struct config *ret_config, struct faults *faults,
                struct buf *warnings)
{
    struct overrides overrides = {NULL, 0, 0};
    size_t faults_before = faults->count + faults->dropped;
    read_environment(input->environment, &overrides, warnings);
    for (size_t i = 0; i < input->settings_count; i++) {
        struct yaml_override made;
        if (yaml_override_parse("--set", input->settings[i], &made, faults) == 0) {
            overrides_add(&overrides, made.place, made.key, made.value);
            yaml_override_done(&made);
        }
    }
    struct config config;
    struct yaml_places places = YAML_PLACES_NONE;
    struct looking looking = {
        .yaml = {.text = input->text != NULL ? input->text : "{}",
                 .size = input->text != NULL ? input->size : 2,
                 .file_name = input->file_name != NULL ? input->file_name : "coppeliusd",
                 .overrides = overrides.list,
                 .overrides_count = overrides.count,
                 .check = on_check},
        .environment = input->environment};
    int status = yaml_read(&schema, &looking.yaml, &config, &places, faults);
    if (status == 0 && faults->count + faults->dropped > faults_before) {
        yaml_release(&schema, &config); /* A --set without a "=". */
        status = ERR_CONFIG;
    }
    if (status == 0) {
        struct config_checking checking = {.config = &config,
                                           .places = &places,
                                           .file_name = looking.yaml.file_name,
                                           .environment = input->environment,
                                           .faults = faults,
                                           .warnings = warnings};
        config_complete(&checking);
        config.places = places;
        *ret_config = config;
    } else {
        yaml_places_done(&places);
    }
    overrides_done(&overrides);
    return status;
}

int config_read_file(const char *path, const char *const *settings, size_t settings_count,
                     struct config *ret_config, struct faults *faults, struct buf *warnings)
{
    const char *name = path != NULL ? path : CONFIG_PATH;
    struct config_input input = {.environment = (const char *const *)environ,
                                 .settings = settings,
                                 .settings_count = settings_count};
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && path == NULL && errno == ENOENT) {
        return config_read(&input, ret_config, faults, warnings);
    }
    if (fd < 0) {
        faults_add(faults, name, "", "cannot be opened: %s; give --config FILE", err_errno(errno));
        return ERR_CONFIG;
    }
    struct buf text = BUF_NONE;
    ssize_t got = 0;
    do {
        buf_reserve(&text, 65536);
        got = read(fd, text.bytes + text.size, 65536);
        text.size += got > 0 ? (size_t)got : 0;
    } while (got > 0 && text.size <= YAML_SIZE_MAX); /* One more than the limit: yaml says so. */
    int error = errno;
    (void)close(fd);
    int status = ERR_CONFIG;
    if (got < 0) {
        faults_add(faults, name, "", "cannot be read: %s", err_errno(error));
    } else {
        input.file_name = name;
        input.text = (const char *)text.bytes;
        input.size = text.size;
        status = config_read(&input, ret_config, faults, warnings);
    }
    buf_done(&text);
    return status;
}

/* Keys that SIGHUP takes; certificates are read again whatever `tls` says. */
static bool counts_at_once(const char *name)
{
    static const char *const live[] = {"log_level", "http.token_file", "limits.storage_free"};
    for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++) {
        if (strcmp(name, live[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_same(const struct yaml_key *key, const void *now, const void *next, size_t size)
{
    struct buf a = BUF_NONE;
    struct buf b = BUF_NONE;
    const struct yaml_schema one = {key, 1, size};
    yaml_write(&one, now, &a);
    yaml_write(&one, next, &b);
    bool same = a.size == b.size && (a.size == 0 || memcmp(a.bytes, b.bytes, a.size) == 0);
    buf_done(&a);
    buf_done(&b);
    return same;
}

void config_restart_keys(const struct config *now, const struct config *next, char *text,
                         size_t text_size)
{
    size_t size = 0;
    text[0] = '\0';
    for (size_t i = 0; i < schema.count; i++) {
        const struct yaml_key *key = &schema.keys[i];
        /* A map that has no word for itself ("off") is compared key by key. */
        bool is_map = key->type == YAML_MAP && key->word == NULL;
        const struct yaml_schema *in = is_map ? key->schema : &schema;
        size_t offset = is_map ? key->offset : 0;
        for (size_t k = 0; k < (is_map ? in->count : 1); k++) {
            const struct yaml_key *one = is_map ? &in->keys[k] : key;
            char name[64];
            (void)snprintf(name, sizeof(name), "%s%s%s", key->name, is_map ? "." : "",
                           is_map ? one->name : "");
            if (!is_same(one, (const char *)now + offset, (const char *)next + offset, in->size) &&
                !counts_at_once(name) && size < text_size - 1) {
                int more =
                    snprintf(text + size, text_size - size, "%s%s", size > 0 ? ", " : "", name);
                size = size + (size_t)more < text_size ? size + (size_t)more : text_size - 1;
            }
        }
    }
}

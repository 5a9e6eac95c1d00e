#include "daemon/bridges.h"
#include "daemon/config_check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "gpu/gpu.h"
#include "peer/peer.h"

static void fault(struct config_checking *checking, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fault(struct config_checking *checking, const char *key, const char *format, ...)
{
    char text[384];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    const char *place = yaml_place_of(checking->places, key);
    for (size_t i = 0; place == NULL && i < checking->places->count;
         i++) { /* A map: its first key. */
        size_t size = strlen(key);
        const struct yaml_place *at = &checking->places->list[i];
        if (strncmp(at->key, key, size) == 0 && at->key[size] == '.') {
            place = at->place;
        }
    }
    faults_add(checking->faults, place != NULL ? place : checking->file_name, key, "%s", text);
}

static void warn(struct config_checking *checking, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void warn(struct config_checking *checking, const char *format, ...)
{
    char text[384];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (!checking->looking) {
        buf_print(checking->warnings, "%s\n", text);
    }
}

/* While looking, the config is a copy whose texts belong to the reader. */
static void replace(struct config_checking *checking, char **text, const char *value)
{
    char *made = strdup(value);
    ASSERT(made != NULL);
    if (checking->looking) {
        ASSERT(checking->made_count < sizeof(checking->made) / sizeof(checking->made[0]));
        checking->made[checking->made_count++] = made;
    } else {
        free(*text);
    }
    *text = made;
}

static const char *variable(const struct config_checking *checking, const char *name)
{
    size_t size = strlen(name);
    for (const char *const *at = checking->environment; at != NULL && *at != NULL; at++) {
        if (strncmp(*at, name, size) == 0 && (*at)[size] == '=') {
            return *at + size + 1;
        }
    }
    return NULL;
}

static bool is_loopback(const struct sockaddr_in *address)
{
    return ntohl(address->sin_addr.s_addr) >> 24 == 127;
}

static bool is_any(const struct sockaddr_in *address)
{
    return address->sin_addr.s_addr == htonl(INADDR_ANY);
}

static void print(const struct sockaddr_in *address, char text[CONFIG_ADDRESS_SIZE])
{
    char ip[INET_ADDRSTRLEN] = "";
    (void)inet_ntop(AF_INET, &address->sin_addr, ip, sizeof(ip));
    (void)snprintf(text, CONFIG_ADDRESS_SIZE, "%s:%u", ip, ntohs(address->sin_port));
}

static bool parse(struct config_checking *checking, const char *key, const char *text,
                  struct sockaddr_in *ret_address)
{
    struct err err = {0};
    if (text == NULL) {
        return false; /* It was wrong in itself: told already. */
    }
    if (peer_address_parse(text, ret_address, &err) != 0) {
        fault(checking, key, "%s", err.text);
        return false;
    }
    return true;
}

/* What systemd hands to a unit with StateDirectory= and RuntimeDirectory=; else the usual places.
 */
static void complete(struct config_checking *checking)
{
    struct config *config = checking->config;
    char text[1200];
    if (config->name != NULL && config->name[0] == '\0') {
        char host[256] = "";
        if (gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0') {
            (void)snprintf(host, sizeof(host), "node");
        }
        host[strcspn(host, ".")] = '\0'; /* As `hostname -s`. */
        host[CONFIG_NAME_MAX] = '\0';
        replace(checking, &config->name, host);
    }
    if (config->state_dir != NULL && config->state_dir[0] == '\0') {
        const char *given = variable(checking, "STATE_DIRECTORY");
        bool usable = given != NULL && given[0] == '/' && strlen(given) < 1000;
        replace(checking, &config->state_dir, usable ? given : "/var/lib/coppelius");
    }
    struct {
        char **path;
        const char *name;
    } files[] = {{&config->tls.ca, "ca.crt"},
                 {&config->tls.certificate, "node.crt"},
                 {&config->tls.key, "node.key"}};
    for (size_t i = 0; config->tls_given && config->state_dir != NULL && i < 3; i++) {
        if (*files[i].path != NULL && *files[i].path[0] == '\0') {
            (void)snprintf(text, sizeof(text), "%s/tls/%s", config->state_dir, files[i].name);
            replace(checking, files[i].path, text);
        }
    }
    if (config->http.listen != NULL && strcmp(config->http.listen, "off") == 0) {
        replace(checking, &config->http.listen, "");
    }
    if (config->socket == NULL) {
        return;
    }
    if (config->socket[0] == '\0') {
        const char *given = variable(checking, "RUNTIME_DIRECTORY");
        bool usable = given != NULL && given[0] == '/' && strlen(given) < 80;
        (void)snprintf(text, sizeof(text), "%s/coppeliusd.sock", usable ? given : "/run/coppelius");
        replace(checking, &config->socket, text);
    } else if (strcmp(config->socket, "off") == 0) {
        replace(checking, &config->socket, "");
    }
}

struct peer_seen {
    struct sockaddr_in address;
    bool good;
};

/* Names and addresses that are twice, any or 0, and loopback beside remote ones. */
static void check_peers(struct config_checking *checking, struct peer_seen *seen)
{
    struct config *config = checking->config;
    const struct config_peer *peers = config->peers.items;
    size_t count = config->peers.count;
    size_t remote = count;   /* one that is not loopback, or count */
    size_t loopback = count; /* one that is */
    bool trains = false;
    for (size_t i = 0; i < count; i++) {
        char key[64];
        (void)snprintf(key, sizeof(key), "peers[%zu].address", i + 1);
        trains |= peers[i].role == CONFIG_TRAINER;
        seen[i].good = parse(checking, key, peers[i].address, &seen[i].address);
        if (!seen[i].good) {
            continue;
        }
        if (is_any(&seen[i].address) || seen[i].address.sin_port == 0) {
            fault(checking, key,
                  "%s is nothing that others can dial; give the node's own address and port",
                  peers[i].address);
            seen[i].good = false;
            continue;
        }
        if (is_loopback(&seen[i].address)) {
            loopback = loopback == count ? i : loopback;
        } else {
            remote = remote == count ? i : remote;
        }
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count; k++) {
            char key[64];
            if (peers[i].name != NULL && peers[k].name != NULL &&
                strcmp(peers[i].name, peers[k].name) == 0) {
                (void)snprintf(key, sizeof(key), "peers[%zu].name", k + 1);
                fault(checking, key, "'%s' is peer %zu's name too; give every node its own",
                      peers[k].name, i + 1);
            }
            if (seen[i].good && seen[k].good && peers[i].name != NULL && peers[k].name != NULL &&
                memcmp(&seen[i].address, &seen[k].address, sizeof(seen[i].address)) == 0) {
                (void)snprintf(key, sizeof(key), "peers[%zu].address", k + 1);
                fault(checking, key, "%s and %s have the same address %s; give every node its own",
                      peers[i].name, peers[k].name, peers[k].address);
            }
        }
    }
    if (remote < count && loopback < count && peers[remote].name != NULL &&
        peers[loopback].name != NULL) {
        char key[64];
        (void)snprintf(key, sizeof(key), "peers[%zu].address", loopback + 1);
        fault(checking, key,
              "%s (%s) cannot be reached from %s (%s), which is another machine; give %s's address "
              "there",
              peers[loopback].name, peers[loopback].address, peers[remote].name,
              peers[remote].address, peers[loopback].name);
    }
    if (!trains) {
        fault(checking, "peers", "no peer is a trainer; at least one has to be");
    }
    config->all_loopback = remote == count;
}

/* An address on one of this machine's bridges beside one that is not: that pair cannot meet. */
static void check_bridges(struct config_checking *checking, const struct peer_seen *seen)
{
    struct bridge bridges[BRIDGES_MAX];
    const struct config_peer *peers = checking->config->peers.items;
    size_t peers_count = checking->config->peers.count;
    size_t count = bridges_of_machine(bridges);
    for (size_t i = 0; count > 0 && i < peers_count; i++) {
        const struct bridge *bridge =
            seen[i].good ? bridge_of(bridges, count, seen[i].address.sin_addr) : NULL;
        for (size_t k = 0; bridge != NULL && k < peers_count; k++) {
            char key[64];
            if (!seen[k].good || is_loopback(&seen[k].address) || peers[i].name == NULL ||
                peers[k].name == NULL ||
                bridge_of(bridges, count, seen[k].address.sin_addr) == bridge) {
                continue;
            }
            (void)snprintf(key, sizeof(key), "peers[%zu].address", i + 1);
            fault(checking, key,
                  "%s (%s) is on %s, a bridge inside this machine, and cannot be reached from %s "
                  "(%s); give %s's address on the network between them",
                  peers[i].name, peers[i].address, bridge->name, peers[k].name, peers[k].address,
                  peers[i].name);
            break;
        }
    }
}

static void find_self(struct config_checking *checking)
{
    struct config *config = checking->config;
    const struct config_peer *peers = config->peers.items;
    const char *names[CONFIG_PEERS_MAX];
    bool whole = config->name != NULL;
    for (size_t i = 0; i < config->peers.count; i++) {
        whole &= peers[i].name != NULL;
    }
    for (size_t i = 0; whole && i < config->peers.count; i++) {
        if (strcmp(peers[i].name, config->name) == 0) {
            config->node_id = (uint32_t)i + 1;
            return;
        }
        names[i] = peers[i].name;
    }
    if (!whole) {
        return; /* What is missing was told already. */
    }
    const char *near = yaml_nearest(config->name, names, config->peers.count);
    bool given = yaml_place_of(checking->places, "name") != NULL;
    fault(checking, "name",
          "'%s'%s is not among the peers%s%s%s; name is which of them this node is", config->name,
          given ? "" : " (the host's name)", near != NULL ? " (did you mean '" : "",
          near != NULL ? near : "", near != NULL ? "'?)" : "");
}

/* The address of this machine that packets to a remote peer leave from. Nothing is sent. */
static bool route_to(const struct sockaddr_in *remote, struct sockaddr_in *ret_local)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(*ret_local);
    bool found = fd >= 0 && connect(fd, (const struct sockaddr *)remote, sizeof(*remote)) == 0 &&
                 getsockname(fd, (struct sockaddr *)ret_local, &size) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return found;
}

/* What a pod's host says about its public address: RunPod, then Vast. */
static bool pod_address(const struct config_checking *checking, unsigned port, char *text,
                        size_t text_size)
{
    static const char *const kinds[][2] = {{"RUNPOD_PUBLIC_IP", "RUNPOD_TCP_PORT_"},
                                           {"PUBLIC_IPADDR", "VAST_TCP_PORT_"}};
    for (size_t i = 0; i < 2; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "%s%u", kinds[i][1], port);
        const char *ip = variable(checking, kinds[i][0]);
        const char *outside = variable(checking, name);
        if (ip != NULL && ip[0] != '\0' && outside != NULL && outside[0] != '\0') {
            (void)snprintf(text, text_size, "%s:%s", ip, outside);
            return true;
        }
    }
    return false;
}

/* The first address of `join`, from where this node will be dialled. */
static bool first_of_join(const struct config *config, struct sockaddr_in *ret_address)
{
    char first[64];
    if (config->join == NULL || config->join[0] == '\0') {
        return false;
    }
    (void)snprintf(first, sizeof(first), "%.*s", (int)strcspn(config->join, ", "), config->join);
    return peer_address_parse(first, ret_address, NULL) == 0;
}

/* A node that joins tells its members an address: they must be able to dial it. */
static void check_joiner(struct config_checking *checking)
{
    const struct config *config = checking->config;
    struct bridge bridges[BRIDGES_MAX];
    struct sockaddr_in self;
    struct sockaddr_in member;
    if (!first_of_join(config, &member) || config->advertise_address[0] == '\0' ||
        peer_address_parse(config->advertise_address, &self, NULL) != 0) {
        return;
    }
    const struct bridge *bridge = bridge_of(bridges, bridges_of_machine(bridges), self.sin_addr);
    if (memcmp(&self, &member, sizeof(self)) == 0) {
        fault(checking, "join", "%s is this node's own address; give a member's",
              config->advertise_address);
    } else if (is_loopback(&self) && !is_loopback(&member)) {
        fault(checking, "advertise",
              "%s is loopback: the member %s could not reach this node; set listen to 0.0.0.0:%u, "
              "or advertise to this node's address",
              config->advertise_address, config->join, ntohs(self.sin_port));
    } else if (bridge != NULL && !is_loopback(&member) &&
               ((member.sin_addr.s_addr ^ bridge->address.s_addr) & bridge->mask.s_addr) != 0) {
        fault(checking, "advertise",
              "%s is on %s, a bridge inside this machine, and cannot be reached from the member %s",
              config->advertise_address, bridge->name, config->join);
    }
}

/* advertise: as given; else this node's own entry among the peers; else the pod's variables; else
 * the listening address; else the route to a remote peer. */
static void find_advertise(struct config_checking *checking, const struct sockaddr_in *listen,
                           const struct peer_seen *seen)
{
    struct config *config = checking->config;
    struct sockaddr_in address;
    char text[128];
    bool own_entry = config->node_id != 0 && seen != NULL && seen[config->node_id - 1].good;
    if (config->advertise == NULL) {
        return;
    }
    if (strcmp(config->advertise, "auto") != 0) {
        if (!parse(checking, "advertise", config->advertise, &address)) {
            return;
        }
        if (is_any(&address) || address.sin_port == 0) {
            fault(checking, "advertise",
                  "%s is nothing that others can dial; give IP:PORT, or auto", config->advertise);
            return;
        }
        if (own_entry &&
            memcmp(&address, &seen[config->node_id - 1].address, sizeof(address)) != 0) {
            fault(checking, "advertise",
                  "%s, but the others dial %s, this node's entry in peers; make them the same",
                  config->advertise, config_peer(config, config->node_id)->address);
            return;
        }
    } else if (own_entry) {
        address = seen[config->node_id - 1].address;
    } else if (pod_address(checking, ntohs(listen->sin_port), text, sizeof(text))) {
        if (!parse(checking, "advertise", text, &address)) {
            return;
        }
    } else if (!is_any(listen)) {
        address = *listen;
    } else {
        struct sockaddr_in remote;
        if (!first_of_join(config, &remote)) {
            /* No remote peer is known: a documentation address stands for "somewhere else". */
            remote = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(9)};
            remote.sin_addr.s_addr = htonl(0xC0000201); /* 192.0.2.1 */
        }
        if (!route_to(&remote, &address)) {
            address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        }
        address.sin_family = AF_INET;
        address.sin_port = listen->sin_port;
    }
    print(&address, config->advertise_address);
}

static void check_listen(struct config_checking *checking, const struct sockaddr_in *listen,
                         const struct peer_seen *seen)
{
    struct config *config = checking->config;
    if (listen->sin_port == 0 && config->peers.count > 1) {
        fault(checking, "listen", "port 0 is only for a node alone; give a port, such as 7620");
    }
    for (size_t i = 0; is_loopback(listen) && i < config->peers.count; i++) {
        if (seen[i].good && !is_loopback(&seen[i].address) && i + 1 != config->node_id &&
            config_peer(config, (uint32_t)i + 1)->name != NULL) {
            fault(checking, "listen",
                  "%s is loopback: %s (%s) could not reach this node; listen on 0.0.0.0:%u",
                  config->listen, config_peer(config, (uint32_t)i + 1)->name,
                  config_peer(config, (uint32_t)i + 1)->address, ntohs(listen->sin_port));
            return;
        }
    }
}

static void check_http(struct config_checking *checking, const struct sockaddr_in *listen)
{
    struct config *config = checking->config;
    struct sockaddr_in http;
    if (config->http.listen == NULL || config->http.listen[0] == '\0' ||
        !parse(checking, "http.listen", config->http.listen, &http)) {
        return;
    }
    if (!is_loopback(&http) && config->http.token_file != NULL &&
        config->http.token_file[0] == '\0') {
        fault(checking, "http.listen",
              "%s can be reached from elsewhere, so http.token_file must name a file with a token "
              "(`openssl rand -hex 32`); or listen on 127.0.0.1",
              config->http.listen);
    }
    bool overlaps =
        http.sin_addr.s_addr == listen->sin_addr.s_addr || is_any(&http) || is_any(listen);
    if (http.sin_port != 0 && http.sin_port == listen->sin_port && overlaps) {
        fault(checking, "http.listen", "port %u is `listen`'s too; give another one, such as 7621",
              ntohs(http.sin_port));
    }
}

static void check_tls(struct config_checking *checking, const struct sockaddr_in *listen)
{
    struct config *config = checking->config;
    bool said = yaml_place_of(checking->places, "tls") != NULL;
    bool plain_is_local = is_loopback(listen) && config->all_loopback;
    if (config->tls_given) {
        return; /* The files are read at the start: trust_open() says what is wrong with them. */
    }
    if (!plain_is_local && !config->insecure) {
        fault(
            checking, "tls",
            "%s, and not all addresses are loopback: `coppeliusctl cluster init` or `cluster join` "
            "makes this node's certificate, then set tls: {}; or set tls: off and insecure: yes "
            "where plain text between machines is acceptable (a private network)",
            said ? "off" : "absent");
    } else if (!plain_is_local) {
        warn(checking,
             "tls: off and insecure: yes: whoever reaches %s may join and command this node",
             config->listen);
    } else if (!said) {
        warn(checking, "tls: off, since it is absent and all addresses are loopback: whoever is on "
                       "this machine may command this node");
    }
}

/* join: "IP:PORT, IP:PORT"; then the list of peers is what its members tell. */
static void check_join(struct config_checking *checking)
{
    struct config *config = checking->config;
    struct sockaddr_in address;
    if (config->join == NULL) {
        replace(checking, &config->join, "");
    }
    if (config->join[0] == '\0') {
        return;
    }
    if (config->peers.count > 0) {
        fault(checking, "join",
              "peers are given too; a node of the first ones has peers, one that joins has join");
    }
    char *copy = strdup(config->join);
    char *rest = NULL;
    ASSERT(copy != NULL);
    for (char *one = strtok_r(copy, ", ", &rest); one != NULL; one = strtok_r(NULL, ", ", &rest)) {
        (void)parse(checking, "join", one, &address);
    }
    free(copy);
}

/* A table of choices is read when a session needs it; what is wrong with it is said now. */
static void check_tiles(struct config_checking *checking)
{
    const char *path = checking->config->tile_choices;
    struct err err = {0};
    if (path != NULL && path[0] == '/' && gpu_check_tiles(path, 0, NULL, NULL, NULL, &err) != 0) {
        fault(checking, "tile_choices", "%s", err.text);
    }
}

static void check(struct config_checking *checking)
{
    struct config *config = checking->config;
    complete(checking);
    check_tiles(checking);
    check_join(checking);
    struct sockaddr_in listen;
    bool listen_good = parse(checking, "listen", config->listen, &listen);
    struct peer_seen seen[CONFIG_PEERS_MAX] = {{.good = false}};
    if (config->peers.count > 0) {
        ASSERT(config->peers.count <= CONFIG_PEERS_MAX);
        find_self(checking);
        check_peers(checking, seen);
        check_bridges(checking, seen);
    }
    if (!listen_good) {
        return;
    }
    if (config->peers.count == 0) {
        config->node_id = 1;
        config->all_loopback = is_loopback(&listen);
        find_advertise(checking, &listen, NULL);
        check_joiner(checking);
        if (checking->looking) {
            check_http(checking, &listen);
            check_tls(checking, &listen);
            return;
        }
        struct config_peer *self = calloc(1, sizeof(*self));
        ASSERT(self != NULL);
        self->name = strdup(config->name);
        self->address = strdup(config->advertise_address);
        self->role = config->role;
        ASSERT(self->name != NULL && self->address != NULL);
        config->peers = (struct yaml_items){self, 1};
    } else {
        check_listen(checking, &listen, seen);
        find_advertise(checking, &listen, seen);
    }
    check_http(checking, &listen);
    check_tls(checking, &listen);
}

void config_look(struct config_checking *checking)
{
    struct config copy = *checking->config;
    checking->config = &copy;
    checking->looking = true;
    check(checking);
    for (size_t i = 0; i < checking->made_count; i++) {
        free(checking->made[i]);
    }
}

void config_complete(struct config_checking *checking)
{
    size_t before = checking->faults->count;
    ASSERT(!checking->looking);
    check(checking);
    ASSERT(checking->faults->count == before); /* config_look has found them. */
}

/* The daemon's file, /etc/coppelius/coppeliusd.yaml: what this node is, where it listens, who its
 * peers are. Precedence: option > environment COPPELIUSD_* > file > default.
 *
 * Read once at start and again at SIGHUP (into another struct); immutable after config_read. All
 * faults of one pass are told, as file:line:column: key: sentence. Any thread.
 *
 *   name: a                          # default: the host's name
 *   cluster: coppelius
 *   listen: 0.0.0.0:7620             # default 127.0.0.1:7620
 *   advertise: auto                  # or IP:PORT: what others dial
 *   peers:                           # the first voters, the same list in the same order everywhere
 *     - {name: a, address: 10.0.0.1:7620, role: trainer}
 *     - {name: b, address: 10.0.0.2:7620}
 *   join: 10.0.0.1:7620              # instead of peers: members that let this node in; then
 *   role: trainer                    # ... what it is to be there
 *   device: auto                     # cpu, auto, an index, a GPU's or MIG's UUID, a PCI id
 *   device_share: no
 *   tile_choices: /etc/coppelius/tiles.choices  # of `coppeliusctl bench tiles`; absent: built in
 *   threads: 0                       # CPU workers; 0: as many as the process may run on
 *   streams: 0                       # bulk connections to a peer; 0: 4, over TLS 8
 *   exchange_threads: 0              # for them; 0: one for each two cores, over TLS one for each
 *   state_dir: /var/lib/coppelius
 *   socket: /run/coppelius/coppeliusd.sock   # or off
 *   group: coppelius                 # may use the socket
 *   socket_others: none              # or look: every other user of the machine may look
 *   http: {listen: 127.0.0.1:7621, token_file: /etc/coppelius/http.token}   # listen may be off
 *   tls: {}                          # files of state_dir/tls; or their paths, below; or off
 *   insecure: no                     # yes: with tls: off, plain text between machines is meant
 *   log_level: info                  # error, warning, notice, info, debug
 *   limits: {memory: 0, storage_free: 1G, log_lines: 2048, cache: 64G}
 */
#ifndef COPPELIUS_DAEMON_CONFIG_H
#define COPPELIUS_DAEMON_CONFIG_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/faults.h"
#include "proto/yaml.h"

#define CONFIG_PATH         "/etc/coppelius/coppeliusd.yaml"
#define CONFIG_NAME_MAX     63
#define CONFIG_PEERS_MAX    64
#define CONFIG_ADDRESS_SIZE 24

enum config_others { CONFIG_OTHERS_NONE, CONFIG_OTHERS_LOOK };
enum config_role { CONFIG_TRAINER, CONFIG_ARBITER, CONFIG_SPARE };

struct config_peer {
    char *name;
    char *address; /* IP:PORT */
    int role;      /* enum config_role */
};

struct config {
    char *name;
    char *cluster;
    char *listen;
    char *advertise;         /* as given; see advertise_address */
    struct yaml_items peers; /* of struct config_peer; after config_read at least this node */
    char *join;              /* "": a node of the first ones, or alone */
    int role;                /* enum config_role; of one that joins */
    char *device;
    bool device_share;
    char *tile_choices; /* a file (gpu_check_tiles()); "": the built-in table */
    uint64_t threads;
    uint64_t streams;
    uint64_t exchange_threads;
    char *state_dir;
    char *socket; /* "": none */
    char *group;
    int socket_others; /* enum config_others */
    struct {
        char *listen; /* "": no HTTP */
        char *token_file;
    } http;
    struct {
        char *ca; /* after config_read never "" */
        char *certificate;
        char *key;
        char *authority;     /* a folder (trust/authority.h): this node signs; "": it does not */
        uint64_t renew_days; /* a certificate that ends sooner is renewed */
    } tls;
    bool tls_given; /* false: off */
    bool insecure;
    int log_level; /* enum log_level - LOG_LEVEL_ERROR */
    struct {
        uint64_t memory;       /* bytes a session may take; 0: what the device has */
        uint64_t storage_free; /* bytes; below, doctor complains */
        uint64_t log_lines;
        uint64_t cache; /* bytes of imported and fetched datasets that are kept */
    } limits;
    /* Found by config_read. */
    uint32_t node_id; /* 1 … in peers */
    char advertise_address[CONFIG_ADDRESS_SIZE];
    bool all_loopback;         /* every address is 127.0.0.0/8 */
    struct yaml_places places; /* where each given key came from, for --show-config */
};

struct config_input {
    const char *file_name; /* NULL: no file, defaults only */
    const char *text;
    size_t size;
    const char *const *environment; /* as environ; NULL: none */
    const char *const *settings;    /* of --set and --device: "key=value"; they win */
    size_t settings_count;
};

/* 0, or ERR_CONFIG with every fault of one pass; config then holds nothing. Sentences that do not
 * refuse (an unknown COPPELIUSD_ variable, tls off) are appended to warnings, a line each. */
int config_read(const struct config_input *input, struct config *ret_config, struct faults *faults,
                struct buf *warnings);
/* Reads the file (at most YAML_SIZE_MAX) and the process' environment. path NULL: CONFIG_PATH where
 * it is there, else defaults. */
int config_read_file(const char *path, const char *const *settings, size_t settings_count,
                     struct config *ret_config, struct faults *faults, struct buf *warnings);
void config_done(struct config *config); /* a zeroed or finished one is fine */

const struct config_peer *config_peer(const struct config *config, uint32_t node_id);
/* The keys in which two configs differ and that need a restart, "listen, peers"; "" for none. */
void config_restart_keys(const struct config *now, const struct config *next, char *text,
                         size_t text_size);
const struct yaml_schema *config_schema(void);

#endif

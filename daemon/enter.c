#include "daemon/enter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/fs.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/join.h"

/* Those of the config: the first nodes, in their order. */
static void first_roll(const struct config *config, struct roll *roll)
{
    static const char *const roles[] = {
        [CONFIG_TRAINER] = "trainer", [CONFIG_ARBITER] = "arbiter", [CONFIG_SPARE] = "spare"};
    *roll = (struct roll){.node = config->node_id, .count = (uint32_t)config->peers.count};
    for (uint32_t id = 1; id <= config->peers.count; id++) {
        const struct config_peer *peer = config_peer(config, id);
        struct roll_entry *entry = &roll->entries[id - 1];
        entry->node = id;
        (void)snprintf(entry->name, sizeof(entry->name), "%s", peer->name);
        (void)snprintf(entry->address, sizeof(entry->address), "%s", peer->address);
        (void)snprintf(entry->role, sizeof(entry->role), "%s", roles[peer->role]);
    }
}

/* Asks to be let in: the members that `join` names, again and again; or, where one of the first
 * nodes has an empty state folder, the others once: a person may have added it anew. */
static int ask_in(const struct config *config, const struct state_folder *folder,
                  struct trust *trust, struct roll *ret_roll, struct err *err)
{
    const char *members[CONFIG_PEERS_MAX];
    size_t count = 0;
    bool joins = config->join[0] != '\0';
    char *copy = strdup(config->join);
    char *rest = NULL;
    ASSERT(copy != NULL);
    for (char *one = strtok_r(copy, ", ", &rest); one != NULL && count < CONFIG_PEERS_MAX;
         one = strtok_r(NULL, ", ", &rest)) {
        members[count++] = one;
    }
    for (uint32_t id = 1; !joins && id <= config->peers.count; id++) {
        if (id != config->node_id) {
            members[count++] = config_peer(config, id)->address;
        }
    }
    struct join_settings settings = {
        .cluster = config->cluster,
        .name = config->name,
        .address = config->advertise_address,
        .role = config_peer(config, config->node_id)->role == CONFIG_ARBITER ? "arbiter"
                : config_peer(config, config->node_id)->role == CONFIG_SPARE ? "spare"
                                                                             : "trainer",
        .trust = trust,
        .members = members,
        .members_count = count,
        .wait = joins};
    memcpy(settings.uuid, folder->uuid, sizeof(settings.uuid));
    int code = count > 0 ? join_cluster(&settings, ret_roll, err) : ERR_REACH;
    free(copy);
    return code;
}

static void drop_name(void *context, const char *name, bool is_folder)
{
    struct fs *fs = context;
    char path[512];
    (void)snprintf(path, sizeof(path), DAEMON_LOG_FOLDER "/%.200s", name);
    if (!is_folder) {
        (void)fs->ops->unlink(fs, path, NULL); /* What stays is refused when it is opened. */
    }
}

/* A log that never took part is another identity's beginning: it goes. */
static int drop_unused_log(struct fs *fs, struct err *err)
{
    bool there = false;
    if (fs->ops->exists(fs, DAEMON_LOG_FOLDER, &there, err) != 0 ||
        (there && fs->ops->list(fs, DAEMON_LOG_FOLDER, drop_name, fs, err) != 0)) {
        return err->code;
    }
    return 0;
}

int enter_find(const struct config *config, const struct state_folder *folder, struct trust *trust,
               struct roll *ret_roll, bool *ret_joined, struct err *err)
{
    struct fs *fs = NULL;
    struct err why = {0};
    bool there = false;
    bool began = false;
    if (fs_posix_open(config->state_dir, &fs, err) != 0) {
        return err->code;
    }
    int code = roll_read(fs, ret_roll, &there, err);
    code = code != 0 ? code : fs->ops->exists(fs, DAEMON_LOG_MARK, &began, err);
    if (code == 0 && !there && !began) {
        if (ask_in(config, folder, trust, ret_roll, &why) == 0) {
            there = true;
            code = drop_unused_log(fs, err);
            code = code != 0 ? code : roll_write(fs, ret_roll, err);
            log_notice("join.in", "node=%s id=%u life=%u members=%u", config->name, ret_roll->node,
                       ret_roll->life, ret_roll->count);
        }
    }
    *ret_joined = there && roll_self(ret_roll) != NULL;
    if (code == 0 && !there) {
        first_roll(config, ret_roll);
    }
    fs_posix_close(fs);
    return code != 0 ? err_prefix(err, "state_dir '%s': ", config->state_dir) : 0;
}

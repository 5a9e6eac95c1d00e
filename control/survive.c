#include "control/survive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "control/wal.h"

/* Whose log it is: wal_open() wants to be told. */
static int read_self(struct fs *fs, const char *folder, uint32_t *ret_self, struct err *err)
{
    char path[256];
    struct buf text = BUF_NONE;
    bool there = false;
    unsigned format = 0;
    unsigned self = 0;
    (void)snprintf(path, sizeof(path), "%.200s/format", folder);
    if (fs->ops->exists(fs, path, &there, err) != 0) {
        return err->code;
    }
    if (!there) {
        return err_set(err, ERR_NOT_FOUND, "there is no log in '%s'", folder);
    }
    int code = fs_read_all(fs, path, 512, &text, err);
    if (code == 0) {
        buf_put_u8(&text, 0);
        if (sscanf((const char *)text.bytes, "coppelius-log %u node %u", &format, &self) != 2) {
            code = err_set(err, ERR_DAMAGED, "'%s' does not say whose log it is", path);
        }
    }
    buf_done(&text);
    *ret_self = self;
    return code;
}

static void note_all(struct control_group *all, const struct control_group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const struct control_member *member = &group->items[i];
        if (group_get(all, member->id) == NULL && all->count < CONTROL_MEMBERS_MAX) {
            group_set(all, member->id, member->voter);
        }
    }
}

/* Of all members that the log ever had, those that the state does not know. */
static void find_silent(struct survivor *survivor, const struct control_group *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        uint32_t id = all->items[i].id;
        if (id != survivor->self && id == member_place(id) && id <= STATE_NODES_MAX &&
            state_node(survivor->state, id) == NULL) { /* Later lives are let in by an entry. */
            group_set(&survivor->silent, id, all->items[i].voter);
        }
    }
}

static int replay(struct survivor *survivor, const struct raft_recovered *recovered,
                  struct err *err)
{
    const struct raft_snapshot *snapshot = &recovered->snapshot;
    const struct raft_log *log = &recovered->log;
    struct control_group all = recovered->first;
    survivor->group = snapshot->index != 0 ? snapshot->group : recovered->first;
    note_all(&all, &survivor->group);
    if (snapshot->index != 0 &&
        state_load(survivor->state, snapshot->bytes.bytes, snapshot->bytes.size, err) != 0) {
        return err_prefix(err, "the snapshot of entry %llu: ", (unsigned long long)snapshot->index);
    }
    for (uint64_t index = log->base_index + 1; index <= raft_log_last(log); index++) {
        const struct raft_entry *entry = raft_log_at(log, index);
        if (entry->kind == ENTRY_GROUP) {
            ASSERT(group_parse(entry->bytes, entry->size, &survivor->group)); /* looked at */
            note_all(&all, &survivor->group);
        } else if (entry->kind == ENTRY_COMMAND) {
            (void)state_apply(survivor->state, index, entry->bytes, entry->size, NULL);
        }
    }
    find_silent(survivor, &all);
    survivor->last_index = raft_log_last(log);
    survivor->last_term = raft_log_last_term(log);
    survivor->term = recovered->term;
    return 0;
}

int survive_look(struct fs *fs, const char *folder, struct survivor *ret_survivor, struct err *err)
{
    struct survivor *survivor = ret_survivor;
    struct control_settings settings;
    struct raft_recovered recovered = {0};
    bool fresh = false;
    *survivor = (struct survivor){0};
    control_settings_default(&settings);
    settings.folder = folder;
    if (read_self(fs, folder, &survivor->self, err) != 0) {
        return err->code;
    }
    settings.self = survivor->self;
    survivor->state = calloc(1, sizeof(*survivor->state));
    ASSERT(survivor->state != NULL);
    state_init(survivor->state);
    if (wal_open(fs, &settings, &survivor->wal, &recovered, &fresh, err) != 0) {
        return err->code;
    }
    int code = replay(survivor, &recovered, err);
    raft_recovered_done(&recovered);
    return code;
}

/* An entry of the batch. */
static void put(struct control_write *write, enum entry_kind kind, const struct buf *bytes)
{
    struct message_entry entry = {write->term, kind, bytes->bytes, (uint32_t)bytes->size};
    message_put_entry(&write->entries, &entry);
    write->entries_count++;
}

static void put_command(struct control_write *write, const struct command *command)
{
    struct buf bytes = BUF_NONE;
    ASSERT(command_encode(command, &bytes, NULL) == 0);
    put(write, ENTRY_COMMAND, &bytes);
    buf_done(&bytes);
}

int survive_act(struct survivor *survivor, uint64_t wall_ms, struct err *err)
{
    const struct state_node *self = state_node(survivor->state, member_place(survivor->self));
    if (self == NULL || member_id(self->id, self->life) != survivor->self || !state_node_in(self)) {
        return err_set(err, ERR_STATE, "this node was removed from the cluster, or never in it");
    }
    if (group_is_voter(&survivor->group, survivor->self) && group_voters(&survivor->group) == 1) {
        return err_set(err, ERR_STATE, "this node decides alone already: just start it");
    }
    struct control_group alone = {0};
    struct buf group = BUF_NONE;
    uint64_t term = survivor->term + 1;
    struct control_write write = {.wal = survivor->wal,
                                  .hard = true,
                                  .term = term,
                                  .vote = survivor->self,
                                  .append_first = survivor->last_index + 1};
    group_set(&alone, survivor->self, true);
    group_put(&group, &alone);
    put(&write, ENTRY_GROUP, &group);
    for (uint32_t i = 0; i < survivor->silent.count; i++) {
        struct command command = {.kind = COMMAND_REMOVE, .wall_ms = wall_ms};
        command.remove.node = survivor->silent.items[i].id;
        (void)snprintf(command.remove.name, sizeof(command.remove.name), "%s",
                       state_node_name(survivor->state, command.remove.node));
        (void)snprintf(command.remove.reason, sizeof(command.remove.reason),
                       "node '%s' goes on without a majority of the others", self->name);
        put_command(&write, &command);
    }
    struct command command = {.kind = COMMAND_RECOVER, .wall_ms = wall_ms};
    command.recover.node = self->id;
    command.recover.life = self->life;
    put_command(&write, &command);
    int code = wal_write(survivor->wal, &write, 1, err); /* one batch: all or none */
    buf_done(&write.entries);
    buf_done(&group);
    return code;
}

void survivor_done(struct survivor *survivor)
{
    wal_close(survivor->wal);
    if (survivor->state != NULL) {
        state_done(survivor->state);
        free(survivor->state);
    }
    *survivor = (struct survivor){0};
}

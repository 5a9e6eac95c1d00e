/* The control room as this process has it: the log's folder, the state machine behind it, what it
 * sends and what it says. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/core.h"
#include "daemon/verdict.h"

static void on_apply(void *context, uint64_t index, uint64_t term, const uint8_t *command,
                     size_t size)
{
    struct daemon *daemon = context;
    struct err why = {0};
    (void)term;
    struct command readable;
    struct err ignored = {0};
    struct verdict_before before;
    bool known = size > 0 && command_decode(command, size, &readable, &ignored) == 0;
    verdict_before(daemon, known ? &readable : NULL, &before);
    enum state_outcome outcome = state_apply(&daemon->state, index, command, size, &why);
    verdict_after(daemon, known ? &readable : NULL, &before);
    if (outcome != STATE_CHANGED) {
        log_debug("state.unchanged", "index=%llu why=\"%s\"", (unsigned long long)index, why.text);
    }
}

static void on_snapshot_write(void *context, struct buf *bytes)
{
    struct daemon *daemon = context;
    state_write(&daemon->state, bytes);
}

static int on_snapshot_load(void *context, uint64_t index, const uint8_t *bytes, size_t size,
                            struct err *err)
{
    struct daemon *daemon = context;
    (void)index;
    return state_load(&daemon->state, bytes, size, err);
}

static void on_control_send(void *context, uint32_t to, const uint8_t *bytes, size_t size)
{
    struct daemon *daemon = context;
    struct err err = {0};
    const struct member *member = members_get(daemon, member_place(to));
    if (daemon->mesh != NULL && !daemon->newcomer && member != NULL && !member->self &&
        member_id(member->id, member->life) == to) {
        (void)mesh_send(daemon->mesh, member->id, FRAME_RAFT, bytes, size,
                        &err); /* Raft says it again. */
    }
}

static void on_control_applied(void *context, uint64_t index)
{
    (void)index;
    daemon_soon(context);
}

static void on_control_failed(void *context, const struct err *err)
{
    struct daemon *daemon = context;
    struct err what = *err;
    size_t size = strlen(what.text);
    (void)snprintf(what.text + size, sizeof(what.text) - size,
                   "; see to the disk of '%s', then start this node again", daemon->state_dir);
    daemon->log_failed = true;
    daemon->hooks.on_failed(daemon->hooks.context, &what);
}

static void on_log_name(void *context, const char *name, bool is_folder)
{
    bool *there = context;
    *there = *there || (!is_folder && strncmp(name, "segment-", 8) == 0);
}

/* A voter that lost its log must not vote again under its old identity: it has forgotten votes and
 * entries that it answered for. A mark beside the log says that there was one. Before the log is
 * opened: that makes a new one, and the next start would find it. */
static int refuse_wiped(struct daemon *daemon, struct err *err)
{
    bool began = false;
    bool there = false;
    if (daemon->fs->ops->exists(daemon->fs, DAEMON_LOG_MARK, &began, err) != 0 ||
        daemon->fs->ops->exists(daemon->fs, DAEMON_LOG_FOLDER, &there, err) != 0) {
        return err->code;
    }
    if (there) {
        there = false;
        if (daemon->fs->ops->list(daemon->fs, DAEMON_LOG_FOLDER, on_log_name, &there, err) != 0) {
            return err->code;
        }
    }
    if (began && !there) {
        return err_set(err, ERR_DAMAGED,
                       "%s: the log of node %s is gone, and a node that forgot its votes must not "
                       "vote; put the folder back from a copy",
                       daemon->state_dir, daemon->name);
    }
    return 0;
}

int daemon_mark_log(struct daemon *daemon, struct err *err)
{
    bool began = false;
    if (daemon->fs->ops->exists(daemon->fs, DAEMON_LOG_MARK, &began, err) != 0) {
        return err->code;
    }
    return began ? 0 : fs_replace(daemon->fs, DAEMON_LOG_MARK, "1\n", 2, err);
}

int daemon_open_control(struct daemon *daemon, struct err *err)
{
    struct control_settings settings;
    control_settings_default(&settings);
    settings.self = member_id(daemon->node_id, daemon->life);
    settings.folder = DAEMON_LOG_FOLDER;
    for (uint32_t i = 0; !daemon->joined && i < daemon->members_count; i++) {
        if (daemon->members[i].role == DAEMON_SPARE) {
            continue;
        }
        if (settings.voters_count == CONTROL_VOTERS_MAX) {
            return err_set(err, ERR_CONFIG, "peers: more than %d nodes with a vote; list no more",
                           CONTROL_VOTERS_MAX);
        }
        settings.voters[settings.voters_count++] = daemon->members[i].id;
    }
    struct control_fsm fsm = {daemon, on_apply, on_snapshot_write, on_snapshot_load};
    struct control_uv_callbacks callbacks = {daemon, on_control_send, on_control_applied,
                                             on_control_failed};
    bool fresh = false;
    if (refuse_wiped(daemon, err) != 0) {
        return err->code;
    }
    if (control_uv_open(daemon->loop, &settings, &fsm, &callbacks, daemon->fs, &daemon->control_uv,
                        &fresh, err) != 0) {
        return err_prefix(err, "%s: ", daemon->state_dir);
    }
    daemon->control = control_uv_control(daemon->control_uv);
    newcomer_init(daemon);
    if (!daemon->newcomer && daemon_mark_log(daemon, err) != 0) {
        return err->code;
    }
    log_info("control.open", "node=%s term=%llu fresh=%s", daemon->name,
             (unsigned long long)control_term(daemon->control), fresh ? "yes" : "no");
    return 0;
}

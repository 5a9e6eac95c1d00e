#include "daemon/state_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/rand.h"

#define NODE_JSON_MAX 65536

static int make(const char *path, struct err *err)
{
    if (mkdir(path, 0750) == 0 || errno == EEXIST) {
        return 0;
    }
    if (errno == ENOENT) {
        return err_set(
            err, ERR_CONFIG,
            "state_dir '%s': its parent folder is not there; make it, or set another state_dir",
            path);
    }
    return err_set(
        err, ERR_CONFIG,
        "state_dir '%s': %s; make it, owned by the daemon's user, or set another state_dir", path,
        err_errno(errno));
}

static int lock(const char *path, struct state_folder *folder, struct err *err)
{
    char name[1100];
    (void)snprintf(name, sizeof(name), "%s/lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        return err_set(err, ERR_CONFIG,
                       "state_dir '%s' cannot be written: %s; it must belong to the daemon's user",
                       path, err_errno(errno));
    }
    char text[32] = "";
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
        (void)close(fd);
        if (error != EWOULDBLOCK) {
            return err_set(err, ERR_CONFIG, "state_dir '%s': lock: %s", path, err_errno(error));
        }
        long pid = got > 0 ? strtol(text, NULL, 10) : 0;
        return err_set(err, ERR_BUSY,
                       "state_dir '%s' is in use by another daemon (pid %ld); stop that one or set "
                       "another state_dir",
                       path, pid);
    }
    int size = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    /* The pid is for people: where it cannot be written the lock holds all the same. */
    bool written = ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)size, 0) == size;
    (void)written;
    folder->lock_fd = fd;
    return 0;
}

static const char *member(const json_t *node, const char *name)
{
    const char *text = json_string_value(json_object_get(node, name));
    return text != NULL ? text : "";
}

/* 32 hexadecimal digits; a folder of before there were any has none, and gets one. */
static bool parse_uuid(const char *text, uint8_t uuid[16])
{
    if (text[0] == '\0') {
        return true;
    }
    for (size_t i = 0; i < 16; i++) {
        unsigned value = 0;
        int used = 0;
        if (sscanf(text + 2 * i, "%2x%n", &value, &used) != 1 || used != 2) {
            return false;
        }
        uuid[i] = (uint8_t)value;
    }
    return text[32] == '\0';
}

static void make_uuid(uint8_t uuid[16], char text[33])
{
    static const uint8_t none[16];
    if (memcmp(uuid, none, sizeof(none)) == 0) {
        for (size_t i = 0; i < 16; i += 8) {
            uint64_t word = rand_entropy();
            memcpy(uuid + i, &word, sizeof(word));
        }
    }
    for (size_t i = 0; i < 16; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", uuid[i]);
    }
}

/* Whether what node.json says is this node; incarnation gets the last start's. */
static int check(const char *path, const struct buf *text, const char *cluster, const char *name,
                 uint64_t *ret_incarnation, uint8_t uuid[16], struct err *err)
{
    json_error_t error;
    json_t *node =
        json_loadb((const char *)text->bytes, text->size, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(node)) {
        json_decref(node);
        return err_set(
            err, ERR_DAMAGED,
            "'%s/node.json' cannot be read (line %d: %s); restore it, or start with an empty "
            "state_dir",
            path, error.line, error.text);
    }
    json_int_t format = json_integer_value(json_object_get(node, "format"));
    json_int_t incarnation = json_integer_value(json_object_get(node, "incarnation"));
    int status = 0;
    if (format != STATE_FOLDER_FORMAT) {
        status =
            err_set(err, ERR_STATE,
                    "state_dir '%s' has format %lld, this version knows %d; use the version that "
                    "wrote it, or an empty state_dir",
                    path, (long long)format, STATE_FOLDER_FORMAT);
    } else if (strcmp(member(node, "cluster"), cluster) != 0 ||
               strcmp(member(node, "name"), name) != 0) {
        status =
            err_set(err, ERR_STATE,
                    "state_dir '%s' belongs to node '%.63s' of cluster '%.63s', not to '%s' of "
                    "'%s'; set the right state_dir, or name",
                    path, member(node, "name"), member(node, "cluster"), name, cluster);
    } else if (incarnation < 0) {
        status = err_set(err, ERR_DAMAGED,
                         "'%s/node.json': incarnation is negative; restore the file", path);
    } else if (!parse_uuid(member(node, "uuid"), uuid)) {
        status = err_set(err, ERR_DAMAGED, "'%s/node.json': uuid is none; restore the file", path);
    } else {
        *ret_incarnation = (uint64_t)incarnation;
    }
    json_decref(node);
    return status;
}

static int claim(const char *path, struct fs *fs, const char *cluster, const char *name,
                 struct state_folder *folder, struct err *err)
{
    struct buf text = BUF_NONE;
    bool there = false;
    bool has_log = false;
    uint64_t before = 0;
    if (fs->ops->exists(fs, "node.json", &there, err) != 0 ||
        fs->ops->exists(fs, "log", &has_log, err) != 0) {
        return err_prefix(err, "state_dir '%s': ", path);
    }
    int status = 0;
    if (there) {
        status = fs_read_all(fs, "node.json", NODE_JSON_MAX, &text, err);
        status = status != 0 ? err_prefix(err, "state_dir '%s': ", path)
                             : check(path, &text, cluster, name, &before, folder->uuid, err);
    } else if (has_log) {
        status = err_set(
            err, ERR_STATE,
            "state_dir '%s' has a log but no node.json: nobody can say whose it is; restore "
            "it, or start with an empty state_dir",
            path);
    }
    buf_done(&text);
    if (status != 0) {
        return status;
    }
    /* The wall clock lifts it above those of a folder that was lost; it decides nothing by itself.
     */
    uint64_t wall_ms = (uint64_t)clock_wall_ms();
    folder->incarnation = before + 1 > wall_ms ? before + 1 : wall_ms;
    char uuid[33];
    make_uuid(folder->uuid, uuid);
    folder->fresh = !there;
    json_t *node =
        json_pack("{s:i, s:s, s:s, s:s, s:I}", "format", STATE_FOLDER_FORMAT, "cluster", cluster,
                  "name", name, "uuid", uuid, "incarnation", (json_int_t)folder->incarnation);
    ASSERT(node != NULL);
    char *made = json_dumps(node, JSON_INDENT(2));
    ASSERT(made != NULL);
    json_decref(node);
    status = fs_replace(fs, "node.json", made, strlen(made), err);
    free(made);
    return status != 0 ? err_prefix(err, "state_dir '%s': ", path) : 0;
}

int state_folder_open(const char *path, const char *cluster, const char *name,
                      struct state_folder *ret_folder, struct err *err)
{
    struct state_folder made = STATE_FOLDER_NONE;
    struct fs *fs = NULL;
    int status = make(path, err);
    if (status == 0) {
        status = lock(path, &made, err);
    }
    if (status == 0) {
        status = fs_posix_open(path, &fs, err);
    }
    if (status == 0) {
        status = claim(path, fs, cluster, name, &made, err);
    }
    fs_posix_close(fs);
    if (status != 0) {
        state_folder_close(&made);
        return status;
    }
    *ret_folder = made;
    return 0;
}

void state_folder_close(struct state_folder *folder)
{
    if (folder->lock_fd >= 0) {
        (void)close(folder->lock_fd); /* Which gives the lock back. */
    }
    folder->lock_fd = -1;
}

/* A library to preload into a real daemon: its nth file operation or send of a kind kills it, or
 * fails; and the file system below one folder forgets at the kill what was not synced, as at a
 * power failure. Settings, all COPPELIUS_FAULT…:
 *
 *   (itself)   "fsync:before:3:log/": kind, action, nth call, what the path below the folder holds
 *   _ROOT      the folder
 *   _ASIDE     another one on the same file system, for what is replaced
 *   _REPORT    a file that gets a line when the fault strikes, and how many calls there were
 *   _FORGET    none, all, or the seed of a coin for each unsynced thing
 *   _SLOW_MS   how long a slow call waits first (1000)
 *   _LIE       syncs of files with this in their path are answered and not done
 *
 * Kinds: create open (existing files) reserve (fallocate) write fsync dirsync rename unlink send.
 * Actions: before, after: SIGKILL; eio, enospc: the call fails (a failed fsync has lost its data
 * for good, whatever a later one says); short: half of a write is done; term, term2: SIGTERM once
 * or twice, and nothing fails; slow: that call and all later ones of its kind wait first, sends
 * only those of the main thread.
 *
 * One lock is held over every operation below the folder and every send, so that nothing happens
 * between the fault and the death. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/fault_undo.h"

#define EXPORTED __attribute__((visibility("default")))

enum kind { CREATE, OPEN, RESERVE, WRITE, FSYNC, DIRSYNC, RENAME, UNLINK, SEND, KINDS };
static const char *const kind_names[KINDS] = {"create",  "open",   "reserve", "write", "fsync",
                                              "dirsync", "rename", "unlink",  "send"};
enum verdict { GO_ON, DIE_BEFORE, DIE_AFTER, FAIL, SHORT };

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static unsigned long counts[KINDS], matched;
static bool ready, active, struck;
static struct {
    enum kind kind;
    char action[16], pattern[96];
    unsigned long nth;
} plan;
static char root[4096], report[4096], lie[96];
static size_t root_size;
static int forget; /* 0 nothing, 1 all, 2 by coin */
static uint64_t seed;
static unsigned slow_ms; /* 0: no call is slow */

struct fault_real real;

static void find_real(void)
{
    /* Through void *: the standard has no cast from what dlsym gives to a function. */
#define FIND(name) *(void **)&real.name = dlsym(RTLD_NEXT, #name)
    FIND(open);
    FIND(openat);
    FIND(write);
    FIND(pwrite);
    FIND(ftruncate);
    FIND(fallocate);
    FIND(fsync);
    FIND(fdatasync);
    FIND(renameat);
    FIND(mkdirat);
    FIND(unlinkat);
    FIND(sendmsg);
#undef FIND
}

static void setting(const char *name, char *text, size_t size)
{
    const char *value = getenv(name);
    (void)snprintf(text, size, "%s", value != NULL ? value : "");
}

static void get_ready(void)
{
    char text[256];
    char kind[32] = "";
    ready = true;
    setting("COPPELIUS_FAULT_ROOT", root, sizeof(root));
    setting("COPPELIUS_FAULT_ASIDE", report, sizeof(report));
    fault_undo_init(report);
    setting("COPPELIUS_FAULT_REPORT", report, sizeof(report));
    setting("COPPELIUS_FAULT_LIE", lie, sizeof(lie));
    setting("COPPELIUS_FAULT_FORGET", text, sizeof(text));
    root_size = strlen(root);
    forget = strcmp(text, "all") == 0 ? 1 : strcmp(text, "none") == 0 || text[0] == '\0' ? 0 : 2;
    seed = strtoull(text, NULL, 10) * 2654435761U + 1;
    setting("COPPELIUS_FAULT", text, sizeof(text));
    if (sscanf(text, "%31[^:]:%15[^:]:%lu:%95s", kind, plan.action, &plan.nth, plan.pattern) < 3) {
        return;
    }
    if (strcmp(plan.action, "slow") == 0) {
        setting("COPPELIUS_FAULT_SLOW_MS", text, sizeof(text));
        slow_ms = text[0] != '\0' ? (unsigned)strtoul(text, NULL, 10) : 1000;
    }
    for (unsigned k = 0; k < KINDS; k++) {
        if (strcmp(kind, kind_names[k]) == 0) {
            plan.kind = (enum kind)k;
            active = root_size > 0;
        }
    }
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    char text[4600];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    int fd = real.open(report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
        (void)!real.write(fd, text, (size_t)size);
        (void)close(fd);
    }
}

/* The path of a descriptor below the root, or NULL. */
static const char *below(int fd, char path[4096])
{
    char link[64];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, 4095);
    path[size > 0 ? size : 0] = '\0';
    if (strncmp(path, root, root_size) != 0 ||
        (path[root_size] != '/' && path[root_size] != '\0')) {
        return NULL;
    }
    return path[root_size] == '/' ? path + root_size + 1 : path + root_size;
}

/* The path of a name in a folder below the root. */
static const char *join(int folder, const char *name, char text[4096])
{
    const char *where = below(folder, text);
    char *end = text + strlen(text);
    (void)snprintf(end, 4096 - (size_t)(end - text), "%s%s", where[0] != '\0' ? "/" : "", name);
    return where;
}

/* The folder of (at, path), opened, and the last part of the path. -1: not below the root. */
static int split(int at, const char *path, char name[FAULT_NAME_SIZE])
{
    char folder[4096];
    char text[4096];
    const char *slash = strrchr(path, '/');
    (void)snprintf(name, FAULT_NAME_SIZE, "%s", slash != NULL ? slash + 1 : path);
    (void)snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - path) : 1,
                   slash != NULL ? path : ".");
    if (folder[0] == '\0') {
        return -1;
    }
    int fd = real.openat(at, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && below(fd, text) == NULL) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static void die(void)
{
    if (forget != 0) {
        fault_forget(forget == 2, seed);
    }
    (void)kill(getpid(), SIGKILL);
    for (;;) {
        (void)pause();
    }
}

/* ---- the plan ---- */

static bool enter(void)
{
    (void)pthread_mutex_lock(&lock);
    if (!ready) {
        find_real();
        get_ready();
    }
    if (!active) {
        (void)pthread_mutex_unlock(&lock);
    }
    return active;
}

static void leave(void)
{
    int number = errno;
    (void)pthread_mutex_unlock(&lock);
    errno = number;
}

/* Not of the agent, the log or a snapshot: counted only where the plan names it. */
static bool is_aside(const char *path)
{
    static const char *const folders[] = {"cache/", "verdicts/"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        size_t size = strlen(folders[i]);
        if (strncmp(path, folders[i], size) == 0 && strncmp(plan.pattern, folders[i], size) != 0) {
            return true;
        }
    }
    return strstr(path, "latest") != NULL;
}

/* A slow disk, or a slow loop. Others go on meanwhile. */
static void wait_first(enum kind kind, const char *path)
{
    if (kind != plan.kind || strstr(path, plan.pattern) == NULL ||
        (kind == SEND && gettid() != getpid()) || ++matched < plan.nth) {
        return;
    }
    if (!struck) {
        struck = true;
        say("struck %s %s %lu %s\n", kind_names[kind], plan.action, plan.nth, path);
    }
    leave();
    (void)usleep(slow_ms * 1000);
    (void)enter();
}

static enum verdict judge(enum kind kind, const char *path)
{
    counts[kind]++;
    if (slow_ms > 0) {
        wait_first(kind, path);
        return GO_ON;
    }
    if (struck || kind != plan.kind || strstr(path, plan.pattern) == NULL || is_aside(path) ||
        ++matched != plan.nth) {
        return GO_ON;
    }
    struck = true;
    say("struck %s %s %lu %s\n", kind_names[kind], plan.action, plan.nth, path);
    if (strcmp(plan.action, "before") == 0) {
        return DIE_BEFORE;
    }
    if (strcmp(plan.action, "after") == 0) {
        return DIE_AFTER;
    }
    if (strncmp(plan.action, "term", 4) == 0) {
        (void)kill(getpid(), SIGTERM);
        if (plan.action[4] ==
            '2') { /* Two that are not one: the first is taken before the second. */
            leave();
            (void)usleep(50000);
            (void)kill(getpid(), SIGTERM);
            (void)enter();
        }
        return GO_ON;
    }
    return strcmp(plan.action, "short") == 0 ? SHORT : FAIL;
}

static int failure(void)
{
    errno = strcmp(plan.action, "enospc") == 0 ? ENOSPC : plan.kind == SEND ? ECONNRESET : EIO;
    return -1;
}

/* ---- operations ---- */

static int open_watched(int at, const char *path, int flags, mode_t mode)
{
    if (!enter()) {
        return real.openat(at, path, flags, mode);
    }
    char name[FAULT_NAME_SIZE];
    char text[4096];
    struct stat status;
    int folder = (flags & O_CREAT) != 0 || plan.kind == OPEN ? split(at, path, name) : -1;
    bool fresh = folder >= 0 && fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0;
    enum verdict verdict = GO_ON;
    if (folder >= 0 && !fresh) {
        verdict = judge(OPEN, join(folder, name, text));
    } else if (fresh && (flags & O_CREAT) != 0) {
        verdict = judge(CREATE, join(folder, name, text));
    }
    if (verdict == DIE_BEFORE) {
        die();
    }
    int fd = verdict == FAIL ? failure() : real.openat(at, path, flags, mode);
    if (fresh && fd >= 0) {
        fault_note(UNDO_CREATE, folder, name, -1, "", 0);
        folder = -1;
    }
    if (verdict == DIE_AFTER) {
        die();
    }
    if (folder >= 0) {
        int number = errno;
        (void)close(folder);
        errno = number;
    }
    leave();
    return fd;
}

#define MODE_OF(flags, mode)                          \
    do {                                              \
        if (((flags) & (O_CREAT | O_TMPFILE)) != 0) { \
            va_list arguments;                        \
            va_start(arguments, flags);               \
            mode = va_arg(arguments, mode_t);         \
            va_end(arguments);                        \
        }                                             \
    } while (0)

EXPORTED int openat(int at, const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_OF(flags, mode);
    return open_watched(at, path, flags, mode);
}

EXPORTED int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_OF(flags, mode);
    return open_watched(AT_FDCWD, path, flags, mode);
}

static ssize_t write_watched(int fd, const void *bytes, size_t size, off_t offset, bool at)
{
    char text[4096];
    if (!enter()) {
        return at ? real.pwrite(fd, bytes, size, offset) : real.write(fd, bytes, size);
    }
    const char *path = below(fd, text);
    enum verdict verdict = GO_ON;
    if (path != NULL) {
        struct stat status;
        off_t from = at ? offset : lseek(fd, 0, SEEK_CUR);
        if (!at && (fcntl(fd, F_GETFL) & O_APPEND) != 0 && fstat(fd, &status) == 0) {
            from = status.st_size;
        }
        fault_keep_data(fd, from, size);
        verdict = judge(WRITE, path);
    }
    if (verdict == DIE_BEFORE) {
        die();
    }
    size_t now = verdict == SHORT && size > 1 ? size / 2 : size;
    ssize_t done = verdict == FAIL ? failure()
                   : at            ? real.pwrite(fd, bytes, now, offset)
                                   : real.write(fd, bytes, now);
    if (verdict == DIE_AFTER) {
        die();
    }
    leave();
    return done;
}

EXPORTED ssize_t write(int fd, const void *bytes, size_t size)
{
    return write_watched(fd, bytes, size, 0, false);
}

EXPORTED ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    return write_watched(fd, bytes, size, offset, true);
}

EXPORTED int ftruncate(int fd, off_t size)
{
    char text[4096];
    if (enter()) {
        struct stat status;
        if (below(fd, text) != NULL && fstat(fd, &status) == 0) {
            fault_keep_data(fd, size, status.st_size > size ? (size_t)(status.st_size - size) : 0);
        }
        int result = real.ftruncate(fd, size);
        leave();
        return result;
    }
    return real.ftruncate(fd, size);
}

/* What is kept behind a file's end is seen by nobody: there is nothing to undo. */
EXPORTED int fallocate(int fd, int mode, off_t offset, off_t size)
{
    char text[4096];
    if (!enter()) {
        return real.fallocate(fd, mode, offset, size);
    }
    const char *path = below(fd, text);
    enum verdict verdict = path != NULL ? judge(RESERVE, path) : GO_ON;
    if (verdict == DIE_BEFORE) {
        die();
    }
    int result = verdict == FAIL ? failure() : real.fallocate(fd, mode, offset, size);
    if (verdict == DIE_AFTER) {
        die();
    }
    leave();
    return result;
}

static int sync_watched(int fd, bool data)
{
    char text[4096];
    struct stat status;
    if (!enter()) {
        return data ? real.fdatasync(fd) : real.fsync(fd);
    }
    const char *path = below(fd, text);
    bool folder = path != NULL && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
    enum verdict verdict = path != NULL ? judge(folder ? DIRSYNC : FSYNC, path) : GO_ON;
    if (verdict == DIE_BEFORE) {
        die();
    }
    int result = 0;
    if (verdict == FAIL) {
        fault_poison(fd);
        result = failure();
    } else if (path == NULL) {
        result = data ? real.fdatasync(fd) : real.fsync(fd);
    } else if (folder) {
        fault_synced_folder(fd);
    } else if (lie[0] == '\0' || strstr(path, lie) == NULL) {
        fault_synced_file(fd);
    }
    if (verdict == DIE_AFTER) {
        die();
    }
    leave();
    return result;
}

EXPORTED int fsync(int fd)
{
    return sync_watched(fd, false);
}

EXPORTED int fdatasync(int fd)
{
    return sync_watched(fd, true);
}

EXPORTED int renameat(int from_at, const char *from, int to_at, const char *to)
{
    char names[2][FAULT_NAME_SIZE];
    char text[4096];
    if (!enter()) {
        return real.renameat(from_at, from, to_at, to);
    }
    int folder = split(to_at, to, names[0]);
    int from_folder = split(from_at, from, names[1]);
    enum verdict verdict = GO_ON;
    unsigned aside = 0;
    if (folder >= 0) {
        verdict = judge(RENAME, join(folder, names[0], text));
        if (verdict == DIE_BEFORE) {
            die();
        }
        aside = fault_keep_aside(folder, names[0]);
    }
    int result = verdict == FAIL ? failure() : real.renameat(from_at, from, to_at, to);
    int number = errno;
    if (result == 0 && folder >= 0 && from_folder >= 0) {
        fault_note(UNDO_RENAME, folder, names[0], from_folder, names[1], aside);
    } else {
        (void)close(folder);
        (void)close(from_folder);
    }
    if (verdict == DIE_AFTER) {
        die();
    }
    errno = number;
    leave();
    return result;
}

EXPORTED int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

EXPORTED int mkdirat(int at, const char *path, mode_t mode)
{
    char name[FAULT_NAME_SIZE];
    if (!enter()) {
        return real.mkdirat(at, path, mode);
    }
    int folder = split(at, path, name);
    int result = real.mkdirat(at, path, mode);
    int number = errno;
    if (result == 0 && folder >= 0) {
        fault_note(UNDO_MKDIR, folder, name, -1, "", 0);
    } else if (folder >= 0) {
        (void)close(folder);
    }
    errno = number;
    leave();
    return result;
}

EXPORTED int unlinkat(int at, const char *path, int flags)
{
    char name[FAULT_NAME_SIZE];
    char text[4096];
    if (!enter()) {
        return real.unlinkat(at, path, flags);
    }
    int folder = split(at, path, name);
    enum verdict verdict = GO_ON;
    unsigned aside = 0;
    if (folder >= 0) {
        verdict = judge(UNLINK, join(folder, name, text));
        if (verdict == DIE_BEFORE) {
            die();
        }
        aside = (flags & AT_REMOVEDIR) != 0 ? 0 : fault_keep_aside(folder, name);
    }
    int result = verdict == FAIL ? failure() : real.unlinkat(at, path, flags);
    int number = errno;
    if (result == 0 && folder >= 0) {
        fault_note(UNDO_UNLINK, folder, name, -1, "", aside);
    } else if (folder >= 0) {
        (void)close(folder);
    }
    if (verdict == DIE_AFTER) {
        die();
    }
    errno = number;
    leave();
    return result;
}

EXPORTED ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    if (!enter()) {
        return real.sendmsg(fd, message, flags);
    }
    bool counted =
        getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.ss_family == AF_INET;
    enum verdict verdict = counted ? judge(SEND, "send") : GO_ON;
    if (verdict == DIE_BEFORE) {
        die();
    }
    ssize_t result = verdict == FAIL ? failure() : real.sendmsg(fd, message, flags);
    if (verdict == DIE_AFTER) {
        die();
    }
    leave();
    return result;
}

/* How many there were of each kind: what a sweep of nth calls has to cover. */
__attribute__((destructor)) static void tell_counts(void)
{
    if (active) {
        say("counts create %lu reserve %lu write %lu fsync %lu dirsync %lu rename %lu unlink %lu "
            "send %lu\n",
            counts[CREATE], counts[RESERVE], counts[WRITE], counts[FSYNC], counts[DIRSYNC],
            counts[RENAME], counts[UNLINK], counts[SEND]);
    }
}

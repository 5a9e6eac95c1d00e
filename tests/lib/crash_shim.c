/* A library to preload into a real daemon: the process kills itself at a chosen file operation.
 *
 *   COPPELIUS_SHIM="renameat:before:2:epoch-"   before (or after) the second renameat of a name that
 *                                               has "epoch-" in it: SIGKILL
 *
 * Operations: renameat (the new name), fsync (by the descriptor's path), openat (created files).
 * Each is counted over all threads. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static atomic_int seen;

struct plan {
    char operation[32], moment[16], pattern[64];
    int nth;
};

static bool read_plan(struct plan *plan)
{
    const char *text = getenv("COPPELIUS_SHIM");
    return text != NULL && sscanf(text, "%31[^:]:%15[^:]:%d:%63s", plan->operation, plan->moment,
                                  &plan->nth, plan->pattern) == 4;
}

/* 0: not the planned call; 1: it is, die before; 2: die after. */
static int verdict(const char *operation, const char *name)
{
    struct plan plan;
    if (!read_plan(&plan) || strcmp(plan.operation, operation) != 0 ||
        strstr(name, plan.pattern) == NULL || atomic_fetch_add(&seen, 1) + 1 != plan.nth) {
        return 0;
    }
    return strcmp(plan.moment, "before") == 0 ? 1 : 2;
}

static void die(void)
{
    (void)kill(getpid(), SIGKILL);
    for (;;) {
        (void)pause();
    }
}

EXPORTED int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    int (*real)(int, const char *, int, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "renameat");
    int when = verdict("renameat", to);
    if (when == 1) {
        die();
    }
    int result = real(from_dir, from, to_dir, to);
    if (when == 2) {
        die();
    }
    return result;
}

EXPORTED int fsync(int fd)
{
    int (*real)(int);
    char link[64];
    char path[4096];
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof(path) - 1);
    path[size > 0 ? size : 0] = '\0';
    int when = verdict("fsync", path);
    if (when == 1) {
        die();
    }
    int result = real(fd);
    if (when == 2) {
        die();
    }
    return result;
}

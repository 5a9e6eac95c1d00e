#include "ctl/spawn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "ctl/document.h"
#include "ctl/terminal.h"

#define START_ATTEMPTS 3

extern char **environ;

int spawn_settings_of(const struct args *args, struct spawn_settings *ret_settings,
                      struct problem *problem)
{
    struct spawn_settings settings = {.nodes = 1, .device = "cpu"};
    const struct {
        enum flag flag;
        unsigned long most;
    } counts[] = {{FLAG_NODES, SPAWN_NODES_MAX}, {FLAG_THREADS, 1024}};
    for (size_t i = 0; i < 2; i++) {
        const char *text = args->value[counts[i].flag];
        char *end = NULL;
        if (text == NULL) {
            continue;
        }
        unsigned long value = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || *end != '\0' || value == 0 || value > counts[i].most) {
            return problem_set(problem, ERR_USAGE, "--%s %s: give 1 to %lu",
                               flags_about[counts[i].flag].name, text, counts[i].most);
        }
        if (counts[i].flag == FLAG_NODES) {
            settings.nodes = value;
        } else {
            settings.threads = (unsigned)value;
        }
    }
    if (args->value[FLAG_DEVICE] != NULL) {
        settings.device = args->value[FLAG_DEVICE];
    }
    *ret_settings = settings;
    return 0;
}

static char *join(const char *a, const char *b)
{
    char *text = NULL;
    int size = asprintf(&text, "%s/%s", a, b);
    ASSERT(size >= 0);
    return text;
}

int spawn_find_daemon(char **ret_path, struct problem *problem)
{
    static const char *const beside[] = {"coppeliusd", "../daemon/coppeliusd",
                                         "../sbin/coppeliusd"};
    char self[PATH_MAX];
    const char *named = getenv("COPPELIUSD"); /* One thread. */
    if (named != NULL && named[0] != '\0') {
        if (access(named, X_OK) != 0) {
            problem_hint(problem, "COPPELIUSD names the daemon's program");
            return problem_set(problem, ERR_USAGE, "cannot run '%s': %s", named, err_errno(errno));
        }
        *ret_path = realpath(named, NULL);
        return 0;
    }
    ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[size > 0 ? size : 0] = '\0';
    char *slash = strrchr(self, '/');
    for (size_t i = 0; slash != NULL && i < 3; i++) {
        *slash = '\0';
        char *path = join(self, beside[i]);
        if (access(path, X_OK) == 0) {
            *ret_path = path;
            return 0;
        }
        free(path);
    }
    if (access("/usr/sbin/coppeliusd", X_OK) == 0) {
        *ret_path = strdup("/usr/sbin/coppeliusd");
        return 0;
    }
    problem_hint(problem, "install coppeliusd beside coppeliusctl, or set COPPELIUSD to its path");
    return problem_set(problem, ERR_NOT_FOUND, "no coppeliusd beside coppeliusctl");
}

/* A free port of 127.0.0.1. It is given back before the daemon takes it: the daemon says so when
 * somebody was faster. */
static unsigned free_port(int *ret_fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        if (fd >= 0) {
            (void)close(fd);
        }
        *ret_fd = -1;
        return 0;
    }
    *ret_fd = fd;
    return ntohs(address.sin_port);
}

static int find_ports(struct spawn *spawn, struct problem *problem)
{
    int fds[SPAWN_NODES_MAX];
    bool good = true;
    for (size_t i = 0; i < spawn->count; i++) { /* All are held until all are known. */
        spawn->nodes[i].port = free_port(&fds[i]);
        good = good && fds[i] >= 0;
    }
    for (size_t i = 0; i < spawn->count; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
        (void)snprintf(spawn->nodes[i].endpoint, sizeof(spawn->nodes[i].endpoint), "127.0.0.1:%u",
                       spawn->nodes[i].port);
    }
    return good ? 0
                : problem_set(problem, ERR_INTERNAL, "no free port on 127.0.0.1: %s",
                              err_errno(errno));
}

static int write_config(const struct spawn *spawn, const struct spawn_settings *settings, size_t i,
                        struct problem *problem)
{
    struct buf text = BUF_NONE;
    const struct spawn_node *node = &spawn->nodes[i];
    bool cuda = strcmp(settings->device, "cuda") == 0;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned share =
        processors > (long)spawn->count ? (unsigned)processors / (unsigned)spawn->count : 1;
    buf_print(&text, "name: node-%zu\ncluster: local\nlisten: %s\nadvertise: %s\npeers:\n", i + 1,
              node->endpoint, node->endpoint);
    for (size_t j = 0; j < spawn->count; j++) {
        buf_print(&text, "  - {name: node-%zu, address: \"%s\"}\n", j + 1,
                  spawn->nodes[j].endpoint);
    }
    buf_print(&text,
              "device: \"%s\"\ndevice_share: %s\nthreads: %u\nstate_dir: \"%s/state\"\n"
              "socket: \"off\"\nhttp: {listen: \"off\"}\ntls: off\n"
              "limits: {storage_free: 16M}\n",
              cuda ? "auto" : settings->device,
              spawn->count > 1 && strcmp(settings->device, "cpu") != 0 ? "yes" : "no",
              settings->threads > 0 ? settings->threads : share, node->folder);
    char *path = join(node->folder, "config.yaml");
    FILE *file = fopen(path, "wb");
    bool good = file != NULL && fwrite(text.bytes, 1, text.size, file) == text.size;
    int code = 0;
    if (file == NULL || fclose(file) != 0 || !good) {
        code = problem_set(problem, ERR_DISK, "'%s': %s", path, err_errno(errno));
    }
    free(path);
    buf_done(&text);
    return code;
}

/* The environment without what would change the throw-away daemon's settings (but for what only
 * makes it faster or slower) or make it talk to somebody else's service manager. */
static char **clean_environment(void)
{
    size_t count = 0;
    size_t kept = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **list = calloc(count + 1, sizeof(*list));
    ASSERT(list != NULL);
    for (size_t i = 0; i < count; i++) {
        bool tunes = strncmp(environ[i], "COPPELIUSD_EXCHANGE_THREADS=", 28) == 0;
        if ((strncmp(environ[i], "COPPELIUSD_", 11) != 0 || tunes) &&
            strncmp(environ[i], "NOTIFY_SOCKET=", 14) != 0 &&
            strncmp(environ[i], "WATCHDOG_", 9) != 0) {
            list[kept++] = environ[i];
        }
    }
    return list;
}

static void child(const struct spawn *spawn, const struct spawn_node *node, const char *config,
                  const char *log, pid_t parent, char **environment)
{
    char option[] = "--config";
    char *const arguments[] = {spawn->daemon, option, (char *)(uintptr_t)config, NULL};
    int in = open("/dev/null", O_RDONLY);
    int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 ||
        dup2(out, 2) < 0 || chdir(node->folder) != 0) {
        _exit(127);
    }
    (void)execve(spawn->daemon, arguments, environment);
    _exit(127);
}

static int start_node(struct spawn *spawn, size_t i, struct problem *problem)
{
    struct spawn_node *node = &spawn->nodes[i];
    char *config = join(node->folder, "config.yaml");
    char *log = join(node->folder, "log");
    char **environment = clean_environment();
    int code = 0;
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        child(spawn, node, config, log, parent, environment);
    }
    if (pid < 0) {
        code = problem_set(problem, ERR_INTERNAL, "fork: %s", err_errno(errno));
    } else {
        node->pid = pid;
    }
    free(environment);
    free(config);
    free(log);
    return code;
}

/* The last line of the node's log that says something, without its level. */
static void last_words(const struct spawn_node *node, char *text, size_t capacity)
{
    char *path = join(node->folder, "log");
    char tail[2048];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    (void)snprintf(text, capacity, "its log is empty");
    if (fd < 0) {
        return;
    }
    off_t size = lseek(fd, 0, SEEK_END);
    off_t from = size > (off_t)sizeof(tail) - 1 ? size - (off_t)sizeof(tail) + 1 : 0;
    ssize_t got = pread(fd, tail, sizeof(tail) - 1, from);
    (void)close(fd);
    while (got > 0 && tail[got - 1] == '\n') {
        got--;
    }
    if (got > 0) {
        tail[got] = '\0';
        const char *line = strrchr(tail, '\n');
        line = line != NULL ? line + 1 : tail;
        if (line[0] == '<' && line[1] != '\0' && line[2] == '>') {
            line += 3;
        }
        (void)snprintf(text, capacity, "%s", line);
    }
}

int spawn_alive(void *context, struct problem *problem)
{
    struct spawn *spawn = context;
    for (size_t i = 0; i < spawn->count; i++) {
        struct spawn_node *node = &spawn->nodes[i];
        if (node->pid > 0 && !node->ended && waitpid(node->pid, &node->status, WNOHANG) > 0) {
            node->ended = true;
        }
        if (node->ended) {
            char words[300];
            char how[64];
            last_words(node, words, sizeof(words));
            if (WIFSIGNALED(node->status)) {
                (void)snprintf(how, sizeof(how), "was ended by signal %d", WTERMSIG(node->status));
            } else {
                (void)snprintf(how, sizeof(how), "ended with status %d", WEXITSTATUS(node->status));
            }
            return problem_set(problem, ERR_INTERNAL, "throw-away node-%zu %s: %s", i + 1, how,
                               words);
        }
    }
    return 0;
}

/* 0 and *ret_ready, where the first node says that all are there and one of them leads. */
static int ask_ready(struct spawn *spawn, bool *ret_ready, struct problem *problem)
{
    struct client *client = NULL;
    struct answer answer = {NULL, NULL};
    struct problem own = {0};
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_CLUSTER_STATUS;
    request.cluster_status = &empty;
    *ret_ready = false;
    int code = client_open(spawn->nodes[0].endpoint, NULL, 2000, &client, &own);
    if (code == 0) {
        code = client_call(client, &request, &answer, &own);
    }
    if (code == 0) {
        *ret_ready = document_true(answer.json, "healthy") &&
                     document_integer(answer.json, "alive") >= (int64_t)spawn->count;
    }
    answer_done(&answer);
    client_close(client);
    if (code == ERR_CANCELED || code == ERR_PROTO || code == ERR_AUTH) {
        *problem = own; /* Waiting does not help. */
        return code;
    }
    return 0;
}

static int wait_ready(struct spawn *spawn, struct problem *problem)
{
    uint64_t deadline = clock_now_ms() + SPAWN_READY_MS;
    for (;;) {
        bool ready = false;
        int code = spawn_alive(spawn, problem);
        if (code == 0) {
            code = ask_ready(spawn, &ready, problem);
        }
        if (code != 0 || ready) {
            return code;
        }
        if (clock_now_ms() >= deadline) {
            char words[300];
            last_words(&spawn->nodes[0], words, sizeof(words));
            return problem_set(problem, ERR_TIMEOUT,
                               "the throw-away daemons did not become a cluster within %d s; "
                               "node-1 said last: %s",
                               SPAWN_READY_MS / 1000, words);
        }
        if (terminal_interrupted()) {
            return problem_set(problem, ERR_CANCELED, "interrupted");
        }
        (void)usleep(50000);
    }
}

static int make_base(const char *folder, struct spawn *spawn, struct problem *problem)
{
    if (folder == NULL) {
        const char *tmp = getenv("TMPDIR"); /* One thread. */
        char *pattern = join(tmp != NULL && tmp[0] == '/' ? tmp : "/tmp", "coppelius-XXXXXX");
        if (mkdtemp(pattern) == NULL) {
            int code = problem_set(problem, ERR_DISK, "'%s': %s", pattern, err_errno(errno));
            free(pattern);
            return code;
        }
        spawn->base = pattern;
        spawn->temporary = true;
        return 0;
    }
    if (mkdir(folder, 0755) != 0 && errno != EEXIST) {
        return problem_set(problem, ERR_DISK, "'%s': %s", folder, err_errno(errno));
    }
    spawn->base = realpath(folder, NULL);
    if (spawn->base == NULL) {
        return problem_set(problem, ERR_DISK, "'%s': %s", folder, err_errno(errno));
    }
    static const char *const used[] = {"nodes", "checkpoint"};
    for (size_t i = 0; i < 2; i++) {
        char *path = join(spawn->base, used[i]);
        bool there = access(path, F_OK) == 0;
        int code =
            there ? problem_set(problem, ERR_USAGE, "'%s' is there from another run", path) : 0;
        free(path);
        if (there) {
            problem_hint(problem, "give --dir another folder, or remove that one");
            free(spawn->base); /* Nothing in it is ours. */
            spawn->base = NULL;
            return code;
        }
    }
    return 0;
}

static int make_folders(struct spawn *spawn, struct problem *problem)
{
    char *nodes = join(spawn->base, "nodes");
    int code = mkdir(nodes, 0755) == 0
                   ? 0
                   : problem_set(problem, ERR_DISK, "'%s': %s", nodes, err_errno(errno));
    for (size_t i = 0; code == 0 && i < spawn->count; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "node-%zu", i + 1);
        spawn->nodes[i].folder = join(nodes, name);
        char *state = join(spawn->nodes[i].folder, "state");
        if (mkdir(spawn->nodes[i].folder, 0755) != 0 || mkdir(state, 0700) != 0) {
            code = problem_set(problem, ERR_DISK, "'%s': %s", state, err_errno(errno));
        }
        free(state);
    }
    free(nodes);
    return code;
}

static int start_all(struct spawn *spawn, const struct spawn_settings *settings,
                     struct problem *problem)
{
    int code = find_ports(spawn, problem);
    for (size_t i = 0; code == 0 && i < spawn->count; i++) {
        code = write_config(spawn, settings, i, problem);
    }
    for (size_t i = 0; code == 0 && i < spawn->count; i++) {
        code = start_node(spawn, i, problem);
    }
    return code == 0 ? wait_ready(spawn, problem) : code;
}

/* Whether a daemon ended because its port was not free any more. */
static bool port_was_taken(const struct spawn *spawn)
{
    for (size_t i = 0; i < spawn->count; i++) {
        char words[300];
        last_words(&spawn->nodes[i], words, sizeof(words));
        if (spawn->nodes[i].ended && strstr(words, "cannot listen on ") != NULL) {
            return true;
        }
    }
    return false;
}

int spawn_start(const struct spawn_settings *settings, struct spawn *spawn, struct problem *problem)
{
    ASSERT(settings->nodes >= 1);
    ASSERT(settings->nodes <= SPAWN_NODES_MAX);
    memset(spawn, 0, sizeof(*spawn));
    spawn->count = settings->nodes;
    int code = spawn_find_daemon(&spawn->daemon, problem);
    if (code == 0) {
        code = make_base(settings->folder, spawn, problem);
    }
    if (code == 0) {
        code = make_folders(spawn, problem);
    }
    for (int attempt = 1; code == 0; attempt++) {
        code = start_all(spawn, settings, problem);
        if (code == 0) {
            return 0;
        }
        spawn_stop(spawn);
        if (attempt == START_ATTEMPTS || !port_was_taken(spawn)) {
            return code;
        }
        *problem = (struct problem){0}; /* Somebody was faster: other ports. */
        for (size_t i = 0; i < spawn->count; i++) {
            spawn->nodes[i].pid = 0;
            spawn->nodes[i].ended = false;
        }
        code = 0;
    }
    return code;
}

void spawn_stop(struct spawn *spawn)
{
    uint64_t deadline = clock_now_ms() + SPAWN_STOP_MS;
    bool killed = false;
    for (size_t i = 0; i < spawn->count; i++) {
        if (spawn->nodes[i].pid > 0 && !spawn->nodes[i].ended) {
            (void)kill(spawn->nodes[i].pid, SIGTERM);
        }
    }
    for (;;) {
        size_t left = 0;
        for (size_t i = 0; i < spawn->count; i++) {
            struct spawn_node *node = &spawn->nodes[i];
            if (node->pid <= 0 || node->ended) {
                continue;
            }
            pid_t got = waitpid(node->pid, &node->status, WNOHANG);
            node->ended = got > 0 || (got < 0 && errno == ECHILD);
            left += node->ended ? 0 : 1;
        }
        if (left == 0) {
            return;
        }
        if (!killed && clock_now_ms() >= deadline) {
            for (size_t i = 0; i < spawn->count; i++) {
                if (spawn->nodes[i].pid > 0 && !spawn->nodes[i].ended) {
                    (void)kill(spawn->nodes[i].pid, SIGKILL);
                }
            }
            killed = true;
        }
        (void)usleep(20000);
    }
}

void spawn_keep_logs(struct spawn *spawn, struct problem *problem)
{
    char *logs = spawn->base != NULL ? join(spawn->base, "logs") : NULL;
    bool there = logs != NULL && (mkdir(logs, 0755) == 0 || errno == EEXIST);
    for (size_t i = 0; there && i < spawn->count; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "node-%zu.log", i + 1);
        char *from = join(spawn->nodes[i].folder != NULL ? spawn->nodes[i].folder : "", "log");
        char *to = join(logs, name);
        spawn->logs = rename(from, to) == 0 || spawn->logs;
        free(from);
        free(to);
    }
    if (spawn->logs) {
        problem_hint(problem, "the daemons' logs are in %s", logs);
    } else if (there) {
        (void)rmdir(logs);
    }
    free(logs);
}

void spawn_done(struct spawn *spawn, bool keep)
{
    struct fs *fs = NULL;
    struct err unused = {0};
    spawn_stop(spawn);
    if (spawn->base != NULL && !keep && fs_posix_open(spawn->base, &fs, &unused) == 0) {
        (void)fs_remove_tree(fs, "nodes", &unused);
        if (spawn->temporary) {
            (void)fs_remove_tree(fs, "checkpoint", &unused);
        }
        fs_posix_close(fs);
        if (spawn->temporary && !spawn->logs) {
            (void)rmdir(spawn->base);
        }
    }
    for (size_t i = 0; i < spawn->count; i++) {
        free(spawn->nodes[i].folder);
    }
    free(spawn->base);
    free(spawn->daemon);
    memset(spawn, 0, sizeof(*spawn));
}

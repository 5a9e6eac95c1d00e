#include "daemon/doctor.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "gpu/gpu.h"

#define FSYNC_TRIES   5
#define FSYNC_SLOW_MS 50
#define FSYNC_BAD_MS  1000
#define CONNECT_MS    2000
#define FDS_LEAST     1024
#define DRIVER_LEAST  13000      /* cuDriverGetVersion() of driver 580 */
#define WALL_LEAST_S  1704067200 /* 2024-01-01: no clock is right before */

struct list {
    struct document_check *checks;
    size_t count;
};

static void add(struct list *list, const char *name, enum document_state state, const char *hint,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

static void add(struct list *list, const char *name, enum document_state state, const char *hint,
                const char *format, ...)
{
    if (list->count == DOCTOR_CHECKS_MAX) {
        return;
    }
    struct document_check *check = &list->checks[list->count++];
    *check = (struct document_check){.state = state};
    (void)snprintf(check->name, sizeof(check->name), "%s", name);
    (void)snprintf(check->hint, sizeof(check->hint), "%s", hint);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(check->text, sizeof(check->text), format, arguments);
    va_end(arguments);
}

static int by_size(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* The median of a few writes of 4 KiB with fsync: what a vote costs on this disk. */
static int fsync_median_ms(int folder, double *ret_ms)
{
    static const char name[] = ".doctor";
    uint64_t took_ns[FSYNC_TRIES];
    char bytes[4096];
    memset(bytes, 'd', sizeof(bytes));
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return errno;
    }
    int error = 0;
    for (size_t i = 0; i < FSYNC_TRIES && error == 0; i++) {
        uint64_t began_ns = clock_now_ns();
        if (write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes) || fdatasync(fd) != 0) {
            error = errno != 0 ? errno : EIO;
        }
        took_ns[i] = clock_now_ns() - began_ns;
    }
    (void)close(fd);
    (void)unlinkat(folder, name, 0);
    if (error == 0) {
        qsort(took_ns, FSYNC_TRIES, sizeof(took_ns[0]), by_size);
        *ret_ms = (double)took_ns[FSYNC_TRIES / 2] / 1e6;
    }
    return error;
}

static void look_at_disk(const struct doctor_settings *settings, struct list *list)
{
    int folder = open(settings->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        add(list, "state", DOCUMENT_FAILED,
            "make the folder, owned by the daemon's user, or set another state_dir",
            "state_dir '%s': %s", settings->state_dir, err_errno(errno));
        return;
    }
    double median_ms = 0;
    (void)unlinkat(folder, ".doctor", 0); /* Of a doctor that was killed. */
    int error = fsync_median_ms(folder, &median_ms);
    if (error != 0) {
        add(list, "state", DOCUMENT_FAILED,
            "let the daemon's user write there (chown), or free space on that disk",
            "state_dir '%s' cannot be written: %s", settings->state_dir, err_errno(error));
    } else {
        add(list, "state", DOCUMENT_OK, "", "state_dir '%s' is there and can be written",
            settings->state_dir);
        enum document_state state = median_ms > FSYNC_BAD_MS    ? DOCUMENT_FAILED
                                    : median_ms > FSYNC_SLOW_MS ? DOCUMENT_WARNING
                                                                : DOCUMENT_OK;
        add(list, "disk-sync", state,
            state == DOCUMENT_OK ? "" : "put state_dir on a local disk: every vote waits for this",
            "a synced write of 4 KiB takes %.1f ms (median of %d)", median_ms, FSYNC_TRIES);
    }
    struct statvfs stat;
    if (fstatvfs(folder, &stat) == 0) {
        uint64_t free_bytes = (uint64_t)stat.f_bavail * stat.f_frsize;
        bool low = free_bytes < settings->storage_free_least;
        add(list, "disk-space", low ? DOCUMENT_FAILED : DOCUMENT_OK,
            low ? "free space or put state_dir on a larger disk: a checkpoint that does not fit is "
                  "refused"
                : "",
            "%.1f GiB are free below '%s'", (double)free_bytes / (double)(1U << 30),
            settings->state_dir);
    }
    (void)close(folder);
}

typedef int cu_init_fn(unsigned);
typedef int cu_version_fn(int *);
typedef int cu_count_fn(int *);
typedef int cu_attribute_fn(int *, int, int);

#define ATTRIBUTE_MAJOR 75 /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_… */
#define ATTRIBUTE_MINOR 76

/* dlsym gives an object pointer; a function's is asked for. */
static void *entry(void *library, const char *name)
{
    return dlsym(library, name);
}

/* Whether the language model's products have measured choices; architecture 90 for sm_90, 0: no
 * GPU is seen, and only the file is looked at. */
static void look_at_tiles(const struct doctor_settings *settings, int architecture,
                          struct list *list)
{
    struct err missing = {0};
    struct err err = {0};
    size_t served = 0;
    size_t count = 0;
    const char *from = settings->tile_choices[0] != '\0' ? settings->tile_choices : "built in";
    if (gpu_check_tiles(settings->tile_choices, architecture, &served, &count, &missing, &err) !=
        0) {
        add(list, "tiles", DOCUMENT_FAILED,
            "measure again with `coppeliusctl bench tiles`, or take tile_choices: out", "%s",
            err.text);
    } else if (architecture != 0 && served < count) {
        add(list, "tiles", DOCUMENT_WARNING,
            "run `coppeliusctl bench tiles` here and give its output as tile_choices:; only the "
            "language model needs it",
            "%zu of %zu products have a measured choice for sm_%d (%s)", served, count,
            architecture, from);
    } else if (architecture != 0) {
        add(list, "tiles", DOCUMENT_OK, "",
            "all %zu products have a measured choice for sm_%d (%s)", count, architecture, from);
    }
}

/* The first GPU's, 90 for sm_90; 0 where it cannot be had. */
static int architecture_of(void *library)
{
    union {
        void *pointer;
        cu_attribute_fn *call;
    } attribute = {entry(library, "cuDeviceGetAttribute")};
    int major = 0;
    int minor = 0;
    return attribute.pointer != NULL && attribute.call(&major, ATTRIBUTE_MAJOR, 0) == 0 &&
                   attribute.call(&minor, ATTRIBUTE_MINOR, 0) == 0
               ? major * 10 + minor
               : 0;
}

static void look_at_device(const struct doctor_settings *settings, struct list *list)
{
    if (strcmp(settings->device, "cpu") == 0) {
        add(list, "device", DOCUMENT_OK, "", "device: cpu, %ld processors are online",
            sysconf(_SC_NPROCESSORS_ONLN));
        look_at_tiles(settings, 0, list);
        return;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        add(list, "driver", DOCUMENT_FAILED,
            "install NVIDIA's driver (580 or newer), start the container with its GPU, or set "
            "device: cpu",
            "device: %s, but there is no driver here: %s", settings->device, dlerror());
        return;
    }
    union {
        void *pointer;
        cu_init_fn *call;
    } init = {entry(library, "cuInit")};
    union {
        void *pointer;
        cu_version_fn *call;
    } version_of = {entry(library, "cuDriverGetVersion")};
    union {
        void *pointer;
        cu_count_fn *call;
    } count_of = {entry(library, "cuDeviceGetCount")};
    int version = 0;
    int count = 0;
    int status = -1;
    if (init.pointer != NULL && version_of.pointer != NULL && count_of.pointer != NULL) {
        (void)version_of.call(&version);
        status = init.call(0);
        status = status == 0 ? count_of.call(&count) : status;
    }
    if (status != 0 || count == 0) {
        add(list, "device", DOCUMENT_FAILED,
            "look at `nvidia-smi`; in a container, give it the GPU (--gpus); or set device: cpu",
            "the driver (CUDA %d.%d) shows no usable GPU (error %d, %d devices)", version / 1000,
            version % 1000 / 10, status, count);
    } else if (version < DRIVER_LEAST) {
        add(list, "driver", DOCUMENT_WARNING,
            "install driver 580 or newer, or use kernels that were built with an older toolkit",
            "the driver is made for CUDA %d.%d; the kernels here may need 13.0", version / 1000,
            version % 1000 / 10);
    } else {
        add(list, "driver", DOCUMENT_OK, "", "the driver (CUDA %d.%d) shows %d GPU%s",
            version / 1000, version % 1000 / 10, count, count == 1 ? "" : "s");
        look_at_tiles(settings, architecture_of(library), list);
    }
    /* Never unloaded: the session holds the same library. */
}

static void look_at_clock(struct list *list)
{
    struct timex timex = {.modes = 0};
    int state = adjtimex(&timex);
    if (time(NULL) < WALL_LEAST_S) {
        add(list, "clock", DOCUMENT_WARNING,
            "set the clock (timedatectl set-ntp true): only log lines and listings depend on it",
            "the wall clock shows a time before 2024");
    } else if (state < 0) { /* A unit or a container may forbid the question. */
        add(list, "clock", DOCUMENT_SKIPPED, "",
            "whether the wall clock is synchronised may not be asked");
    } else if (state == TIME_ERROR || (timex.status & STA_UNSYNC) != 0) {
        add(list, "clock", DOCUMENT_WARNING,
            "start a time service (systemd-timesyncd, chrony): only log lines and listings depend "
            "on it",
            "the kernel does not know whether the wall clock is synchronised");
    } else {
        add(list, "clock", DOCUMENT_OK, "", "the wall clock is synchronised");
    }
}

static void look_at_limits(struct list *list)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    bool low = limit.rlim_cur < FDS_LEAST;
    add(list, "files", low ? DOCUMENT_WARNING : DOCUMENT_OK,
        low ? "raise it: `ulimit -n 4096` or LimitNOFILE= of the unit" : "",
        "%llu files may be open at once", (unsigned long long)limit.rlim_cur);
}

static bool split(const char *text, struct sockaddr_in *ret_address)
{
    char ip[INET_ADDRSTRLEN];
    unsigned port = 0;
    *ret_address = (struct sockaddr_in){.sin_family = AF_INET};
    if (sscanf(text, "%15[0-9.]:%5u", ip, &port) != 2 || port > 65535 ||
        inet_pton(AF_INET, ip, &ret_address->sin_addr) != 1) {
        return false;
    }
    ret_address->sin_port = htons((uint16_t)port);
    return true;
}

/* Whether the advertised address leads back here: what peers will dial. */
static void look_at_address(const struct doctor_settings *settings, struct list *list)
{
    struct sockaddr_in address;
    if (settings->advertise[0] == '\0' || !split(settings->advertise, &address)) {
        return;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = fd < 0 ? errno : 0;
    if (error == 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            socklen_t size = sizeof(error);
            if (poll(&wait, 1, CONNECT_MS) != 1) {
                error = ETIMEDOUT;
            } else {
                (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
            }
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (error == 0) {
        add(list, "address", DOCUMENT_OK, "", "the advertised address %s answers from here",
            settings->advertise);
    } else {
        add(list, "address", DOCUMENT_WARNING,
            "from another node try `nc -vz` on it; behind a port map set advertise: to the public "
            "IP:PORT",
            "the advertised address %s does not answer from here: %s", settings->advertise,
            err_errno(error));
    }
}

size_t doctor_look(const struct doctor_settings *settings, bool device_is_taken,
                   struct document_check *checks, size_t checks_count)
{
    struct list list = {checks, checks_count};
    look_at_disk(settings, &list);
    look_at_device(settings, &list);
    if (settings->selftest == NULL) {
        add(&list, "selftest", DOCUMENT_SKIPPED, "", "this node has no device of its own");
    } else if (device_is_taken) {
        add(&list, "selftest", DOCUMENT_SKIPPED, "", "a session works on the device now");
    } else {
        struct err err = {0};
        char sentence[FACTS_TEXT_SIZE] = "";
        if (settings->selftest(settings->selftest_context, sentence, sizeof(sentence), &err) == 0) {
            add(&list, "selftest", DOCUMENT_OK, "", "%s", sentence);
        } else {
            add(&list, "selftest", DOCUMENT_FAILED,
                "do not train on this node: its device or its build computes other bits", "%s",
                err.text);
        }
    }
    look_at_clock(&list);
    look_at_limits(&list);
    look_at_address(settings, &list);
    return list.count;
}

/* ---- with the cluster ---- */

static const char *own_name(const struct facts_node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].self) {
            return nodes[i].name;
        }
    }
    return "";
}

/* The lines that this node is an end of, as the pre-flight found them. */
static void look_at_lines(const struct facts *facts, const struct facts_node *nodes,
                          size_t nodes_count, struct list *list)
{
    static struct facts_pair pairs[FACTS_NODES_MAX];
    size_t good = 0;
    for (size_t i = 0; facts->pairs != NULL && i < nodes_count; i++) {
        size_t count = facts->pairs(facts->daemon, nodes[i].id, pairs, FACTS_NODES_MAX);
        for (size_t k = 0; k < count; k++) {
            const struct facts_pair *pair = &pairs[k];
            bool mine = nodes[i].self || strcmp(pair->name, own_name(nodes, nodes_count)) == 0;
            if (mine && pair->state == FACTS_LINE_FAILED) {
                add(list, "line", DOCUMENT_FAILED, "'coppeliusctl nodes -o wide' has all lines",
                    "%s", pair->reason);
            } else if (mine && pair->state == FACTS_LINE_SLOW) {
                add(list, "line", DOCUMENT_WARNING, "a job waits for its slowest line",
                    "%s to %s: %.1f MB/s", nodes[i].name, pair->name,
                    (double)pair->bytes_per_s * 1e-6);
            } else if (mine && pair->state == FACTS_LINE_GOOD) {
                good++;
            }
        }
    }
    if (good > 0) {
        add(list, "line", DOCUMENT_OK, "", "%zu lines to and from other nodes work", good);
    }
}

static void ask_facts(const struct facts *facts, struct list *list)
{
    static struct facts_check checks[FACTS_CHECKS_MAX];
    static struct facts_node nodes[FACTS_NODES_MAX];
    static struct facts_session session;
    size_t count = facts->checks(facts->daemon, checks, FACTS_CHECKS_MAX);
    ASSERT(count <= FACTS_CHECKS_MAX);
    for (size_t i = 0; i < count; i++) {
        bool seen = false; /* What was looked at just now is fresher. */
        for (size_t k = 0; k < list->count; k++) {
            seen |= strcmp(list->checks[k].name, checks[i].name) == 0;
        }
        if (!seen) {
            add(list, checks[i].name,
                !checks[i].ok     ? DOCUMENT_FAILED
                : checks[i].warns ? DOCUMENT_WARNING
                                  : DOCUMENT_OK,
                checks[i].ok && !checks[i].warns ? "" : checks[i].hint, "%s", checks[i].sentence);
        }
    }
    facts->session(facts->daemon, &session);
    ASSERT(session.images_count <= FACTS_IMAGES_MAX);
    if (session.images_count > 0) {
        char names[256] = "";
        size_t size = 0;
        for (uint32_t i = 0; i < session.images_count && size < sizeof(names) - 1; i++) {
            int more = snprintf(names + size, sizeof(names) - size, "%s%s (%s)", i > 0 ? ", " : "",
                                session.images[i].name, session.images[i].state);
            size = size + (size_t)more < sizeof(names) ? size + (size_t)more : sizeof(names) - 1;
        }
        add(list, "images", DOCUMENT_OK, "", "%s", names);
    }
    count = facts->nodes(facts->daemon, nodes, FACTS_NODES_MAX);
    ASSERT(count <= FACTS_NODES_MAX);
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].self) {
            continue;
        }
        if (nodes[i].connected && nodes[i].round_trip_s >= 0) {
            add(list, "peer", DOCUMENT_OK, "", "%s (%s) answers in %.2f ms", nodes[i].name,
                nodes[i].address, nodes[i].round_trip_s * 1e3);
        } else if (nodes[i].connected) {
            add(list, "peer", DOCUMENT_OK, "", "%s (%s) is connected", nodes[i].name,
                nodes[i].address);
        } else {
            add(list, "peer", DOCUMENT_FAILED,
                "start its daemon; try `nc -vz` on its address from here; compare both files' "
                "peers",
                "%s (%s) is not connected%s%s", nodes[i].name, nodes[i].address,
                nodes[i].reason[0] != '\0' ? ": " : "", nodes[i].reason);
        }
    }
    look_at_lines(facts, nodes, count, list);
}

struct visit {
    uv_work_t work;
    const struct doctor_settings *settings;
    const struct facts *facts;
    doctor_done_fn *done;
    void *context;
    bool device_is_taken;
    size_t count;
    struct document_check checks[DOCTOR_CHECKS_MAX];
};

static void on_work(uv_work_t *work)
{
    struct visit *visit = OWNER_OF(work, struct visit, work);
    visit->count = doctor_look(visit->settings, visit->device_is_taken, visit->checks, 0);
}

static void on_worked(uv_work_t *work, int status)
{
    struct visit *visit = OWNER_OF(work, struct visit, work);
    struct list list = {visit->checks, visit->count};
    if (status == 0 && visit->facts != NULL && !visit->settings->closing) {
        ask_facts(visit->facts, &list);
    }
    visit->done(visit->context, visit->checks, list.count);
    free(visit);
}

int doctor_run(uv_loop_t *loop, const struct doctor_settings *settings, const struct facts *facts,
               doctor_done_fn *done, void *context, struct err *err)
{
    struct visit *visit = calloc(1, sizeof(*visit));
    if (visit == NULL) {
        return err_set(err, ERR_NOMEM, "doctor: no memory for %zu bytes", sizeof(*visit));
    }
    visit->settings = settings;
    visit->facts = facts;
    visit->done = done;
    visit->context = context;
    if (facts != NULL) {
        static struct facts_session session;
        facts->session(facts->daemon, &session);
        visit->device_is_taken = session.open;
    }
    int status = uv_queue_work(loop, &visit->work, on_work, on_worked);
    ASSERT(status == 0);
    return 0;
}

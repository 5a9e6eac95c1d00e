#include "base/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"

#define PATH_SIZE 4096

static bool is_ours(uid_t owner)
{
    return owner == geteuid() || owner == 0;
}

int secrets_check_folder(const char *what, const char *path, int fd, struct err *err)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0) {
        return err_set(err, ERR_CONFIG, "%s '%s' cannot be looked at: %s", what, path,
                       err_errno(errno));
    }
    if (!is_ours(stat.st_uid)) {
        return err_set(err, ERR_CONFIG,
                       "%s '%s': the folder is of user %u, who could put other files there; run "
                       "`chown %u` on it, and look at what is in it",
                       what, path, (unsigned)stat.st_uid, (unsigned)geteuid());
    }
    if ((stat.st_mode & 0022) != 0 && (stat.st_mode & S_ISVTX) == 0) {
        return err_set(err, ERR_CONFIG,
                       "%s '%s': others may write to the folder (mode %03o) and put other files "
                       "there; run `chmod go-w` on it, and look at what is in it",
                       what, path, (unsigned)stat.st_mode & 0777);
    }
    return 0;
}

/* The folder that the file lies in, open: what is checked is what is read from. */
static int open_folder(const char *what, const char *path, const char **ret_name, int *ret_fd,
                       struct err *err)
{
    char folder[PATH_SIZE];
    const char *slash = strrchr(path, '/');
    size_t size = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (size >= sizeof(folder)) {
        return err_set(err, ERR_CONFIG, "%s '%.100s…': the path is too long", what, path);
    }
    memcpy(folder, path, size);
    folder[size] = '\0';
    int fd = open(size > 0 ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_CONFIG,
                       "%s '%s' cannot be read: %s", what, path, err_errno(errno));
    }
    *ret_name = slash == NULL ? path : slash + 1;
    *ret_fd = fd;
    return 0;
}

static int check_file(const char *what, const char *path, const struct stat *stat, struct err *err)
{
    if (!S_ISREG(stat->st_mode)) {
        return err_set(err, ERR_CONFIG, "%s '%s' is no file", what, path);
    }
    if (!is_ours(stat->st_uid)) {
        return err_set(err, ERR_CONFIG,
                       "%s '%s' is of user %u, and this program runs as user %u: whoever owns it "
                       "knows it; make a new one of this user",
                       what, path, (unsigned)stat->st_uid, (unsigned)geteuid());
    }
    if ((stat->st_mode & 0077) != 0) {
        return err_set(err, ERR_CONFIG,
                       "%s '%s' may be read or changed by others (mode %03o); run `chmod 600 %s`, "
                       "and take it for known to others if this machine has other users",
                       what, path, (unsigned)stat->st_mode & 0777, path);
    }
    return 0;
}

static int read_all(const char *what, const char *path, int fd, size_t size_max, struct buf *bytes,
                    struct err *err)
{
    size_t size = 0;
    ssize_t got = 0;
    buf_reserve(bytes, size_max + 1);
    do {
        got = read(fd, bytes->bytes + bytes->size, size_max + 1 - size);
        bytes->size += got > 0 ? (size_t)got : 0;
        size += got > 0 ? (size_t)got : 0;
    } while ((got > 0 || (got < 0 && errno == EINTR)) && size <= size_max);
    if (got < 0) {
        return err_set(err, ERR_CONFIG, "%s '%s' cannot be read: %s", what, path, err_errno(errno));
    }
    return size <= size_max
               ? 0
               : err_set(err, ERR_CONFIG, "%s '%s' is larger than %zu bytes", what, path, size_max);
}

int secrets_read(const char *what, const char *path, size_t size_max, struct buf *bytes,
                 struct err *err)
{
    struct stat stat;
    const char *name = NULL;
    int folder = -1;
    if (open_folder(what, path, &name, &folder, err) != 0) {
        return err->code;
    }
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    int code = 0;
    if (fd < 0 && errno == ELOOP) {
        code = err_set(err, ERR_CONFIG,
                       "%s '%s' is a symbolic link, which is not followed: give the path of the "
                       "file itself",
                       what, path);
    } else if (fd < 0 || fstat(fd, &stat) != 0) {
        code = err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_CONFIG,
                       "%s '%s' cannot be read: %s", what, path, err_errno(errno));
    }
    code = code != 0 ? code : check_file(what, path, &stat, err);
    code = code != 0 ? code : secrets_check_folder(what, path, folder, err);
    code = code != 0 ? code : read_all(what, path, fd, size_max, bytes, err);
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)close(folder);
    return code;
}

void secrets_stay_out_of_dumps(void)
{
    static const char headers_only[] = "0x10"; /* core(5): bit 4, ELF headers */
    int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    ssize_t written = fd >= 0 ? write(fd, headers_only, strlen(headers_only)) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (written != (ssize_t)strlen(headers_only)) {
        struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
    }
}

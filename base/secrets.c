#include "base/secrets.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

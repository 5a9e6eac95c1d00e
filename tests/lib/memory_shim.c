/* A library to preload into a real daemon: while the file COPPELIUS_NO_MEMORY exists, its device
 * (the CPU) has no memory to give. The CPU backend maps its arena itself; malloc and threads map
 * theirs inside the C library, where this is not asked. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    void *(*real)(void *, size_t, int, int, int, off_t);
    const char *file = getenv("COPPELIUS_NO_MEMORY");
    if (fd < 0 && file != NULL && access(file, F_OK) == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    return real(address, length, protection, flags, fd, offset);
}

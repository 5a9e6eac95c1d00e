/* A library to preload into a real daemon: what it says over TLS is kept as it was before it was
 * sealed.
 *
 *   COPPELIUS_WIRE=FOLDER    each thread's words are appended to FOLDER/said-PID-THREAD
 *
 * The records are sealed with EVP_EncryptUpdate (trust/tls_record.c), in the order in which they
 * are sent. A word that could not be kept ends the process: a hole would look like silence. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static __thread int said = -1;

static int file_of_this_thread(void)
{
    const char *folder = getenv("COPPELIUS_WIRE");
    char path[4096];
    if (said < 0 && folder != NULL) {
        (void)snprintf(path, sizeof(path), "%s/said-%d-%d", folder, (int)getpid(), (int)gettid());
        said = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    return said;
}

static void keep(const unsigned char *bytes, size_t size)
{
    int fd = file_of_this_thread();
    if (fd < 0) {
        abort();
    }
    while (size > 0) {
        ssize_t wrote = write(fd, bytes, size);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            abort();
        }
        bytes += wrote;
        size -= (size_t)wrote;
    }
}

EXPORTED int EVP_EncryptUpdate(EVP_CIPHER_CTX *cipher, unsigned char *out, int *ret_size,
                               const unsigned char *in, int size)
{
    int (*real)(EVP_CIPHER_CTX *, unsigned char *, int *, const unsigned char *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "EVP_EncryptUpdate");
    if (real == NULL) {
        abort();
    }
    if (out != NULL && in != NULL && size > 0) { /* without a place for the result it is a header */
        keep(in, (size_t)size);
    }
    return real(cipher, out, ret_size, in, size);
}

/* What a stranger may send before it is known: bytes of any kind into a connection that serves and
 * into one that dials. Nothing is ever given to a reader, no connection opens, what is kept of the
 * stranger is bounded, and an error has a sentence. The first byte chooses the side and how the
 * rest is cut into pieces. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "tests/lib/trust_files.h"
#include "trust/trust_room.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct test_folder folder;
static struct trust *trust;

static void done(void)
{
    trust_free(trust);
    test_folder_close(&folder);
}

static void feed(struct tls *tls, int fd, const uint8_t *data, size_t size, size_t piece)
{
    uint8_t bytes[4096];
    struct err err = {0};
    for (size_t at = 0; at < size && err.code == 0; at += piece) {
        size_t now = size - at < piece ? size - at : piece;
        struct iovec part = {bytes, sizeof(bytes)};
        unsigned reads = 64;
        if (send(fd, data + at, now, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)now) {
            break;
        }
        ssize_t got = tls_read(tls, &part, 1, &reads, &err);
        ASSERT(got <= 0);
        ASSERT(got == 0 || err.code != 0);
        ASSERT(got == 0 || err.text[0] != '\0');
        ASSERT(!tls_is_open(tls));
        ASSERT(tls->shaken <= TLS_HANDSHAKE_MAX + 4096);
        ASSERT(tls->plain_size == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a"};
    int pair[2];
    struct tls *tls = NULL;
    struct err err = {0};
    if (trust == NULL) {
        trust_open_nodes(&folder, "fuzz", names, 1, &trust);
        ASSERT(atexit(done) == 0);
    }
    if (size < 1) {
        return 0;
    }
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    bool serves = (data[0] & 1) != 0;
    if (serves) {
        ASSERT(tls_accept(trust, pair[0], (data[0] & 2) != 0, &tls, &err) == 0);
    } else {
        ASSERT(tls_dial(trust, pair[0], "a", &tls, &err) == 0);
    }
    feed(tls, pair[1], data + 1, size - 1, 1 + (size_t)(data[0] >> 2) * 37);
    tls_free(tls);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return 0;
}

/* A connection to a port of this process, for the targets that talk to a listening socket.
 *
 * A hundred thousand connections a run leave as many in TIME_WAIT: each one comes from an address
 * of its own, and one that cannot be made at once (libFuzzer's alarm interrupts it, its four
 * numbers are still in use) is made again from the next. Of a hundred none: the port does not
 * listen. */
#ifndef COPPELIUS_TESTS_FUZZ_DIAL_H
#define COPPELIUS_TESTS_FUZZ_DIAL_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/assert.h"

/* The caller closes what comes back. */
static int dial(uint16_t port)
{
    static uint32_t times;
    const struct linger reset = {1, 0};
    const struct timeval patience = {.tv_sec = 1};
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int attempt = 0; attempt < 100; attempt++) {
        struct sockaddr_in from = {.sin_family = AF_INET};
        from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 65536U + times++ % 6000000U);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ASSERT(fd >= 0);
        ASSERT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
        ASSERT(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0);
        if (bind(fd, (const struct sockaddr *)&from, sizeof(from)) == 0 &&
            connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0) {
            return fd;
        }
        (void)fprintf(stderr, "dial: attempt %d: %s\n", attempt + 1, strerror(errno));
        (void)close(fd);
    }
    const bool can_be_reached = false;
    ASSERT(can_be_reached);
    return -1;
}

#endif

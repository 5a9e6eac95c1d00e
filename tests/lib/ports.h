/* Ports of 127.0.0.1 that are a test's own until its process ends, also beside other tests: from
 * below the range that the kernel gives to connections, each held by a lock on a file of its own,
 * as tests/e2e/ports.py does. (A port that bind(0) gave is anybody's again once it is closed.) */
#ifndef COPPELIUS_TESTS_PORTS_H
#define COPPELIUS_TESTS_PORTS_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

#define TEST_PORTS_FIRST 20000U
#define TEST_PORTS_END   32768U /* Linux' ip_local_port_range begins there. */

static inline bool test_port_is_free(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(fd >= 0);
    ASSERT(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0);
    bool is_free = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    (void)close(fd);
    return is_free;
}

/* One that nobody has; the lock goes with the process. */
static inline uint16_t test_port(void)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "/tmp/coppelius-ports-%u", (unsigned)getuid());
    (void)mkdir(path, 0700);
    uint32_t count = TEST_PORTS_END - TEST_PORTS_FIRST;
    static uint32_t taken; /* One thread. */
    for (uint32_t tries = 0; tries < count; tries++) {
        uint32_t at = ((uint32_t)getpid() * 37U + taken++) % count;
        uint16_t port = (uint16_t)(TEST_PORTS_FIRST + at);
        (void)snprintf(path, sizeof(path), "/tmp/coppelius-ports-%u/%u", (unsigned)getuid(), port);
        int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ASSERT(lock >= 0);
        if (flock(lock, LOCK_EX | LOCK_NB) == 0 && test_port_is_free(port)) {
            return port; /* and lock stays open */
        }
        (void)close(lock);
    }
    bool there_is_a_free_port = false;
    ASSERT(there_is_a_free_port);
    return 0;
}

#endif

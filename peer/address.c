#include "peer/address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG       512
#define STATE_LISTEN  0x0A /* in /proc/net/tcp */
#define PATH_MAX_HERE 300

int peer_address_parse(const char *text, struct sockaddr_in *ret_address, struct err *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[INET_ADDRSTRLEN];
    const char *colon = strrchr(text, ':');
    char *rest = NULL;
    if (colon == NULL || colon == text || colon[1] < '0' || colon[1] > '9') {
        return err_set(err, ERR_CONFIG, "'%s' is no address; give IP:PORT, such as 10.0.0.2:7620",
                       text);
    }
    size_t host_size = (size_t)(colon - text);
    errno = 0;
    unsigned long port = strtoul(colon + 1, &rest, 10);
    if (errno != 0 || *rest != '\0' || port > 65535) {
        return err_set(err, ERR_CONFIG, "'%s': the port must be a number from 0 to 65535", text);
    }
    if (host_size < sizeof(host)) {
        memcpy(host, text, host_size);
        host[host_size] = '\0';
    }
    if (host_size >= sizeof(host) || inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        return err_set(err, ERR_CONFIG,
                       "'%s' does not begin with an IPv4 address; give four numbers, such as "
                       "10.0.0.2:7620 (names and IPv6 are not used)",
                       text);
    }
    address.sin_port = htons((uint16_t)port);
    *ret_address = address;
    return 0;
}

void address_print(const struct sockaddr_in *address, char text[PEER_ADDRESS_SIZE])
{
    char host[INET_ADDRSTRLEN] = "?";
    (void)inet_ntop(AF_INET, &address->sin_addr, host, sizeof(host));
    (void)snprintf(text, PEER_ADDRESS_SIZE, "%s:%u", host, (unsigned)ntohs(address->sin_port));
}

/* The inode of the socket that listens on the port, at this address or at all. */
static unsigned long listener_inode(const struct sockaddr_in *address)
{
    FILE *file = fopen("/proc/net/tcp", "re");
    char line[512];
    unsigned long inode = 0;
    if (file == NULL) {
        return 0;
    }
    while (inode == 0 && fgets(line, sizeof(line), file) != NULL) {
        unsigned ip = 0;
        unsigned port = 0;
        unsigned state = 0;
        unsigned long found = 0;
        /* sl local:port remote:port st tx:rx tr:when retrnsmt uid timeout inode */
        // NOLINTNEXTLINE(cert-err34-c): a line of the kernel's; what does not match is skipped
        if (sscanf(line, " %*u: %8X:%4X %*8X:%*4X %2X %*s %*s %*s %*u %*u %lu", &ip, &port, &state,
                   &found) == 4 &&
            state == STATE_LISTEN && port == ntohs(address->sin_port) &&
            (ip == 0 || ip == address->sin_addr.s_addr || address->sin_addr.s_addr == INADDR_ANY)) {
            inode = found;
        }
    }
    (void)fclose(file);
    return inode;
}

static bool holds(const char *pid, const char *wanted)
{
    char path[PATH_MAX_HERE];
    char target[64];
    bool found = false;
    (void)snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return false;
    }
    for (struct dirent *entry = readdir(folder); entry != NULL && !found; entry = readdir(folder)) {
        ssize_t size = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        if (size > 0) {
            target[size] = '\0';
            found = strcmp(target, wanted) == 0;
        }
    }
    (void)closedir(folder);
    return found;
}

int address_holder(const struct sockaddr_in *address)
{
    char wanted[64];
    int holder = 0;
    unsigned long inode = listener_inode(address);
    DIR *folder = inode != 0 ? opendir("/proc") : NULL;
    if (folder == NULL) {
        return 0;
    }
    (void)snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    for (struct dirent *entry = readdir(folder); entry != NULL && holder == 0;
         entry = readdir(folder)) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && holds(entry->d_name, wanted)) {
            holder = (int)strtol(entry->d_name, NULL, 10);
        }
    }
    (void)closedir(folder);
    return holder;
}

int address_listen(const struct sockaddr_in *address, int *ret_fd, struct err *err)
{
    char text[PEER_ADDRESS_SIZE];
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    address_print(address, text);
    if (fd < 0) {
        return err_set(err, ERR_REACH, "cannot make a socket: %s", err_errno(errno));
    }
    /* So that a restart is not kept out by the connections of the one before (TIME_WAIT). */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        bind(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 ||
        listen(fd, BACKLOG) != 0) {
        int number = errno;
        int holder = number == EADDRINUSE ? address_holder(address) : 0;
        (void)close(fd);
        if (holder != 0) {
            return err_set(err, ERR_REACH,
                           "cannot listen on %s: process %d does already; stop it or choose "
                           "another port in 'listen'",
                           text, holder);
        }
        return err_set(err, ERR_REACH, "cannot listen on %s: %s; %s", text, err_errno(number),
                       number == EADDRINUSE
                           ? "stop the process that does or choose another port in 'listen'"
                           : "give an address of this machine in 'listen'");
    }
    *ret_fd = fd;
    return 0;
}

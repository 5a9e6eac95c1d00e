#include "daemon/bridges.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_bridge(int fd, const char *name)
{
    struct ethtool_drvinfo about = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq request = {.ifr_data = (char *)&about};
    (void)snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    return ioctl(fd, SIOCETHTOOL, &request) == 0 &&
           strncmp(about.driver, "bridge", sizeof(about.driver)) == 0;
}

size_t bridges_of_machine(struct bridge bridges[BRIDGES_MAX])
{
    struct ifaddrs *all = NULL;
    size_t count = 0;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || getifaddrs(&all) != 0) {
        all = NULL;
    }
    for (const struct ifaddrs *at = all; at != NULL && count < BRIDGES_MAX; at = at->ifa_next) {
        struct sockaddr_in address;
        struct sockaddr_in mask;
        if (at->ifa_addr == NULL || at->ifa_netmask == NULL || at->ifa_addr->sa_family != AF_INET ||
            !is_bridge(fd, at->ifa_name)) {
            continue;
        }
        memcpy(&address, at->ifa_addr, sizeof(address));
        memcpy(&mask, at->ifa_netmask, sizeof(mask));
        bridges[count].address = address.sin_addr;
        bridges[count].mask = mask.sin_addr;
        (void)snprintf(bridges[count].name, sizeof(bridges[count].name), "%s", at->ifa_name);
        count++;
    }
    if (all != NULL) {
        freeifaddrs(all);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return count;
}

const struct bridge *bridge_of(const struct bridge *bridges, size_t count, struct in_addr address)
{
    for (size_t i = 0; i < count; i++) {
        if (((address.s_addr ^ bridges[i].address.s_addr) & bridges[i].mask.s_addr) == 0) {
            return &bridges[i];
        }
    }
    return NULL;
}

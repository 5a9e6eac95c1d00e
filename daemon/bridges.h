/* The machine's own bridges (docker0 and its like): networks that end at the machine. An address on
 * one can be dialled from this machine and its containers, and from nowhere else. */
#ifndef COPPELIUS_DAEMON_BRIDGES_H
#define COPPELIUS_DAEMON_BRIDGES_H

#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>

#define BRIDGES_MAX 32

struct bridge {
    char name[IF_NAMESIZE];
    struct in_addr address;
    struct in_addr mask;
};

/* Those with an IPv4 address, as the kernel's driver says (no name is trusted); at most
 * BRIDGES_MAX. 0 where nothing can be asked. Blocks not; any thread. */
size_t bridges_of_machine(struct bridge bridges[BRIDGES_MAX]);
/* The bridge in whose network the address is; NULL: none. */
const struct bridge *bridge_of(const struct bridge *bridges, size_t count, struct in_addr address);

#endif

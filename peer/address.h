/* IPv4 addresses as text, and who holds a port. Any thread. Private to the room. */
#ifndef COPPELIUS_PEER_ADDRESS_H
#define COPPELIUS_PEER_ADDRESS_H

#include <netinet/in.h>
#include <stdint.h>

#include "base/err.h"
#include "peer/peer.h"

void address_print(const struct sockaddr_in *address, char text[PEER_ADDRESS_SIZE]);
/* A listening socket, SO_REUSEADDR. ERR_REACH names address, holder and what to do. */
int address_listen(const struct sockaddr_in *address, int *ret_fd, struct err *err);
/* The process that listens on the address' port, by /proc; 0: it cannot be known. */
int address_holder(const struct sockaddr_in *address);

#endif

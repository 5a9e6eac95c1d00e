/* A transport whose work is done on a thread of its own: bulk connections over TLS, so that several
 * streams seal and open on several cores while the exchange thread folds. Nothing is copied: the
 * thread works where the holder's bytes lie, so a piece of memory that was given to read() or
 * write() is the thread's until that call has answered for it:
 *
 *   write(parts) -> 0     posted                       IDLE -> POSTED
 *                         the thread seals it          POSTED <-> WORKING -> DONE
 *   write(parts) -> n     n bytes of them were taken   DONE -> IDLE
 *
 * and likewise read(). The holder must come again with the same bytes in front, or settle(). fd is
 * an eventfd that is readable when something was done; it is never waited on for writing:
 * is_busy().
 *
 * Threads: the holder's, and the pump's own. Private to the room. */
#ifndef COPPELIUS_PEER_PUMP_H
#define COPPELIUS_PEER_PUMP_H

#include "peer/transport.h"

/* Takes the inner transport, which is ready, and puts the pump in its place; where that fails
 * (ERR_NOMEM) it is still the caller's. */
int transport_pump(struct transport *transport, struct err *err);

#endif

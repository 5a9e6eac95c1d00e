/* Who comes with a token (trust/join.h): a thread each, at most JOINS_MAX, for the one who has the
 * authority. A joiner is admitted by the loop (members_admit), then its certificate is signed.
 *
 * Loop thread; a joining thread waits for the loop's answer with the joiner's deadline. */
#ifndef COPPELIUS_DAEMON_JOINS_H
#define COPPELIUS_DAEMON_JOINS_H

#include "base/buf.h"
#include "base/mailbox.h"
#include "peer/peer.h"
#include "trust/join.h"

#define JOINS_MAX         4
#define JOINS_DEADLINE_MS 20000

struct joins;

/* The loop's question to its owner: is it a member now? 1: yes, `members` has the lines; 0: not
 * yet, asked again soon; negative: refused, said in err. */
typedef int joins_admit_fn(void *context, const struct join_wish *wish, struct buf *members,
                           struct err *err);

int joins_open(uv_loop_t *loop, const char *authority, const char *cluster, joins_admit_fn *admit,
               void *context, struct joins **ret_joins, struct err *err);
/* Takes the transport: a connection whose handshake said that it wants to join. */
void joins_take(struct joins *joins, const struct peer_incoming *incoming);
/* Answers what waits; call it often while something may have changed. */
void joins_turn(struct joins *joins);
/* Ends all, waits for their threads (not long); on_closed comes on the loop. */
void joins_close(struct joins *joins, void (*on_closed)(void *context), void *context);

#endif

/* What join_talk.c (messages), join_ask.c (the joiner) and join_serve.c (the host) share. Private
 * to the room and its tests. */
#ifndef COPPELIUS_TRUST_JOIN_ROOM_H
#define COPPELIUS_TRUST_JOIN_ROOM_H

#include "trust/join.h"
#include "trust/openssl.h"
#include "trust/proof.h"

#define JOIN_MAGIC "cpj2"

struct talk {
    struct tls *tls;
    int fd;
    uint64_t deadline_ms;
};

int talk_shake(const struct talk *talk, struct err *err); /* until the connection is open */
int talk_put(const struct talk *talk, const void *bytes, size_t size, struct err *err);
int talk_take(const struct talk *talk, void *bytes, size_t size, struct err *err);
/* u32 size, body. */
int talk_put_message(const struct talk *talk, const struct buf *body, struct err *err);
int talk_take_message(const struct talk *talk, size_t most, struct buf *body, struct err *err);

void join_put_run(struct buf *body, const void *bytes, size_t size); /* u32 size, bytes */
/* What lies behind its u32 size; NULL where the reader failed. */
const uint8_t *join_read_run(struct reader *reader, uint32_t *ret_size);
void join_clean(char *text); /* printable and for one log line */

/* join_serve.c: what stands behind the joiner's proof. ERR_PROTO. */
int join_read_wish(const uint8_t *bytes, size_t size, struct join_wish *ret_wish,
                   struct buf *request, struct err *err);
/* join_ask.c: what stands behind a good verdict, and whether it is what was asked for: the pinned
 * authority, a certificate of it for the wished name and the request's key. */
int join_read_answer(struct reader *reader, struct join_answer *answer, struct err *err);
int join_check_answer(const struct token *token, const struct join_wish *wish, const void *request,
                      size_t request_size, const struct join_answer *answer, struct err *err);

#endif

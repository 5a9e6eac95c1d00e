/* Slices of two vectors to rank 0, beside the steps: on the last stream, behind what the steps
 * queue there, frame by frame. That stream's worker. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "peer/exchange_room.h"

#define COPY_SIZE (1U << 20) /* of rank 0's own slices in one turn of the loop */

static size_t slice_size(const struct exchange *exchange, uint32_t participant)
{
    const struct participant *from = &exchange->participants[participant];
    return (size_t)(from->end - from->first) * sizeof(double);
}

static uint8_t *slice_of(const struct exchange *exchange, uint32_t participant, int which)
{
    uint64_t first = exchange->participants[participant].first - exchange->coordinates_first;
    return (uint8_t *)(exchange->gather.vectors[which] + first);
}

bool gather_is_of(const struct worker *worker)
{
    return worker_of_stream(worker->exchange, worker->exchange->settings.streams - 1) == worker;
}

int gather_open(struct exchange *exchange, struct err *err)
{
    struct gather *gather = &exchange->gather;
    for (int which = 0; which < 2; which++) {
        gather->have[which] = calloc(exchange->participants_count, sizeof(size_t));
        if (gather->have[which] == NULL) {
            return err_set(err, ERR_NOMEM, "no memory for the gather's counters");
        }
    }
    return 0;
}

void gather_done(struct exchange *exchange)
{
    for (int which = 0; which < 2; which++) {
        free(exchange->gather.have[which]);
        free(exchange->gather.vectors[which]);
    }
}

/* The slices are no longer borrowed. */
static void give_back(struct exchange *exchange)
{
    struct gather_message *mail = exchange->gather.mail;
    ASSERT(mail != NULL);
    exchange->gather.mail = NULL;
    mail->message.kind = NEWS_SLICES_SENT;
    mailbox_put(&exchange->loop_box, &mail->message);
}

/* Rank 0: room for the whole vectors of a step. A newer step replaces an unfinished one in the same
 * memory: a body that is on its way into it stays valid. */
static int begin_receiving(struct exchange *exchange, uint64_t step, struct err *err)
{
    struct gather *gather = &exchange->gather;
    size_t count = (size_t)(exchange->coordinates_end - exchange->coordinates_first);
    for (int which = 0; which < 2; which++) {
        if (gather->vectors[which] == NULL) {
            gather->vectors[which] = malloc(count * sizeof(double));
        }
        if (gather->vectors[which] == NULL) {
            return err_set(err, ERR_NOMEM, "no memory for two vectors of %zu coordinates", count);
        }
        for (uint32_t p = 0; p < exchange->participants_count; p++) {
            atomic_store(&gather->have[which][p], 0);
        }
    }
    gather->open = true;
    gather->step = step;
    gather->missing = 2 * exchange->participants_count;
    return 0;
}

static void hand_over(struct worker *worker)
{
    struct exchange *exchange = worker->exchange;
    struct gather *gather = &exchange->gather;
    struct gathered_message *news = malloc(sizeof(*news));
    if (news == NULL) {
        struct err err = {0};
        (void)err_set(&err, ERR_NOMEM, "no memory to hand the gathered vectors over");
        exchange_fail(worker, EXCHANGE_NOBODY, &err);
        return;
    }
    *news = (struct gathered_message){.message = {.kind = NEWS_GATHERED},
                                      .step = gather->step,
                                      .vectors = {gather->vectors[0], gather->vectors[1]}};
    gather->vectors[0] = NULL;
    gather->vectors[1] = NULL;
    gather->open = false;
    mailbox_put(&exchange->loop_box, &news->message);
}

static void slice_came(struct worker *worker)
{
    ASSERT(worker->exchange->gather.missing > 0);
    if (--worker->exchange->gather.missing == 0) {
        hand_over(worker);
    }
}

static void on_copy(uv_idle_t *idle)
{
    struct exchange *exchange = OWNER_OF(idle, struct exchange, gather.copying);
    struct worker *worker = worker_of_stream(exchange, exchange->settings.streams - 1);
    struct gather *gather = &exchange->gather;
    size_t size = slice_size(exchange, exchange->rank);
    if (!gather->open || gather->step != gather->mail->step) {
        gather->copied = 2 * size; /* Replaced by a newer one: nobody waits for it. */
    }
    if (gather->copied < 2 * size) {
        int which = gather->copied < size ? 0 : 1;
        size_t from = gather->copied - (which == 1 ? size : 0);
        size_t now = size - from < COPY_SIZE ? size - from : COPY_SIZE;
        memcpy(slice_of(exchange, exchange->rank, which) + from,
               (const uint8_t *)gather->mail->slices[which] + from, now);
        gather->copied += now;
        if (from + now == size) {
            slice_came(worker);
        }
    }
    if (gather->copied == 2 * size) {
        (void)uv_idle_stop(idle);
        give_back(exchange);
    }
}

static void on_slice_sent(struct link *link, struct link_send *send, bool sent)
{
    struct link_send *first = send - (send->sequence & 1); /* which of the two */
    struct exchange *exchange = OWNER_OF(first, struct exchange, gather.sends[0]);
    (void)link;
    (void)sent;
    ASSERT(exchange->gather.sends_open > 0);
    if (--exchange->gather.sends_open == 0) {
        give_back(exchange);
    }
}

void gather_start(struct worker *worker)
{
    struct exchange *exchange = worker->exchange;
    struct gather *gather = &exchange->gather;
    ASSERT(gather->mail == NULL);
    gather->mail = &exchange->gather_mail;
    if (worker->state == EXCHANGE_FAILED || worker->state == EXCHANGE_CLOSING) {
        give_back(exchange);
        return;
    }
    uint64_t step = gather->mail->step;
    if (exchange->rank == 0) {
        struct err err = {0};
        if (gather->open && gather->step > step) {
            give_back(exchange); /* The others are at a newer one already. */
        } else if ((gather->open && gather->step == step) ||
                   begin_receiving(exchange, step, &err) == 0) {
            gather->copied = 0;
            ASSERT(uv_idle_start(&gather->copying, on_copy) == 0);
        } else {
            give_back(exchange);
            exchange_fail(worker, EXCHANGE_NOBODY, &err);
        }
        return;
    }
    size_t size = slice_size(exchange, exchange->rank);
    gather->sends_open = 2;
    for (int which = 0; which < 2; which++) {
        gather->sends[which] =
            (struct link_send){.kind = PEER_GATHER,
                               .generation = exchange->settings.generation,
                               .sequence = step << 1 | (unsigned)which,
                               .bytes = (const uint8_t *)gather->mail->slices[which],
                               .size = size,
                               .on_sent = on_slice_sent};
    }
    exchange_count(&worker->counters.gather_out, 2 * size);
    for (int which = 0; which < 2; which++) {
        links_send(worker, 0, exchange->settings.streams - 1, &gather->sends[which], 1);
    }
}

void gather_stop(struct worker *worker)
{
    struct exchange *exchange = worker->exchange;
    struct gather *gather = &exchange->gather;
    if (gather->mail != NULL && exchange->rank == 0) {
        (void)uv_idle_stop(&gather->copying);
        give_back(exchange);
    }
}

int gather_place(struct worker *worker, uint32_t participant, const struct frame_header *header,
                 uint8_t **ret_place, struct err *err)
{
    struct exchange *exchange = worker->exchange;
    struct gather *gather = &exchange->gather;
    uint64_t step = header->sequence >> 1;
    int which = (int)(header->sequence & 1);
    if (exchange->rank != 0) {
        return err_set(err, ERR_PROTO, "a slice came to rank %u; rank 0 gathers", exchange->rank);
    }
    if (gather->open && step < gather->step) {
        return 0; /* Of a gather that was replaced: into the link's buffer, and dropped. */
    }
    if ((!gather->open || step > gather->step) && begin_receiving(exchange, step, err) != 0) {
        return err->code;
    }
    size_t have = gather->have[which][participant];
    size_t due = slice_size(exchange, participant) - have;
    if (header->body_size == 0 || header->body_size > due) {
        return err_set(err, ERR_PROTO,
                       "%u bytes of a slice of step %" PRIu64 " came where %zu are due",
                       header->body_size, step, due);
    }
    *ret_place = slice_of(exchange, participant, which) + have;
    return 0;
}

void gather_came(struct worker *worker, uint32_t participant, const struct frame_header *header)
{
    struct exchange *exchange = worker->exchange;
    struct gather *gather = &exchange->gather;
    int which = (int)(header->sequence & 1);
    if (!gather->open || header->sequence >> 1 != gather->step) {
        return;
    }
    exchange_count(&worker->counters.gather_in, header->body_size);
    atomic_store_explicit(&worker->counterparts[participant].data_ms, uv_now(&worker->loop),
                          memory_order_relaxed);
    gather->have[which][participant] += header->body_size;
    if (gather->have[which][participant] == slice_size(exchange, participant)) {
        slice_came(worker);
    }
}

bool gather_owes(const struct exchange *exchange, uint32_t participant, char *text, size_t size)
{
    const struct gather *gather = &exchange->gather;
    if (!gather->open || participant == exchange->rank) {
        return false;
    }
    size_t have = gather->have[0][participant] + gather->have[1][participant];
    size_t wanted = 2 * slice_size(exchange, participant);
    if (have == wanted) {
        return false;
    }
    if (text != NULL) {
        (void)snprintf(text, size, "gather of step %" PRIu64 ", %zu of %zu bytes came",
                       atomic_load(&gather->step), have, wanted);
    }
    return true;
}

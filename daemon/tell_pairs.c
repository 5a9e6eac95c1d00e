/* What is told of the lines between nodes. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/preflight.h"

size_t tell_pairs(void *context, uint32_t from, struct facts_pair *ret_pairs, size_t pairs_max)
{
    struct daemon *daemon = context;
    size_t count = 0;
    for (uint32_t i = 0; i < daemon->members_count && count < pairs_max; i++) {
        const struct member *to = &daemon->members[i];
        if (to->id == from) {
            continue;
        }
        const struct preflight_pair *pair = preflight_pair(daemon, from, to->id);
        struct facts_pair *ret = &ret_pairs[count++];
        memset(ret, 0, sizeof(*ret));
        ret->to = to->id;
        (void)snprintf(ret->name, sizeof(ret->name), "%s", to->name);
        (void)snprintf(ret->address, sizeof(ret->address), "%s", to->address);
        if (pair == NULL) {
            continue; /* FACTS_LINE_UNKNOWN */
        }
        ret->state = pair->code != 0                ? FACTS_LINE_FAILED
                     : preflight_slow(daemon, pair) ? FACTS_LINE_SLOW
                                                    : FACTS_LINE_GOOD;
        ret->age_ms = clock_now_ms() - pair->at_ms;
        ret->tls = pair->sealed;
        ret->round_trip_s = (double)pair->round_trip_ns * 1e-9;
        ret->bytes_per_s = pair->bytes_per_s;
        ret->bytes = pair->bytes;
        (void)snprintf(ret->reason, sizeof(ret->reason), "%s", pair->text);
    }
    return count;
}

bool preflight_hold_text(struct daemon *daemon, const struct state_job *job, char *text,
                         size_t capacity)
{
    struct coordinator_view view;
    members_view(daemon, &view);
    uint64_t nodes = coordinator_roster(&daemon->state, &view, job);
    const struct preflight_pair *first = NULL;
    uint32_t failed = 0;
    uint32_t missing = 0;
    for (uint32_t from = 1; nodes != 0 && from <= STATE_NODES_MAX; from++) {
        for (uint32_t to = 1; to <= STATE_NODES_MAX; to++) {
            if (from == to || (nodes >> (from - 1) & 1) == 0 || (nodes >> (to - 1) & 1) == 0) {
                continue;
            }
            const struct preflight_pair *pair = preflight_pair(daemon, from, to);
            missing += pair == NULL;
            failed += pair != NULL && pair->code != 0;
            first = first == NULL && pair != NULL && pair->code != 0 ? pair : first;
        }
    }
    if (first != NULL) {
        int used = snprintf(text, capacity, "pre-flight: %s", first->text);
        if (failed > 1 && used > 0 && (size_t)used < capacity) {
            (void)snprintf(text + used, capacity - (size_t)used,
                           " (and %u more: 'coppeliusctl nodes -o wide')", failed - 1);
        }
    } else if (missing > 0) {
        (void)snprintf(text, capacity, "pre-flight: the lines between its nodes are looked at");
    }
    return first != NULL || missing > 0;
}

#include "peer/gate.h"

#include <stddef.h>
#include <string.h>

#include "base/assert.h"

#define ONE 1000U /* a connection, in thousandths */

static void fill(struct gate_bucket *bucket, uint64_t burst, uint64_t rate, uint64_t now_ms)
{
    ASSERT(now_ms >= bucket->at_ms);
    uint64_t passed_ms = now_ms - bucket->at_ms;
    uint64_t most = burst * ONE;
    uint64_t whole_ms = most / rate; /* After so long it is full, whatever it was. */
    bucket->milli = passed_ms >= whole_ms ? most : bucket->milli + passed_ms * rate;
    bucket->milli = bucket->milli < most ? bucket->milli : most;
    bucket->at_ms = now_ms;
}

void gate_init(struct gate *gate, uint64_t now_ms)
{
    memset(gate, 0, sizeof(*gate));
    gate->all = (struct gate_bucket){(uint64_t)GATE_ALL_BURST * ONE, now_ms};
}

/* Its place, or that of the one that came least recently. */
static struct gate_source *place_of(struct gate *gate, uint32_t address, uint64_t burst,
                                    uint64_t now_ms)
{
    struct gate_source *oldest = &gate->sources[0];
    for (size_t i = 0; i < GATE_SOURCES; i++) {
        struct gate_source *source = &gate->sources[i];
        if (source->used && source->address == address) {
            return source;
        }
        if (oldest->used && (!source->used || source->bucket.at_ms < oldest->bucket.at_ms)) {
            oldest = source;
        }
    }
    *oldest = (struct gate_source){address, true, {burst * ONE, now_ms}};
    return oldest;
}

bool gate_admits(struct gate *gate, uint32_t address, bool known, uint64_t now_ms)
{
    uint64_t burst = known ? GATE_KNOWN_BURST : GATE_SOURCE_BURST;
    uint64_t rate = known ? GATE_KNOWN_RATE : GATE_SOURCE_RATE;
    struct gate_source *source = place_of(gate, address, burst, now_ms);
    fill(&source->bucket, burst, rate, now_ms);
    fill(&gate->all, GATE_ALL_BURST, GATE_ALL_RATE, now_ms);
    if (source->bucket.milli < ONE || (!known && gate->all.milli < ONE)) {
        return false;
    }
    source->bucket.milli -= ONE;
    gate->all.milli -= known ? 0 : ONE;
    return true;
}

/* Whatever loads as a snapshot writes the same bytes again and takes entries without breaking. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "control/state.h"
#include "tests/lib/agreed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void disturb(struct state *state)
{
    uint64_t ids[4] = {0};
    uint32_t count = state->jobs_count < 4 ? state->jobs_count : 4;
    if (state->applied_index > UINT64_MAX / 2 || state->generation == UINT64_MAX) {
        return; /* No log gets there. */
    }
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = state->jobs[i]->id;
    }
    (void)agreed_submit(state, 77, "fuzz");
    for (uint32_t i = 0; i < count; i++) {
        if (state_job(state, ids[i]) == NULL) {
            continue;
        }
        const struct state_epoch *open = state_job(state, ids[i])->open;
        for (uint32_t k = 0; open != NULL && k < open->shards_count; k++) {
            uint32_t node = open->shards[k].node;
            if (state_node(state, node) != NULL) {
                (void)agreed_vote(state, ids[i], node);
                open = state_job(state, ids[i])->open;
            }
        }
        (void)agreed_begin(state, ids[i], 90, true);
        (void)agreed_interrupt(state, ids[i]);
        (void)agreed_resume(state, ids[i]);
        (void)agreed_stop(state, ids[i], STOP_DROP, 0);
    }
    (void)agreed_node(state, 2, UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct state state;
    struct buf bytes = BUF_NONE;
    state_init(&state);
    if (state_load(&state, data, size, NULL) == 0) {
        state_write(&state, &bytes);
        ASSERT(bytes.size == size);
        ASSERT(memcmp(bytes.bytes, data, size) == 0);
        disturb(&state);
    }
    buf_done(&bytes);
    state_done(&state);
    return 0;
}

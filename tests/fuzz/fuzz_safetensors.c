/* A shard file's header with its data size: whatever is accepted lies within the file. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is accepted is ascending, and stays as it is the second time. */
static void settle(const uint8_t *data, const struct shard_layout *layout, uint64_t step)
{
    static struct losses losses;
    losses.count = (size_t)layout->losses_count;
    memcpy(losses.steps, data + layout->loss_steps, 8 * losses.count);
    memcpy(losses.values, data + layout->losses, 8 * losses.count);
    if (losses_settle(&losses, step) == NULL) {
        static struct losses again;
        again = losses;
        ASSERT(losses.count >= 1);
        ASSERT(losses_newest(&losses) <= step);
        ASSERT(losses_settle(&again, step) == NULL);
        ASSERT(memcmp(&again, &losses, sizeof(losses)) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shard shard = SHARD_NONE;
    struct shard_layout layout = {0};
    struct err err = {0};
    if (size < 8) {
        return 0;
    }
    struct reader in = {data, size, false};
    uint64_t header_size = read_u64(&in);
    if (header_size > in.size) {
        header_size = in.size;
    }
    if (shard_parse_header(data, 8 + (size_t)header_size, size, &shard, &layout, &err) == 0) {
        uint64_t count = shard.about.end;
        ASSERT(count >= 1);
        ASSERT(layout.parameter + 8 * count <= size);
        ASSERT(layout.accumulator + 8 * count <= size);
        ASSERT(layout.mean == 0 || layout.mean + 8 * count <= size);
        ASSERT(layout.coordinates + 16 <= size);
        ASSERT(shard.about.rank < shard.about.ranks);
        ASSERT(layout.losses_count <= LOSSES_MAX);
        ASSERT((layout.losses == 0) == (layout.losses_count == 0));
        if (layout.losses != 0) {
            uint64_t bytes = 8 * layout.losses_count;
            ASSERT(layout.loss_steps != 0);
            ASSERT(layout.loss_steps + bytes <= size);
            ASSERT(layout.losses + bytes <= size);
            settle(data, &layout, shard.about.step);
        }
        shard_done(&shard);
    } else {
        ASSERT(err.code == ERR_DAMAGED);
    }
    return 0;
}

/* A shard file's header with its data size: whatever is accepted lies within the file. */
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "checkpoint/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
        shard_done(&shard);
    } else {
        ASSERT(err.code == ERR_DAMAGED);
    }
    return 0;
}

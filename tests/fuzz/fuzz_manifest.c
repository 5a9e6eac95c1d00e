/* What manifest_parse accepts is written and read again as the same; so are lines of SHA256SUMS. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct manifest manifest;
    static struct manifest again;
    static struct sums_line lines[MANIFEST_SHARDS_MAX + 1];
    struct buf bytes = BUF_NONE;
    struct err err = {0};
    size_t count = 0;
    if (manifest_parse(data, size, &manifest, &err) == 0) {
        uint64_t at = 0;
        for (uint32_t i = 0; i < manifest.shards_count; i++) {
            ASSERT(checkpoint_name_is_plain(manifest.shards[i].file));
            ASSERT(manifest.shards[i].first == at);
            at = manifest.shards[i].end;
        }
        ASSERT(at == manifest.coordinates);
        manifest_write(&manifest, &bytes);
        ASSERT(manifest_parse(bytes.bytes, bytes.size, &again, &err) == 0);
        ASSERT(memcmp(manifest.shards, again.shards,
                      sizeof(again.shards[0]) * again.shards_count) == 0);
    }
    buf_clear(&bytes);
    if (sums_parse(data, size, lines, MANIFEST_SHARDS_MAX + 1, &count, &err) == 0) {
        for (size_t i = 0; i < count; i++) {
            sums_put(&bytes, lines[i].name, lines[i].sha256);
        }
        ASSERT(bytes.size == size); /* Digits may differ in case, nothing else. */
    }
    buf_done(&bytes);
    return 0;
}

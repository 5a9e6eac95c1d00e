/* The JSON that comes from others: a dataset's manifest (the first byte is even) and the list of
 * members that a joining node is told. What is accepted is within its bounds; a manifest is written
 * and read again as the same. (A checkpoint's manifest and safetensors' header have targets of
 * their own.) */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/roll.h"
#include "data/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void manifest(const uint8_t *data, size_t size)
{
    static struct manifest once;
    static struct manifest again;
    struct err err = {0};
    if (data_manifest_parse(data, size, &once, &err) != 0) {
        ASSERT(err.code == ERR_DAMAGED || err.code == ERR_DATA);
        ASSERT(err.text[0] != '\0');
        return;
    }
    ASSERT(once.files_count <= MANIFEST_FILES_MAX);
    ASSERT(memchr(once.target, 0, sizeof(once.target)) != NULL);
    for (size_t i = 0; i < once.files_count; i++) {
        ASSERT(strchr(once.files[i].name, '/') == NULL);
        ASSERT(once.files[i].name[0] != '.');
    }
    if (once.sparse >= 0 && once.rows != MANIFEST_UNKNOWN && once.features != MANIFEST_UNKNOWN &&
        once.nonzeros != MANIFEST_UNKNOWN && once.rows_dropped != MANIFEST_UNKNOWN) {
        struct buf bytes = BUF_NONE;
        data_manifest_write(&once, &bytes);
        ASSERT(data_manifest_parse(bytes.bytes, bytes.size, &again, &err) == 0);
        ASSERT(again.files_count == once.files_count);
        buf_done(&bytes);
    }
}

static void roll(const uint8_t *data, size_t size)
{
    static struct roll roll;
    struct err err = {0};
    if (roll_parse((const char *)data, size, &roll, &err) != 0) {
        ASSERT(err.text[0] != '\0');
        return;
    }
    ASSERT(roll.count >= 1);
    ASSERT(roll.count <= ROLL_MAX);
    ASSERT(roll_self(&roll) != NULL);
    for (uint32_t i = 0; i < roll.count; i++) {
        ASSERT(memchr(roll.entries[i].name, 0, sizeof(roll.entries[i].name)) != NULL);
        ASSERT(i == 0 || roll.entries[i - 1].node < roll.entries[i].node);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    if (data[0] % 2 == 0) {
        manifest(data + 1, size - 1);
    } else {
        roll(data + 1, size - 1);
    }
    return 0;
}

/* The read-back file: what parses has the size that its header says, and its digests hold. The
 * digests keep a fuzzer out of everything behind them, so they are also set right and tried again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/readback.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_bytes(const uint8_t *bytes, size_t size)
{
    struct readback readback;
    struct err err = {0};
    if (readback_parse(bytes, size, &readback, &err) == 0) {
        uint64_t coordinates = readback.coordinate_end - readback.coordinate_first;
        ASSERT(coordinates == (size - READBACK_HEADER_SIZE - SHA256_SIZE) / 16);
    } else {
        ASSERT(err.code == ERR_DAMAGED);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_bytes(data, size);
    if (size < READBACK_HEADER_SIZE + SHA256_SIZE) {
        return 0;
    }
    uint8_t *copy = malloc(size);
    ASSERT(copy != NULL);
    memcpy(copy, data, size);
    size_t half = (size - READBACK_HEADER_SIZE - SHA256_SIZE) / 2;
    sha256_of(copy + READBACK_HEADER_SIZE, half, copy + 64);
    sha256_of(copy + READBACK_HEADER_SIZE + half, half, copy + 96);
    sha256_of(copy, size - SHA256_SIZE, copy + size - SHA256_SIZE);
    try_bytes(copy, size);
    free(copy);
    return 0;
}

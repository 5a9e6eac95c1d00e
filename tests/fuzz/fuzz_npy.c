/* An NPY file: its header, then its import. */
#include "tests/fuzz/data_fuzz.h"

#include "data/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy npy;
    struct err err = {0};
    if (npy_parse(data, size, size, &npy, &err) != 0) {
        ASSERT(err.text[0] != '\0');
        return 0;
    }
    ASSERT(npy.offset + npy.shape[0] * npy.shape[1] * npy.item == size);
    for (size_t i = 0; i < npy.shape[0] * npy.shape[1]; i++) {
        (void)npy_value(&npy, data + npy.offset, i);
    }
    char path[128];
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.format = DATA_FORMAT_NPY;
    settings.missing = size % 2 == 0 ? DATA_MISSING_DROP_ROW : DATA_MISSING_REFUSE;
    fuzz_write(fuzz_path(path, "input.npy"), data, size);
    fuzz_import(settings, path);
    ASSERT(unlink(path) == 0);
    return 0;
}

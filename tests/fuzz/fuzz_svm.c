/* The first byte chooses storage and width, the rest is svmlight data. The width is declared, so
 * that an index of eight digits is not memory and time without end. */
#include "tests/fuzz/data_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.format = DATA_FORMAT_SVM;
    settings.storage = (enum data_storage)(data[0] % 3);
    settings.features = 1U + (data[0] >> 2) * 64U;
    char path[128];
    fuzz_write(fuzz_path(path, "input"), data + 1, size - 1);
    fuzz_import(settings, path);
    ASSERT(unlink(path) == 0);
    return 0;
}

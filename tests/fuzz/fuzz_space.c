/* The first byte chooses the settings, the rest is a whitespace table. */
#include "tests/fuzz/data_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const missing[] = {"?"};
    if (size < 1) {
        return 0;
    }
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.format = DATA_FORMAT_SPACE;
    settings.header = (data[0] & 1) != 0;
    settings.missing = (data[0] & 2) != 0 ? DATA_MISSING_DROP_ROW : DATA_MISSING_REFUSE;
    settings.missing_values = missing;
    settings.missing_values_count = 1;
    settings.target = (data[0] & 4) != 0 ? DATA_TARGET_COLUMN : DATA_TARGET_LAST;
    settings.target_column = 2;
    settings.expect_features = (data[0] & 8) != 0 ? 2 : 0;
    char path[128];
    fuzz_write(fuzz_path(path, "input"), data + 1, size - 1);
    fuzz_import(settings, path);
    ASSERT(unlink(path) == 0);
    return 0;
}

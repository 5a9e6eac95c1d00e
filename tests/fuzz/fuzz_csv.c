/* The first byte chooses the settings, the rest is a CSV file (or gzip or zstd of one). */
#include "tests/fuzz/data_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const missing[] = {"?", "NA"};
    static const char *const drop[] = {"name", "2"};
    static const char separators[] = {',', ';', '\t', ' '};
    if (size < 1) {
        return 0;
    }
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.header = (data[0] & 1) != 0;
    settings.separator = separators[data[0] >> 1 & 3];
    settings.decimal = settings.separator != ',' && (data[0] & 8) != 0 ? ',' : '.';
    settings.missing = (data[0] & 16) != 0 ? DATA_MISSING_DROP_ROW : DATA_MISSING_REFUSE;
    settings.missing_values = missing;
    settings.missing_values_count = 2;
    settings.drop = drop;
    settings.drop_count = (data[0] & 32) != 0 ? 2 : 0;
    settings.target = (data[0] & 64) != 0 ? DATA_TARGET_FIRST : DATA_TARGET_LAST;
    settings.storage = (data[0] & 128) != 0 ? DATA_STORAGE_SPARSE : DATA_STORAGE_AUTO;
    char path[128];
    fuzz_write(fuzz_path(path, "input"), data + 1, size - 1);
    fuzz_import(settings, path);
    ASSERT(unlink(path) == 0);
    return 0;
}

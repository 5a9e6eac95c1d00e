/* The first byte chooses the vocabulary, the rest is a token file. Either it is refused with a
 * sentence, or every token that it claims can be read and is below the vocabulary, whether read one
 * by one or verified as a whole. */
#include "tests/fuzz/data_fuzz.h"

static void read_all(const struct tokens_file *tokens, size_t file_size)
{
    uint16_t ids[64];
    bool good = true;
    ASSERT(tokens->count <= file_size / sizeof(ids[0]));
    for (uint64_t at = 0; at < tokens->count && good; at += 64) {
        struct err err = {0};
        size_t count = tokens->count - at < 64 ? (size_t)(tokens->count - at) : 64;
        good = tokens_read(tokens, at, count, ids, &err) == 0;
        for (size_t i = 0; good && i < count; i++) {
            ASSERT(ids[i] < tokens->vocabulary);
        }
        ASSERT(good || (err.code == ERR_DATA && err.text[0] != '\0'));
    }
    struct err err = {0};
    ASSERT((tokens_verify(tokens, NULL, &err) == 0) == good);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t vocabularies[] = {1, 2, 256, 50257, 65536};
    char path[128];
    if (size < 1) {
        return 0;
    }
    struct tokens_file tokens = TOKENS_FILE_NONE;
    struct err err = {0};
    fuzz_write(fuzz_path(path, "tokens.bin"), data + 1, size - 1);
    if (tokens_open(path, vocabularies[data[0] % 5], &tokens, &err) == 0) {
        read_all(&tokens, size - 1);
        tokens_close(&tokens);
    } else {
        ASSERT(err.text[0] != '\0');
    }
    ASSERT(unlink(path) == 0);
    return 0;
}

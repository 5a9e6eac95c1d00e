#include "gpu/model/blobs.h"

#include <stdlib.h>

#include "base/assert.h"

#define BLOB_SYMBOL(name)                                                    \
    extern const unsigned char model_blob_##name[];                          \
    extern const unsigned char model_blob_##name##_end[];                    \
    __asm__(".pushsection .rodata\n"                                         \
            ".balign 16\n"                                                   \
            ".hidden model_blob_" #name "\n"                                 \
            ".globl model_blob_" #name "\n"                                  \
            "model_blob_" #name ":\n"                                        \
            ".incbin \"" COPPELIUS_MODEL_KERNELS_DIR "/" #name ".fatbin\"\n" \
            ".hidden model_blob_" #name "_end\n"                             \
            ".globl model_blob_" #name "_end\n"                              \
            "model_blob_" #name "_end:\n"                                    \
            ".byte 0\n"                                                      \
            ".popsection\n");
#define BLOB_SYMBOLS(constant, file) BLOB_SYMBOL(file##_fp16) BLOB_SYMBOL(file##_bf16)
#define BLOB(constant, file)                                                                  \
    [MODEL_FILE_##                                                                            \
        constant] = {{#file "_fp16", model_blob_##file##_fp16, model_blob_##file##_fp16_end}, \
                     {#file "_bf16", model_blob_##file##_bf16, model_blob_##file##_bf16_end}},
#define NO_BLOB(constant, file) \
    [MODEL_FILE_##constant] = {{#file "_fp16", NULL, NULL}, {#file "_bf16", NULL, NULL}},

#if defined(COPPELIUS_MODEL_IMAGES)
MODEL_FILES_ANY(BLOB_SYMBOLS)
#define ANY(X) MODEL_FILES_ANY(X)
#else
#define ANY(X) MODEL_FILES_ANY(NO_BLOB)
#endif
#if defined(COPPELIUS_MODEL_IMAGES_HOPPER)
MODEL_FILES_HOPPER(BLOB_SYMBOLS)
#define HOPPER(X) MODEL_FILES_HOPPER(X)
#else
#define HOPPER(X) MODEL_FILES_HOPPER(NO_BLOB)
#endif

static const struct cuda_blob blobs[MODEL_FILES_COUNT][2] = {ANY(BLOB) HOPPER(BLOB)};

int model_blob_find(enum model_file file, enum model_half half, const struct cuda_blob **ret_blob,
                    struct err *err)
{
    ASSERT(half == MODEL_HALF_FP16 || half == MODEL_HALF_BF16);
    const struct cuda_blob *blob = &blobs[file][half == MODEL_HALF_BF16];
    if (blob->bytes == NULL) {
#if defined(COPPELIUS_MODEL_IMAGES)
        return err_set(err, ERR_DEVICE,
                       "device image file '%s' is missing: this build left sm_90a out (it has "
                       "%s); nothing was launched",
                       blob->name, COPPELIUS_ARCHITECTURES);
#else
        return err_set(err, ERR_DEVICE,
                       "device image file '%s' is missing: this build has none of the language "
                       "model's (COPPELIUS_MODEL_IMAGES=OFF); nothing was launched",
                       blob->name);
#endif
    }
    int status = cuda_blob_check(blob, err);
    if (status == 0) {
        *ret_blob = blob;
    }
    return status;
}

bool model_blob_any(void)
{
    return blobs[MODEL_FILE_FLAT][0].bytes != NULL;
}

int model_blob_architecture(int architecture)
{
    int next = 0;
    for (const char *at = COPPELIUS_ARCHITECTURES; *at != '\0';) {
        char *end = NULL;
        const int here = (int)strtol(at, &end, 10); /* "75 80 90a" */
        if (here > architecture && (next == 0 || here < next)) {
            next = here;
        }
        for (at = end; *at != '\0' && (*at < '0' || *at > '9'); at++) {
        }
    }
    return next;
}

bool model_blob_has(int architecture)
{
    return model_blob_architecture(architecture - 1) == architecture;
}

bool model_blob_serves(enum model_file file, int architecture)
{
    return model_file_hopper(file) ? architecture == 90 : architecture >= 80;
}

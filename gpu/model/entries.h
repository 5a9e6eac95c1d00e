/* Every kernel of the language model's images: its entry name without the half type's ending, the
 * file of kernels/ that has it and the threads of a block. One list for who loads, who records and
 * the tests that hold plans against it. Constant data, any thread. */
#ifndef COPPELIUS_GPU_MODEL_ENTRIES_H
#define COPPELIUS_GPU_MODEL_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The .cu files of kernels/: constant, file. Those of the second list are sm_90a's own. */
#define MODEL_FILES_ANY(X)    \
    X(FLAT, flat)             \
    X(GELU, gelu)             \
    X(NORM, norm)             \
    X(LAYOUT, layout)         \
    X(SOFTMAX, softmax)       \
    X(VOCABULARY, vocabulary) \
    X(SCATTER, scatter)       \
    X(PRODUCT, product)       \
    X(ATTENTION, attention)
#define MODEL_FILES_HOPPER(X)                               \
    X(ATTENTION_HOPPER, attention_hopper)                   \
    X(ATTENTION_HOPPER_BACKWARD, attention_hopper_backward) \
    X(PRODUCT_WGMMA, product_wgmma)

enum model_file {
#define MODEL_FILE_ENUM(constant, file) MODEL_FILE_##constant,
    MODEL_FILES_ANY(MODEL_FILE_ENUM) MODEL_FILES_HOPPER(MODEL_FILE_ENUM)
#undef MODEL_FILE_ENUM
        MODEL_FILES_COUNT,
};

extern const char *const model_files[MODEL_FILES_COUNT]; /* "flat": kernels/flat.cu */
bool model_file_hopper(enum model_file file);

struct model_entry {
    const char *name;
    enum model_file file;
    uint32_t threads;
};

extern const struct model_entry model_entries[];
extern const size_t model_entries_count;
/* NULL where no kernel has that name. */
const struct model_entry *model_entry_find(const char *name);

#endif

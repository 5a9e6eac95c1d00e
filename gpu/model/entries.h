/* Every kernel of the language model's images: its entry name without the half type's ending, the
 * file of kernels/ that has it and the threads of a block. One list for who loads, who records and
 * the tests that hold plans against it. Constant data, any thread. */
#ifndef COPPELIUS_GPU_MODEL_ENTRIES_H
#define COPPELIUS_GPU_MODEL_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model_file {
    MODEL_FILE_FLAT,
    MODEL_FILE_GELU,
    MODEL_FILE_NORM,
    MODEL_FILE_LAYOUT,
    MODEL_FILE_SOFTMAX,
    MODEL_FILE_VOCABULARY,
    MODEL_FILE_SCATTER,
    MODEL_FILE_PRODUCT,
    MODEL_FILE_ATTENTION,
    MODEL_FILE_ATTENTION_HOPPER, /* from here on sm_90a's own */
    MODEL_FILE_ATTENTION_HOPPER_BACKWARD,
    MODEL_FILE_PRODUCT_WGMMA,
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

/* The language model's device images inside the program: a fatbin for each .cu file and half type,
 * put there by the build (COPPELIUS_MODEL_IMAGES) for the architectures that it was made for.
 * Constant data, any thread. */
#ifndef COPPELIUS_GPU_MODEL_BLOBS_H
#define COPPELIUS_GPU_MODEL_BLOBS_H

#include "gpu/cuda.h"
#include "gpu/model/entries.h"
#include "gpu/model/model.h"

/* ERR_DEVICE names the file where the build left it out (all of them, or sm_90a's own), and one
 * that is empty or no fatbin. half is MODEL_HALF_FP16 or _BF16. */
int model_blob_find(enum model_file file, enum model_half half, const struct cuda_blob **ret_blob,
                    struct err *err);
/* Has the build put any of them in? */
bool model_blob_any(void);
/* The architectures that the build made machine code for, in ascending order; what the next one
 * after `architecture` is (0: the first), or 0 where there is none. */
int model_blob_architecture(int architecture);
bool model_blob_has(int architecture);
/* Has the file machine code for an architecture of the build? 75 has none of bf16. */
bool model_blob_serves(enum model_file file, int architecture);

#endif

/* The committed records of the language model's kernels (model.records): registers, threads, static
 * shared bytes and local bytes for each architecture, as ptxas said when they were compiled. A line
 * is
 *
 *   softmax-forward-bf16 sm_90 registers=32 threads=256 shared=32 local=0
 *
 * Plain functions, any thread. */
#ifndef COPPELIUS_GPU_MODEL_RECORDS_H
#define COPPELIUS_GPU_MODEL_RECORDS_H

#include "gpu/images.h"
#include "gpu/model/entries.h"
#include "gpu/model/model.h"

/* "softmax-forward-bf16" of "softmax_forward". */
void model_record_name(const char *entry, enum model_half half, char ret[IMAGE_NAME_SIZE]);
/* The committed record. ERR_NOT_FOUND names kernel and architecture; ERR_DEVICE: the text is
 * broken. */
int model_record_find(const char *entry, enum model_half half, int architecture,
                      struct image_record *ret_record, struct err *err);
/* Does what the driver says agree with it? ERR_DEVICE says what differs. A kernel without a record
 * for the architecture is refused, too. */
int model_record_check(const char *entry, enum model_half half, int architecture,
                       const struct image_record *reported, struct err *err);

#endif

/* A stream of bytes into a region of the arena, through two pinned buffers: while one travels the
 * other is filled. Compute thread. */
#ifndef COPPELIUS_GPU_CUDA_UPLOAD_H
#define COPPELIUS_GPU_CUDA_UPLOAD_H

#include "gpu/cuda.h"

struct cuda_upload {
    struct cuda_device *cuda;
    cu_pointer to; /* where the buffer in hand goes */
    size_t used;   /* of it */
    int buffer;    /* 0 or 1 */
    bool sent[2];  /* it may still be travelling */
};

/* Waits for what was uploaded before: the buffers are the device's only two. */
int cuda_upload_begin(struct cuda_upload *upload, struct cuda_device *cuda, cu_pointer to,
                      struct err *err);
/* bytes NULL: zeros. */
int cuda_upload_put(struct cuda_upload *upload, const void *bytes, size_t size, struct err *err);
int cuda_upload_flush(struct cuda_upload *upload, struct err *err);
/* begin, put, flush, and waits. */
int cuda_upload_all(struct cuda_device *cuda, cu_pointer to, const void *bytes, size_t size,
                    struct err *err);

#endif

#include "gpu/cuda_upload.h"

#include <string.h>

static int wait_buffer(struct cuda_upload *upload, struct err *err)
{
    if (upload->sent[upload->buffer]) {
        CUDA_TRY(upload->cuda, cuEventSynchronize(upload->cuda->staged[upload->buffer]),
                 "waiting for an upload");
        upload->sent[upload->buffer] = false;
    }
    return 0;
}

int cuda_upload_flush(struct cuda_upload *upload, struct err *err)
{
    struct cuda_device *cuda = upload->cuda;
    if (upload->used == 0) {
        return 0;
    }
    CUDA_TRY(
        cuda,
        cuMemcpyHtoDAsync_v2(upload->to, cuda->staging[upload->buffer], upload->used, cuda->work),
        "uploading");
    CUDA_TRY(cuda, cuEventRecord(cuda->staged[upload->buffer], cuda->work), "uploading");
    upload->sent[upload->buffer] = true;
    upload->to += upload->used;
    upload->used = 0;
    upload->buffer ^= 1;
    return wait_buffer(upload, err);
}

/* bytes NULL: zeros. */
int cuda_upload_put(struct cuda_upload *upload, const void *bytes, size_t size, struct err *err)
{
    while (size > 0) {
        size_t room = upload->cuda->stage_size - upload->used;
        size_t now = size < room ? size : room;
        uint8_t *to = upload->cuda->staging[upload->buffer] + upload->used;
        if (bytes != NULL) {
            memcpy(to, bytes, now);
            bytes = (const uint8_t *)bytes + now;
        } else {
            memset(to, 0, now);
        }
        upload->used += now;
        size -= now;
        if (upload->used == upload->cuda->stage_size) {
            int code = cuda_upload_flush(upload, err);
            if (code != 0) {
                return code;
            }
        }
    }
    return 0;
}

int cuda_upload_begin(struct cuda_upload *upload, struct cuda_device *cuda, cu_pointer to,
                      struct err *err)
{
    *upload = (struct cuda_upload){.cuda = cuda, .to = to};
    CUDA_TRY(cuda, cuStreamSynchronize(cuda->work), "uploading");
    return 0;
}

int cuda_upload_all(struct cuda_device *cuda, cu_pointer to, const void *bytes, size_t size,
                    struct err *err)
{
    struct cuda_upload upload;
    int code = cuda_upload_begin(&upload, cuda, to, err);
    code = code != 0 ? code : cuda_upload_put(&upload, bytes, size, err);
    code = code != 0 ? code : cuda_upload_flush(&upload, err);
    if (code == 0) {
        CUDA_TRY(cuda, cuStreamSynchronize(cuda->work), "uploading");
    }
    return code;
}

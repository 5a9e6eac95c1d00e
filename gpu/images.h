/* The registry of what a backend can launch: device images by name.
 *
 * A name is an identity: a launch names an image, and a name that is not here can launch nothing. A
 * backend fills the registry in its load stage (the CPU its functions, CUDA the loaded modules'
 * kernels with their records checked); the session closes it then. Compute thread. */
#ifndef COPPELIUS_GPU_IMAGES_H
#define COPPELIUS_GPU_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define IMAGES_MAX      256
#define IMAGE_NAME_SIZE 64

/* What the compiled image says of itself; zeros on the CPU. */
struct image_record {
    uint32_t registers;
    uint32_t threads;
    uint32_t shared_bytes;
    uint32_t local_bytes;
};

typedef void image_function(void);

struct image {
    char name[IMAGE_NAME_SIZE];
    image_function *function; /* the CPU's; cast back to its type by who launches */
    void *object;             /* a device's kernel handle */
    struct image_record record;
};

struct images {
    struct image list[IMAGES_MAX];
    size_t count;
    bool closed; /* load is over: nothing more may be registered */
};

/* Refuses a name that is empty, too long or registered before, an image that has neither function
 * nor object ("missing"), and anything once the registry is closed. */
int images_register(struct images *images, const char *name, image_function *function, void *object,
                    const struct image_record *record, struct err *err);
void images_close(struct images *images);
/* ERR_NOT_FOUND, saying the name, where there is no such image. */
int images_find(const struct images *images, const char *name, const struct image **ret_image,
                struct err *err);

#endif

#include "gpu/images.h"

#include <string.h>

int images_register(struct images *images, const char *name, image_function *function, void *object,
                    const struct image_record *record, struct err *err)
{
    if (images->closed) {
        return err_set(err, ERR_STATE, "device image '%s': the registry is closed after load",
                       name);
    }
    if (name[0] == '\0' || strlen(name) >= IMAGE_NAME_SIZE) {
        return err_set(err, ERR_DEVICE, "device image '%.80s': a name has 1 to %d bytes", name,
                       IMAGE_NAME_SIZE - 1);
    }
    if (function == NULL && object == NULL) {
        return err_set(err, ERR_DEVICE, "device image '%s' is missing", name);
    }
    for (size_t i = 0; i < images->count; i++) {
        if (strcmp(images->list[i].name, name) == 0) {
            return err_set(err, ERR_DEVICE, "device image '%s' is registered twice", name);
        }
    }
    if (images->count == IMAGES_MAX) {
        return err_set(err, ERR_DEVICE, "device image '%s': the registry holds %d images", name,
                       IMAGES_MAX);
    }
    struct image *image = &images->list[images->count];
    *image = (struct image){.function = function, .object = object};
    memcpy(image->name, name, strlen(name) + 1);
    if (record != NULL) {
        image->record = *record;
    }
    images->count++;
    return 0;
}

void images_close(struct images *images)
{
    images->closed = true;
}

int images_find(const struct images *images, const char *name, const struct image **ret_image,
                struct err *err)
{
    for (size_t i = 0; i < images->count; i++) {
        if (strcmp(images->list[i].name, name) == 0) {
            *ret_image = &images->list[i];
            return 0;
        }
    }
    return err_set(
        err, ERR_NOT_FOUND,
        "no device image is named '%s': nothing was launched (this build has %zu images)", name,
        images->count);
}

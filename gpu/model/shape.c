#include "gpu/model/model.h"

#define DEVICE_SEQUENCES_MAX 64
#define DEVICE_LENGTH_MAX    4096
#define SIZE_MAX_OF_SHAPE    (1U << 20) /* of each field: products of three stay below 2^62 */

int model_shape_check(const struct model_shape *shape, struct err *err)
{
    const struct {
        const char *name;
        uint32_t value;
    } fields[] = {
        {"sequences", shape->sequences},   {"length", shape->length}, {"width", shape->width},
        {"heads", shape->heads},           {"head", shape->head},     {"feed", shape->feed},
        {"vocabulary", shape->vocabulary},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].value < 1 || fields[i].value > SIZE_MAX_OF_SHAPE) {
            return err_set(err, ERR_JOB, "model: %s = %u; give 1 to %u", fields[i].name,
                           fields[i].value, SIZE_MAX_OF_SHAPE);
        }
    }
    if (shape->head % 2 != 0) {
        return err_set(err, ERR_JOB, "model: head = %u; rotary positions need an even size",
                       shape->head);
    }
    if ((uint64_t)shape->heads * shape->head != shape->width) {
        return err_set(err, ERR_JOB, "model: width = %u is not heads (%u) times head (%u)",
                       shape->width, shape->heads, shape->head);
    }
    if ((uint64_t)shape->sequences * shape->length > INT32_MAX / 4) {
        return err_set(err, ERR_JOB, "model: %u sequences of %u positions are more than %d tokens",
                       shape->sequences, shape->length, INT32_MAX / 4);
    }
    return 0;
}

static int check_multiple(const char *name, uint32_t value, uint32_t of, struct err *err)
{
    if (value % of == 0) {
        return 0;
    }
    return err_set(err, ERR_JOB, "model: %s = %u; the GPU's images serve multiples of %u", name,
                   value, of);
}

int model_shape_check_device(const struct model_shape *shape, struct err *err)
{
    int status = model_shape_check(shape, err);
    if (status != 0) {
        return status;
    }
    if (shape->sequences > DEVICE_SEQUENCES_MAX) {
        return err_set(err, ERR_JOB,
                       "model: sequences = %u; the GPU's images serve 1 to %d a launch",
                       shape->sequences, DEVICE_SEQUENCES_MAX);
    }
    if (shape->length > DEVICE_LENGTH_MAX) {
        return err_set(err, ERR_JOB, "model: length = %u; the GPU's images serve up to %d",
                       shape->length, DEVICE_LENGTH_MAX);
    }
    if ((status = check_multiple("length", shape->length, 128, err)) != 0 ||
        (status = check_multiple("width", shape->width, 64, err)) != 0 ||
        (status = check_multiple("head", shape->head, 64, err)) != 0 ||
        (status = check_multiple("feed", shape->feed, 128, err)) != 0 ||
        (status = check_multiple("vocabulary", shape->vocabulary, 256, err)) != 0) {
        return status;
    }
    return 0;
}

int model_operands_check(const struct model_image *image, const char *name,
                         const struct model_launch *launch, void *const operands[],
                         size_t operands_count, struct err *err)
{
    if (operands_count != model_operands_count(image)) {
        return err_set(err, ERR_STATE, "device image '%s': %zu operands, it has %zu", name,
                       operands_count, model_operands_count(image));
    }
    for (size_t i = 0; i < operands_count; i++) {
        bool used = image->operands[i].count(launch) != 0;
        if (used != (operands[i] != NULL)) {
            return err_set(err, ERR_STATE, "device image '%s': operand '%s' is %s", name,
                           image->operands[i].name, used ? "missing" : "not used by this launch");
        }
    }
    return 0;
}

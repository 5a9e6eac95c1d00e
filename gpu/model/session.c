/* The CPU session: the registry's images over the pool of threads; half operands are widened to
 * float before a launch and rounded after it, which is what the GPU's images do inside. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/cpu_pool.h"
#include "gpu/model/half.h"
#include "gpu/model/model.h"

struct model_session {
    struct model_shape shape;
    enum model_half half;
    struct cpu_pool pool;
    struct images images;
    float *staged[MODEL_OPERANDS_MAX]; /* widened half operands; grown as launches need */
    uint64_t staged_count[MODEL_OPERANDS_MAX];
};

/* What the pool shares of a launch. */
struct work {
    const struct model_launch *launch;
    void *const *operand;
    model_item *run;
};

static void work_item(void *context, size_t item, unsigned worker)
{
    (void)worker;
    const struct work *work = context;
    work->run(work->launch, work->operand, item);
}

static int register_image(struct model_session *session, const char *name, struct err *err)
{
    const struct model_image *image;
    int status = model_image_find(name, NULL, &image, err);
    if (status != 0) {
        return status;
    }
    return images_register(&session->images, name, (image_function *)image->stages[0].run, NULL,
                           NULL, err);
}

static int register_all(struct model_session *session, struct err *err)
{
    for (size_t i = 0; i < model_images_count; i++) {
        const char *name = model_images[i].name;
        if (strcmp(name, "tiled") == 0 || strcmp(name, "transpose") == 0) {
            continue; /* families: by shape, below */
        }
        int status = register_image(session, name, err);
        if (status != 0) {
            return status;
        }
    }
    struct model_name names[MODEL_PRODUCTS_MAX + 2];
    size_t count = model_products(&session->shape, names);
    count += model_transposes(&session->shape, names + count);
    for (size_t i = 0; i < count; i++) {
        int status = register_image(session, names[i].text, err);
        if (status != 0) {
            return status;
        }
    }
    images_close(&session->images);
    return 0;
}

int model_session_new(const struct model_shape *shape, enum model_half half, unsigned threads,
                      struct model_session **ret_session, struct err *err)
{
    int status = model_shape_check(shape, err);
    if (status != 0) {
        return status;
    }
    struct model_session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a session of the language model");
    }
    session->shape = *shape;
    session->half = half;
    status = cpu_pool_init(&session->pool, threads != 0 ? threads : cpu_threads_available(), err);
    if (status != 0) {
        free(session);
        return status;
    }
    status = register_all(session, err);
    if (status != 0) {
        model_session_free(session);
        return status;
    }
    *ret_session = session;
    return 0;
}

void model_session_free(struct model_session *session)
{
    if (session == NULL) {
        return;
    }
    cpu_pool_done(&session->pool);
    for (size_t i = 0; i < MODEL_OPERANDS_MAX; i++) {
        free(session->staged[i]);
    }
    free(session);
}

const struct images *model_session_images(const struct model_session *session)
{
    return &session->images;
}

/* -- launching -------------------------------------------------------------------------------- */

/* Is the launch's model the session's, but for fewer sequences? */
static int check_shape(const struct model_session *session, const char *name,
                       const struct model_launch *launch, struct err *err)
{
    struct model_shape same = launch->shape;
    same.sequences = session->shape.sequences;
    if (memcmp(&same, &session->shape, sizeof(same)) != 0) {
        return err_set(err, ERR_STATE, "device image '%s': the launch's shape is not the session's",
                       name);
    }
    if (launch->shape.sequences < 1 || launch->shape.sequences > session->shape.sequences) {
        return err_set(err, ERR_STATE, "device image '%s': %u sequences; the session has 1 to %u",
                       name, launch->shape.sequences, session->shape.sequences);
    }
    uint64_t tokens = (uint64_t)session->shape.sequences * session->shape.length;
    if (launch->rows > tokens) {
        return err_set(err, ERR_STATE, "device image '%s': %u rows; the session has %llu tokens",
                       name, launch->rows, (unsigned long long)tokens);
    }
    if (strcmp(name, "adamw") == 0 && launch->count % 4 != 0) {
        return err_set(err, ERR_STATE, "device image 'adamw': %llu elements are not whole quads",
                       (unsigned long long)launch->count);
    }
    return 0;
}

static void widen(const struct model_session *session, const uint16_t *from, float *to,
                  uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        to[i] =
            session->half == MODEL_HALF_FP16 ? half_from_fp16(from[i]) : half_from_bf16(from[i]);
    }
}

static void narrow(const struct model_session *session, const float *from, uint16_t *to,
                   uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        to[i] = session->half == MODEL_HALF_FP16 ? half_to_fp16(from[i]) : half_to_bf16(from[i]);
    }
}

/* Room for operand i as float. */
static int stage(struct model_session *session, size_t i, uint64_t count, struct err *err)
{
    if (session->staged_count[i] >= count) {
        return 0;
    }
    free(session->staged[i]);
    session->staged_count[i] = 0;
    session->staged[i] = malloc(count * sizeof(float));
    if (session->staged[i] == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu elements of an operand",
                       (unsigned long long)count);
    }
    session->staged_count[i] = count;
    return 0;
}

int model_session_launch(struct model_session *session, const char *name,
                         const struct model_launch *launch, void *const operands[],
                         size_t operands_count, struct err *err)
{
    const struct image *registered;
    int status = images_find(&session->images, name, &registered, err);
    if (status != 0) {
        return status;
    }
    struct model_launch filled = *launch;
    const struct model_image *image;
    status = model_image_find(name, &filled, &image, err);
    ASSERT(status == 0); /* it is registered */
    ASSERT(registered->function == (image_function *)image->stages[0].run);
    status = check_shape(session, name, launch, err);
    if (status != 0) {
        return status;
    }
    if (strcmp(image->name, "tiled") == 0 || strcmp(image->name, "transpose") == 0) {
        model_launch_sequences(&filled, launch->shape.sequences);
    }
    status = model_operands_check(image, name, &filled, operands, operands_count, err);
    if (status != 0) {
        return status;
    }
    void *used[MODEL_OPERANDS_MAX] = {NULL};
    for (size_t i = 0; i < operands_count; i++) {
        const struct model_operand *operand = &image->operands[i];
        uint64_t count = operand->count(&filled);
        used[i] = operands[i];
        if (operand->kind != MODEL_HALF || session->half == MODEL_HALF_F32 || count == 0) {
            continue;
        }
        status = stage(session, i, count, err);
        if (status != 0) {
            return err_prefix(err, "device image '%s': ", name);
        }
        used[i] = session->staged[i];
        if (operand->direction == MODEL_IN) {
            widen(session, operands[i], session->staged[i], count);
        }
    }
    for (size_t s = 0; s < MODEL_STAGES_MAX && image->stages[s].run != NULL; s++) {
        struct work work = {&filled, used, image->stages[s].run};
        cpu_pool_run(&session->pool, work_item, &work, image->stages[s].items(&filled), false);
    }
    for (size_t i = 0; i < operands_count; i++) {
        if (used[i] != operands[i] && image->operands[i].direction == MODEL_OUT) {
            narrow(session, session->staged[i], operands[i], image->operands[i].count(&filled));
        }
    }
    return 0;
}

/* gpu/model: the language model's device images (decoder of layer norm, rotary attention and gated
 * GELU), by name.
 *
 * The corner: launch (what a launch is told), catalogue (every image with its operands; products
 * and transposes by the shape in their name), oracle_* (each image in binary64, as its formula
 * reads), cpu_* (each image in f32 for the CPU), session (the CPU session, which launches by name),
 * half (fp16 and bf16), kernels/ (CUDA C), device (how the GPU launches an image).
 *
 * Names are identities: a name that is not in the registry can launch nothing, and a shape that an
 * image does not serve is refused with the image's name. "half" is the type of the tensor cores'
 * operands: fp16 or bf16 on a GPU; the CPU session also has f32 in its place.
 *
 * Layouts, all row-major: tokens (rows, width); qkv (rows, 3 width) = queries, keys, values, each
 * (heads, head); head layout (sequences, heads, length, head); scores (sequences, heads, length,
 * length); weights as (outputs, inputs), so that forward is X W^T. */
#ifndef COPPELIUS_GPU_MODEL_MODEL_H
#define COPPELIUS_GPU_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "gpu/images.h"
#include "gpu/model/launch.h"

enum model_kind { MODEL_F32, MODEL_HALF, MODEL_I32, MODEL_U8, MODEL_F64 };
enum model_half { MODEL_HALF_F32, MODEL_HALF_FP16, MODEL_HALF_BF16 };
enum model_direction {
    MODEL_IN,
    MODEL_OUT, /* every element is written */
    MODEL_INOUT,
    MODEL_SCRATCH, /* written before it is read, of no use afterwards */
};

typedef uint64_t model_count(const struct model_launch *launch);

struct model_operand {
    const char *name;
    enum model_kind kind;
    enum model_direction direction;
    model_count *count; /* elements; 0: not used by this launch, the pointer is NULL */
};

/* operand[] holds binary64 arrays, whatever the kind; integers are whole numbers there. */
typedef void model_oracle(const struct model_launch *launch, double *const operand[]);

/* One item of a stage on the CPU. Half operands are float here. Items write disjoint elements and
 * may run in any order, on any thread. */
typedef void model_item(const struct model_launch *launch, void *const operand[], size_t item);

#define MODEL_STAGES_MAX 3

struct model_stage {
    model_item *run;
    model_count *items;
};

struct model_image {
    const char *name; /* "tiled", "transpose": a family; the names carry the shape */
    model_oracle *oracle;
    struct model_operand operands[MODEL_OPERANDS_MAX]; /* up to the first without a name */
    struct model_stage stages[MODEL_STAGES_MAX];       /* of the CPU, one after the other */
    model_count *terms; /* how many terms the longest sum adds; NULL: few */
};

/* -- catalogue -------------------------------------------------------------------------------- */

/* All images that have a name of their own, then the families "tiled" and "transpose". */
extern const struct model_image model_images[];
extern const size_t model_images_count;

size_t model_operands_count(const struct model_image *image);

/* The image of a name. For a family the shape in the name goes to *launch (m, n, k, the storage
 * flags and add as for one sequence; groups, m, n for a transpose); other fields stay. launch may
 * be NULL. ERR_NOT_FOUND names it. */
int model_image_find(const char *name, struct model_launch *launch,
                     const struct model_image **ret_image, struct err *err);

#define MODEL_PRODUCTS_MAX 16

struct model_name {
    char text[IMAGE_NAME_SIZE];
};

/* The products of a training step of that shape, for one sequence; returns how many. No name comes
 * twice. */
size_t model_products(const struct model_shape *shape, struct model_name ret[MODEL_PRODUCTS_MAX]);
/* The transposes of its head layout, for one sequence: 2. */
size_t model_transposes(const struct model_shape *shape, struct model_name ret[2]);

/* Scales a product or transpose of one sequence to `sequences` of them: m (or k, where A is stored
 * by columns), or groups. */
void model_launch_sequences(struct model_launch *launch, uint32_t sequences);

/* -- shapes ----------------------------------------------------------------------------------- */

/* What any session asks: sizes at least 1, width = heads * head, head even, products within what
 * can be counted. ERR_JOB says which. */
int model_shape_check(const struct model_shape *shape, struct err *err);
/* And what the GPU's images serve: 1 to 64 sequences, length a multiple of 128 up to 4096, width
 * and head multiples of 64, feed of 128, vocabulary of 256. */
int model_shape_check_device(const struct model_shape *shape, struct err *err);

/* Are these the operands that the (filled) launch uses, no more and no fewer? ERR_STATE names the
 * image and the operand. */
int model_operands_check(const struct model_image *image, const char *name,
                         const struct model_launch *launch, void *const operands[],
                         size_t operands_count, struct err *err);

/* -- the CPU session -------------------------------------------------------------------------- */

struct model_session;

/* Registers every image that the shape needs. threads 0: as many as the process may run on. The
 * calling thread owns the session. */
int model_session_new(const struct model_shape *shape, enum model_half half, unsigned threads,
                      struct model_session **ret_session, struct err *err);
void model_session_free(struct model_session *session); /* NULL is fine */
const struct images *model_session_images(const struct model_session *session);
/* Runs an image and returns when it is done. The launch's shape may have fewer sequences than the
 * session's and is otherwise the session's; launch fields that the name carries are filled in here,
 * scaled to the launch's sequences. operands_count pointers in the catalogue's order: half operands
 * as float (MODEL_HALF_F32) or as 16 bits. Results do not depend on the number of threads, and a
 * row's do not depend on how many rows there are. */
int model_session_launch(struct model_session *session, const char *name,
                         const struct model_launch *launch, void *const operands[],
                         size_t operands_count, struct err *err);

#endif

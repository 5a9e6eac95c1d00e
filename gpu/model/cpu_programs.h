/* The CPU's programs: one item each, f32, in a fixed order that no thread and no other row has a
 * say in. Loops are written for the compiler to vectorise: sums in LANES accumulators, joined as a
 * tree. */
#ifndef COPPELIUS_GPU_MODEL_CPU_PROGRAMS_H
#define COPPELIUS_GPU_MODEL_CPU_PROGRAMS_H

#include "gpu/model/model.h"

#define CPU_FLAT 4096 /* elements of an item of a flat image; a multiple of 4 */
#define CPU_ROWS 8    /* rows of C of an item of a product */

/* cpu_flat.c: items of CPU_FLAT elements */
model_item cpu_random_normal;
model_item cpu_fill;
model_item cpu_copy;
model_item cpu_add;
model_item cpu_scale;
model_item cpu_adamw;
model_item cpu_gated_gelu_forward;
model_item cpu_gated_gelu_backward;
/* leaves of MODEL_SUM_LEAF elements, then one item */
model_item cpu_loss_leaf;
model_item cpu_loss_root;
model_item cpu_norm_leaf;
model_item cpu_norm_root;
/* cpu_norm.c: rows; leaves of MODEL_NORM_LEAF rows, then one item */
model_item cpu_layernorm_forward;
model_item cpu_layernorm_backward;
model_item cpu_layernorm_leaf;
model_item cpu_layernorm_root;
/* cpu_layout.c: positions, tokens, groups */
model_item cpu_rotary_table;
model_item cpu_qk_rope;
model_item cpu_value_transpose;
model_item cpu_head_to_token;
model_item cpu_token_to_head;
model_item cpu_inverse_rope_qkv;
model_item cpu_transpose;
/* cpu_vocabulary.c: rows; the scatter: leaves, leaves, tokens of the vocabulary */
model_item cpu_argmax;
model_item cpu_gather;
model_item cpu_cross_entropy;
model_item cpu_cross_entropy_backward;
model_item cpu_loss_target_gather;
/* cpu_scatter.c */
model_item cpu_scatter_order;
model_item cpu_scatter_leaf;
model_item cpu_scatter_root;
/* cpu_attention.c: rows of scores; queries; keys */
model_item cpu_softmax_forward;
model_item cpu_softmax_backward;
model_item cpu_attention_forward;
model_item cpu_attention_query;
model_item cpu_attention_key;
/* cpu_product.c: CPU_ROWS rows of C */
model_item cpu_product;

#endif

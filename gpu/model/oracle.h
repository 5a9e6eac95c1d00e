/* The oracles: every image in binary64, plainly, as the formula reads; see the file of each group
 * for formula, shapes and source. They allocate nothing, are slow, and are what everything else is
 * compared with. Any thread. */
#ifndef COPPELIUS_GPU_MODEL_ORACLE_H
#define COPPELIUS_GPU_MODEL_ORACLE_H

#include "gpu/model/model.h"

/* oracle_flat.c */
model_oracle oracle_random_normal;
model_oracle oracle_fill;
model_oracle oracle_copy;
model_oracle oracle_add;
model_oracle oracle_scale;
model_oracle oracle_adamw;
model_oracle oracle_loss_sum;
model_oracle oracle_gradient_norm;
model_oracle oracle_gated_gelu_forward;
model_oracle oracle_gated_gelu_backward;
/* oracle_norm.c */
model_oracle oracle_layernorm_forward;
model_oracle oracle_layernorm_backward;
model_oracle oracle_layernorm_parameters;
/* oracle_layout.c */
model_oracle oracle_rotary_table;
model_oracle oracle_qk_rope;
model_oracle oracle_value_transpose;
model_oracle oracle_head_to_token;
model_oracle oracle_token_to_head;
model_oracle oracle_inverse_rope_qkv;
model_oracle oracle_transpose;
/* oracle_vocabulary.c */
model_oracle oracle_argmax;
model_oracle oracle_gather;
model_oracle oracle_cross_entropy;
model_oracle oracle_cross_entropy_backward;
model_oracle oracle_loss_target_gather;
model_oracle oracle_embedding_scatter;
/* oracle_attention.c */
model_oracle oracle_softmax_forward;
model_oracle oracle_softmax_backward;
model_oracle oracle_attention_forward;
model_oracle oracle_attention_query;
model_oracle oracle_attention_key;
/* oracle_product.c */
model_oracle oracle_product;

#endif

#include "gpu/model/entries.h"

#include <string.h>

#include "gpu/model/attention_tiles.h"
#include "gpu/model/tiles.h"

const char *const model_files[MODEL_FILES_COUNT] = {
#define NAME(constant, file) [MODEL_FILE_##constant] = #file,
    MODEL_FILES_ANY(NAME) MODEL_FILES_HOPPER(NAME)
#undef NAME
};

bool model_file_hopper(enum model_file file)
{
    return file >= MODEL_FILE_ATTENTION_HOPPER;
}

#define PRODUCT(number, m, n, stages, warps_m, warps_n)                       \
    {"product_rr" #number, MODEL_FILE_PRODUCT, (warps_m) * (warps_n)*32},     \
        {"product_rc" #number, MODEL_FILE_PRODUCT, (warps_m) * (warps_n)*32}, \
        {"product_cc" #number, MODEL_FILE_PRODUCT, (warps_m) * (warps_n)*32},
#define HOPPER(file, name, groups) {name, file, (groups)*128 + 128},
#define HOPPER_PRODUCT(number, m, n, stages, groups, mode, cluster_m, cluster_n) \
    HOPPER(MODEL_FILE_PRODUCT_WGMMA, "product_rr" #number, groups)               \
    HOPPER(MODEL_FILE_PRODUCT_WGMMA, "product_rc" #number, groups)               \
    HOPPER(MODEL_FILE_PRODUCT_WGMMA, "product_cc" #number, groups)
#define FORWARD(number, head, groups, step, stages, blocks, more, fewer) \
    HOPPER(MODEL_FILE_ATTENTION_HOPPER, "hopper_forward" #number, groups)
#define QUERY(number, head, groups, step, stages, blocks, more, fewer) \
    HOPPER(MODEL_FILE_ATTENTION_HOPPER_BACKWARD, "hopper_query" #number, groups)
#define KEY(number, head, groups, step, stages, blocks, more, fewer) \
    HOPPER(MODEL_FILE_ATTENTION_HOPPER_BACKWARD, "hopper_key" #number, groups)

const struct model_entry model_entries[] = {
    {"random_normal", MODEL_FILE_FLAT, 256},
    {"fill", MODEL_FILE_FLAT, 256},
    {"copy", MODEL_FILE_FLAT, 256},
    {"cast_down", MODEL_FILE_FLAT, 256},
    {"cast_up", MODEL_FILE_FLAT, 256},
    {"add", MODEL_FILE_FLAT, 256},
    {"scale", MODEL_FILE_FLAT, 256},
    {"adamw", MODEL_FILE_FLAT, 256},
    {"loss_leaf", MODEL_FILE_FLAT, 256},
    {"loss_root", MODEL_FILE_FLAT, 1024},
    {"norm_leaf", MODEL_FILE_FLAT, 256},
    {"norm_root", MODEL_FILE_FLAT, 1024},
    {"gated_gelu_forward", MODEL_FILE_GELU, 256},
    {"gated_gelu_backward", MODEL_FILE_GELU, 256},
    {"layernorm_forward", MODEL_FILE_NORM, 128},
    {"layernorm_backward", MODEL_FILE_NORM, 128},
    {"layernorm_leaf", MODEL_FILE_NORM, 128},
    {"layernorm_root", MODEL_FILE_NORM, 1024},
    {"rotary_table", MODEL_FILE_LAYOUT, 256},
    {"qk_rope", MODEL_FILE_LAYOUT, 256},
    {"inverse_rope_qkv", MODEL_FILE_LAYOUT, 256},
    {"value_transpose", MODEL_FILE_LAYOUT, 256},
    {"head_to_token", MODEL_FILE_LAYOUT, 256},
    {"token_to_head", MODEL_FILE_LAYOUT, 256},
    {"transpose", MODEL_FILE_LAYOUT, 256},
    {"softmax_forward_1024", MODEL_FILE_SOFTMAX, 256},
    {"softmax_forward_4096", MODEL_FILE_SOFTMAX, 256},
    {"softmax_backward_1024", MODEL_FILE_SOFTMAX, 256},
    {"softmax_backward_4096", MODEL_FILE_SOFTMAX, 256},
    {"argmax", MODEL_FILE_VOCABULARY, 256},
    {"cross_entropy", MODEL_FILE_VOCABULARY, 256},
    {"cross_entropy_backward", MODEL_FILE_VOCABULARY, 256},
    {"loss_target_gather", MODEL_FILE_VOCABULARY, 256},
    {"gather", MODEL_FILE_VOCABULARY, 128},
    {"scatter_order", MODEL_FILE_SCATTER, 1024},
    {"scatter_leaf", MODEL_FILE_SCATTER, 128},
    {"scatter_root", MODEL_FILE_SCATTER, 128},
    MODEL_TILES(PRODUCT){"attention_forward64", MODEL_FILE_ATTENTION, 128},
    {"attention_query64", MODEL_FILE_ATTENTION, 128},
    {"attention_key64", MODEL_FILE_ATTENTION, 128},
    {"attention_forward192", MODEL_FILE_ATTENTION, 128},
    {"attention_query192", MODEL_FILE_ATTENTION, 128},
    {"attention_key192", MODEL_FILE_ATTENTION, 128},
    {"attention_forward256", MODEL_FILE_ATTENTION, 128},
    {"attention_query256", MODEL_FILE_ATTENTION, 128},
    {"attention_key256", MODEL_FILE_ATTENTION, 128},
    {"attention_forward128", MODEL_FILE_ATTENTION, 128},
    {"attention_query128", MODEL_FILE_ATTENTION, 128},
    {"attention_key128", MODEL_FILE_ATTENTION, 128},
    HOPPER_TILES(HOPPER_PRODUCT){"product_sum", MODEL_FILE_PRODUCT_WGMMA, 256},
    FORWARD_CANDIDATES(FORWARD) QUERY_CANDIDATES(QUERY) KEY_CANDIDATES(KEY)};
const size_t model_entries_count = sizeof(model_entries) / sizeof(model_entries[0]);

const struct model_entry *model_entry_find(const char *name)
{
    for (size_t i = 0; i < model_entries_count; i++) {
        if (strcmp(model_entries[i].name, name) == 0) {
            return &model_entries[i];
        }
    }
    return NULL;
}

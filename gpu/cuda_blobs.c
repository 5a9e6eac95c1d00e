/* The device images: one fatbin for each .cu file, compiled by the build and kept in the binary. */
#include "gpu/cuda.h"

#define BLOB_SYMBOLS(name)                                             \
    extern const unsigned char cuda_blob_##name[];                     \
    extern const unsigned char cuda_blob_##name##_end[];               \
    __asm__(".pushsection .rodata\n"                                   \
            ".balign 16\n"                                             \
            ".hidden cuda_blob_" #name "\n"                            \
            ".globl cuda_blob_" #name "\n"                             \
            "cuda_blob_" #name ":\n"                                   \
            ".incbin \"" COPPELIUS_KERNELS_DIR "/" #name ".fatbin\"\n" \
            ".hidden cuda_blob_" #name "_end\n"                        \
            ".globl cuda_blob_" #name "_end\n"                         \
            "cuda_blob_" #name "_end:\n"                               \
            ".byte 0\n"                                                \
            ".popsection\n");

#define BLOBS(X)      \
    X(forward_dense)  \
    X(backward_dense) \
    X(update) X(forward_sparse) X(backward_sparse) X(fused) X(tiles) X(small)

BLOBS(BLOB_SYMBOLS)

__asm__(".pushsection .rodata\n"
        ".hidden cuda_records_text\n"
        ".globl cuda_records_text\n"
        "cuda_records_text:\n"
        ".incbin \"" COPPELIUS_RECORDS "\"\n"
        ".hidden cuda_records_end\n"
        ".globl cuda_records_end\n"
        "cuda_records_end:\n"
        ".byte 0\n"
        ".popsection\n");

#define BLOB(name) {#name, cuda_blob_##name, cuda_blob_##name##_end},
const struct cuda_blob cuda_blobs[MODULES_COUNT] = {BLOBS(BLOB)};

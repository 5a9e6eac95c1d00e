/* What a session is bound to: 16 bytes that are kept in the record of the run. A GPU's are its
 * UUID; the CPU's are the first 16 bytes of the SHA-256 of "cpu", the machine's id, and the number
 * of threads. */
#ifndef COPPELIUS_GPU_BINDING_H
#define COPPELIUS_GPU_BINDING_H

#include <stdbool.h>
#include <stdint.h>

#define BINDING_SIZE      16
#define BINDING_TEXT_SIZE 48

struct session_binding {
    uint8_t bytes[BINDING_SIZE];
    char device[64]; /* for people: "cpu (avx512, 4 threads)", "NVIDIA H200" */
};

/* 8-4-4-4-12 hexadecimal digits, as UUIDs are written. */
void binding_print(const struct session_binding *binding, char text[BINDING_TEXT_SIZE]);
/* The CPU's binding; isa is "plain", "avx2" or "avx512". */
void binding_of_cpu(const char *isa, unsigned threads, struct session_binding *ret_binding);

#endif

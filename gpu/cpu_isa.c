#include "gpu/cpu_kernels.h"

#include <string.h>

int cpu_isa_find(const char *name, const struct cpu_isa **ret_isa, struct err *err)
{
    bool any = name == NULL || name[0] == '\0' || strcmp(name, "auto") == 0;
    bool avx2 = false;
    bool avx512 = false;
#ifdef COPPELIUS_CPU_X86
    __builtin_cpu_init();
    avx2 = __builtin_cpu_supports("avx2") != 0;
    avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
             __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512bw") != 0;
    if (avx512 && (any || strcmp(name, "avx512") == 0)) {
        *ret_isa = &cpu_isa_avx512;
        return 0;
    }
    if (avx2 && (any || strcmp(name, "avx2") == 0)) {
        *ret_isa = &cpu_isa_avx2;
        return 0;
    }
#endif
    if (any || strcmp(name, "plain") == 0) {
        *ret_isa = &cpu_isa_plain;
        return 0;
    }
    if (strcmp(name, "avx2") != 0 && strcmp(name, "avx512") != 0) {
        return err_set(err, ERR_CONFIG, "COPPELIUS_CPU: '%s' is none of plain, avx2, avx512, auto",
                       name);
    }
    return err_set(err, ERR_CONFIG, "COPPELIUS_CPU: this machine has no %s; it has %s", name,
                   avx512 ? "avx512"
                   : avx2 ? "avx2"
                          : "plain");
}

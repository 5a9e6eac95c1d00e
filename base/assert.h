/* Assertions that stay on in release builds: ASSERT is for our own mistakes, struct err for the
 * world's. A failed one prints where and aborts. */
#ifndef COPPELIUS_BASE_ASSERT_H
#define COPPELIUS_BASE_ASSERT_H

#include <stddef.h>

#define ASSERT(condition)                                                                          \
    ((condition) ? (void)0 : assert_failed(#condition, __FILE__, __LINE__, __func__))

/* The struct that a member is embedded in: OWNER_OF(handle, struct run, retry). */
#define OWNER_OF(pointer, type, member)                                                            \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

_Noreturn void assert_failed(const char *condition, const char *file, int line,
                             const char *function);

#endif

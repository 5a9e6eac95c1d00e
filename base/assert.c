#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void assert_failed(const char *condition, const char *file, int line, const char *function)
{
    (void)fprintf(stderr, "<2>assert.failed file=%s line=%d function=%s condition=\"%s\"\n", file,
                  line, function, condition);
    abort();
}

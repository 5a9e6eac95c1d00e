/* A number's text: what number_parse takes is what the C library reads there, to the bit. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "data/number.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *line = malloc(size + 1);
    ASSERT(line != NULL);
    memcpy(line, data, size);
    line[size] = '\n';
    const uint8_t *end = NULL;
    double value = 0;
    enum number_status status = number_parse((const uint8_t *)line, '.', &end, &value);
    size_t used = (size_t)(end - (const uint8_t *)line);
    ASSERT(used <= size);
    ASSERT((status == NUMBER_NONE) == (used == 0));
    if (status != NUMBER_NONE) {
        line[used] = '\0';
        char *stop = NULL;
        double wanted = strtod(line, &stop);
        ASSERT(stop == line + used);
        ASSERT((status == NUMBER_RANGE) == (wanted - wanted != 0.0));
        ASSERT(status == NUMBER_RANGE || memcmp(&value, &wanted, sizeof(value)) == 0);
    }
    free(line);
    return 0;
}

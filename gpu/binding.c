#include "gpu/binding.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

void binding_print(const struct session_binding *binding, char text[BINDING_TEXT_SIZE])
{
    size_t at = 0;
    for (size_t i = 0; i < BINDING_SIZE; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += (size_t)snprintf(text + at, BINDING_TEXT_SIZE - at, dash ? "-%02x" : "%02x",
                               binding->bytes[i]);
    }
}

void binding_of_cpu(const char *isa, unsigned threads, struct session_binding *ret_binding)
{
    char machine[64] = "";
    FILE *file = fopen("/etc/machine-id", "re");
    if (file != NULL) { /* a container may have none: then all of its kind share a binding */
        if (fgets(machine, sizeof(machine), file) == NULL) {
            machine[0] = '\0';
        }
        (void)fclose(file);
    }
    char text[128];
    int size = snprintf(text, sizeof(text), "cpu %s %u", machine, threads);
    uint8_t digest[SHA256_SIZE];
    sha256_of(text, (size_t)size, digest);
    memcpy(ret_binding->bytes, digest, BINDING_SIZE);
    (void)snprintf(ret_binding->device, sizeof(ret_binding->device), "cpu (%s, %u thread%s)", isa,
                   threads, threads == 1 ? "" : "s");
}

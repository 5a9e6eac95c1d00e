/* Which GPU: by what the config says, new enough, and not held by another process (device_lock.h).
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "gpu/cpu_pool.h"
#include "gpu/cuda.h"
#include "gpu/device_lock.h"

#define CAPABILITY_MIN 75
#define MEMORY_MARGIN  ((uint64_t)256 << 20) /* left for the driver and the context */

static void uuid_text(const uint8_t uuid[16], const char *prefix, char text[64])
{
    struct session_binding binding = {.device = ""};
    memcpy(binding.bytes, uuid, sizeof(binding.bytes));
    char digits[BINDING_TEXT_SIZE];
    binding_print(&binding, digits);
    (void)snprintf(text, 64, "%s-%s", prefix, digits);
}

static int look(const struct cuda_driver *driver, int ordinal, struct cuda_candidate *candidate,
                struct err *err)
{
    struct cu_uuid uuid;
    int major = 0;
    int minor = 0;
    candidate->ordinal = ordinal;
    cu_result result = driver->cuDeviceGet(&candidate->device, ordinal);
    result = result != 0 ? result : driver->cuDeviceGetUuid_v2(&uuid, candidate->device);
    result = result != 0 ? result
                         : driver->cuDeviceGetName(candidate->name, sizeof(candidate->name),
                                                   candidate->device);
    result = result != 0 ? result
                         : driver->cuDeviceGetPCIBusId(candidate->pci, sizeof(candidate->pci),
                                                       candidate->device);
    result = result != 0 ? result
                         : driver->cuDeviceGetAttribute(&major, CU_ATTRIBUTE_CAPABILITY_MAJOR,
                                                        candidate->device);
    result = result != 0 ? result
                         : driver->cuDeviceGetAttribute(&minor, CU_ATTRIBUTE_CAPABILITY_MINOR,
                                                        candidate->device);
    if (result != 0) {
        return cuda_check(driver, result, "asking a GPU for its name", err);
    }
    candidate->capability = 10 * major + minor;
    memcpy(candidate->uuid, uuid.bytes, sizeof(candidate->uuid));
    uuid_text(uuid.bytes, "GPU", candidate->uuid_text);
    return 0;
}

static bool all_digits(const char *text)
{
    for (; *text != '\0'; text++) {
        if (isdigit((unsigned char)*text) == 0) {
            return false;
        }
    }
    return true;
}

/* PCI ids are written with and without the domain, and with 4 or 8 digits of it. */
static bool same_pci(const char *a, const char *b)
{
    unsigned x[4] = {0, 0, 0, 0};
    unsigned y[4] = {0, 0, 0, 0};
    bool good_a = sscanf(a, "%x:%x:%x.%x", &x[0], &x[1], &x[2], &x[3]) == 4 ||
                  (x[0] = 0, sscanf(a, "%x:%x.%x", &x[1], &x[2], &x[3]) == 3);
    bool good_b = sscanf(b, "%x:%x:%x.%x", &y[0], &y[1], &y[2], &y[3]) == 4 ||
                  (y[0] = 0, sscanf(b, "%x:%x.%x", &y[1], &y[2], &y[3]) == 3);
    return good_a && good_b && memcmp(x, y, sizeof(x)) == 0;
}

static bool asked_for(const char *device, const struct cuda_candidate *candidate)
{
    if (strcmp(device, "auto") == 0) {
        return true;
    }
    if (all_digits(device)) {
        return strtol(device, NULL, 10) == candidate->ordinal;
    }
    if (strncasecmp(device, "GPU-", 4) == 0 || strncasecmp(device, "MIG-", 4) == 0) {
        return strcasecmp(device + 4, candidate->uuid_text + 4) == 0;
    }
    return same_pci(device, candidate->pci);
}

static int check_name(const char *device, struct err *err)
{
    if (device[0] != '\0' &&
        (strcmp(device, "auto") == 0 || all_digits(device) || strncasecmp(device, "GPU-", 4) == 0 ||
         strncasecmp(device, "MIG-", 4) == 0 || same_pci(device, device))) {
        return 0;
    }
    return err_set(err, ERR_CONFIG,
                   "device '%s': give auto, cpu, a GPU's index, GPU-uuid, MIG-uuid or PCI id",
                   device);
}

int cuda_choose(const struct cuda_driver *driver, const struct session_settings *settings,
                struct cuda_candidate *ret_chosen, struct err *err)
{
    int count = 0;
    int code = check_name(settings->device, err);
    if (code != 0) {
        return code;
    }
    cu_result result = driver->cuDeviceGetCount(&count);
    if (result != 0) {
        return cuda_check(driver, result, "counting GPUs", err);
    }
    struct err why = {.code = 0, .text = ""};
    for (int ordinal = 0; ordinal < count; ordinal++) {
        struct cuda_candidate candidate;
        memset(&candidate, 0, sizeof(candidate));
        struct err this = {.code = 0, .text = ""};
        if (look(driver, ordinal, &candidate, &this) != 0) {
            why = this;
            continue;
        }
        if (!asked_for(settings->device, &candidate)) {
            continue;
        }
        if (strcasecmp(settings->device, "auto") == 0 && device_lock_any() &&
            !device_lock_held(candidate.uuid_text)) {
            continue; /* auto was decided when this process took its GPU. */
        }
        if (candidate.capability < CAPABILITY_MIN) {
            (void)err_set(&why, ERR_DEVICE,
                          "GPU %d (%s) has compute capability %d.%d, 7.5 is needed: use a Turing "
                          "or newer GPU, or set device: cpu",
                          ordinal, candidate.name, candidate.capability / 10,
                          candidate.capability % 10);
            continue;
        }
        if (device_lock_take(candidate.uuid_text, settings->share, &this) == 0) {
            *ret_chosen = candidate;
            return 0;
        }
        why = this;
    }
    if (why.code == ERR_BUSY) {
        return err_set(err, ERR_BUSY,
                       "device '%s': %s; stop that daemon, name another GPU, or set device_share: "
                       "yes on both",
                       settings->device, why.text);
    }
    if (why.code != 0) {
        return err_set(err, why.code, "device '%s': %s", settings->device, why.text);
    }
    return err_set(err, ERR_DEVICE,
                   "device '%s': no such GPU among the %d that the driver shows; nvidia-smi -L "
                   "lists them, CUDA_VISIBLE_DEVICES may hide them",
                   settings->device, count);
}

int cuda_bind(const struct session_settings *settings, struct session_device **ret_device,
              struct session_binding *ret_binding, uint64_t *ret_memory_bytes, struct err *err)
{
    int code = check_name(settings->device, err); /* before there need be a driver */
    if (code != 0) {
        return code;
    }
    if (strncasecmp(settings->device, "MIG-", 4) == 0) {
        /* A process sees one MIG instance: the one that this names before the driver starts. */
        (void)setenv("CUDA_VISIBLE_DEVICES", settings->device, 0);
    }
    const struct cuda_driver *driver = NULL;
    code = cuda_driver_get(&driver, err);
    if (code != 0) {
        return code;
    }
    struct cuda_candidate chosen;
    memset(&chosen, 0, sizeof(chosen));
    struct cuda_device *cuda = calloc(1, sizeof(*cuda));
    if (cuda == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a device");
    }
    cuda->driver = driver;
    code = cuda_choose(driver, settings, &chosen, err);
    if (code != 0) {
        free(cuda);
        return code;
    }
    cuda->device = chosen.device;
    cuda->capability = chosen.capability;
    memcpy(cuda->name, chosen.name, sizeof(cuda->name));
    int multiprocessors = 0;
    int shared_max = 0;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    cu_result result = driver->cuDevicePrimaryCtxRetain(&cuda->context, cuda->device);
    if (result != 0) {
        cuda->context = NULL;
    }
    result = result != 0 ? result : driver->cuCtxSetCurrent(cuda->context);
    result = result != 0 ? result : driver->cuMemGetInfo_v2(&free_bytes, &total_bytes);
    result = result != 0 ? result
                         : driver->cuDeviceGetAttribute(&multiprocessors,
                                                        CU_ATTRIBUTE_MULTIPROCESSORS, cuda->device);
    result = result != 0 ? result
                         : driver->cuDeviceGetAttribute(&shared_max, CU_ATTRIBUTE_SHARED_OPTIN,
                                                        cuda->device);
    if (result != 0) {
        code = cuda_check(driver, result, "opening the GPU", err);
        cuda_unbind(cuda);
        free(cuda);
        return err != NULL ? err_prefix(err, "%s (%s): ", chosen.uuid_text, chosen.name) : code;
    }
    cuda->multiprocessors = (unsigned)multiprocessors;
    cuda->threads = settings->threads != 0 ? settings->threads : cpu_threads_available();
    cuda->threads = cuda->threads < CPU_THREADS_MAX ? cuda->threads : CPU_THREADS_MAX;
    cuda->shared_max = (unsigned)shared_max;
    cuda->session.lookahead = CUDA_LOOKAHEAD;
    cuda->session.local_depth = CUDA_LOCAL_DEPTH;
    cuda->session.backend = session_backend_cuda();
    memset(ret_binding, 0, sizeof(*ret_binding));
    memcpy(ret_binding->bytes, chosen.uuid, sizeof(ret_binding->bytes));
    memcpy(ret_binding->device, chosen.name, sizeof(ret_binding->device));
    ret_binding->device[sizeof(ret_binding->device) - 1] = '\0';
    *ret_memory_bytes = free_bytes > MEMORY_MARGIN ? free_bytes - MEMORY_MARGIN : 1;
    *ret_device = &cuda->session;
    return 0;
}

void cuda_unbind(struct cuda_device *cuda)
{
    if (cuda->context != NULL) {
        (void)cuda->driver->cuCtxSetCurrent(NULL);
        (void)cuda->driver->cuDevicePrimaryCtxRelease_v2(cuda->device);
        cuda->context = NULL;
    }
}

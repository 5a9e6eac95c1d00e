#include "daemon/tables.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpu/gpu.h"

static int say(int code, struct err *err)
{
    if (code == 0 && fflush(stdout) != 0) {
        code = err_set(err, ERR_DISK, "cannot write the table: %s", err_errno(errno));
    }
    if (code != 0) {
        (void)fprintf(stderr, "coppeliusd: %s\n", err->text);
    }
    return err_exit_status(code);
}

static const char *own_or(const char *folder)
{
    return strcmp(folder, "-") == 0 ? NULL : folder;
}

int tables_images(void)
{
    struct err err = {0};
    return say(gpu_print_images(stdout, &err), &err);
}

int tables_loaded(const char *folder)
{
    struct err err = {0};
    return say(gpu_list_images(own_or(folder), stdout, &err), &err);
}

int tables_tiles(const char *folder)
{
    struct err err = {0};
    return say(gpu_bench_tiles(own_or(folder), stdout, stderr, &err), &err);
}

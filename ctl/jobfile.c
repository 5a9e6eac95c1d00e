#include "ctl/jobfile.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/rand.h"

int file_read(const char *path, size_t size_max, struct buf *bytes, struct problem *problem)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (file == NULL) {
        int number = errno;
        problem_hint(problem, "the path is taken from the folder that you are in");
        return problem_set(problem, number == ENOENT ? ERR_NOT_FOUND : ERR_DISK, "'%s': %s", path,
                           err_errno(number));
    }
    int code = 0;
    for (;;) {
        buf_reserve(bytes, 65537);
        size_t got = fread(bytes->bytes + bytes->size, 1, 65536, file);
        bytes->size += got;
        if (bytes->size > size_max) {
            code = problem_set(problem, ERR_USAGE, "'%s' has more than %zu bytes", path, size_max);
            break;
        }
        if (got == 0) {
            if (ferror(file) != 0) {
                code = problem_set(problem, ERR_DISK, "'%s': %s", path, err_errno(errno));
            }
            break;
        }
    }
    bytes->bytes[bytes->size] = '\0';
    if (file != stdin) {
        (void)fclose(file);
    }
    return code;
}

int path_absolute(const char *path, char **ret_path, struct problem *problem)
{
    char *absolute = realpath(path, NULL);
    if (absolute == NULL) {
        return problem_set(problem, errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK, "'%s': %s", path,
                           err_errno(errno));
    }
    *ret_path = absolute;
    return 0;
}

static char *folder_of(const char *path)
{
    char *absolute = strcmp(path, "-") == 0 ? getcwd(NULL, 0) : realpath(path, NULL);
    if (absolute != NULL && strcmp(path, "-") != 0) {
        char *slash = strrchr(absolute, '/');
        slash[slash == absolute ? 1 : 0] = '\0';
    }
    return absolute;
}

int jobfile_read(const struct args *args, const char *path, struct jobfile *ret_file,
                 struct problem *problem)
{
    struct jobfile file = {0};
    struct faults faults = FAULTS_NONE;
    int code = file_read(path, YAML_SIZE_MAX, &file.text, problem);
    if (code != 0) {
        buf_done(&file.text);
        return code == ERR_NOT_FOUND ? problem_set(problem, ERR_JOB, "'%s': no such file", path)
                                     : code;
    }
    file.name = strdup(strcmp(path, "-") == 0 ? "stdin" : path);
    file.folder = folder_of(path);
    file.from = strdup("");
    ASSERT(file.name != NULL);
    ASSERT(file.from != NULL);
    if (file.folder == NULL) {
        code = problem_set(problem, ERR_DISK, "'%s': %s", path, err_errno(errno));
    }
    if (code == 0 && args->value[FLAG_FROM] != NULL) {
        free(file.from);
        file.from = NULL;
        code = path_absolute(args->value[FLAG_FROM], &file.from, problem);
        if (code != 0) {
            problem_hint(problem, "--from names a checkpoint folder (epoch-…) with all shards");
            (void)err_prefix(&problem->err, "--from: ");
        }
    }
    for (size_t i = 0; i < args->sets_count; i++) {
        file.sets[i] = strdup(args->sets[i]);
        ASSERT(file.sets[i] != NULL);
        file.sets_count++;
    }
    if (code == 0) {
        code = job_parse((const char *)file.text.bytes, file.text.size, file.name, file.folder,
                         args->sets, args->sets_count, &file.job, &faults);
        if (code != 0 && faults.count > 1) {
            struct buf lines = BUF_NONE;
            faults_print(&faults, &lines);
            problem_faults(problem, (const char *)lines.bytes);
            buf_done(&lines);
            (void)problem_set(problem, ERR_JOB, "%s: %zu faults; nothing was submitted", file.name,
                              faults.count + faults.dropped);
        } else if (code != 0) {
            (void)faults_err(&faults, ERR_JOB, &problem->err);
        }
        faults_done(&faults);
    }
    if (code != 0) {
        jobfile_done(&file);
        return code;
    }
    *ret_file = file;
    return 0;
}

void jobfile_done(struct jobfile *file)
{
    buf_done(&file->text);
    free(file->name);
    free(file->folder);
    free(file->from);
    for (size_t i = 0; i < file->sets_count; i++) {
        free(file->sets[i]);
    }
    job_done(&file->job);
    memset(file, 0, sizeof(*file));
}

void jobfile_fill(struct jobfile *file, uint64_t uuid[2], Ctl__Submit *ret_submit)
{
    uuid[0] = rand_entropy();
    uuid[1] = rand_entropy();
    ret_submit->uuid.data = (uint8_t *)uuid;
    ret_submit->uuid.len = 16;
    ret_submit->job_text = (char *)file->text.bytes;
    ret_submit->file_name = file->name;
    ret_submit->folder = file->folder;
    ret_submit->overrides = file->sets;
    ret_submit->n_overrides = file->sets_count;
    ret_submit->from = file->from;
}

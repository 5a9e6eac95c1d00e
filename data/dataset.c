/* Opening and describing a native folder. Nothing is allocated by a number that a file says before
 * that number was checked against the file's size. */
#include "data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "data/digest.h"
#include "data/faults.h"
#include "data/share.h"

#define PATH_SIZE      4096
#define NAMES_SIZE_MAX (UINT64_C(1) << 30)
#define NUMBERS_MAX    (1U << 20) /* names made ahead; beyond, one by one */
#define NAMES_BORROWED 8U

static char *join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    ASSERT(path != NULL);
    (void)snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* An NPY file of the folder; absent is no error. */
static int open_file(const char *folder, const char *name, struct dataset_file *file,
                     struct err *err)
{
    file->path = join(folder, name);
    int code = npy_open(file->path, &file->npy, &file->fd, err);
    return code == ERR_NOT_FOUND ? err_forget(err) : code;
}

int dataset_pread(const struct dataset *dataset, const struct dataset_file *file, uint64_t offset,
                  void *bytes, size_t size, struct err *err)
{
    const struct copy_record *partial = &dataset->partial;
    uint64_t end = offset + size; /* No overflow: both are within the file by its header. */
    for (uint64_t at = offset; partial->have != NULL && at < end;) {
        if (!copy_record_has(partial, file->first_block + at / SHARE_BLOCK_SIZE)) {
            return err_set(err, ERR_DAMAGED,
                           "%s: bytes %llu to %llu are not in this partial copy: its columns are "
                           "others",
                           file->path, (unsigned long long)offset, (unsigned long long)end);
        }
        at = (at / SHARE_BLOCK_SIZE + 1) * SHARE_BLOCK_SIZE;
    }
    return npy_pread(file->fd, file->path, offset, bytes, size, err);
}

static void close_file(struct dataset_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    free(file->path);
}

/* The whole of a small file, appended; ERR_NOT_FOUND where it is absent. */
static int read_whole(const char *path, uint64_t size_max, struct buf *bytes, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK, "%s: %s", path,
                       err_errno(errno));
    }
    int code = 0;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        code = err_set(err, ERR_DATA, "%s: is not a regular file", path);
    } else if ((uint64_t)status.st_size > size_max) {
        code = err_set(err, ERR_DAMAGED, "%s: %lld bytes; the most is %llu", path,
                       (long long)status.st_size, (unsigned long long)size_max);
    } else if (status.st_size > 0) {
        buf_reserve(bytes, (size_t)status.st_size);
        code = npy_pread(fd, path, 0, bytes->bytes + bytes->size, (size_t)status.st_size, err);
        bytes->size += code == 0 ? (size_t)status.st_size : 0;
    }
    (void)close(fd);
    return code;
}

static int read_manifest(struct dataset *dataset, struct err *err)
{
    char *path = join(dataset->folder, "manifest.json");
    struct buf bytes = BUF_NONE;
    dataset->manifest.sparse = -1;
    dataset->manifest.rows = MANIFEST_UNKNOWN;
    dataset->manifest.features = MANIFEST_UNKNOWN;
    dataset->manifest.nonzeros = MANIFEST_UNKNOWN;
    int code = read_whole(path, MANIFEST_SIZE_MAX, &bytes, err);
    if (code == 0) {
        code = data_manifest_parse(bytes.bytes, bytes.size, &dataset->manifest, err);
        if (code != 0) {
            (void)err_prefix(err, "%s: ", path);
        }
        dataset->info.has_manifest = code == 0;
    } else if (code == ERR_NOT_FOUND) {
        code = err_forget(err);
    }
    buf_done(&bytes);
    free(path);
    return code;
}

static int refuse(const struct dataset_file *file, const char *text, struct err *err)
{
    return err_set(err, ERR_DATA, "%s: %s", file->path, text);
}

static int check_dense(struct dataset *dataset, struct err *err)
{
    const struct npy *npy = &dataset->x.npy;
    if (npy->kind != 'f' || npy->item != 4) {
        return refuse(&dataset->x, "is not binary32; save it as np.asfortranarray(x, '<f4')", err);
    }
    if (npy->dims != 2) {
        return refuse(&dataset->x, "has one dimension; x is (rows, features)", err);
    }
    if (!npy->fortran && npy->shape[0] > 1 && npy->shape[1] > 1) {
        return refuse(&dataset->x,
                      "is in C order; save it as np.asfortranarray(x, '<f4'), or import it with "
                      "format npy",
                      err);
    }
    dataset->info.rows = npy->shape[0];
    dataset->info.features = npy->shape[1];
    dataset->info.nonzeros = npy->shape[0] * npy->shape[1]; /* No overflow: npy_parse multiplied. */
    return 0;
}

static bool is_index(const struct npy *npy)
{
    return npy->kind == 'i' && (npy->item == 4 || npy->item == 8) && npy->dims == 1;
}

/* rows come from y.npy or the manifest: CSC files do not say them. */
static int check_sparse(struct dataset *dataset, struct err *err)
{
    const struct npy *data = &dataset->data.npy;
    if (dataset->indices.fd < 0 || dataset->indptr.fd < 0) {
        return err_set(err, ERR_DATA,
                       "%s: data.npy needs indices.npy and indptr.npy beside it (CSC, as "
                       "scipy.sparse.csc_matrix has them)",
                       dataset->folder);
    }
    if (data->kind != 'f' || data->item != 4 || data->dims != 1) {
        return refuse(&dataset->data, "is not one dimension of '<f4'", err);
    }
    if (!is_index(&dataset->indices.npy) || !is_index(&dataset->indptr.npy)) {
        return refuse(is_index(&dataset->indices.npy) ? &dataset->indptr : &dataset->indices,
                      "is not one dimension of '<i8' or '<i4'", err);
    }
    if (dataset->indices.npy.shape[0] != data->shape[0]) {
        return err_set(err, ERR_DAMAGED, "%s: %llu row indices for %llu values",
                       dataset->indices.path, (unsigned long long)dataset->indices.npy.shape[0],
                       (unsigned long long)data->shape[0]);
    }
    if (dataset->indptr.npy.shape[0] < 1) {
        return refuse(&dataset->indptr, "is empty; it has features + 1 elements", err);
    }
    dataset->info.sparse = true;
    dataset->info.features = dataset->indptr.npy.shape[0] - 1;
    dataset->info.nonzeros = data->shape[0];
    if (dataset->y.fd >= 0) {
        dataset->info.rows = dataset->y.npy.shape[0];
    } else if (dataset->manifest.rows != MANIFEST_UNKNOWN) {
        dataset->info.rows = dataset->manifest.rows;
    } else {
        return err_set(err, ERR_DATA,
                       "%s: neither y.npy nor a manifest with 'rows' says how many rows there are",
                       dataset->folder);
    }
    return 0;
}

/* The manifest's numbers and sizes agree with the files'. */
static int check_manifest(const struct dataset *dataset, struct err *err)
{
    const struct manifest *manifest = &dataset->manifest;
    const struct dataset_info *info = &dataset->info;
    if (!info->has_manifest) {
        return 0;
    }
    if ((manifest->rows != MANIFEST_UNKNOWN && manifest->rows != info->rows) ||
        (manifest->features != MANIFEST_UNKNOWN && manifest->features != info->features) ||
        (manifest->sparse >= 0 && manifest->sparse != (info->sparse ? 1 : 0))) {
        return err_set(err, ERR_DAMAGED,
                       "%s: the manifest says %llu x %llu, the files have %llu x %llu %s values",
                       dataset->folder, (unsigned long long)manifest->rows,
                       (unsigned long long)manifest->features, (unsigned long long)info->rows,
                       (unsigned long long)info->features, info->sparse ? "sparse" : "dense");
    }
    for (size_t i = 0; i < manifest->files_count; i++) {
        char *path = join(dataset->folder, manifest->files[i].name);
        struct stat status;
        int code = 0;
        if (stat(path, &status) != 0) {
            code =
                err_set(err, ERR_DAMAGED, "%s: is in the manifest, but %s", path, err_errno(errno));
        } else if ((uint64_t)status.st_size != manifest->files[i].bytes) {
            code = err_set(err, ERR_DAMAGED, "%s: has %lld bytes, the manifest says %llu", path,
                           (long long)status.st_size, (unsigned long long)manifest->files[i].bytes);
        }
        free(path);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

/* A name a line, as many as there are features; UTF-8. */
static int read_names(struct dataset *dataset, struct err *err)
{
    char *path = join(dataset->folder, "columns.txt");
    struct buf text = BUF_NONE;
    int code = read_whole(path, NAMES_SIZE_MAX, &text, err);
    uint64_t count = 0;
    if (code == ERR_NOT_FOUND) {
        free(path);
        return err_forget(err);
    }
    if (code == 0 && text.size > 0 && text.bytes[text.size - 1] != '\n') {
        buf_put_u8(&text, '\n');
    }
    for (size_t i = 0; i < text.size && code == 0; i++) {
        count += text.bytes[i] == '\n' ? 1 : 0;
    }
    if (code == 0 && count != dataset->info.features) {
        code = err_set(err, ERR_DAMAGED, "%s: %llu names for %llu features", path,
                       (unsigned long long)count, (unsigned long long)dataset->info.features);
    }
    if (code == 0) {
        dataset->name_offsets = malloc((size_t)(count + 1) * sizeof(uint64_t));
        ASSERT(dataset->name_offsets != NULL);
        uint64_t name = 0;
        size_t begin = 0;
        bool numbers = true;
        for (size_t i = 0; i < text.size && code == 0;) {
            size_t step = utf8_step(text.bytes + i, text.size - i);
            uint8_t c = text.bytes[i];
            if (step == 0 || c == 0 || (c == '\n' && i - begin > DATA_NAME_SIZE_MAX)) {
                code = err_set(err, ERR_DAMAGED, "%s:%llu: is not a name of at most %u bytes UTF-8",
                               path, (unsigned long long)name + 1, DATA_NAME_SIZE_MAX);
                break;
            }
            if (c == '\n') {
                text.bytes[i] = 0;
                text.bytes[i > begin && text.bytes[i - 1] == '\r' ? i - 1 : i] = 0;
                dataset->name_offsets[name] = begin;
                name++;
                begin = i + 1;
            } else {
                numbers = numbers && c >= '0' && c <= '9';
            }
            i += step;
        }
        dataset->named = dataset->info.has_manifest ? dataset->manifest.named : !numbers;
        dataset->names = text;
    } else {
        buf_done(&text);
    }
    free(path);
    return code;
}

/* Without a columns.txt the names are numbers. */
static void number_names(struct dataset *dataset)
{
    if (dataset->name_offsets != NULL || dataset->info.features > NUMBERS_MAX) {
        return;
    }
    dataset->numbers = malloc((size_t)(dataset->info.features + 1) * sizeof(*dataset->numbers));
    ASSERT(dataset->numbers != NULL);
    for (uint64_t j = 0; j < dataset->info.features; j++) {
        (void)snprintf(dataset->numbers[j], sizeof(dataset->numbers[j]), "%llu",
                       (unsigned long long)j + 1);
    }
}

static int open_files(struct dataset *dataset, struct err *err)
{
    const char *folder = dataset->folder;
    int code = open_file(folder, "x.npy", &dataset->x, err);
    code = code == 0 ? open_file(folder, "data.npy", &dataset->data, err) : code;
    code = code == 0 ? open_file(folder, "indices.npy", &dataset->indices, err) : code;
    code = code == 0 ? open_file(folder, "indptr.npy", &dataset->indptr, err) : code;
    code = code == 0 ? open_file(folder, "y.npy", &dataset->y, err) : code;
    if (code != 0) {
        return code;
    }
    bool dense = dataset->x.fd >= 0;
    bool sparse = dataset->data.fd >= 0;
    if (dense == sparse) {
        struct stat status;
        if (stat(folder, &status) != 0) {
            return err_set(err, ERR_NOT_FOUND, "%s: %s", folder, err_errno(errno));
        }
        return err_set(err, ERR_DATA,
                       dense ? "%s: has both x.npy and data.npy; keep one of them"
                             : "%s: is not a native dataset (neither x.npy nor data.npy); import "
                               "the data first",
                       folder);
    }
    return dense ? check_dense(dataset, err) : check_sparse(dataset, err);
}

/* Where the folder is a partial copy: what is there. */
static int read_partial(struct dataset *dataset, struct err *err)
{
    struct dataset_file *files[] = {&dataset->x, &dataset->data, &dataset->indices,
                                    &dataset->indptr, &dataset->y};
    static const char *const names[] = {"x.npy", "data.npy", "indices.npy", "indptr.npy", "y.npy"};
    if (!dataset->info.has_manifest) {
        return 0;
    }
    int code = copy_record_read(dataset->folder, &dataset->manifest, &dataset->partial, err);
    if (code == ERR_NOT_FOUND) {
        return err_forget(err);
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && code == 0; i++) {
        files[i]->first_block = copy_first_block(&dataset->manifest, names[i]);
        if (files[i]->fd >= 0 && files[i]->first_block == UINT64_MAX) {
            code = err_set(err, ERR_DAMAGED, "%s: is not in the manifest of a partial copy",
                           files[i]->path);
        }
    }
    return code;
}

static int check_shape(const struct dataset *dataset, struct err *err)
{
    const struct dataset_info *info = &dataset->info;
    if (info->rows == 0 || info->features == 0) {
        return err_set(err, ERR_DATA, "%s: %llu rows of %llu features: no data", dataset->folder,
                       (unsigned long long)info->rows, (unsigned long long)info->features);
    }
    if (info->rows > DATA_ROWS_MAX || info->features > DATA_FEATURES_MAX) {
        return err_set(err, ERR_DATA, "%s: %llu rows of %llu features are beyond the limits",
                       dataset->folder, (unsigned long long)info->rows,
                       (unsigned long long)info->features);
    }
    const struct npy *y = &dataset->y.npy;
    if (info->has_target && (y->shape[0] != info->rows || y->shape[1] != 1)) {
        return err_set(err, ERR_DAMAGED, "%s: %llu x %llu targets for %llu rows", dataset->y.path,
                       (unsigned long long)y->shape[0], (unsigned long long)y->shape[1],
                       (unsigned long long)info->rows);
    }
    return 0;
}

static void add_sizes(struct dataset *dataset)
{
    for (size_t i = 0; manifest_file_names[i] != NULL; i++) {
        char *path = join(dataset->folder, manifest_file_names[i]);
        struct stat status;
        dataset->info.bytes += stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
        free(path);
    }
}

int dataset_open(const char *folder, struct dataset **ret_dataset, struct err *err)
{
    if (strlen(folder) > PATH_SIZE - 64) {
        return err_set(err, ERR_USAGE, "the folder's path is too long");
    }
    struct dataset *made = calloc(1, sizeof(*made));
    ASSERT(made != NULL);
    made->x.fd = made->data.fd = made->indices.fd = made->indptr.fd = made->y.fd = -1;
    made->folder = strdup(folder);
    ASSERT(made->folder != NULL);
    int code = read_manifest(made, err);
    code = code == 0 ? open_files(made, err) : code;
    if (code == 0) {
        made->info.has_target = made->y.fd >= 0;
        made->info.folder = made->folder;
        made->info.target_name = made->manifest.target;
        code = check_shape(made, err);
    }
    code = code == 0 ? check_manifest(made, err) : code;
    code = code == 0 ? read_partial(made, err) : code;
    code = code == 0 ? read_names(made, err) : code;
    if (code != 0) {
        dataset_close(made);
        return code;
    }
    number_names(made);
    add_sizes(made);
    *ret_dataset = made;
    return 0;
}

void dataset_close(struct dataset *dataset)
{
    if (dataset == NULL) {
        return;
    }
    close_file(&dataset->x);
    close_file(&dataset->data);
    close_file(&dataset->indices);
    close_file(&dataset->indptr);
    close_file(&dataset->y);
    buf_done(&dataset->names);
    copy_record_done(&dataset->partial);
    free(dataset->name_offsets);
    free(dataset->numbers);
    free(dataset->folder);
    free(dataset);
}

const struct dataset_info *dataset_info_of(const struct dataset *dataset)
{
    return &dataset->info;
}

const char *dataset_name(const struct dataset *dataset, uint64_t feature)
{
    ASSERT(feature < dataset->info.features);
    if (dataset->name_offsets != NULL) {
        return (const char *)dataset->names.bytes + dataset->name_offsets[feature];
    }
    if (dataset->numbers != NULL) {
        return dataset->numbers[feature];
    }
    static _Thread_local char wide[NAMES_BORROWED][24];
    static _Thread_local unsigned next;
    char *name = wide[next++ % NAMES_BORROWED];
    (void)snprintf(name, sizeof(wide[0]), "%llu", (unsigned long long)feature + 1);
    return name;
}

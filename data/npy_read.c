/* NPY as input: one file whose columns are features and target, or x and y. Read by blocks of rows,
 * in C or Fortran order. A NaN is a missing field; infinities are refused. */
#include "data/intake.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "data/npy.h"
#include "data/number.h"

#define BLOCK_BYTES (8U << 20)

struct array {
    const char *path;
    int fd;
    struct npy npy;
    uint8_t *block; /* rows in the file's own order: C (rows, columns), Fortran (columns, rows) */
    uint64_t block_rows; /* rows of the block in memory */
};

struct npy_input {
    struct intake *intake;
    struct array x;
    struct array y; /* fd -1: the target is a column of x */
    float *values;
};

static int array_open(struct array *array, const char *path, struct err *err)
{
    array->path = path;
    return npy_open(path, &array->npy, &array->fd, err);
}

static void array_done(struct array *array)
{
    if (array->fd >= 0) {
        (void)close(array->fd);
    }
    free(array->block);
}

static int array_load(struct array *array, uint64_t first, uint64_t count, struct err *err)
{
    const struct npy *npy = &array->npy;
    uint64_t columns = npy->shape[1];
    if (array->block == NULL) { /* The first block is the largest one. */
        array->block = malloc((size_t)(count * columns * npy->item + 8));
        if (array->block == NULL) {
            return err_set(err, ERR_NOMEM, "%s: no memory for %llu rows", array->path,
                           (unsigned long long)count);
        }
    }
    array->block_rows = count;
    if (!npy->fortran) {
        return npy_pread(array->fd, array->path, npy->offset + first * columns * npy->item,
                         array->block, (size_t)(count * columns * npy->item), err);
    }
    for (uint64_t j = 0; j < columns; j++) {
        int code =
            npy_pread(array->fd, array->path, npy->offset + (j * npy->shape[0] + first) * npy->item,
                      array->block + j * count * npy->item, (size_t)(count * npy->item), err);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

static double array_at(const struct array *array, uint64_t row, uint64_t column)
{
    const struct npy *npy = &array->npy;
    uint64_t index = npy->fortran ? column * array->block_rows + row : row * npy->shape[1] + column;
    return npy_value(npy, array->block, (size_t)index);
}

/* Row `row` of the file, `at` of the block. */
static int take_row(struct npy_input *input, uint64_t row, uint64_t at, struct err *err)
{
    struct intake *intake = input->intake;
    const struct columns *columns = &intake->columns;
    size_t before = intake->faults->count;
    uint64_t feature = 0;
    double target = 0;
    bool missing = false;
    size_t fields = columns->count + (input->y.fd >= 0 ? 1 : 0);
    for (size_t j = 0; j < fields; j++) {
        bool from_y = j == columns->count;
        if (!from_y && columns->roles[j] == COLUMN_DROPPED) {
            continue;
        }
        const struct array *array = from_y ? &input->y : &input->x;
        double value = array_at(array, at, from_y ? 0 : j);
        bool is_target = from_y || columns->roles[j] == COLUMN_TARGET;
        float *to = is_target ? NULL : &input->values[feature];
        feature += is_target ? 0 : 1;
        if (value != value && intake->settings->missing == DATA_MISSING_DROP_ROW) {
            missing = true;
        } else if (value - value != 0.0) {
            data_fault_add(intake->faults, array->path, 0, 0,
                           "row %llu, column %zu is %s; give a number%s",
                           (unsigned long long)row + 1, from_y ? 1 : j + 1,
                           value != value ? "NaN" : "infinite",
                           value != value ? ", drop the column, or set missing to drop-row" : "");
        } else if (is_target) {
            target = value;
        } else if (number_to_f32(value, to) != 0) {
            data_fault_add(intake->faults, array->path, 0, 0,
                           "row %llu, column %zu: %.9g is beyond the range of binary32",
                           (unsigned long long)row + 1, j + 1, value);
        }
    }
    if (missing) {
        intake->faults->count = before;
        intake->rows_dropped++;
        return 0;
    }
    if (intake->faults->count > 0) {
        return 0;
    }
    intake->rows++;
    return sink_dense_row(&intake->sink, input->values, target, err);
}

static int read_rows(struct npy_input *input, struct err *err)
{
    struct intake *intake = input->intake;
    uint64_t rows = input->x.npy.shape[0];
    uint64_t row_bytes = input->x.npy.shape[1] * input->x.npy.item;
    uint64_t block = BLOCK_BYTES / (row_bytes > 0 ? row_bytes : 1);
    block = block > 0 ? block : 1;
    int code = 0;
    for (uint64_t first = 0; first < rows && code == 0; first += block) {
        uint64_t count = rows - first < block ? rows - first : block;
        code = array_load(&input->x, first, count, err);
        if (code == 0 && input->y.fd >= 0) {
            code = array_load(&input->y, first, count, err);
        }
        for (uint64_t i = 0; i < count && code == 0 && !faults_full(intake->faults); i++) {
            code = take_row(input, first + i, i, err);
        }
        if (code == 0) {
            code = meter_add(&intake->meter, count * row_bytes, err);
        }
        if (faults_full(intake->faults)) {
            break;
        }
    }
    return code;
}

/* What is wrong with the shapes, as faults. */
static void check_shapes(struct npy_input *input)
{
    struct data_faults *faults = input->intake->faults;
    const struct npy *x = &input->x.npy;
    const struct npy *y = &input->y.npy;
    if (x->dims != 2) {
        data_fault_add(faults, input->x.path, 0, 0,
                       "an array of one dimension; x has (rows, features): use reshape(-1, 1)");
    } else if (x->shape[1] > DATA_FEATURES_MAX || x->shape[0] > DATA_ROWS_MAX) {
        data_fault_add(faults, input->x.path, 0, 0, "%llu x %llu is beyond the limits",
                       (unsigned long long)x->shape[0], (unsigned long long)x->shape[1]);
    } else if (input->y.fd >= 0 && (y->shape[0] != x->shape[0] || y->shape[1] != 1)) {
        data_fault_add(faults, input->y.path, 0, 0, "%llu x %llu targets for %llu rows",
                       (unsigned long long)y->shape[0], (unsigned long long)y->shape[1],
                       (unsigned long long)x->shape[0]);
    } else if (x->shape[0] == 0) {
        data_fault_add(faults, input->x.path, 0, 0, "no data rows");
    }
}

/* Roles of x's columns; with a file of targets none of them is the target. */
static int plan(struct npy_input *input, struct err *err)
{
    struct intake *intake = input->intake;
    int code = columns_number(&intake->columns, (size_t)input->x.npy.shape[1], err);
    if (code == 0) {
        code = columns_plan(&intake->columns, intake->settings, input->y.fd >= 0, input->x.path, 0,
                            intake->faults, err);
    }
    return code;
}

int npy_read(struct intake *intake, struct err *err)
{
    const struct data_settings *settings = intake->settings;
    struct npy_input input = {.intake = intake, .x = {.fd = -1}, .y = {.fd = -1}};
    int code = array_open(&input.x, settings->paths[0], err);
    if (code == 0 && settings->paths_count > 1) {
        code = array_open(&input.y, settings->paths[1], err);
    }
    if (code == 0) {
        check_shapes(&input);
    }
    if (code == 0 && intake->faults->count == 0) {
        code = plan(&input, err);
        if (code != 0 && intake->faults->count > 0) {
            code = 0;
            goto done;
        }
    }
    if (code == 0 && intake->faults->count == 0) {
        input.values = calloc(intake->columns.features, sizeof(float));
        code = input.values == NULL
                   ? err_set(err, ERR_NOMEM, "no memory for %llu features",
                             (unsigned long long)intake->columns.features)
                   : intake_open_sink(intake, settings->storage == DATA_STORAGE_SPARSE,
                                      intake->columns.has_target || input.y.fd >= 0,
                                      intake->columns.features, err);
    }
    if (code == 0 && intake->faults->count == 0) {
        code = read_rows(&input, err);
    }
done:
    array_done(&input.x);
    array_done(&input.y);
    free(input.values);
    return code;
}

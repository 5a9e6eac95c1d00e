#include "tests/lib/golden.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static void copy_text(char *to, size_t size, const char *from)
{
    ASSERT(strlen(from) < size);
    memcpy(to, from, strlen(from) + 1);
}

static void set_option(struct golden_case *golden, const char *option, const char *value)
{
    if (strcmp(option, "--format") == 0) {
        golden->format = (enum data_format)data_format_from_text(value);
    } else if (strcmp(option, "--target") == 0) {
        bool first = strcmp(value, "first") == 0;
        bool last = strcmp(value, "last") == 0;
        golden->target = first ? DATA_TARGET_FIRST : last ? DATA_TARGET_LAST : DATA_TARGET_NAME;
        copy_text(golden->target_name, sizeof(golden->target_name), value);
    } else if (strcmp(option, "--drop-columns") == 0) {
        copy_text(golden->drop, sizeof(golden->drop), value);
    } else if (strcmp(option, "--test") == 0) {
        golden->test = strtod(value, NULL);
    } else if (strcmp(option, "--shuffle") == 0) {
        golden->shuffle = true;
        golden->shuffle_seed = strtoull(value, NULL, 10);
    } else if (strcmp(option, "--rate") == 0) {
        golden->rate = strtod(value, NULL);
    } else if (strcmp(option, "--decay") == 0) {
        golden->decay = strtod(value, NULL);
    } else if (strcmp(option, "--l2") == 0) {
        golden->l2 = strtod(value, NULL);
    } else if (strcmp(option, "--batch") == 0) {
        golden->batch = strtoull(value, NULL, 10);
    } else {
        ASSERT(strcmp(option, "--steps") == 0);
        golden->steps = strtoull(value, NULL, 10);
    }
}

/* "FILE --option value …", no quotes in it. */
static void parse_arguments(struct golden_case *golden, const char *shared, const char *arguments)
{
    char text[1024];
    copy_text(text, sizeof(text), arguments);
    char *rest = NULL;
    const char *file = strtok_r(text, " ", &rest);
    ASSERT(file != NULL);
    (void)snprintf(golden->path, sizeof(golden->path), "%s/numerics/%s", shared, file);
    golden->decay = 0.9;
    golden->target = DATA_TARGET_LAST;
    for (char *word = strtok_r(NULL, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (strcmp(word, "--header") == 0) {
            golden->header = true;
        } else if (strcmp(word, "--standardize") == 0) {
            golden->standardize = true;
        } else {
            const char *value = strtok_r(NULL, " ", &rest);
            ASSERT(value != NULL);
            set_option(golden, word, value);
        }
    }
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    ASSERT(text != NULL);
    return text;
}

size_t golden_open(const char *shared, struct golden_case cases[GOLDEN_CASES_MAX])
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/numerics/golden.json", shared);
    json_t *root = json_load_file(path, 0, NULL);
    ASSERT(root != NULL);
    const json_t *list = json_object_get(root, "cases");
    size_t count = json_array_size(list);
    ASSERT(count <= GOLDEN_CASES_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *object = json_array_get(list, i);
        struct golden_case *golden = &cases[i];
        memset(golden, 0, sizeof(*golden));
        copy_text(golden->name, sizeof(golden->name), text_of(object, "name"));
        parse_arguments(golden, shared, text_of(object, "arguments"));
        golden->rows = (uint64_t)json_integer_value(json_object_get(object, "rows"));
        golden->features = (uint64_t)json_integer_value(json_object_get(object, "features"));
        golden->first_loss = strtod(text_of(object, "first_loss"), NULL);
        golden->last_loss = strtod(text_of(object, "last_loss"), NULL);
        copy_text(golden->parameter_sha256, SHA256_HEX_SIZE, text_of(object, "parameter_sha256"));
        copy_text(golden->accumulator_sha256, SHA256_HEX_SIZE,
                  text_of(object, "accumulator_sha256"));
    }
    json_decref(root);
    return count;
}

static void make_dense(const struct dataset_matrix *from, struct golden_data *data,
                       struct session_matrix *to)
{
    data->dense = calloc((size_t)(from->rows * from->columns), sizeof(float));
    ASSERT(data->dense != NULL);
    for (uint64_t j = 0; j < from->columns; j++) {
        for (uint64_t e = from->indptr[j]; e < from->indptr[j + 1]; e++) {
            data->dense[j * from->rows + from->row32[e]] = from->values[e];
        }
    }
    *to = (struct session_matrix){.storage = SESSION_DENSE,
                                  .rows = from->rows,
                                  .columns = from->columns,
                                  .dense = data->dense,
                                  .stride = from->rows};
}

static void make_csc(const struct dataset_matrix *from, struct golden_data *data,
                     struct session_matrix *to)
{
    data->starts = calloc((size_t)from->columns + 1, sizeof(uint64_t));
    data->row = calloc((size_t)(from->rows * from->columns) + 1, sizeof(uint32_t));
    data->value = calloc((size_t)(from->rows * from->columns) + 1, sizeof(float));
    ASSERT(data->starts != NULL);
    ASSERT(data->row != NULL);
    ASSERT(data->value != NULL);
    uint64_t entries = 0;
    for (uint64_t j = 0; j < from->columns; j++) {
        data->starts[j] = entries;
        for (uint64_t i = 0; i < from->rows; i++) {
            float value = from->dense[j * from->ld + i];
            if (value != 0.0F) {
                data->row[entries] = (uint32_t)i;
                data->value[entries] = value;
                entries++;
            }
        }
    }
    data->starts[from->columns] = entries;
    *to = (struct session_matrix){.storage = SESSION_CSC,
                                  .rows = from->rows,
                                  .columns = from->columns,
                                  .starts = data->starts,
                                  .row = data->row,
                                  .value = data->value};
}

static void fill_job(const struct golden_case *golden, struct golden_data *data,
                     struct cluster_job *job)
{
    const struct dataset_matrix *train = &data->block.train;
    *job = (struct cluster_job){.targets = data->targets.train,
                                .intercept = true,
                                .rate = golden->rate,
                                .decay = golden->decay,
                                .l2 = golden->l2,
                                .batch = golden->batch,
                                .steps = golden->steps};
    if (train->sparse) {
        make_dense(train, data, &job->dense);
        job->csc = (struct session_matrix){.storage = SESSION_CSC,
                                           .rows = train->rows,
                                           .columns = train->columns,
                                           .starts = train->indptr,
                                           .row = train->row32,
                                           .value = train->values};
    } else {
        make_csc(train, data, &job->csc);
        job->dense = (struct session_matrix){.storage = SESSION_DENSE,
                                             .rows = train->rows,
                                             .columns = train->columns,
                                             .dense = train->dense,
                                             .stride = train->ld};
    }
}

void golden_load(const struct golden_case *golden, const char *folder, struct golden_data *data,
                 struct cluster_job *job)
{
    memset(data, 0, sizeof(*data));
    const char *paths[] = {golden->path};
    const char *drop[] = {golden->drop};
    struct data_settings settings = DATA_SETTINGS_DEFAULT;
    settings.paths = paths;
    settings.paths_count = 1;
    settings.format = golden->format;
    settings.header = golden->header;
    settings.target = golden->target;
    settings.target_name = golden->target == DATA_TARGET_NAME ? golden->target_name : NULL;
    settings.drop = drop;
    settings.drop_count = golden->drop[0] != '\0' ? 1 : 0;
    settings.missing =
        golden->format == DATA_FORMAT_CSV ? DATA_MISSING_DROP_ROW : DATA_MISSING_REFUSE;
    struct err err = {0};
    struct dataset *dataset = NULL;
    int code = data_import(&settings, folder, NULL, NULL, NULL, &err);
    code = code != 0 ? code : dataset_open(folder, &dataset, &err);
    struct dataset_view view = {.test = golden->test,
                                .shuffle = golden->shuffle,
                                .shuffle_seed = golden->shuffle_seed,
                                .standardize = golden->standardize};
    if (code == 0) {
        code = dataset_load(dataset, &view, 0, dataset_info_of(dataset)->features, NULL,
                            &data->block, &err);
    }
    code = code != 0 ? code : dataset_load_targets(dataset, &view, &data->targets, &err);
    if (code != 0) {
        (void)fprintf(stderr, "%s: %s\n", golden->name, err.text);
    }
    ASSERT(code == 0);
    dataset_close(dataset);
    ASSERT(data->block.train.rows == golden->rows);
    ASSERT(data->block.train.columns == golden->features);
    fill_job(golden, data, job);
}

void golden_done(struct golden_data *data)
{
    dataset_block_done(&data->block);
    dataset_targets_done(&data->targets);
    free(data->dense);
    free(data->starts);
    free(data->row);
    free(data->value);
}

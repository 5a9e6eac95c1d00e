#include "proto/job.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static const char *check_name(const char *text)
{
    static const char wrong[] =
        "must be letters, digits, \"-\", \"_\" and \".\", a letter or a digit first";
    for (const char *at = text; *at != '\0'; at++) {
        bool word =
            (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        bool mark = *at == '-' || *at == '_' || *at == '.';
        if (!word && !(mark && at != text)) {
            return wrong;
        }
    }
    return NULL;
}

static const char *check_separator(const char *text)
{
    bool usual = strlen(text) == 1 && ((unsigned char)*text >= ' ' || *text == '\t') &&
                 (unsigned char)*text < 0x7f && strchr("\"+-0123456789", *text) == NULL;
    return usual ? NULL : "must be one character, such as \",\", \";\" or \"\\t\"";
}

static const char *check_decimal(const char *text)
{
    bool usual = strcmp(text, ".") == 0 || strcmp(text, ",") == 0;
    return usual ? NULL : "must be \".\" or \",\"";
}

static const char *check_path(const char *text)
{
    return *text != '\0' ? NULL : "must name a file or a folder";
}

static const char *const kinds[] = {"regression", "language-model", NULL};
static const char *const formats[] = {"csv", "space", "svm", "npy", "native", NULL};
static const char *const missings[] = {"refuse", "drop-row", NULL};
static const char *const storages[] = {"auto", "dense", "sparse", NULL};
static const char *const policies[] = {JOB_POLICY, NULL};

#define DATA(field) offsetof(struct job_data, field)

static const struct yaml_key data_keys[] = {
    {.name = "path",
     .type = YAML_TEXTS,
     .offset = DATA(path),
     .required = true,
     .least = 1,
     .most = 4096,
     .check = check_path,
     .about = "the file or native folder, relative to the job file"},
    {.name = "format",
     .type = YAML_CHOICE,
     .offset = DATA(format),
     .required = true,
     .choices = formats,
     .about = "csv, space, svm, npy or native"},
    {.name = "header",
     .type = YAML_YES_NO,
     .offset = DATA(header),
     .initial = "no",
     .about = "the first line has the columns' names"},
    {.name = "separator",
     .type = YAML_TEXT,
     .offset = DATA(separator),
     .initial = ",",
     .check = check_separator,
     .about = "between the fields of a csv line"},
    {.name = "decimal",
     .type = YAML_TEXT,
     .offset = DATA(decimal),
     .initial = ".",
     .check = check_decimal,
     .about = "the decimal mark"},
    {.name = "target",
     .type = YAML_TEXT,
     .offset = DATA(target),
     .initial = "last",
     .least = 1,
     .most = 1024,
     .about = "a name, first or last after drop, or a 1-based column of the file"},
    {.name = "drop",
     .type = YAML_TEXTS,
     .offset = DATA(drop),
     .about = "columns to leave out, by name or 1-based number"},
    {.name = "missing",
     .type = YAML_CHOICE,
     .offset = DATA(missing),
     .initial = "refuse",
     .choices = missings,
     .about = "what a row with a missing field means"},
    {.name = "missing_values",
     .type = YAML_TEXTS,
     .offset = DATA(missing_values),
     .about = "texts that mean a missing field, besides the empty one"},
    {.name = "storage",
     .type = YAML_CHOICE,
     .offset = DATA(storage),
     .initial = "auto",
     .choices = storages,
     .about = "dense, sparse or auto"},
    {.name = "features",
     .type = YAML_INTEGER,
     .offset = DATA(features),
     .initial = "0",
     .most = 134217728,
     .about = "svm: the declared width; 0: the highest index"},
    {.name = "test",
     .type = YAML_NUMBER,
     .offset = DATA(test),
     .initial = "0",
     .most = 1,
     .below = true,
     .about = "fraction of the rows, the last ones, kept for testing"},
    {.name = "shuffle",
     .type = YAML_INTEGER,
     .offset = DATA(shuffle),
     .given = YAML_GIVEN(struct job_data, shuffle_given),
     .about = "seed of the training rows' order; absent: file order"},
    {.name = "standardize",
     .type = YAML_YES_NO,
     .offset = DATA(standardize),
     .initial = "no",
     .about = "columns to mean 0 and deviation 1"},
};
static const struct yaml_schema data_schema = YAML_SCHEMA(struct job_data, data_keys);

#define AT(group, field) (offsetof(struct job, group.field) - offsetof(struct job, group))

static const struct yaml_key model_keys[] = {
    {.name = "intercept",
     .type = YAML_YES_NO,
     .offset = AT(model, intercept),
     .initial = "yes",
     .about = "one more coordinate whose x is 1"},
    {.name = "l2",
     .type = YAML_NUMBER,
     .offset = AT(model, l2),
     .initial = "0",
     .most = 1e30,
     .about = "ridge penalty"},
};
static const struct yaml_schema model_schema = {model_keys, 2, sizeof(((struct job *)0)->model)};

static const struct yaml_key optimizer_keys[] = {
    {.name = "rate",
     .type = YAML_NUMBER,
     .offset = AT(optimizer, rate),
     .required = true,
     .most = 1e30,
     .above = true,
     .about = "the step size, such as 0.1"},
    {.name = "decay",
     .type = YAML_NUMBER,
     .offset = AT(optimizer, decay),
     .initial = "0.9",
     .most = 1,
     .about = "how much of the accumulator a step keeps"},
    {.name = "batch",
     .type = YAML_INTEGER,
     .offset = AT(optimizer, batch),
     .initial = "all",
     .least = 1,
     .most = 1099511627776.0,
     .word = "all",
     .word_value = 0,
     .about = "rows of a step, or all"},
    {.name = "steps",
     .type = YAML_INTEGER,
     .offset = AT(optimizer, steps),
     .least = 1,
     .most = 1099511627776.0,
     .given = offsetof(struct job, optimizer.steps_given) - offsetof(struct job, optimizer) + 1,
     .about = "how many steps; or passes"},
    {.name = "passes",
     .type = YAML_INTEGER,
     .offset = AT(optimizer, passes),
     .least = 1,
     .most = 1099511627776.0,
     .given = offsetof(struct job, optimizer.passes_given) - offsetof(struct job, optimizer) + 1,
     .about = "how many times all training rows; or steps"},
};
static const struct yaml_schema optimizer_schema = {optimizer_keys, 5,
                                                    sizeof(((struct job *)0)->optimizer)};

static const struct yaml_key checkpoint_keys[] = {
    {.name = "every",
     .type = YAML_INTEGER,
     .offset = AT(checkpoint, every),
     .initial = "last",
     .least = 1,
     .most = 1099511627776.0,
     .word = "last",
     .word_value = 0,
     .about = "steps between checkpoints; last: only the last one"},
    {.name = "keep",
     .type = YAML_INTEGER,
     .offset = AT(checkpoint, keep),
     .initial = "3",
     .least = 1,
     .most = 1000000,
     .about = "how many published checkpoints stay"},
    {.name = "replicas",
     .type = YAML_INTEGER,
     .offset = AT(checkpoint, replicas),
     .initial = "1",
     .most = 7,
     .about = "copies of each shard on other nodes; at most as many as there are others"},
    {.name = "from",
     .type = YAML_TEXT,
     .offset = AT(checkpoint, from),
     .nullable = true,
     .least = 1,
     .most = 4095,
     .about = "a checkpoint folder of the same identity to go on from; what submit --from sets"},
};
static const struct yaml_schema checkpoint_schema = {checkpoint_keys, 4,
                                                     sizeof(((struct job *)0)->checkpoint)};

static const struct yaml_key job_keys[] = {
    {.name = "name",
     .type = YAML_TEXT,
     .offset = offsetof(struct job, name),
     .required = true,
     .least = 1,
     .most = JOB_NAME_MAX,
     .check = check_name,
     .about = "a name for the job"},
    {.name = "kind",
     .type = YAML_CHOICE,
     .offset = offsetof(struct job, kind),
     .initial = "regression",
     .choices = kinds,
     .about = "regression or language-model"},
    {.name = "data",
     .type = YAML_MAP,
     .offset = offsetof(struct job, data),
     .required = true,
     .schema = &data_schema,
     .about = "what is trained on: path, format, …"},
    {.name = "model",
     .type = YAML_MAP,
     .offset = offsetof(struct job, model),
     .schema = &model_schema,
     .about = "intercept, l2"},
    {.name = "optimizer",
     .type = YAML_MAP,
     .offset = offsetof(struct job, optimizer),
     .required = true,
     .schema = &optimizer_schema,
     .about = "rate, and steps or passes"},
    {.name = "checkpoint",
     .type = YAML_MAP,
     .offset = offsetof(struct job, checkpoint),
     .schema = &checkpoint_schema,
     .about = "every, keep, replicas"},
    {.name = "elastic",
     .type = YAML_YES_NO,
     .offset = offsetof(struct job, elastic),
     .initial = "no",
     .about = "go on with fewer or more nodes"},
    {.name = "numerics",
     .type = YAML_CHOICE,
     .offset = offsetof(struct job, numerics),
     .initial = JOB_POLICY,
     .choices = policies,
     .about = "the numerics policy"},
};
static const struct yaml_schema schema = YAML_SCHEMA(struct job, job_keys);

const struct yaml_schema *job_schema(void)
{
    return &schema;
}

void job_done(struct job *job)
{
    yaml_release(&schema, job);
}

void job_data_done(struct job_data *data)
{
    yaml_release(&data_schema, data);
}

void job_write(const struct job *job, struct buf *out)
{
    yaml_write(&schema, job, out);
}

/* Puts the folder before a relative path (new memory each). */
static void make_absolute(char **path, const char *folder)
{
    if (folder == NULL || *path == NULL || **path == '/') {
        return;
    }
    struct buf whole = BUF_NONE;
    size_t folder_size = strlen(folder);
    while (folder_size > 0 && folder[folder_size - 1] == '/') {
        folder_size--;
    }
    buf_print(&whole, "%.*s/%s", (int)folder_size, folder, *path);
    free(*path);
    *path = strdup((const char *)whole.bytes);
    ASSERT(*path != NULL);
    buf_done(&whole);
}

static void data_absolute(struct job_data *data, const char *folder)
{
    for (size_t i = 0; i < data->path.count; i++) {
        make_absolute(&data->path.items[i], folder);
    }
}

static bool is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at != '\0') {
        size_t more = *at < 0x80                  ? 0
                      : *at >= 0xc2 && *at < 0xe0 ? 1
                      : *at >= 0xe0 && *at < 0xf0 ? 2
                      : *at >= 0xf0 && *at < 0xf5 ? 3
                                                  : 9;
        if (more == 9) {
            return false;
        }
        at++;
        for (; more > 0; more--, at++) {
            if ((*at & 0xc0) != 0x80) {
                return false;
            }
        }
    }
    return true;
}

static const char *place_of(const struct yaml_places *places, const char *key,
                            const char *file_name)
{
    const char *place = yaml_place_of(places, key);
    return place != NULL ? place : file_name;
}

static void check_data(const struct job_data *data, const char *prefix, const char *file_name,
                       const struct yaml_places *places, struct faults *faults)
{
    char key[40];
#define KEY(name) (strcpy(stpcpy(key, prefix), (name)), key)
    bool table = data->format == JOB_CSV || data->format == JOB_SPACE;
    if (data->format == JOB_CSV && data->separator != NULL && data->decimal != NULL &&
        strcmp(data->separator, data->decimal) == 0) {
        const char *place = place_of(places, KEY("decimal"), file_name);
        faults_add(faults, place, key,
                   "is the separator too; give a separator such as \";\" beside a decimal comma");
    }
    if (data->header && !table) {
        faults_add(faults, place_of(places, KEY("header"), file_name), key,
                   "only csv and space files have a header line; leave it out");
    }
    if (data->features > 0 && data->format != JOB_SVM) {
        faults_add(faults, place_of(places, KEY("features"), file_name), key,
                   "only svm files need it declared; leave it out");
    }
    size_t most = data->format == JOB_NPY ? 2 : data->format == JOB_NATIVE ? 1 : 4096;
    if (data->path.count > most) {
        faults_add(faults, place_of(places, KEY("path"), file_name), key,
                   "%zu paths; this format takes at most %zu", data->path.count, most);
    }
#undef KEY
}

static void check_data_alone(const struct yaml_input *input, const void *object,
                             const struct yaml_places *places, struct faults *faults)
{
    check_data(object, "", input->file_name, places, faults);
}

static void check_job(const struct yaml_input *input, const void *object,
                      const struct yaml_places *places, struct faults *faults)
{
    const struct job *job = object;
    const char *file_name = input->file_name;
    if (job->kind == JOB_LANGUAGE_MODEL) {
        faults_add(faults, place_of(places, "kind", file_name), "kind",
                   "language models are not trained by this version yet; regression is");
    }
    if (job->optimizer.steps_given && job->optimizer.passes_given) {
        faults_add(faults, place_of(places, "optimizer.passes", file_name), "optimizer.passes",
                   "steps is given too (%s); leave one of them out",
                   place_of(places, "optimizer.steps", file_name));
    }
    if (!job->optimizer.steps_given && !job->optimizer.passes_given) {
        faults_add(faults, file_name, "optimizer.steps",
                   "is missing; give steps, or passes over all training rows");
    }
    check_data(&job->data, "data.", file_name, places, faults);
}

int job_parse(const char *text, size_t size, const char *file_name, const char *folder,
              const char *const *overrides, size_t overrides_count, struct job *ret_job,
              struct faults *faults)
{
    struct yaml_override list[JOB_OVERRIDES_MAX];
    struct job job;
    size_t before = faults->count + faults->dropped;
    size_t count = 0;
    if (overrides_count > JOB_OVERRIDES_MAX) {
        faults_add(faults, "--set", "", "given %zu times; %d are the most", overrides_count,
                   JOB_OVERRIDES_MAX);
        return ERR_JOB;
    }
    if (folder != NULL && !is_utf8(folder)) {
        faults_add(faults, file_name, "", "the folder's name is not UTF-8; rename it");
        return ERR_JOB;
    }
    for (size_t i = 0; i < overrides_count; i++) {
        if (yaml_override_parse("--set", overrides[i], &list[count], faults) == 0) {
            count++;
        }
    }
    struct yaml_input input = {text, size, file_name, list, count, check_job};
    if (yaml_read(&schema, &input, &job, NULL, faults) == 0) {
        data_absolute(&job.data, folder);
        make_absolute(&job.checkpoint.from, folder);
        if (faults->count + faults->dropped == before) {
            *ret_job = job;
        } else {
            job_done(&job); /* a --set could not be read */
        }
    }
    for (size_t i = 0; i < count; i++) {
        yaml_override_done(&list[i]);
    }
    return faults->count + faults->dropped == before ? 0 : ERR_JOB;
}

/* The keys of the block where the path may be absent: it then comes from elsewhere. */
static void loosen(struct yaml_key keys[sizeof(data_keys) / sizeof(data_keys[0])], bool no_path)
{
    memcpy(keys, data_keys, sizeof(data_keys));
    keys[0].required = false;
    keys[0].hidden = no_path;
}

int job_data_read(const struct yaml_input *input, const char *folder, struct job_data *ret_data,
                  struct faults *faults)
{
    struct yaml_key keys[sizeof(data_keys) / sizeof(data_keys[0])];
    struct yaml_input checked = *input;
    struct job_data data;
    loosen(keys, false);
    const struct yaml_schema loose = YAML_SCHEMA(struct job_data, keys);
    checked.check = check_data_alone;
    if (yaml_read(&loose, &checked, &data, NULL, faults) != 0) {
        return ERR_JOB;
    }
    data_absolute(&data, folder);
    *ret_data = data;
    return 0;
}

int job_data_parse(const char *text, size_t size, const char *file_name, const char *folder,
                   struct job_data *ret_data, struct faults *faults)
{
    struct yaml_input input = {.text = text, .size = size, .file_name = file_name};
    return job_data_read(&input, folder, ret_data, faults);
}

void job_data_write(const struct job_data *data, struct buf *out)
{
    struct yaml_key keys[sizeof(data_keys) / sizeof(data_keys[0])];
    loosen(keys, data->path.count == 0);
    const struct yaml_schema loose = YAML_SCHEMA(struct job_data, keys);
    yaml_write(&loose, data, out);
}

void job_identity(const struct job *job, const uint8_t dataset_digest[SHA256_SIZE],
                  uint8_t ret_identity[SHA256_SIZE])
{
    struct buf bytes = BUF_NONE;
    buf_put_text(&bytes, "coppelius job identity 1");
    buf_put_text(&bytes, job_kind_name(job));
    buf_put(&bytes, dataset_digest, SHA256_SIZE);
    buf_put_f64(&bytes, job->data.test + 0.0);
    buf_put_u8(&bytes, job->data.shuffle_given);
    buf_put_u64(&bytes, job->data.shuffle_given ? job->data.shuffle : 0);
    buf_put_u8(&bytes, job->data.standardize);
    buf_put_u8(&bytes, job->model.intercept);
    buf_put_f64(&bytes, job->model.l2 + 0.0);
    buf_put_f64(&bytes, job->optimizer.rate);
    buf_put_f64(&bytes, job->optimizer.decay + 0.0);
    buf_put_u64(&bytes, job->optimizer.batch);
    buf_put_text(&bytes, job_policy(job));
    sha256_of(bytes.bytes, bytes.size, ret_identity);
    buf_done(&bytes);
}

size_t job_notes(const struct job *job, struct buf *out)
{
    size_t count = 0;
    if (job->elastic) {
        buf_print(out, "elastic: yes is not honoured yet: the job pauses while a node is away\n");
        count++;
    }
    return count;
}

const char *job_policy(const struct job *job)
{
    return policies[job->numerics];
}

const char *job_kind_name(const struct job *job)
{
    return kinds[job->kind];
}

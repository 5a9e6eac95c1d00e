#include "ctl/dataflags.h"

#include <stdlib.h>
#include <string.h>

enum form { FORM_PLAIN, FORM_TEXT, FORM_LIST };

static const struct {
    enum flag flag;
    const char *key;
    enum form form;
} keys[] = {
    {FLAG_FORMAT, "format", FORM_PLAIN},      {FLAG_HEADER, "header", FORM_PLAIN},
    {FLAG_SEPARATOR, "separator", FORM_TEXT}, {FLAG_DECIMAL, "decimal", FORM_TEXT},
    {FLAG_TARGET, "target", FORM_TEXT},       {FLAG_DROP, "drop", FORM_LIST},
    {FLAG_MISSING, "missing", FORM_PLAIN},    {FLAG_MISSING_VALUES, "missing_values", FORM_LIST},
    {FLAG_STORAGE, "storage", FORM_PLAIN},    {FLAG_FEATURES, "features", FORM_PLAIN},
    {FLAG_TEST, "test", FORM_PLAIN},          {FLAG_SHUFFLE, "shuffle", FORM_PLAIN},
};
#define KEYS_COUNT (sizeof(keys) / sizeof(keys[0]))

static void put_quoted(const char *text, size_t size, struct buf *out)
{
    buf_print(out, "\"");
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\\' && text[i + 1] == 't') { /* --separator '\t' */
            buf_print(out, "\\t");
            i++;
        } else if (text[i] == '"' || text[i] == '\\') {
            buf_print(out, "\\%c", text[i]);
        } else if ((unsigned char)text[i] < ' ') {
            buf_print(out, "\\x%02x", (unsigned)text[i]);
        } else {
            buf_put(out, text + i, 1);
        }
    }
    buf_print(out, "\"");
}

/* "A,B" as ["A", "B"]; "\," is a comma in a text. */
static void put_list(const char *text, struct buf *out)
{
    struct buf item = BUF_NONE;
    buf_print(out, "[");
    for (const char *at = text;; at++) {
        if (at[0] == '\\' && at[1] == ',') {
            at++;
            buf_print(&item, ",");
        } else if (*at != ',' && *at != '\0') {
            buf_print(&item, "%c", *at);
        } else {
            put_quoted(item.size > 0 ? (const char *)item.bytes : "", item.size, out);
            buf_clear(&item);
            if (*at == '\0') {
                break;
            }
            buf_print(out, ", ");
        }
    }
    buf_print(out, "]");
    buf_done(&item);
}

int dataflags_read(const struct args *args, const char *format, struct job_data *ret_data,
                   struct problem *problem)
{
    struct buf values[KEYS_COUNT] = {BUF_NONE};
    char places[KEYS_COUNT][32];
    struct yaml_override overrides[KEYS_COUNT];
    struct faults faults = FAULTS_NONE;
    size_t count = 0;
    for (size_t i = 0; i < KEYS_COUNT; i++) {
        const char *text = args->value[keys[i].flag];
        if (text == NULL && keys[i].flag == FLAG_FORMAT) {
            text = format;
        }
        if (text == NULL) {
            continue;
        }
        (void)snprintf(places[count], sizeof(places[count]), "--%s",
                       flags_about[keys[i].flag].name);
        if (keys[i].form == FORM_LIST) {
            put_list(text, &values[count]);
        } else if (keys[i].form == FORM_TEXT) {
            put_quoted(text, strlen(text), &values[count]);
        } else {
            buf_print(&values[count], "%s", text);
        }
        overrides[count] =
            (struct yaml_override){places[count], keys[i].key, (const char *)values[count].bytes};
        count++;
    }
    struct yaml_input input = {.text = "",
                               .size = 0,
                               .file_name = "the flags",
                               .overrides = overrides,
                               .overrides_count = count};
    int code = 0;
    if (args->value[FLAG_FORMAT] == NULL && format == NULL) {
        problem_hint(problem, "give --format csv, space, svm, npy or native");
        code = problem_set(problem, ERR_USAGE, "--format is missing");
    } else if (job_data_read(&input, NULL, ret_data, &faults) != 0) {
        for (size_t i = 0; faults.count > 1 && i < faults.count; i++) {
            char line[sizeof(struct fault)];
            (void)snprintf(line, sizeof(line), "%s: %s", faults.list[i].place, faults.list[i].text);
            problem_faults(problem, line);
        }
        code = faults.count == 1
                   ? problem_set(problem, ERR_USAGE, "%s: %s", faults.list[0].place,
                                 faults.list[0].text)
                   : problem_set(problem, ERR_USAGE, "%zu flags are wrong", faults.count);
    }
    faults_done(&faults);
    for (size_t i = 0; i < KEYS_COUNT; i++) {
        buf_done(&values[i]);
    }
    return code;
}

void dataflags_settings(const struct job_data *data, const char *const *paths, size_t paths_count,
                        struct data_settings *ret_settings)
{
    char *end = NULL;
    unsigned long long column = strtoull(data->target, &end, 10);
    bool is_column = data->target[0] >= '0' && data->target[0] <= '9' && *end == '\0';
    struct data_settings settings = {
        .paths = paths,
        .paths_count = paths_count,
        .format = (enum data_format)data->format,
        .header = data->header,
        .separator = data->separator[0],
        .decimal = data->decimal[0],
        .target = strcmp(data->target, "last") == 0    ? DATA_TARGET_LAST
                  : strcmp(data->target, "first") == 0 ? DATA_TARGET_FIRST
                  : is_column                          ? DATA_TARGET_COLUMN
                                                       : DATA_TARGET_NAME,
        .target_name = data->target,
        .target_column = is_column ? column : 0,
        .drop = (const char *const *)data->drop.items,
        .drop_count = data->drop.count,
        .missing = (enum data_missing)data->missing,
        .missing_values = (const char *const *)data->missing_values.items,
        .missing_values_count = data->missing_values.count,
        .storage = (enum data_storage)data->storage,
        .features = data->features,
    };
    *ret_settings = settings;
}

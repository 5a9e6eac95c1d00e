/* data import, info, verify: the data room in this process. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "ctl/bar.h"
#include "ctl/dataflags.h"
#include "ctl/document.h"
#include "ctl/terminal.h"

static void draw_info(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    char bytes[32];
    text_bytes(document_number(document, "bytes"), bytes, sizeof(bytes));
    const char *target = document_text(document, "target"); /* "": there is one, without a name */
    buf_print(out, "%s: %lld rows, %lld features, %s, %lld %s, %s, target %s\n",
              document_text(document, "folder"), (long long)document_integer(document, "rows"),
              (long long)document_integer(document, "features"), document_text(document, "storage"),
              (long long)document_integer(document, "nonzeros"),
              strcmp(document_text(document, "storage"), "sparse") == 0 ? "non-zeros" : "values",
              bytes,
              !document_has(document, "target") ? "absent"
              : target[0] != '\0'               ? target
                                                : "unnamed");
    buf_print(out, "digest %s\n", document_text(document, "digest"));
    const json_t *columns = document_list(document, "columns");
    size_t count = json_array_size(columns);
    size_t most = ctl->args.output == OUTPUT_WIDE ? count : 20;
    for (size_t i = 0; i < count && i < most; i++) {
        buf_print(out, "%s%s", i == 0 ? "columns " : ", ",
                  json_string_value(json_array_get(columns, i)));
    }
    if (count > 0) {
        buf_print(out, count > most ? ", and %zu more\n" : "\n", count - most);
    }
}

static json_t *text_value(const char *text)
{
    json_t *value = json_string(text);
    return value != NULL ? value : json_null(); /* no UTF-8 */
}

static int open_native(const char *folder, struct dataset **ret_dataset, struct problem *problem)
{
    struct stat about;
    if (stat(folder, &about) == 0 && !S_ISDIR(about.st_mode)) {
        problem_hint(problem,
                     "read it first: coppeliusctl data import %s --format csv --header yes "
                     "--output DIR; then name DIR",
                     folder);
        return problem_set(problem, ERR_USAGE, "'%s' is a file, not a native folder", folder);
    }
    int code = dataset_open(folder, ret_dataset, &problem->err);
    if (code != 0) {
        problem_hint(problem, "a native folder is what 'coppeliusctl data import' writes");
    }
    return code;
}

/* The document of a native folder. */
static int describe(const char *folder, json_t **ret_document, struct problem *problem)
{
    struct dataset *dataset = NULL;
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];
    int code = open_native(folder, &dataset, problem);
    if (code == 0) {
        code = dataset_digest(dataset, digest, &problem->err);
    }
    if (code != 0) {
        dataset_close(dataset);
        return code;
    }
    const struct dataset_info *info = dataset_info_of(dataset);
    json_t *columns = json_array();
    sha256_hex(digest, hex);
    for (uint64_t i = 0; i < info->features; i++) {
        (void)json_array_append_new(columns, text_value(dataset_name(dataset, i)));
    }
    json_t *target = info->has_target ? text_value(info->target_name) : json_null();
    *ret_document =
        json_pack("{s:i, s:o, s:s, s:I, s:I, s:I, s:s, s:o, s:I, s:b, s:o}", "schema", 1, "folder",
                  text_value(folder), "digest", hex, "rows", (json_int_t)info->rows, "features",
                  (json_int_t)info->features, "nonzeros", (json_int_t)info->nonzeros, "storage",
                  info->sparse ? "sparse" : "dense", "target", target, "bytes",
                  (json_int_t)info->bytes, "manifest", info->has_manifest, "columns", columns);
    dataset_close(dataset);
    return 0;
}

static int show(const struct ctl *ctl, const char *folder, const struct data_report *report,
                bool verified, struct problem *problem)
{
    json_t *document = NULL;
    int code = describe(folder, &document, problem);
    if (code != 0) {
        return code;
    }
    if (report != NULL) {
        (void)json_object_set_new(document, "rows_dropped",
                                  json_integer((json_int_t)report->rows_dropped));
        (void)json_object_set_new(document, "source_bytes",
                                  json_integer((json_int_t)report->source_bytes));
    }
    if (verified) {
        (void)json_object_set_new(document, "ok", json_true());
    }
    code = output_document(ctl, document, NULL, "folder", draw_info, problem);
    if (code == 0 && report != NULL && report->rows_dropped > 0) {
        say(ctl, "%llu rows with a missing field were dropped",
            (unsigned long long)report->rows_dropped);
    }
    if (code == 0 && verified) {
        say(ctl, "every file agrees with the manifest");
    }
    json_decref(document);
    return code;
}

int run_data_import(struct ctl *ctl, struct problem *problem)
{
    const char *output = ctl->args.value[FLAG_OUTPUT];
    struct job_data data;
    struct data_settings settings;
    struct data_report report = {0};
    struct bar bar = {.quiet = ctl->quiet};
    struct data_progress progress = {bar_progress, &bar};
    if (output == NULL) {
        problem_hint(problem, "--output DIR names the native folder that is made");
        return problem_set(problem, ERR_USAGE, "--output is missing");
    }
    const char *format = ctl->args.value[FLAG_FORMAT];
    if (format != NULL && strcmp(format, "tokens") == 0) {
        return run_data_tokens(ctl, problem);
    }
    int code = dataflags_read(&ctl->args, NULL, &data, problem);
    if (code != 0) {
        return code;
    }
    struct data_faults *faults = calloc(1, sizeof(*faults));
    if (faults == NULL) {
        job_data_done(&data);
        return problem_set(problem, ERR_NOMEM, "no memory for the faults");
    }
    dataflags_settings(&data, (const char *const *)ctl->args.words, (size_t)ctl->args.words_count,
                       &settings);
    code = data_import(&settings, output, &progress, &report, faults, &problem->err);
    bar_end(&bar);
    if (code != 0) {
        for (size_t i = 0; faults->count > 1 && i < faults->count; i++) {
            problem_faults(problem, faults->list[i].text);
        }
        if (faults->count > 1) {
            (void)problem_set(problem, code, "%zu bad places%s; nothing was written", faults->count,
                              faults->count == DATA_FAULTS_MAX ? " (reading stopped there)" : "");
        }
        if (code == ERR_NOT_FOUND) {
            code = ERR_DATA; /* A file that is not there is refused input. */
        }
    } else {
        code = show(ctl, output, &report, false, problem);
    }
    free(faults);
    job_data_done(&data);
    return code;
}

int run_data_info(struct ctl *ctl, struct problem *problem)
{
    return show(ctl, ctl->args.words[0], NULL, false, problem);
}

int run_data_verify(struct ctl *ctl, struct problem *problem)
{
    struct dataset *dataset = NULL;
    struct bar bar = {.quiet = ctl->quiet};
    struct data_progress progress = {bar_progress, &bar};
    int code = open_native(ctl->args.words[0], &dataset, problem);
    if (code == 0) {
        code = dataset_verify(dataset, &progress, &problem->err);
        bar_end(&bar);
    }
    dataset_close(dataset);
    return code == 0 ? show(ctl, ctl->args.words[0], NULL, true, problem) : code;
}

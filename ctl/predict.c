/* predict: a daemon does the products, here numbers become text. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "ctl/bar.h"
#include "ctl/dataflags.h"
#include "ctl/document.h"
#include "ctl/folder.h"
#include "ctl/jobfile.h"
#include "ctl/part.h"
#include "ctl/spawn.h"
#include "ctl/terminal.h"

#define BAR_MS             250
#define PREDICT_TIMEOUT_MS 600000 /* between two replies: data may have to be imported first */

static void draw_predict(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    (void)ctl;
    buf_print(out, "%lld rows with epoch %lld of step %lld on %s\n",
              (long long)document_integer(document, "rows"),
              (long long)document_integer(document, "epoch"),
              (long long)document_integer(document, "step"), document_text(document, "device"));
    if (isfinite(document_number(document, "rmse"))) {
        buf_print(out, "RMSE %.9g\nMAE  %.9g\n", document_number(document, "rmse"),
                  document_number(document, "mae"));
        buf_print(out, "R^2  %.9g\n", document_number(document, "r2"));
    }
    const json_t *first = document_list(document, "first");
    static const struct table_column columns[] = {{"PREDICTED", true, false},
                                                  {"ACTUAL", true, false}};
    struct table table;
    table_init(&table, columns, 2, false);
    for (size_t i = 0; i < json_array_size(first); i++) {
        const json_t *pair = json_array_get(first, i);
        table_cell(&table, "%.9g", json_number_value(json_array_get(pair, 0)));
        if (json_is_number(json_array_get(pair, 1))) {
            table_cell(&table, "%.9g", json_number_value(json_array_get(pair, 1)));
        } else {
            table_cell(&table, "-");
        }
    }
    if (table.cells_count > 0) {
        table_print(&table, out);
    }
    table_done(&table);
}

static double value_at(const uint8_t *bytes)
{
    struct reader reader = {bytes, 8, false};
    return read_f64(&reader);
}

/* Writes each value on its line; the last reply's document is the answer. */
static int receive(struct client *client, FILE *file, struct bar *bar, json_t **ret_document,
                   struct problem *problem)
{
    uint64_t heard_ms = clock_now_ms();
    for (bool more = true; more;) {
        struct answer answer = {NULL, NULL};
        int code = client_next(client, BAR_MS, &answer, problem);
        if (code == 0 && answer.reply == NULL && clock_now_ms() - heard_ms < PREDICT_TIMEOUT_MS) {
            bar_show(bar, "computing", -1, "");
            continue;
        }
        heard_ms = clock_now_ms();
        if (code == 0 && strcmp(document_text(answer.json, "event"), "work") == 0) {
            (void)bar_progress(bar, document_text(answer.json, "work"),
                               (uint64_t)document_integer(answer.json, "work_done_bytes"),
                               (uint64_t)document_integer(answer.json, "work_total_bytes"));
            answer_done(&answer);
            continue;
        }
        if (code == 0 && answer.reply == NULL) {
            code = problem_set(problem, ERR_TIMEOUT, "no prediction within %d s",
                               PREDICT_TIMEOUT_MS / 1000);
        }
        if (code == 0 && answer.reply->data.len % 8 != 0) {
            code = problem_set(problem, ERR_PROTO, "predictions came as %zu bytes",
                               answer.reply->data.len);
        }
        if (code != 0) {
            answer_done(&answer);
            return code;
        }
        bar_end(bar);
        for (size_t i = 0; i < answer.reply->data.len; i += 8) {
            (void)fprintf(file, "%.17g\n", value_at(answer.reply->data.data + i));
        }
        more = answer.reply->more;
        if (answer.json != NULL) {
            json_decref(*ret_document);
            *ret_document = json_incref(answer.json);
        }
        answer_done(&answer);
        if (ferror(file) != 0) {
            return problem_set(problem, ERR_DISK, "cannot write the predictions: %s",
                               err_errno(errno));
        }
    }
    if (*ret_document == NULL) {
        return problem_set(problem, ERR_PROTO, "the daemon's answer has no document");
    }
    return 0;
}

/* Into FILE.part, renamed when whole; or to stdout. */
static int write_predictions(struct client *client, const char *output, struct bar *bar,
                             json_t **ret_document, struct problem *problem)
{
    if (output == NULL || strcmp(output, "-") == 0) {
        int code = receive(client, stdout, bar, ret_document, problem);
        return code == 0 && fflush(stdout) != 0
                   ? problem_set(problem, ERR_DISK, "cannot write to standard output: %s",
                                 err_errno(errno))
                   : code;
    }
    struct part part;
    FILE *file = NULL;
    int code = part_file(output, &part, &file, problem);
    if (code != 0) {
        return code;
    }
    code = receive(client, file, bar, ret_document, problem);
    return part_end(&part, output, file, code, problem);
}

struct question {
    char *checkpoint;
    char *data_path;
    struct buf settings;
    char rows[16];
};

static void question_done(struct question *question)
{
    free(question->checkpoint);
    free(question->data_path);
    buf_done(&question->settings);
}

/* A manifest is what makes a folder a checkpoint; what cannot be looked at is the daemon's to tell.
 */
static int is_checkpoint(const char *path, struct problem *problem)
{
    char *manifest = NULL;
    int size = asprintf(&manifest, "%s/manifest.json", path);
    bool absent = size > 0 && access(manifest, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
    free(manifest);
    return absent ? problem_set(problem, ERR_NOT_FOUND,
                                "'%s' is not a checkpoint folder: it has no "
                                "manifest.json",
                                path)
                  : 0;
}

static int question_of(const struct args *args, bool local, struct question *question,
                       struct problem *problem)
{
    const char *rows = args->value[FLAG_ROWS] != NULL ? args->value[FLAG_ROWS] : "all";
    struct stat about;
    struct job_data data;
    if (args->value[FLAG_CHECKPOINT] == NULL || args->value[FLAG_DATA] == NULL) {
        problem_hint(problem, "predict needs --checkpoint DIR and --data FILE");
        return problem_set(problem, ERR_USAGE, "--%s is missing",
                           args->value[FLAG_CHECKPOINT] == NULL ? "checkpoint" : "data");
    }
    if (strcmp(rows, "all") != 0 && strcmp(rows, "train") != 0 && strcmp(rows, "test") != 0) {
        problem_hint(problem, "give all, train or test");
        return problem_set(problem, ERR_USAGE, "--rows %s is none of them", rows);
    }
    (void)snprintf(question->rows, sizeof(question->rows), "%s", rows);
    /* A daemon elsewhere has its own files: the paths go as they are. */
    int code = 0;
    if (local) {
        code = path_absolute(args->value[FLAG_CHECKPOINT], &question->checkpoint, problem);
        if (code != 0) {
            code = folder_hint(args->value[FLAG_CHECKPOINT], code, problem);
        } else {
            code = path_absolute(args->value[FLAG_DATA], &question->data_path, problem);
            code = code == ERR_NOT_FOUND ? ERR_DATA : code; /* refused input */
        }
    } else {
        question->checkpoint = strdup(args->value[FLAG_CHECKPOINT]);
        question->data_path = strdup(args->value[FLAG_DATA]);
        if (question->checkpoint[0] != '/' || question->data_path[0] != '/') {
            problem_hint(problem, "the daemon has its own files: give paths from / on");
            code = problem_set(problem, ERR_USAGE,
                               "--checkpoint and --data must be absolute for "
                               "a daemon on another machine");
        }
    }
    if (code != 0) {
        return code;
    }
    bool is_folder = local && stat(question->data_path, &about) == 0 && S_ISDIR(about.st_mode);
    code = dataflags_read(args, is_folder ? "native" : NULL, &data, problem);
    if (code != 0) {
        return code;
    }
    if (strcmp(rows, "all") != 0 && data.test == 0) {
        problem_hint(problem, "give the job's split: --test 0.2 (and --shuffle SEED where it has "
                              "one)");
        code = problem_set(problem, ERR_USAGE, "--rows %s needs --test", rows);
    }
    job_data_write(&data, &question->settings);
    job_data_done(&data);
    return code;
}

static int ask(struct ctl *ctl, struct client *client, struct question *question,
               struct problem *problem)
{
    const char *output = ctl->args.value[FLAG_OUTPUT];
    json_t *document = NULL;
    struct bar bar = {.quiet = ctl->quiet};
    Ctl__Predict predict;
    ctl__predict__init(&predict);
    Ctl__Request request;
    ctl__request__init(&request);
    predict.checkpoint = question->checkpoint;
    predict.data_path = question->data_path;
    predict.data_settings = (char *)question->settings.bytes;
    predict.rows = question->rows;
    predict.metrics = ctl->args.value[FLAG_METRICS] != NULL;
    request.ask_case = CTL__REQUEST__ASK_PREDICT;
    request.predict = &predict;
    int code = client_ask(client, &request, problem);
    if (code == 0) {
        code = write_predictions(client, output, &bar, &document, problem);
        bar_end(&bar);
    }
    if (code == 0 && output != NULL && strcmp(output, "-") != 0) {
        code = output_document(ctl, document, NULL, "rows", draw_predict, problem);
    } else if (code == 0) { /* stdout has the numbers */
        struct buf text = BUF_NONE;
        draw_predict(ctl, document, &text);
        if (!ctl->quiet) {
            terminal_say_lines((const char *)text.bytes);
        }
        buf_done(&text);
    }
    json_decref(document);
    return code;
}

int run_predict(struct ctl *ctl, struct problem *problem)
{
    const char *endpoint = client_endpoint_named(&ctl->args);
    bool local =
        endpoint == NULL || strncmp(endpoint, "unix:", 5) == 0 || strncmp(endpoint, "127.", 4) == 0;
    struct question question = {.settings = BUF_NONE};
    struct client *client = NULL;
    struct spawn_settings settings;
    struct spawn spawn;
    int code = question_of(&ctl->args, local, &question, problem);
    if (code == 0 && endpoint == NULL) {
        code = folder_hint(ctl->args.value[FLAG_CHECKPOINT],
                           is_checkpoint(ctl->args.value[FLAG_CHECKPOINT], problem), problem);
    }
    if (code == 0) {
        code = spawn_settings_of(&ctl->args, &settings, problem);
    }
    if (code != 0) {
        question_done(&question);
        return code;
    }
    if (endpoint != NULL) {
        code = client_open_for(ctl, &client, problem);
        if (code == 0) {
            code = ask(ctl, client, &question, problem);
        }
        if (local && problem->hint[0] == '\0') {
            code = folder_hint(ctl->args.value[FLAG_CHECKPOINT], code, problem);
        }
        client_close(client);
    } else {
        code = spawn_start(&settings, &spawn, problem);
        if (code == 0) {
            code = client_open(spawn.nodes[0].endpoint, NULL, CLIENT_TIMEOUT_MS, &client, problem);
        }
        if (code == 0) {
            code = ask(ctl, client, &question, problem);
        }
        client_close(client);
        spawn_done(&spawn, false);
    }
    question_done(&question);
    return code;
}

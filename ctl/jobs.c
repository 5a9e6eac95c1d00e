/* job submit, list, show, watch, wait, logs, pause, resume, cancel. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "ctl/document.h"
#include "ctl/jobfile.h"
#include "ctl/plot.h"
#include "ctl/terminal.h"
#include "ctl/watch.h"

static const char *first_word(const struct ctl *ctl)
{
    return ctl->args.words_count > 0 ? ctl->args.words[0] : "";
}

static void draw_jobs(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    static const struct table_column columns[] = {
        {"JOB", true, false},    {"NAME", false, false},  {"STATE", false, false},
        {"STEP", true, false},   {"STEPS", true, false},  {"LOSS", true, false},
        {"CURVE", false, false}, {"ETA", true, false},    {"AGE", true, false},
        {"KIND", false, true},   {"NODES", true, true},   {"GENERATION", true, true},
        {"EPOCH", true, true},   {"REASON", false, true},
    };
    struct table table;
    size_t index = 0;
    json_t *job = NULL;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]),
               ctl->args.output == OUTPUT_WIDE);
    json_array_foreach(document_list(document, "jobs"), index, job)
    {
        struct buf curve = BUF_NONE;
        const json_t *losses = document_list(job, "losses");
        double values[32];
        size_t count = 0;
        for (size_t i = 0; i < json_array_size(losses) && count < 32; i++) {
            const json_t *loss = json_array_get(losses, i);
            values[count++] = json_is_number(loss) ? json_number_value(loss) : (double)NAN;
        }
        plot_spark(values, count, terminal_is_utf8(), &curve);
        cell_integer(&table, job, "job");
        cell_text(&table, job, "name");
        cell_text(&table, job, "state");
        cell_integer(&table, job, "step");
        cell_integer(&table, job, "steps");
        cell_number(&table, job, "loss");
        table_cell(&table, "%.*s", (int)curve.size,
                   curve.bytes != NULL ? (const char *)curve.bytes : "");
        cell_seconds(&table, job, "eta_s");
        cell_age(&table, job, "submitted_at_ms");
        cell_text(&table, job, "kind");
        cell_integer(&table, job, "nodes");
        cell_integer(&table, job, "generation");
        cell_integer(&table, job, "epoch");
        cell_text(&table, job, "reason");
        buf_done(&curve);
    }
    if (table.cells_count == 0) {
        say(ctl, "no jobs; 'coppeliusctl submit JOB.yaml' makes one");
    } else {
        table_print(&table, out);
    }
    table_done(&table);
}

static void put_line(struct buf *out, const char *name, const char *text)
{
    if (text[0] != '\0') {
        buf_print(out, "%-12s %s\n", name, text);
    }
}

static void put_number(struct buf *out, const char *label, const json_t *object, const char *name)
{
    if (isfinite(document_number(object, name))) {
        buf_print(out, "%-12s %.9g\n", label, document_number(object, name));
    }
}

static void draw_participants(const struct ctl *ctl, const json_t *job, struct buf *out)
{
    static const struct table_column columns[] = {
        {"RANK", true, false},   {"NODE", false, false},  {"FIRST", true, false},
        {"END", true, false},    {"WEIGHT", true, false}, {"SHARE", true, false},
        {"STATE", false, false}, {"STEP", true, false},
    };
    struct table table;
    size_t index = 0;
    json_t *part = NULL;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]),
               ctl->args.output == OUTPUT_WIDE);
    json_array_foreach(document_list(job, "participants"), index, part)
    {
        cell_integer(&table, part, "rank");
        cell_text(&table, part, "node");
        cell_integer(&table, part, "first");
        cell_integer(&table, part, "end");
        cell_integer(&table, part, "weight");
        if (isfinite(document_number(part, "share"))) {
            table_cell(&table, "%.1f %%", 100 * document_number(part, "share"));
        } else {
            table_cell(&table, "-");
        }
        cell_text(&table, part, "state");
        cell_integer(&table, part, "step");
    }
    if (table.cells_count > 0) {
        buf_print(out, "\n");
        table_print(&table, out);
    }
    table_done(&table);
}

/* What the flight recorder says of the last pause or failure. */
static void draw_verdict(const struct ctl *ctl, const json_t *job, struct buf *out)
{
    static const struct table_column columns[] = {
        {"NODE", false, false},  {"RECORDS", true, false},     {"STEP", true, false},
        {"PHASE", false, false}, {"LAST WORDS", false, false},
    };
    const json_t *verdict = json_object_get(job, "verdict");
    char words[1200];
    char when[64] = "";
    struct tm parts;
    if (!json_is_object(verdict)) {
        return;
    }
    time_t at = (time_t)(document_integer(verdict, "at_ms") / 1000);
    if (gmtime_r(&at, &parts) != NULL) {
        (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &parts);
    }
    const char *who = document_text(verdict, "who");
    const char *phase = document_text(verdict, "phase");
    (void)snprintf(words, sizeof(words), "%s%s%s at step %lld%s%s, %s: %s",
                   who[0] != '\0' ? "node " : "", who[0] != '\0' ? who : "nobody",
                   who[0] != '\0' ? "" : " is to blame",
                   (long long)document_integer(verdict, "step"), phase[0] != '\0' ? ", phase " : "",
                   phase, when, document_text(verdict, "why"));
    buf_print(out, "\n");
    put_line(out, "verdict", words);
    put_line(out, "", document_text(verdict, "file"));
    struct table table;
    size_t index = 0;
    json_t *node = NULL;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]),
               ctl->args.output == OUTPUT_WIDE);
    json_array_foreach(document_list(verdict, "nodes"), index, node)
    {
        cell_text(&table, node, "name");
        if (json_is_true(json_object_get(node, "answered"))) {
            cell_integer(&table, node, "records");
        } else {
            table_cell(&table, "no answer");
        }
        cell_integer(&table, node, "step");
        cell_text(&table, node, "phase");
        cell_text(&table, node, "text");
    }
    table_print(&table, out);
    table_done(&table);
}

static void draw_job(const struct ctl *ctl, const json_t *job, struct buf *out)
{
    char text[128];
    const json_t *dataset = json_object_get(job, "dataset");
    (void)snprintf(text, sizeof(text), "%lld", (long long)document_integer(job, "job"));
    put_line(out, "job", text);
    put_line(out, "name", document_text(job, "name"));
    put_line(out, "state", document_text(job, "state"));
    put_line(out, "reason", document_text(job, "reason"));
    if (document_has(job, "steps")) {
        (void)snprintf(text, sizeof(text), "%lld of %lld", (long long)document_integer(job, "step"),
                       (long long)document_integer(job, "steps"));
    } else {
        (void)snprintf(text, sizeof(text), "%lld", (long long)document_integer(job, "step"));
    }
    put_line(out, "step", text);
    put_number(out, "first loss", job, "first_loss");
    put_number(out, "loss", job, "loss");
    put_line(out, "", document_text(job, "loss_hex"));
    put_number(out, "objective", job, "objective");
    if (json_is_object(dataset)) {
        (void)snprintf(text, sizeof(text), "%lld training and %lld test rows, %lld features, %s",
                       (long long)document_integer(dataset, "rows"),
                       (long long)document_integer(dataset, "test_rows"),
                       (long long)document_integer(dataset, "features"),
                       document_text(dataset, "storage"));
        put_line(out, "data", text);
        struct buf holders = BUF_NONE;
        const json_t *names = document_list(dataset, "holders");
        for (size_t i = 0; i < json_array_size(names); i++) {
            buf_print(&holders, "%s%s", i > 0 ? ", " : "",
                      json_string_value(json_array_get(names, i)));
        }
        buf_put_u8(&holders, 0);
        put_line(out, "data on", (const char *)holders.bytes);
        buf_done(&holders);
    }
    (void)snprintf(text, sizeof(text), "%lld node%s, generation %lld",
                   (long long)document_integer(job, "nodes"),
                   document_integer(job, "nodes") == 1 ? "" : "s",
                   (long long)document_integer(job, "generation"));
    put_line(out, "placed on", document_integer(job, "nodes") > 0 ? text : "");
    put_line(out, "checkpoint", document_text(job, "checkpoint"));
    put_line(out, "parameter", document_text(job, "parameter_sha256"));
    put_line(out, "accumulator", document_text(job, "accumulator_sha256"));
    put_line(out, "identity", document_text(job, "identity"));
    put_line(out, "policy", document_text(job, "policy"));
    const json_t *notes = document_list(job, "notes");
    for (size_t i = 0; i < json_array_size(notes); i++) {
        put_line(out, "note", json_string_value(json_array_get(notes, i)));
    }
    draw_participants(ctl, job, out);
    draw_verdict(ctl, job, out);
    if (ctl->args.output == OUTPUT_WIDE && document_text(job, "text")[0] != '\0') {
        buf_print(out, "\n%s", document_text(job, "text"));
    }
}

int run_jobs(struct ctl *ctl, struct problem *problem)
{
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_JOB_LIST;
    request.job_list = &empty;
    return output_answer(ctl, &request, "jobs", "name", draw_jobs, problem);
}

/* The verbs that name one job and get the document `job`. */
static int ask_job(struct ctl *ctl, Ctl__Request__AskCase verb, const char *done,
                   struct problem *problem)
{
    char name[256];
    Ctl__JobName job;
    ctl__job_name__init(&job);
    Ctl__Request request;
    ctl__request__init(&request);
    (void)snprintf(name, sizeof(name), "%s", first_word(ctl));
    job.job = name;
    request.ask_case = verb;
    request.job_show = &job; /* One union: all of these verbs carry a JobName. */
    int code = output_answer(ctl, &request, NULL, "name", draw_job, problem);
    if (code == 0 && done != NULL) {
        say(ctl, "%s: %s", name, done);
    }
    return code;
}

int run_show(struct ctl *ctl, struct problem *problem)
{
    return ask_job(ctl, CTL__REQUEST__ASK_JOB_SHOW, NULL, problem);
}

int run_pause(struct ctl *ctl, struct problem *problem)
{
    return ask_job(ctl, CTL__REQUEST__ASK_JOB_PAUSE, "it stops after its next published checkpoint",
                   problem);
}

int run_resume(struct ctl *ctl, struct problem *problem)
{
    return ask_job(ctl, CTL__REQUEST__ASK_JOB_RESUME, "it may be placed again", problem);
}

int run_cancel(struct ctl *ctl, struct problem *problem)
{
    return ask_job(ctl, CTL__REQUEST__ASK_JOB_CANCEL, "cancelled; its checkpoints stay", problem);
}

static enum watch_style style_for(const struct ctl *ctl)
{
    switch (ctl->args.output) {
    case OUTPUT_JSONL:
        return WATCH_EVENTS;
    case OUTPUT_JSON:
    case OUTPUT_NAME:
        return WATCH_NOTHING;
    case OUTPUT_TABLE:
    case OUTPUT_WIDE:
    default:
        return terminal_is_tty(STDOUT_FILENO) ? WATCH_SCREEN : WATCH_LINES;
    }
}

/* Watches to the end; the exit status is the job's. */
static int watch_to_end(struct ctl *ctl, struct client *client, const char *job,
                        struct problem *problem)
{
    json_t *end = NULL;
    int code = watch_job(ctl, client, job, style_for(ctl), ctl->args.timeout_ms, NULL, NULL, &end,
                         problem);
    if (code != 0) {
        return code;
    }
    if (ctl->args.output == OUTPUT_JSON) {
        (void)json_object_del(end, "event");
        code = output_json(ctl, end, problem);
    } else if (ctl->args.output == OUTPUT_TABLE || ctl->args.output == OUTPUT_WIDE) {
        struct buf out = BUF_NONE;
        watch_summary(end, &out);
        code = output_bytes(&out, problem);
        buf_done(&out);
    }
    if (code == 0) {
        code = watch_verdict(end, problem);
    }
    json_decref(end);
    return code;
}

int run_watch(struct ctl *ctl, struct problem *problem)
{
    struct client *client = NULL;
    int code = client_open_for(ctl, &client, problem);
    if (code == 0) {
        code = watch_to_end(ctl, client, first_word(ctl), problem);
    }
    client_close(client);
    return code;
}

int run_wait(struct ctl *ctl, struct problem *problem)
{
    static const char *const states[] = {"submitted", "placed", "loading",   "running",
                                         "finishing", "paused", "succeeded", "failed",
                                         "cancelled", "ended"};
    const char *wanted = ctl->args.value[FLAG_FOR] != NULL ? ctl->args.value[FLAG_FOR] : "ended";
    struct client *client = NULL;
    bool known = false;
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        known = known || strcmp(states[i], wanted) == 0;
    }
    if (!known) {
        problem_hint(problem, "states are submitted, placed, loading, running, finishing, paused, "
                              "succeeded, failed, cancelled; ended is any of the last three");
        return problem_set(problem, ERR_USAGE, "--for %s is not a state", wanted);
    }
    uint64_t start = clock_now_ms();
    uint64_t timeout_ms = ctl->args.timeout_ms;
    int code = client_open_for(ctl, &client, problem);
    Ctl__JobName job;
    ctl__job_name__init(&job);
    char name[256];
    (void)snprintf(name, sizeof(name), "%s", first_word(ctl));
    job.job = name;
    while (code == 0) {
        struct answer answer = {NULL, NULL};
        Ctl__Request request;
        ctl__request__init(&request);
        request.ask_case = CTL__REQUEST__ASK_JOB_SHOW;
        request.job_show = &job;
        code = client_call(client, &request, &answer, problem);
        if (code != 0) {
            break;
        }
        char state[32];
        (void)snprintf(state, sizeof(state), "%s", document_text(answer.json, "state"));
        bool ended = strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0 ||
                     strcmp(state, "cancelled") == 0;
        bool there = strcmp(state, wanted) == 0 || (ended && strcmp(wanted, "ended") == 0);
        if (there || ended) {
            if (ctl->args.output == OUTPUT_JSON || ctl->args.output == OUTPUT_JSONL) {
                code = output_json(ctl, answer.json, problem);
            } else {
                say(ctl, "%s: %s", document_text(answer.json, "name"), state);
            }
            if (code == 0 && (!there || strcmp(wanted, "ended") == 0)) {
                code = watch_verdict(answer.json, problem);
            }
            if (code == 0 && !there) {
                code = problem_set(problem, ERR_JOB_FAILED, "job '%s' %s; it will not be %s",
                                   document_text(answer.json, "name"), state, wanted);
            }
            answer_done(&answer);
            break;
        }
        answer_done(&answer);
        if (timeout_ms != UINT64_MAX && clock_now_ms() - start >= timeout_ms) {
            code =
                problem_set(problem, ERR_TIMEOUT, "job '%s' is still %s after %.3g s",
                            name[0] != '\0' ? name : "(newest)", state, (double)timeout_ms / 1000);
        } else if (terminal_interrupted()) {
            code = problem_set(problem, ERR_CANCELED, "interrupted");
        } else {
            (void)usleep(200000);
        }
    }
    client_close(client);
    return code;
}

static int print_lines(const struct ctl *ctl, const json_t *document, struct problem *problem)
{
    struct buf out = BUF_NONE;
    size_t index = 0;
    json_t *line = NULL;
    int code = 0;
    json_array_foreach(document_list(document, "lines"), index, line)
    {
        if (ctl->args.output == OUTPUT_JSON || ctl->args.output == OUTPUT_JSONL) {
            char *text = json_dumps(line, JSON_COMPACT);
            buf_print(&out, "%s\n", text != NULL ? text : "{}");
            free(text);
            continue;
        }
        time_t at = (time_t)(document_integer(line, "at_ms") / 1000);
        struct tm local;
        char time_text[32] = "-";
        if (localtime_r(&at, &local) != NULL) {
            (void)strftime(time_text, sizeof(time_text), "%H:%M:%S", &local);
        }
        int64_t level = document_integer(line, "level");
        const char *color = !ctl->color  ? ""
                            : level <= 3 ? "\033[31m"
                            : level == 4 ? "\033[33m"
                                         : "";
        buf_print(&out, "%s.%03d %s %s%s%s\n", time_text,
                  (int)(document_integer(line, "at_ms") % 1000), document_text(line, "node"), color,
                  document_text(line, "line"), color[0] != '\0' ? "\033[0m" : "");
    }
    code = output_bytes(&out, problem);
    buf_done(&out);
    return code;
}

int run_logs(struct ctl *ctl, struct problem *problem)
{
    char name[256];
    char *end = NULL;
    Ctl__JobLogs logs;
    ctl__job_logs__init(&logs);
    Ctl__Request request;
    ctl__request__init(&request);
    struct client *client = NULL;
    const char *lines = ctl->args.value[FLAG_LINES];
    (void)snprintf(name, sizeof(name), "%s", first_word(ctl));
    unsigned long count = lines != NULL ? strtoul(lines, &end, 10) : 0;
    if (lines != NULL && (*lines == '\0' || *end != '\0' || count > UINT32_MAX)) {
        return problem_set(problem, ERR_USAGE, "--lines %s is not a count", lines);
    }
    logs.job = name;
    logs.follow = ctl->args.value[FLAG_FOLLOW] != NULL;
    logs.lines = (uint32_t)count;
    request.ask_case = CTL__REQUEST__ASK_JOB_LOGS;
    request.job_logs = &logs;
    int code = client_open_for(ctl, &client, problem);
    if (code == 0) {
        code = client_ask(client, &request, problem);
    }
    for (bool more = true; code == 0 && more;) {
        struct answer answer = {NULL, NULL};
        code = client_next(client, ctl->args.timeout_ms, &answer, problem);
        if (code == 0 && answer.reply == NULL) {
            code = logs.follow ? ERR_OK : problem_set(problem, ERR_TIMEOUT, "no log lines in time");
            more = false;
        } else if (code == 0) {
            more = answer.reply->more;
            code = print_lines(ctl, answer.json, problem);
        }
        answer_done(&answer);
    }
    client_close(client);
    return code;
}

int run_submit(struct ctl *ctl, struct problem *problem)
{
    struct jobfile file;
    struct client *client = NULL;
    struct answer answer = {NULL, NULL};
    int code = jobfile_read(&ctl->args, first_word(ctl), &file, problem);
    if (code != 0) {
        return code;
    }
    Ctl__Submit submit;
    ctl__submit__init(&submit);
    Ctl__Request request;
    ctl__request__init(&request);
    uint64_t uuid[2];
    jobfile_fill(&file, uuid, &submit);
    request.ask_case = CTL__REQUEST__ASK_SUBMIT;
    request.submit = &submit;
    code = client_open_for(ctl, &client, problem);
    if (code == 0) {
        code = client_call(client, &request, &answer, problem);
    }
    if (code == 0) {
        const json_t *notes = document_list(answer.json, "notes");
        for (size_t i = 0; i < json_array_size(notes); i++) {
            say(ctl, "note: %s", json_string_value(json_array_get(notes, i)));
        }
        bool table = ctl->args.output == OUTPUT_TABLE || ctl->args.output == OUTPUT_WIDE;
        if (ctl->args.value[FLAG_WATCH] != NULL) {
            char id[32];
            (void)snprintf(id, sizeof(id), "%lld", (long long)document_integer(answer.json, "job"));
            code = watch_to_end(ctl, client, id, problem);
        } else if (table) {
            struct buf out = BUF_NONE;
            const char *reason = document_text(answer.json, "reason"); /* who is missing, say */
            buf_print(&out, "job %lld '%s' %s%s%s\n",
                      (long long)document_integer(answer.json, "job"),
                      document_text(answer.json, "name"), document_text(answer.json, "state"),
                      reason[0] != '\0' ? ": " : "", reason);
            code = output_bytes(&out, problem);
            buf_done(&out);
            say(ctl, "'coppeliusctl watch %s' shows it", document_text(answer.json, "name"));
        } else {
            code = output_document(ctl, answer.json, NULL, "name", draw_job, problem);
        }
    }
    answer_done(&answer);
    client_close(client);
    jobfile_done(&file);
    return code;
}

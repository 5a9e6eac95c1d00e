#include "ctl/watch.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ctl/document.h"
#include "ctl/terminal.h"

#define REDRAW_MS 500
#define NOTE_MS   1000

void watch_init(struct watch *watch)
{
    memset(watch, 0, sizeof(*watch));
}

void watch_done(struct watch *watch)
{
    json_decref(watch->now);
    json_decref(watch->checkpoint);
    watch->now = NULL;
    watch->checkpoint = NULL;
}

static void add_point(struct watch *watch, double step, double loss)
{
    if (watch->points_count > 0 && step <= watch->points[watch->points_count - 1].x) {
        if (step == watch->points[watch->points_count - 1].x) {
            return;
        }
        /* A new generation does steps again: what lies behind its start is dropped. */
        while (watch->points_count > 0 && watch->points[watch->points_count - 1].x >= step) {
            watch->points_count--;
        }
    }
    if (watch->points_count == WATCH_POINTS_MAX) {
        for (size_t i = 0; i < WATCH_POINTS_MAX / 2; i++) {
            watch->points[i] = watch->points[2 * i];
        }
        watch->points_count = WATCH_POINTS_MAX / 2;
    }
    watch->points[watch->points_count++] = (struct plot_point){step, loss};
}

/* The names of `event` put over those that are known. */
static void merge(struct watch *watch, const json_t *event)
{
    if (watch->now == NULL) {
        watch->now = json_object();
    }
    if (document_has(event, "step") &&
        document_integer(event, "step") != document_integer(watch->now, "step")) {
        (void)json_object_del(watch->now,
                              "loss"); /* It is another step's; the event has its own. */
        (void)json_object_del(watch->now, "loss_hex");
    }
    if (document_text(event, "state")[0] != '\0' && json_object_get(event, "work") == NULL &&
        strcmp(document_text(event, "state"), document_text(watch->now, "state")) != 0) {
        (void)json_object_del(watch->now, "work"); /* So is what was read in the state before. */
        (void)json_object_del(watch->now, "work_done_bytes");
        (void)json_object_del(watch->now, "work_total_bytes");
    }
    const char *name = NULL;
    json_t *value = NULL;
    /* jansson's iterator takes the object as it is; nothing of it is changed. */
    json_object_foreach((json_t *)(uintptr_t)event, name, value)
    {
        if (strcmp(name, "points") != 0) {
            (void)json_object_set(watch->now, name, value);
        }
    }
}

void watch_take(struct watch *watch, const json_t *event)
{
    const char *kind = document_text(event, "event");
    if (strcmp(kind, "history") == 0) {
        const json_t *points = document_list(event, "points");
        for (size_t i = 0; i < json_array_size(points); i++) {
            const json_t *pair = json_array_get(points, i);
            const json_t *loss = json_array_get(pair, 1);
            add_point(watch, json_number_value(json_array_get(pair, 0)),
                      json_is_number(loss) ? json_number_value(loss) : (double)NAN);
        }
        merge(watch, event);
    } else if (strcmp(kind, "checkpoint") == 0) {
        json_decref(watch->checkpoint);
        watch->checkpoint = json_deep_copy(event);
    } else if (strcmp(kind, "progress") == 0 || strcmp(kind, "state") == 0 ||
               strcmp(kind, "end") == 0) {
        watch->ended = strcmp(kind, "end") == 0;
        if (watch->ended) { /* It says everything; what progress said last is over. */
            json_decref(watch->now);
            watch->now = NULL;
        }
        merge(watch, event);
        if (isfinite(document_number(event, "loss")) && document_integer(event, "step") > 0) {
            add_point(watch, document_number(event, "step"), document_number(event, "loss"));
        }
    }
}

static double done_fraction(const json_t *now)
{
    double steps = document_number(now, "steps");
    return steps > 0 ? document_number(now, "step") / steps : 0;
}

static void put_steps(const json_t *now, struct buf *out)
{
    buf_print(out, "step %lld", (long long)document_integer(now, "step"));
    if (document_has(now, "steps")) {
        buf_print(out, "/%lld %.0f %%", (long long)document_integer(now, "steps"),
                  100 * done_fraction(now));
    }
}

static void put_speed(const json_t *now, const char *gap, struct buf *out)
{
    char text[32];
    double rows = document_number(now, "rows_per_s");
    if (isfinite(rows)) {
        text_count(rows, text, sizeof(text));
        buf_print(out, "%s%s rows/s", gap, text);
    }
    const char *state = document_text(now, "state");
    bool runs = strcmp(state, "running") == 0 || strcmp(state, "finishing") == 0;
    if (runs && isfinite(document_number(now, "eta_s")) && document_number(now, "eta_s") > 0) {
        text_duration(document_number(now, "eta_s"), text, sizeof(text));
        buf_print(out, "%sETA %s", gap, text);
    }
}

static void put_share(const json_t *now, const char *gap, struct buf *out)
{
    static const char *const names[] = {"compute", "exchange", "publication"};
    const json_t *share = json_object_get(now, "share");
    for (size_t i = 0; i < 3; i++) {
        double part = document_number(share, names[i]);
        if (isfinite(part)) {
            buf_print(out, "%s%s %.0f %%", gap, names[i], 100 * part);
        }
    }
}

static void put_loss(const json_t *now, const char *gap, struct buf *out)
{
    if (isfinite(document_number(now, "loss"))) {
        buf_print(out, "%sloss %.6g", gap, document_number(now, "loss"));
        if (isfinite(document_number(now, "first_loss"))) {
            buf_print(out, " (first %.6g)", document_number(now, "first_loss"));
        }
    }
}

/* "reading 45 % of 3.2 GiB": the asked node reads its data. */
static void put_work(const json_t *now, const char *gap, struct buf *out)
{
    if (document_text(now, "work")[0] != '\0') {
        char text[32];
        bool has_total = document_has(now, "work_total_bytes");
        double done = document_number(now, "work_done_bytes");
        double total = document_number(now, "work_total_bytes");
        text_bytes(has_total ? total : done, text, sizeof(text));
        buf_print(out, "%s%s ", gap, document_text(now, "work"));
        if (has_total) {
            buf_print(out, "%.0f %% of ", 100 * fmin(done / total, 1));
        }
        buf_print(out, "%s", text);
    }
}

void watch_line(const struct watch *watch, struct buf *out)
{
    const json_t *now = watch->now;
    const char *state = document_text(now, "state");
    buf_print(out, "%s: %s  ", document_text(now, "name"), state);
    put_steps(now, out);
    put_work(now, "  ", out);
    put_loss(now, "  ", out);
    put_speed(now, "  ", out);
    put_share(now, "  ", out);
    if (document_has(now, "reason") && strcmp(state, "running") != 0 &&
        strcmp(state, "succeeded") != 0) {
        buf_print(out, "  (%s)", document_text(now, "reason"));
    }
}

static const char *state_color(const char *state)
{
    if (strcmp(state, "succeeded") == 0 || strcmp(state, "running") == 0) {
        return "\033[32m";
    }
    if (strcmp(state, "failed") == 0 || strcmp(state, "cancelled") == 0) {
        return "\033[31m";
    }
    return "\033[33m";
}

static void put_checkpoint(const struct watch *watch, struct buf *out)
{
    const json_t *newest = watch->checkpoint != NULL ? watch->checkpoint : watch->now;
    if (document_has(newest, "epoch")) {
        buf_print(out, "checkpoint: epoch %lld", (long long)document_integer(newest, "epoch"));
        if (watch->checkpoint != NULL) {
            buf_print(out, " of step %lld", (long long)document_integer(newest, "step"));
        }
    }
    buf_print(out, "\n");
}

void watch_draw(const struct watch *watch, int columns, int lines, bool utf8, bool color,
                struct buf *out)
{
    const json_t *now = watch->now;
    const char *state = document_text(now, "state");
    char text[32];
    size_t wide = columns > 20 ? (size_t)columns : 20;
    buf_print(out, "%s  %s%s %s%s", document_text(now, "name"), color ? state_color(state) : "",
              utf8 ? "●" : "*", state, color ? "\033[0m" : "");
    if (document_has(now, "nodes")) {
        long long nodes = (long long)document_integer(now, "nodes");
        buf_print(out, "  %lld node%s, generation %lld", nodes, nodes == 1 ? "" : "s",
                  (long long)document_integer(now, "generation"));
    }
    buf_print(out, "\n");
    if (document_has(now, "reason") && document_text(now, "reason")[0] != '\0') {
        buf_print(out, "%s\n", document_text(now, "reason"));
    }
    bool reads = document_has(now, "work_total_bytes");
    plot_bar(reads ? document_number(now, "work_done_bytes") /
                         document_number(now, "work_total_bytes")
                   : done_fraction(now),
             wide > 60 ? 40 : wide - 18, utf8, out);
    if (document_text(now, "work")[0] != '\0') {
        put_work(now, " ", out);
    } else {
        buf_print(out, " ");
        put_steps(now, out);
    }
    buf_print(out, "\n");
    put_loss(now, "", out);
    put_speed(now, "   ", out);
    if (isfinite(document_number(now, "elapsed_s"))) {
        text_duration(document_number(now, "elapsed_s"), text, sizeof(text));
        buf_print(out, "   after %s", text);
    }
    buf_print(out, "\n");
    put_share(now, "  ", out);
    buf_print(out, "\n");
    put_checkpoint(watch, out);
    int left = lines - 9;
    plot_curve(watch->points, watch->points_count, wide,
               left > 16  ? 16
               : left > 2 ? (size_t)left
                          : 0,
               utf8, out);
}

void watch_summary(const json_t *end, struct buf *out)
{
    char text[32];
    buf_print(out, "%s: %s at step %lld", document_text(end, "name"), document_text(end, "state"),
              (long long)document_integer(end, "step"));
    if (isfinite(document_number(end, "first_loss"))) {
        buf_print(out, ", first loss %.6g", document_number(end, "first_loss"));
    }
    if (isfinite(document_number(end, "loss"))) {
        buf_print(out, ", last loss %.6g", document_number(end, "loss"));
    }
    if (isfinite(document_number(end, "objective"))) {
        buf_print(out, ", objective %.9g", document_number(end, "objective"));
    }
    buf_print(out, "\n");
    struct buf line = BUF_NONE;
    if (isfinite(document_number(end, "elapsed_s"))) {
        text_duration(document_number(end, "elapsed_s"), text, sizeof(text));
        buf_print(&line, "  %s", text);
    }
    put_speed(end, "  ", &line);
    put_share(end, "  ", &line);
    if (line.size > 0) {
        buf_print(out, "%s\n", (const char *)line.bytes);
    }
    buf_done(&line);
    if (document_has(end, "parameter_sha256")) {
        buf_print(out, "  parameter_sha256 %s\n", document_text(end, "parameter_sha256"));
    }
    if (document_has(end, "checkpoint")) {
        buf_print(out, "  checkpoint %s\n", document_text(end, "checkpoint"));
    }
}

int watch_verdict(const json_t *end, struct problem *problem)
{
    const char *state = document_text(end, "state");
    if (strcmp(state, "succeeded") == 0) {
        return 0;
    }
    const char *reason = document_text(end, "reason");
    problem_hint(problem, "'coppeliusctl logs %s' has the story", document_text(end, "name"));
    return problem_set(problem, ERR_JOB_FAILED, "job '%s' %s%s%s", document_text(end, "name"),
                       state[0] != '\0' ? state : "ended", reason[0] != '\0' ? ": " : "", reason);
}

void watch_frame(const struct buf *drawn, int columns, int lines, struct buf *out)
{
    int column = 0;
    int line = 1;
    buf_print(out, "\033[H");
    for (size_t i = 0; i < drawn->size; i++) {
        uint8_t byte = drawn->bytes[i];
        if (byte == '\n') {
            if (line == lines) { /* A line feed there would scroll. */
                break;
            }
            buf_print(out, "\033[K\n");
            column = 0;
            line++;
        } else if (byte == '\033') { /* A colour: no width, up to its letter. */
            while (i < drawn->size && drawn->bytes[i] != 'm') {
                buf_put(out, &drawn->bytes[i++], 1);
            }
            buf_print(out, "m");
        } else {
            column += (byte & 0xc0) != 0x80; /* the first byte of a code point */
            if (column <= columns) {
                buf_put(out, &byte, 1);
            }
        }
    }
    buf_print(out, "\033[J");
}

struct driver {
    struct watch watch;
    enum watch_style style;
    const struct ctl *ctl;
    uint64_t shown_ms;
    bool bar_open;   /* the line of WATCH_BAR has no line feed yet */
    struct buf line; /* the last one of WATCH_LINES and WATCH_NOTES */
};

static int show(struct driver *driver, const json_t *event, struct problem *problem)
{
    struct buf out = BUF_NONE;
    int code = 0;
    int columns = 80;
    int lines = 24;
    uint64_t now = clock_now_ms();
    bool is_progress = event == NULL || strcmp(document_text(event, "event"), "progress") == 0;
    bool has = driver->watch.now != NULL;
    switch (driver->style) {
    case WATCH_SCREEN:
        if (has && (event == NULL || !is_progress || now - driver->shown_ms >= REDRAW_MS)) {
            terminal_size(STDOUT_FILENO, &columns, &lines);
            struct buf drawn = BUF_NONE;
            watch_draw(&driver->watch, columns, lines, terminal_is_utf8(), driver->ctl->color,
                       &drawn);
            watch_frame(&drawn, columns, lines, &out);
            buf_done(&drawn);
            code = output_bytes(&out, problem);
            driver->shown_ms = now;
        }
        break;
    case WATCH_BAR:
        if (has && (!is_progress || now - driver->shown_ms >= REDRAW_MS)) {
            terminal_size(STDERR_FILENO, &columns, &lines);
            watch_line(&driver->watch, &out);
            (void)fprintf(stderr, "\r\033[K%.*s", columns - 1, (const char *)out.bytes);
            (void)fflush(stderr);
            driver->bar_open = true;
            driver->shown_ms = now;
        }
        break;
    case WATCH_LINES:
    case WATCH_NOTES:
        /* The end has a summary of its own; what reads like the line before is none. */
        if (event != NULL && has && !driver->watch.ended &&
            (!is_progress || driver->style == WATCH_LINES || now - driver->shown_ms >= NOTE_MS)) {
            if (strcmp(document_text(event, "event"), "checkpoint") == 0) {
                buf_print(&out, "%s: published epoch %lld of step %lld",
                          document_text(event, "name"), (long long)document_integer(event, "epoch"),
                          (long long)document_integer(event, "step"));
            } else {
                watch_line(&driver->watch, &out);
            }
            buf_print(&out, "\n");
            if (driver->line.size == out.size &&
                memcmp(driver->line.bytes, out.bytes, out.size) == 0) {
                break;
            }
            buf_clear(&driver->line);
            buf_put(&driver->line, out.bytes, out.size);
            if (driver->style == WATCH_LINES) {
                code = output_bytes(&out, problem);
            } else {
                (void)fputs((const char *)out.bytes, stderr);
            }
            driver->shown_ms = now;
        }
        break;
    case WATCH_EVENTS:
        if (event != NULL) {
            code = output_json(driver->ctl, event, problem);
        }
        break;
    case WATCH_NOTHING:
    default:
        break;
    }
    buf_done(&out);
    return code;
}

static int follow(struct driver *driver, struct client *client, uint64_t timeout_ms,
                  int (*alive)(void *context, struct problem *problem), void *context,
                  struct problem *problem)
{
    uint64_t start = clock_now_ms();
    while (!driver->watch.ended) {
        struct answer answer = {NULL, NULL};
        int code = client_next(client, REDRAW_MS, &answer, problem);
        if (code == 0 && alive != NULL) {
            code = alive(context, problem);
        }
        if (code == 0 && answer.json != NULL) {
            watch_take(&driver->watch, answer.json);
        }
        if (code == 0) {
            code = show(driver, answer.json, problem);
        }
        bool last = answer.reply != NULL && !answer.reply->more;
        answer_done(&answer);
        if (code != 0) {
            return code;
        }
        if (last && !driver->watch.ended) {
            return problem_set(problem, ERR_PROTO, "the daemon ended the report before its end");
        }
        if (!driver->watch.ended && timeout_ms != UINT64_MAX &&
            clock_now_ms() - start >= timeout_ms) {
            problem_hint(problem, "the job goes on; watch it again");
            return problem_set(problem, ERR_TIMEOUT, "job '%s' is still %s after %.3g s",
                               document_text(driver->watch.now, "name"),
                               document_text(driver->watch.now, "state"),
                               (double)timeout_ms / 1000);
        }
    }
    return 0;
}

int watch_job(const struct ctl *ctl, struct client *client, const char *job, enum watch_style style,
              uint64_t timeout_ms, int (*alive)(void *context, struct problem *problem),
              void *context, json_t **ret_end, struct problem *problem)
{
    char name[128];
    (void)snprintf(name, sizeof(name), "%s", job);
    Ctl__JobWatch ask;
    ctl__job_watch__init(&ask);
    Ctl__Request request;
    ctl__request__init(&request);
    ask.job = name;
    ask.follow = 1;
    request.ask_case = CTL__REQUEST__ASK_JOB_WATCH;
    request.job_watch = &ask;
    struct driver driver = {.style = style, .ctl = ctl, .line = BUF_NONE};
    watch_init(&driver.watch);
    int code = client_ask(client, &request, problem);
    if (code == 0) {
        if (style == WATCH_SCREEN) {
            terminal_enter_screen(STDOUT_FILENO);
        }
        code = follow(&driver, client, timeout_ms, alive, context, problem);
        terminal_leave_screen();
        if (driver.bar_open) {
            (void)fputs("\r\033[K", stderr);
        }
    }
    if (code == 0 && ret_end != NULL) {
        *ret_end = json_incref(driver.watch.now);
    }
    watch_done(&driver.watch);
    buf_done(&driver.line);
    return code;
}

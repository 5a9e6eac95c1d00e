/* node list: the nodes, and with -o wide what the lines between them are like. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/document.h"

#define LINES_MAX 128

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The two cells of one number of a node's lines: the median, and the worst one with whom it leads
 * to. A line that does not work is the worst. */
static void cell_lines(struct table *table, const json_t *node, const char *name,
                       bool most_is_worst)
{
    double values[LINES_MAX];
    size_t count = 0;
    size_t index = 0;
    size_t failed = 0;
    double worst = (double)NAN;
    const char *worst_to = "";
    const json_t *pair = NULL;
    char texts[2][32];
    json_array_foreach(document_list(node, "pairs"), index, pair)
    {
        double value = document_number(pair, name);
        if (strcmp(document_text(pair, "state"), "failed") == 0) {
            failed++;
            worst_to = failed == 1 ? document_text(pair, "to") : worst_to;
        }
        if (!isfinite(value) || count == LINES_MAX) {
            continue;
        }
        values[count++] = value;
        if (failed == 0 && (isnan(worst) || (most_is_worst ? value > worst : value < worst))) {
            worst = value;
            worst_to = document_text(pair, "to");
        }
    }
    qsort(values, count, sizeof(values[0]), by_size);
    double both[2] = {count > 0 ? values[count / 2] : (double)NAN, worst};
    for (int i = 0; i < 2; i++) {
        if (most_is_worst) {
            (void)snprintf(texts[i], sizeof(texts[i]), "%.2f ms", both[i]);
        } else {
            (void)snprintf(texts[i], sizeof(texts[i]), "%.*f MB/s", both[i] < 1e8 ? 1 : 0,
                           both[i] * 1e-6);
        }
    }
    table_cell(table, "%s", count > 0 ? texts[0] : "-");
    if (failed > 1) {
        table_cell(table, "none to %s and %zu more", worst_to, failed - 1);
    } else if (failed == 1) {
        table_cell(table, "none to %s", worst_to);
    } else if (count > 0) {
        table_cell(table, "%s to %s", texts[1], worst_to);
    } else {
        table_cell(table, "-");
    }
}

/* The lines that a person should see to. */
static void put_bad_lines(const json_t *document, struct buf *out)
{
    size_t index = 0;
    const json_t *node = NULL;
    bool any = false;
    json_array_foreach(document_list(document, "nodes"), index, node)
    {
        size_t at = 0;
        const json_t *pair = NULL;
        json_array_foreach(document_list(node, "pairs"), at, pair)
        {
            const char *state = document_text(pair, "state");
            bool slow = strcmp(state, "slow") == 0;
            if (!slow && strcmp(state, "failed") != 0) {
                continue;
            }
            buf_print(out, "%s", any ? "" : "\n");
            any = true;
            if (slow) {
                buf_print(out, "pre-flight: the line from node %s to node %s is slow: %.1f MB/s\n",
                          document_text(node, "name"), document_text(pair, "to"),
                          document_number(pair, "bytes_per_s") * 1e-6);
            } else {
                buf_print(out, "pre-flight: %s\n", document_text(pair, "reason"));
            }
        }
    }
}

static void draw_nodes(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    static const struct table_column columns[] = {
        {"NODE", true, false},    {"NAME", false, false},   {"ADDRESS", false, false},
        {"ROLE", false, false},   {"STATE", false, false},  {"LEADER", false, false},
        {"DEVICE", false, false}, {"JOB", true, false},     {"STEP", true, false},
        {"PHASE", false, false},  {"SEEN", true, true},     {"RTT", true, true},
        {"LINE RTT", true, true}, {"WORST", false, true},   {"LINE RATE", true, true},
        {"WORST", false, true},   {"FREE", true, true},     {"THREADS", true, true},
        {"BINDING", false, true}, {"VERSION", false, true},
    };
    struct table table;
    size_t index = 0;
    json_t *node = NULL;
    char text[32];
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]),
               ctl->args.output == OUTPUT_WIDE);
    json_array_foreach(document_list(document, "nodes"), index, node)
    {
        cell_integer(&table, node, "node");
        cell_text(&table, node, "name");
        cell_text(&table, node, "address");
        cell_text(&table, node, "role");
        cell_text(&table, node, "state");
        table_cell(&table, "%s", document_true(node, "leader") ? "yes" : "");
        cell_text(&table, node, "device");
        cell_integer(&table, node, "job");
        cell_integer(&table, node, "step");
        cell_text(&table, node, "phase");
        text_duration(document_number(node, "seen_ms") / 1000, text, sizeof(text));
        table_cell(&table, "%s", document_true(node, "self") ? "-" : text);
        if (isfinite(document_number(node, "round_trip_ms"))) {
            table_cell(&table, "%.2f ms", document_number(node, "round_trip_ms"));
        } else {
            table_cell(&table, "-");
        }
        cell_lines(&table, node, "round_trip_ms", true);
        cell_lines(&table, node, "bytes_per_s", false);
        cell_bytes(&table, node, "storage_free_bytes");
        cell_integer(&table, node, "threads");
        cell_text(&table, node, "binding");
        cell_text(&table, node, "version");
    }
    table_print(&table, out);
    table_done(&table);
    put_bad_lines(document, out);
}

int run_nodes(struct ctl *ctl, struct problem *problem)
{
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_NODES;
    request.nodes = &empty;
    return output_answer(ctl, &request, "nodes", "name", draw_nodes, problem);
}

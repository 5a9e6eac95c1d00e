/* session, cluster status, doctor. */
#include <string.h>

#include "ctl/document.h"
#include "ctl/terminal.h"

static void draw_session(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    static const struct table_column columns[] = {{"REGION", false, false},
                                                  {"OFFSET", true, false},
                                                  {"BYTES", true, false},
                                                  {"ALIGNMENT", true, false}};
    const json_t *issues = json_object_get(document, "issues");
    const json_t *arena = json_object_get(document, "arena");
    struct table table;
    size_t index = 0;
    json_t *item = NULL;
    buf_print(out, "node %s: %s (%s), %lld threads, session %s\n", document_text(document, "node"),
              document_text(document, "device"), document_text(document, "backend"),
              (long long)document_integer(document, "threads"), document_text(document, "state"));
    buf_print(out, "binding %s\n", document_text(document, "binding"));
    if (document_has(document, "job") && document_integer(document, "job") > 0) {
        buf_print(out, "job %lld, generation %lld: %lld of %lld issues retired\n",
                  (long long)document_integer(document, "job"),
                  (long long)document_integer(document, "generation"),
                  (long long)document_integer(issues, "retired"),
                  (long long)document_integer(issues, "expected"));
    }
    json_array_foreach(document_list(document, "images"), index, item)
    {
        buf_print(out, "image %s: %s\n", document_text(item, "name"), document_text(item, "state"));
    }
    table_init(&table, columns, 4, false);
    json_array_foreach(document_list(arena, "regions"), index, item)
    {
        cell_text(&table, item, "name");
        cell_integer(&table, item, "offset");
        cell_integer(&table, item, "bytes");
        cell_integer(&table, item, "alignment");
    }
    if (table.cells_count > 0) {
        buf_print(out, "arena: %lld bytes, aligned to %lld\n\n",
                  (long long)document_integer(arena, "bytes"),
                  (long long)document_integer(arena, "alignment"));
        table_print(&table, out);
    }
    table_done(&table);
    (void)ctl;
}

int run_session(struct ctl *ctl, struct problem *problem)
{
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_SESSION;
    request.session = &empty;
    return output_answer(ctl, &request, NULL, "node", draw_session, problem);
}

static void draw_status(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    static const struct table_column columns[] = {
        {"NODE", true, false},  {"NAME", false, false},  {"ADDRESS", false, false},
        {"ROLE", false, false}, {"STATE", false, false}, {"LEADER", false, false},
        {"MATCH", true, false}, {"LAG", true, false},    {"SEEN", true, true}};
    struct table table;
    size_t index = 0;
    json_t *item = NULL;
    char text[32];
    bool healthy = document_true(document, "healthy");
    buf_print(out, "%s%s%s %s: %s, leader %s, term %lld, %lld of %lld voters alive (%lld decide)\n",
              ctl->color ? (healthy ? "\033[32m" : "\033[31m") : "", terminal_is_utf8() ? "●" : "*",
              ctl->color ? "\033[0m" : "", document_text(document, "cluster"),
              healthy ? "healthy" : "not healthy",
              document_has(document, "leader") ? document_text(document, "leader") : "none",
              (long long)document_integer(document, "term"),
              (long long)document_integer(document, "alive"),
              (long long)document_integer(document, "voters"),
              (long long)document_integer(document, "quorum"));
    if (document_text(document, "reason")[0] != '\0') {
        buf_print(out, "%s\n", document_text(document, "reason"));
    }
    buf_print(out, "log: last %lld, committed %lld, applied %lld%s\n\n",
              (long long)document_integer(document, "last_index"),
              (long long)document_integer(document, "commit_index"),
              (long long)document_integer(document, "applied_index"),
              document_true(document, "tls") ? "" : "; tls is off");
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]),
               ctl->args.output == OUTPUT_WIDE);
    json_array_foreach(document_list(document, "members"), index, item)
    {
        cell_integer(&table, item, "node");
        cell_text(&table, item, "name");
        cell_text(&table, item, "address");
        cell_text(&table, item, "role");
        cell_text(&table, item, "state");
        table_cell(&table, "%s", document_true(item, "leader") ? "yes" : "");
        cell_integer(&table, item, "match_index");
        cell_integer(&table, item, "lag");
        text_duration(document_number(item, "seen_ms") / 1000, text, sizeof(text));
        table_cell(&table, "%s", text);
    }
    table_print(&table, out);
    table_done(&table);
    json_array_foreach(document_list(document, "events"), index, item)
    {
        buf_print(out, "%s%s\n", index == 0 ? "\n" : "", document_text(item, "text"));
    }
}

/* Asks for one document and prints it; the verdict is a name of it. */
static int ask_verdict(struct ctl *ctl, Ctl__Request *request, output_draw_fn *draw,
                       const char *good, const char *otherwise, struct problem *problem)
{
    struct client *client = NULL;
    struct answer answer = {NULL, NULL};
    int code = client_open_for(ctl, &client, problem);
    if (code == 0) {
        code = client_call(client, request, &answer, problem);
    }
    if (code == 0) {
        code = output_document(ctl, answer.json, NULL, "cluster", draw, problem);
    }
    if (code == 0 && !document_true(answer.json, good)) {
        const char *reason = document_text(answer.json, "reason");
        code = problem_set(problem, ERR_UNHEALTHY, "%s%s%s", otherwise,
                           reason[0] != '\0' ? ": " : "", reason);
    }
    answer_done(&answer);
    client_close(client);
    return code;
}

int run_cluster_status(struct ctl *ctl, struct problem *problem)
{
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_CLUSTER_STATUS;
    request.cluster_status = &empty;
    return ask_verdict(ctl, &request, draw_status, "healthy", "the cluster is not healthy",
                       problem);
}

static void draw_doctor(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    size_t index = 0;
    json_t *check = NULL;
    json_array_foreach(document_list(document, "checks"), index, check)
    {
        const char *state = document_text(check, "state");
        const char *color = strcmp(state, "ok") == 0       ? "\033[32m"
                            : strcmp(state, "failed") == 0 ? "\033[31m"
                                                           : "\033[33m";
        buf_print(out, "%s%-8s%s %-10s %s\n", ctl->color ? color : "", state,
                  ctl->color ? "\033[0m" : "", document_text(check, "name"),
                  document_text(check, "text"));
        if (document_text(check, "hint")[0] != '\0') {
            buf_print(out, "%8s %-10s -> %s\n", "", "", document_text(check, "hint"));
        }
    }
}

int run_doctor(struct ctl *ctl, struct problem *problem)
{
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_DOCTOR;
    request.doctor = &empty;
    return ask_verdict(ctl, &request, draw_doctor, "ok", "something is wrong with this node",
                       problem);
}

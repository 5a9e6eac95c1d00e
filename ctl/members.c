/* cluster add, remove, drain, undrain: who is in the cluster. */
#include <stdio.h>
#include <string.h>

#include "ctl/document.h"

static void draw_members(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    static const struct table_column columns[] = {
        {"NODE", true, false},  {"NAME", false, false},  {"ADDRESS", false, false},
        {"ROLE", false, false}, {"VOTES", false, false}, {"DRAINED", false, false}};
    struct table table;
    size_t index = 0;
    json_t *item = NULL;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]),
               ctl->args.output == OUTPUT_WIDE);
    json_array_foreach(document_list(document, "members"), index, item)
    {
        cell_integer(&table, item, "node");
        cell_text(&table, item, "name");
        cell_text(&table, item, "address");
        cell_text(&table, item, "role");
        table_cell(&table, "%s", document_true(item, "votes") ? "yes" : "");
        table_cell(&table, "%s", document_true(item, "drained") ? "yes" : "");
    }
    table_print(&table, out);
    table_done(&table);
}

static int ask_member(struct ctl *ctl, const char *how, struct problem *problem)
{
    char texts[4][256];
    const char *role = ctl->args.value[FLAG_ROLE] != NULL ? ctl->args.value[FLAG_ROLE] : "";
    const char *address = ctl->args.words_count > 1 ? ctl->args.words[1] : "";
    Ctl__Member member;
    Ctl__Request request;
    ctl__member__init(&member);
    ctl__request__init(&request);
    (void)snprintf(texts[0], sizeof(texts[0]), "%s", how);
    (void)snprintf(texts[1], sizeof(texts[1]), "%s", ctl->args.words[0]);
    (void)snprintf(texts[2], sizeof(texts[2]), "%s", address);
    (void)snprintf(texts[3], sizeof(texts[3]), "%s", role);
    member.how = texts[0];
    member.name = texts[1];
    member.address = texts[2];
    member.role = texts[3];
    request.ask_case = CTL__REQUEST__ASK_MEMBER;
    request.member = &member;
    return output_answer(ctl, &request, "members", "name", draw_members, problem);
}

int run_cluster_add(struct ctl *ctl, struct problem *problem)
{
    int code = ask_member(ctl, "add", problem);
    if (code == 0) {
        say(ctl, "%s: start it now with `join: IP:PORT` of a member, and an empty state folder",
            ctl->args.words[0]);
    }
    return code;
}

int run_cluster_remove(struct ctl *ctl, struct problem *problem)
{
    int code = ask_member(ctl, "remove", problem);
    if (code == 0) {
        say(ctl, "%s: removed; its state folder is of no use any more", ctl->args.words[0]);
    }
    return code;
}

int run_drain(struct ctl *ctl, struct problem *problem)
{
    int code = ask_member(ctl, "drain", problem);
    if (code == 0) {
        say(ctl, "%s: is given no more work; a job that it works on stops at its next step",
            ctl->args.words[0]);
    }
    return code;
}

int run_undrain(struct ctl *ctl, struct problem *problem)
{
    return ask_member(ctl, "undrain", problem);
}

/* checkpoint verify without a folder: all copies on all nodes; who holds copies of a folder's
 * shards; checkpoint prune. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ctl/document.h"
#include "ctl/sources.h"
#include "ctl/terminal.h"

#define FOREVER_MS UINT64_MAX

static void draw_copies(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    static const struct table_column columns[] = {{"EPOCH", true, false},  {"SHARD", false, false},
                                                  {"NODE", false, false},  {"BYTES", true, false},
                                                  {"STATE", false, false}, {"SHA256", false, true}};
    struct table table;
    size_t index = 0;
    json_t *item = NULL;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]),
               ctl->args.output == OUTPUT_WIDE);
    json_array_foreach(document_list(document, "copies"), index, item)
    {
        cell_integer(&table, item, "epoch");
        cell_text(&table, item, "file");
        cell_text(&table, item, "node");
        cell_bytes(&table, item, "bytes");
        cell_text(&table, item, "state");
        cell_text(&table, item, "sha256");
    }
    if (table.cells_count == 0) {
        say(ctl, "no published checkpoints");
    } else {
        table_print(&table, out);
    }
    table_done(&table);
}

static void add_copy(json_t *copies, const json_t *epoch, const json_t *file, const char *node,
                     const char *state)
{
    (void)json_array_append_new(copies,
                                json_pack("{s:I, s:I, s:s, s:s, s:I, s:s, s:s}", "job",
                                          (json_int_t)document_integer(epoch, "job"), "epoch",
                                          (json_int_t)document_integer(epoch, "epoch"), "file",
                                          document_text(file, "name"), "node", node, "bytes",
                                          (json_int_t)document_integer(file, "bytes"), "state",
                                          state, "sha256", document_text(file, "sha256")));
}

struct counts {
    unsigned verified, wrong, away;
};

/* What one node says of its own copies. */
static void take_node(json_t *copies, const json_t *document, const char *node,
                      struct counts *counts)
{
    size_t index = 0;
    json_t *epoch = NULL;
    json_array_foreach(document_list(document, "checkpoints"), index, epoch)
    {
        size_t number = 0;
        json_t *file = NULL;
        json_array_foreach(document_list(epoch, "files"), number, file)
        {
            const char *here = document_text(file, "here");
            if (here[0] != '\0') {
                add_copy(copies, epoch, file, node, here);
                counts->verified += strcmp(here, "verified") == 0 ? 1 : 0;
                counts->wrong +=
                    strcmp(here, "damaged") == 0 || strcmp(here, "missing") == 0 ? 1 : 0;
            }
        }
    }
}

static bool is_source(const struct sources *sources, const char *node)
{
    for (size_t i = 0; i < sources->count; i++) {
        if (strcmp(sources->names[i], node) == 0) {
            return true;
        }
    }
    return false;
}

/* Copies that nobody has yet, and those of nodes that cannot be asked. */
static void take_away(json_t *copies, const json_t *document, const struct sources *sources,
                      struct counts *counts)
{
    size_t index = 0;
    json_t *epoch = NULL;
    json_array_foreach(document_list(document, "checkpoints"), index, epoch)
    {
        size_t number = 0;
        json_t *file = NULL;
        json_array_foreach(document_list(epoch, "files"), number, file)
        {
            size_t at = 0;
            json_t *name = NULL;
            int64_t have = (int64_t)json_array_size(document_list(file, "copies"));
            for (; have < document_integer(file, "copies_due"); have++) {
                add_copy(copies, epoch, file, "", "missing");
                counts->wrong++;
            }
            json_array_foreach(document_list(file, "copies"), at, name)
            {
                const char *node = json_string_value(name);
                if (node != NULL && !is_source(sources, node)) {
                    add_copy(copies, epoch, file, node, "unreachable");
                    counts->away++;
                }
            }
        }
    }
}

static void ask_verify(Ctl__Request *request, Ctl__CheckpointVerify *verify, char *job)
{
    ctl__checkpoint_verify__init(verify);
    ctl__request__init(request);
    verify->job = job;
    request->ask_case = CTL__REQUEST__ASK_CHECKPOINT_VERIFY;
    request->checkpoint_verify = verify;
}

/* All nodes read at the same time; then their answers, in order. */
static int verify_all(struct ctl *ctl, const struct sources *sources, json_t *copies,
                      struct counts *counts, struct problem *problem)
{
    char job[256] = "";
    int code = 0;
    if (ctl->args.value[FLAG_JOB] != NULL) {
        (void)snprintf(job, sizeof(job), "%s", ctl->args.value[FLAG_JOB]);
    }
    for (size_t i = 0; code == 0 && i < sources->count; i++) {
        Ctl__CheckpointVerify verify;
        Ctl__Request request;
        ask_verify(&request, &verify, job);
        code = client_ask(sources->clients[i], &request, problem);
    }
    for (size_t i = 0; code == 0 && i < sources->count; i++) {
        struct answer answer = {NULL, NULL};
        code = client_next(sources->clients[i], FOREVER_MS, &answer, problem);
        if (code == 0) {
            take_node(copies, answer.json, sources->names[i], counts);
            if (i == 0) {
                take_away(copies, answer.json, sources, counts);
            }
        } else {
            (void)err_prefix(&problem->err, "node %s: ", sources->names[i]);
        }
        answer_done(&answer);
    }
    return code;
}

/* The files of that checkpoint in a document of checkpoint_list; NULL where it is not there. */
static const json_t *files_of(const json_t *list, const json_t *document)
{
    size_t index = 0;
    json_t *epoch = NULL;
    json_array_foreach(document_list(list, "checkpoints"), index, epoch)
    {
        if (document_integer(epoch, "epoch") == document_integer(document, "epoch") &&
            strcmp(document_text(epoch, "parameter_sha256"),
                   document_text(document, "parameter_sha256")) == 0 &&
            strcmp(document_text(epoch, "name"), document_text(document, "name")) == 0) {
            return document_list(epoch, "files");
        }
    }
    return NULL;
}

static void set_copies(json_t *shard, const json_t *files)
{
    size_t index = 0;
    json_t *file = NULL;
    json_array_foreach(files, index, file)
    {
        if (strcmp(document_text(file, "name"), document_text(shard, "file")) == 0 &&
            strcmp(document_text(file, "sha256"), document_text(shard, "sha256")) == 0) {
            (void)json_object_set(shard, "copies", json_object_get(file, "copies"));
        }
    }
}

void copies_told(struct ctl *ctl, json_t *document)
{
    struct client *client = NULL;
    struct answer answer = {NULL, NULL};
    struct problem problem = {0};
    Ctl__CheckpointList ask;
    ctl__checkpoint_list__init(&ask);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_CHECKPOINT_LIST;
    request.checkpoint_list = &ask;
    const json_t *files = NULL;
    if (client_endpoint_named(&ctl->args) != NULL) {
        int code = client_open_for(ctl, &client, &problem);
        code = code == 0 ? client_call(client, &request, &answer, &problem) : code;
        files = code == 0 ? files_of(answer.json, document) : NULL;
        if (code != 0) {
            say(ctl, "who holds copies is not known: %s", problem.err.text);
        }
    }
    size_t index = 0;
    json_t *shard = NULL;
    json_array_foreach(json_object_get(document, "shards"), index, shard)
    {
        (void)json_object_set_new(shard, "copies", json_null());
        set_copies(shard, files);
    }
    answer_done(&answer);
    client_close(client);
}

int run_checkpoint_copies(struct ctl *ctl, struct problem *problem)
{
    struct sources sources = {.count = 0};
    struct counts counts = {0, 0, 0};
    json_t *copies = json_array();
    ASSERT(copies != NULL);
    int code = sources_open(ctl, &sources, problem);
    code = code == 0 ? verify_all(ctl, &sources, copies, &counts, problem) : code;
    sources_close(&sources);
    if (code != 0) {
        json_decref(copies);
        return code;
    }
    json_t *document =
        json_pack("{s:i, s:b, s:i, s:i, s:i, s:o}", "schema", 1, "ok",
                  counts.wrong == 0 && counts.away == 0, "verified", (int)counts.verified,
                  "damaged", (int)counts.wrong, "unreachable", (int)counts.away, "copies", copies);
    code = output_document(ctl, document, "copies", "file", draw_copies, problem);
    json_decref(document);
    problem->printed = code == 0;
    if (code == 0 && counts.wrong > 0) {
        problem_hint(problem, "they are being taken from the other copies; ask again in a while");
        return problem_set(problem, ERR_DAMAGED, "%u copies are damaged or missing, %u are right",
                           counts.wrong, counts.verified);
    }
    if (code == 0 && counts.away > 0) {
        problem_hint(problem, "'coppeliusctl nodes' shows who is away");
        return problem_set(problem, ERR_REACH, "%u copies could not be asked for, %u are right",
                           counts.away, counts.verified);
    }
    if (code == 0) {
        say(ctl, "all %u copies are right", counts.verified);
    }
    return code;
}

int run_checkpoint_prune(struct ctl *ctl, struct problem *problem)
{
    char name[256];
    const char *word = ctl->args.words_count > 1 ? ctl->args.words[1] : "1";
    char *end = NULL;
    unsigned long keep = strtoul(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end != '\0' || keep < 1 || keep > 32) {
        problem_hint(problem, "1 to 32 checkpoints can be kept; the newest is never pruned");
        return problem_set(problem, ERR_USAGE, "'%s' is not a number of checkpoints", word);
    }
    struct client *client = NULL;
    struct answer answer = {NULL, NULL};
    Ctl__CheckpointPrune prune;
    Ctl__Request request;
    ctl__checkpoint_prune__init(&prune);
    ctl__request__init(&request);
    (void)snprintf(name, sizeof(name), "%s", ctl->args.words[0]);
    prune.job = name;
    prune.keep = (uint32_t)keep;
    request.ask_case = CTL__REQUEST__ASK_CHECKPOINT_PRUNE;
    request.checkpoint_prune = &prune;
    int code = client_open_for(ctl, &client, problem);
    code = code == 0 ? client_call(client, &request, &answer, problem) : code;
    client_close(client);
    if (code == 0) {
        say(ctl, "the newest %lu stay; older ones go once these have all their copies", keep);
    }
    answer_done(&answer);
    return code;
}

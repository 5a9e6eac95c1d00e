/* checkpoint list, show, verify, fetch. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "ctl/document.h"
#include "ctl/folder.h"
#include "ctl/part.h"
#include "ctl/sources.h"
#include "ctl/terminal.h"

static void draw_list(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    static const struct table_column columns[] = {
        {"JOB", true, false},       {"NAME", false, false},  {"EPOCH", true, false},
        {"STEP", true, false},      {"STATE", false, false}, {"CURRENT", false, false},
        {"LOSS", true, false},      {"BYTES", true, false},  {"SHARDS", true, false},
        {"REPLICAS", true, true},   {"AGE", true, false},    {"PARAMETER", false, false},
        {"GENERATION", true, true}, {"FOLDER", false, true},
    };
    struct table table;
    size_t index = 0;
    json_t *item = NULL;
    bool wide = ctl->args.output == OUTPUT_WIDE;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]), wide);
    json_array_foreach(document_list(document, "checkpoints"), index, item)
    {
        cell_integer(&table, item, "job");
        cell_text(&table, item, "name");
        cell_integer(&table, item, "epoch");
        cell_integer(&table, item, "step");
        cell_text(&table, item, "state");
        table_cell(&table, "%s", document_true(item, "current") ? "yes" : "");
        cell_number(&table, item, "loss");
        cell_bytes(&table, item, "bytes");
        cell_integer(&table, item, "shards");
        cell_integer(&table, item, "replicas");
        cell_age(&table, item, "published_at_ms");
        table_cell(&table, "%.*s", wide ? 64 : 12, document_text(item, "parameter_sha256"));
        cell_integer(&table, item, "generation");
        cell_text(&table, item, "folder");
    }
    if (table.cells_count == 0) {
        say(ctl, "no checkpoints");
    } else {
        table_print(&table, out);
    }
    table_done(&table);
}

int run_checkpoints(struct ctl *ctl, struct problem *problem)
{
    char name[256] = "";
    Ctl__CheckpointList list;
    ctl__checkpoint_list__init(&list);
    Ctl__Request request;
    ctl__request__init(&request);
    if (ctl->args.words_count > 0) {
        (void)snprintf(name, sizeof(name), "%s", ctl->args.words[0]);
    }
    list.job = name;
    request.ask_case = CTL__REQUEST__ASK_CHECKPOINT_LIST;
    request.checkpoint_list = &list;
    return output_answer(ctl, &request, "checkpoints", "epoch", draw_list, problem);
}

static json_t *hex_value(const uint8_t digest[SHA256_SIZE])
{
    char hex[SHA256_HEX_SIZE];
    sha256_hex(digest, hex);
    return json_string(hex);
}

/* files: the fs of the folder's parent, or NULL where states are not looked for. */
static json_t *manifest_document(const struct folder *folder, const struct manifest *manifest,
                                 bool verified)
{
    json_t *shards = json_array();
    for (uint32_t i = 0; i < manifest->shards_count; i++) {
        const struct manifest_shard *shard = &manifest->shards[i];
        char path[FOLDER_PATH_SIZE];
        struct stat about;
        (void)snprintf(path, sizeof(path), "%s/%s", folder->path, shard->file);
        bool here = lstat(path, &about) == 0 && S_ISREG(about.st_mode);
        bool whole = here && (uint64_t)about.st_size == shard->size;
        (void)json_array_append_new(
            shards,
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:s}", "file", shard->file, "node",
                      shard->node, "first", (json_int_t)shard->first, "end", (json_int_t)shard->end,
                      "bytes", (json_int_t)shard->size, "sha256", hex_value(shard->sha256), "state",
                      !here      ? "absent"
                      : !whole   ? "damaged"
                      : verified ? "verified"
                                 : "here"));
    }
    double loss = 0;
    char loss_hex[40];
    memcpy(&loss, &manifest->loss_bits, sizeof(loss));
    (void)snprintf(loss_hex, sizeof(loss_hex), "%a", loss);
    json_t *loss_value = isfinite(loss) ? json_real(loss) : json_null();
    return json_pack("{s:i, s:s, s:I, s:s, s:o, s:s, s:I, s:I, s:I, s:o, s:s, s:o, s:o, s:I, s:o}",
                     "schema", 1, "folder", folder->path, "job", (json_int_t)manifest->job, "name",
                     manifest->name, "identity", hex_value(manifest->identity), "policy",
                     manifest->policy, "epoch", (json_int_t)manifest->epoch, "step",
                     (json_int_t)manifest->step, "generation", (json_int_t)manifest->generation,
                     "loss", loss_value, "loss_hex", loss_hex, "parameter_sha256",
                     hex_value(manifest->parameter_sha256), "accumulator_sha256",
                     hex_value(manifest->accumulator_sha256), "coordinates",
                     (json_int_t)manifest->coordinates, "shards", shards);
}

static bool copies_known(const json_t *document)
{
    const json_t *first = json_array_get(document_list(document, "shards"), 0);
    return first != NULL && document_has(first, "copies");
}

static void cell_copies(struct table *table, const json_t *shard)
{
    const json_t *copies = document_list(shard, "copies");
    struct buf names = BUF_NONE;
    buf_print(&names, "%s", document_has(shard, "copies") ? "" : "-");
    for (size_t i = 0; i < json_array_size(copies); i++) {
        buf_print(&names, "%s%s", i > 0 ? "," : "", json_string_value(json_array_get(copies, i)));
    }
    table_cell(table, "%s", (const char *)names.bytes);
    buf_done(&names);
}

static void draw_checkpoint(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    const struct table_column columns[] = {{"SHARD", false, false},
                                           {"NODE", false, false},
                                           {"FIRST", true, false},
                                           {"END", true, false},
                                           {"BYTES", true, false},
                                           {"STATE", false, false},
                                           {"COPIES", false, !copies_known(document)},
                                           {"SHA256", false, true}};
    struct table table;
    size_t index = 0;
    json_t *shard = NULL;
    buf_print(out, "%s: job %lld '%s', epoch %lld of step %lld, %lld coordinates\n",
              document_text(document, "folder"), (long long)document_integer(document, "job"),
              document_text(document, "name"), (long long)document_integer(document, "epoch"),
              (long long)document_integer(document, "step"),
              (long long)document_integer(document, "coordinates"));
    buf_print(out, "loss         %.9g (%s)\n", document_number(document, "loss"),
              document_text(document, "loss_hex"));
    buf_print(out, "parameter    %s\naccumulator  %s\nidentity     %s\npolicy       %s\n\n",
              document_text(document, "parameter_sha256"),
              document_text(document, "accumulator_sha256"), document_text(document, "identity"),
              document_text(document, "policy"));
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]),
               ctl->args.output == OUTPUT_WIDE);
    json_array_foreach(document_list(document, "shards"), index, shard)
    {
        cell_text(&table, shard, "file");
        cell_text(&table, shard, "node");
        cell_integer(&table, shard, "first");
        cell_integer(&table, shard, "end");
        cell_integer(&table, shard, "bytes");
        cell_text(&table, shard, "state");
        cell_copies(&table, shard);
        cell_text(&table, shard, "sha256");
    }
    table_print(&table, out);
    table_done(&table);
}

/* A folder that is there and lacks what its own manifest or sums name is damaged. */
static int missing_is_damage(const struct folder *folder, int code, struct problem *problem)
{
    struct err unused = {0};
    char path[FOLDER_PATH_SIZE];
    bool there = false;
    (void)snprintf(path, sizeof(path), "%.400s/manifest.json", folder->name);
    if (code == ERR_NOT_FOUND && folder->fs->ops->exists(folder->fs, path, &there, &unused) == 0 &&
        there) {
        problem->err.code = ERR_DAMAGED;
        return ERR_DAMAGED;
    }
    return code;
}

int run_checkpoint_show(struct ctl *ctl, struct problem *problem)
{
    struct folder folder;
    int code = folder_open(ctl->args.words[0], &folder, problem);
    if (code != 0) {
        return folder_hint(ctl->args.words[0], code, problem);
    }
    struct manifest *manifest = calloc(1, sizeof(*manifest));
    ASSERT(manifest != NULL);
    code = checkpoint_read_manifest(folder.fs, folder.name, manifest, &problem->err);
    if (code == 0) {
        json_t *document = manifest_document(&folder, manifest, false);
        copies_told(ctl, document);
        code = output_document(ctl, document, NULL, "epoch", draw_checkpoint, problem);
        json_decref(document);
    } else {
        (void)err_prefix(&problem->err, "%s: ", ctl->args.words[0]);
    }
    free(manifest);
    folder_close(&folder);
    return folder_hint(ctl->args.words[0], code, problem);
}

int run_checkpoint_verify(struct ctl *ctl, struct problem *problem)
{
    if (ctl->args.words_count == 0) {
        return run_checkpoint_copies(ctl, problem);
    }
    struct folder folder;
    struct checkpoint_verdict verdict = {0};
    int code = folder_open(ctl->args.words[0], &folder, problem);
    if (code != 0) {
        return folder_hint(ctl->args.words[0], code, problem);
    }
    struct manifest *manifest = calloc(1, sizeof(*manifest));
    ASSERT(manifest != NULL);
    code = missing_is_damage(
        &folder, checkpoint_verify(folder.fs, folder.name, manifest, &verdict, &problem->err),
        problem);
    if (code == 0) {
        json_t *document = manifest_document(&folder, manifest, true);
        (void)json_object_set_new(document, "ok", json_true());
        (void)json_object_set_new(document, "whole", json_boolean(verdict.whole));
        code = output_document(ctl, document, NULL, "epoch", draw_checkpoint, problem);
        say(ctl,
            verdict.whole ? "all %u shards and both vectors agree with the manifest"
                          : "%u shards agree with the manifest; the others are not here",
            verdict.shards);
        json_decref(document);
    } else {
        (void)err_prefix(&problem->err, "%s: ", ctl->args.words[0]);
    }
    free(manifest);
    folder_close(&folder);
    return folder_hint(ctl->args.words[0], code, problem);
}

/* Where a file goes that comes from a node: not one byte more than `most`, whatever it says. */
struct place {
    uint64_t most;
    struct buf *bytes; /* or, where NULL: */
    int fd;
    struct sha256 *sha; /* of what came */
};

static int put_piece(const struct place *place, const char *name, const void *bytes, size_t size,
                     struct problem *problem)
{
    if (place->bytes != NULL) {
        buf_put(place->bytes, bytes, size);
        return 0;
    }
    sha256_update(place->sha, bytes, size);
    return write(place->fd, bytes, size) == (ssize_t)size
               ? 0
               : problem_set(problem, ERR_DISK, "'%s': %s", name, err_errno(errno));
}

/* One file of an epoch from one node. */
static int fetch_file(struct client *client, char *job, uint64_t epoch, char *name,
                      const struct place *place, struct problem *problem)
{
    uint64_t offset = 0;
    for (;;) {
        struct answer answer = {NULL, NULL};
        Ctl__CheckpointFile file;
        ctl__checkpoint_file__init(&file);
        Ctl__Request request;
        ctl__request__init(&request);
        file.job = job;
        file.epoch = epoch;
        file.name = name;
        file.offset = offset;
        request.ask_case = CTL__REQUEST__ASK_CHECKPOINT_FILE;
        request.checkpoint_file = &file;
        int code = client_call(client, &request, &answer, problem);
        if (code != 0) {
            return code;
        }
        size_t size = answer.reply->data.len;
        uint64_t total = answer.reply->total;
        if (total > place->most || size > place->most - offset) {
            code = problem_set(problem, ERR_DAMAGED, "'%s' has %llu bytes there; the most is %llu",
                               name, (unsigned long long)total, (unsigned long long)place->most);
        } else {
            code = put_piece(place, name, answer.reply->data.data, size, problem);
        }
        answer_done(&answer);
        offset += size;
        if (code != 0 || offset >= total) {
            return code;
        }
        if (size == 0) {
            return problem_set(problem, ERR_PROTO, "'%s' came in part only: %llu of %llu bytes",
                               name, (unsigned long long)offset, (unsigned long long)total);
        }
    }
}

/* A shard from one node into the file of that path: of the size and digest that were published. */
static int fetch_from(struct client *client, const struct manifest *manifest,
                      const struct manifest_shard *shard, const char *path, struct problem *problem)
{
    char job[32];
    char file[MANIFEST_TEXT_SIZE];
    struct sha256 sha;
    uint8_t digest[SHA256_SIZE];
    struct place place = {.most = shard->size, .sha = &sha};
    (void)snprintf(job, sizeof(job), "%llu", (unsigned long long)manifest->job);
    (void)snprintf(file, sizeof(file), "%s", shard->file);
    place.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (place.fd < 0) {
        return problem_set(problem, ERR_DISK, "'%s': %s", path, err_errno(errno));
    }
    sha256_init(&sha);
    int code = fetch_file(client, job, manifest->epoch, file, &place, problem);
    if (close(place.fd) != 0 && code == 0) {
        code = problem_set(problem, ERR_DISK, "'%s': %s", path, err_errno(errno));
    }
    if (code == 0) {
        sha256_finish(&sha, digest);
    }
    if (code == 0 && memcmp(digest, shard->sha256, SHA256_SIZE) != 0) {
        code = problem_set(problem, ERR_DAMAGED, "its SHA-256 is not the one that was published");
    }
    sha256_done(&sha);
    return code;
}

static int fetch_shard(const struct sources *sources, const struct manifest *manifest,
                       const struct manifest_shard *shard, const char *part,
                       struct problem *problem)
{
    char path[FOLDER_PATH_SIZE];
    (void)snprintf(path, sizeof(path), "%s/%s", part, shard->file);
    int code =
        problem_set(problem, ERR_NOT_FOUND, "no node that can be reached has '%s'", shard->file);
    for (int pass = 0; pass < 2; pass++) { /* its own node first, then all others */
        for (size_t i = 0; i < sources->count; i++) {
            if ((strcmp(sources->names[i], shard->node) == 0) != (pass == 0)) {
                continue;
            }
            struct problem own = {0};
            int got = fetch_from(sources->clients[i], manifest, shard, path, &own);
            if (got == 0) {
                *problem = (struct problem){0};
                return 0;
            }
            if (got == ERR_NOT_FOUND && code != ERR_NOT_FOUND) {
                continue; /* What is wrong with a copy says more than that others have none. */
            }
            code = problem_set(problem, got, "'%.60s' from node %.60s: %.300s", shard->file,
                               sources->names[i], own.err.text);
        }
    }
    if (code == ERR_DAMAGED) {
        problem_hint(problem,
                     "'coppeliusctl checkpoint verify' compares all copies on all nodes; a "
                     "damaged one is made again from one that is whole");
    } else {
        problem_hint(problem, "is node %s up? 'coppeliusctl nodes' tells", shard->node);
    }
    return code;
}

/* Manifest and all shards into `part`, each a closed file. */
static int fetch_into(struct ctl *ctl, const struct sources *sources, uint64_t epoch,
                      const char *part, struct problem *problem)
{
    struct buf bytes = BUF_NONE;
    char job[256] = "";
    char name[] = "manifest.json";
    char path[FOLDER_PATH_SIZE];
    const struct place place = {.most = MANIFEST_SIZE_MAX, .bytes = &bytes, .fd = -1};
    int code = ERR_NOT_FOUND;
    if (ctl->args.value[FLAG_JOB] != NULL) {
        (void)snprintf(job, sizeof(job), "%s", ctl->args.value[FLAG_JOB]);
    }
    for (size_t i = 0; i < sources->count && code != 0; i++) {
        buf_clear(&bytes);
        code = fetch_file(sources->clients[i], job, epoch, name, &place, problem);
    }
    struct manifest *manifest = calloc(1, sizeof(*manifest));
    ASSERT(manifest != NULL);
    if (code == 0) {
        *problem = (struct problem){0};
        code = manifest_parse(bytes.bytes, bytes.size, manifest, &problem->err);
    }
    (void)snprintf(path, sizeof(path), "%s/%s", part, name);
    if (code == 0) {
        FILE *file = fopen(path, "wb");
        bool good = file != NULL && fwrite(bytes.bytes, 1, bytes.size, file) == bytes.size;
        if (file == NULL || fclose(file) != 0 || !good) {
            code = problem_set(problem, ERR_DISK, "'%s': %s", path, err_errno(errno));
        }
    }
    for (uint32_t i = 0; code == 0 && i < manifest->shards_count; i++) {
        say(ctl, "%s from %s (%llu bytes)", manifest->shards[i].file, manifest->shards[i].node,
            (unsigned long long)manifest->shards[i].size);
        code = fetch_shard(sources, manifest, &manifest->shards[i], part, problem);
    }
    free(manifest);
    buf_done(&bytes);
    return code;
}

int run_checkpoint_fetch(struct ctl *ctl, struct problem *problem)
{
    char *end = NULL;
    const char *word = ctl->args.words[0];
    const char *output = ctl->args.value[FLAG_OUTPUT];
    unsigned long long epoch = strtoull(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end != '\0') {
        problem_hint(problem, "give the number that 'coppeliusctl checkpoint list' shows; 0 is the "
                              "newest");
        return problem_set(problem, ERR_USAGE, "'%s' is not an epoch", word);
    }
    if (output == NULL) {
        problem_hint(problem, "--output DIR names the folder that is made");
        return problem_set(problem, ERR_USAGE, "--output is missing");
    }
    struct folder folder;
    int code = folder_make(output, &folder, problem); /* the parent; output must not exist */
    if (code != 0) {
        return code;
    }
    char part_name[FOLDER_PATH_SIZE];
    (void)snprintf(part_name, sizeof(part_name), "%.480s.part", folder.name);
    struct sources sources = {.count = 0};
    struct part part = PART_NONE;
    code = sources_open(ctl, &sources, problem);
    if (code == 0) {
        code = part_folder(&folder, &part, problem);
    }
    if (code == 0) {
        code = fetch_into(ctl, &sources, epoch, part.path, problem);
        if (code == 0) {
            code = checkpoint_seal(folder.fs, part_name, folder.name, &problem->err);
        }
        struct err unused = {0};
        (void)fs_remove_tree(folder.fs, part_name, &unused);
        part_done(&part);
    }
    sources_close(&sources);
    if (code == 0) {
        struct manifest *manifest = calloc(1, sizeof(*manifest));
        ASSERT(manifest != NULL);
        code = checkpoint_read_manifest(folder.fs, folder.name, manifest, &problem->err);
        if (code == 0) {
            json_t *document = manifest_document(&folder, manifest, true);
            code = output_document(ctl, document, NULL, "epoch", draw_checkpoint, problem);
            json_decref(document);
        }
        free(manifest);
    }
    folder_close(&folder);
    return code;
}

/* local: one job on a throw-away cluster. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "ctl/document.h"
#include "ctl/jobfile.h"
#include "ctl/spawn.h"
#include "ctl/terminal.h"
#include "ctl/watch.h"

#define ASSEMBLE_MS 15000 /* for the last node to rename its folder */

static int submit_and_watch(const struct ctl *ctl, struct spawn *spawn, struct jobfile *file,
                            json_t **ret_end, struct problem *problem)
{
    struct client *client = NULL;
    struct answer answer = {NULL, NULL};
    Ctl__Submit submit;
    ctl__submit__init(&submit);
    Ctl__Request request;
    ctl__request__init(&request);
    uint64_t uuid[2];
    char id[32] = "";
    jobfile_fill(file, uuid, &submit);
    request.ask_case = CTL__REQUEST__ASK_SUBMIT;
    request.submit = &submit;
    int code = client_open(spawn->nodes[0].endpoint, NULL, CLIENT_TIMEOUT_MS, &client, problem);
    if (code == 0) {
        code = client_call(client, &request, &answer, problem);
    }
    if (code == 0) {
        (void)snprintf(id, sizeof(id), "%lld", (long long)document_integer(answer.json, "job"));
        enum watch_style style = ctl->quiet                       ? WATCH_NOTHING
                                 : terminal_is_tty(STDERR_FILENO) ? WATCH_BAR
                                                                  : WATCH_NOTES;
        code = watch_job(ctl, client, id, style, ctl->args.timeout_ms, spawn_alive, spawn, ret_end,
                         problem);
    }
    answer_done(&answer);
    client_close(client);
    return code;
}

/* The published folders of all nodes as one whole folder below base/checkpoint. */
static int assemble(struct spawn *spawn, const json_t *end, char **ret_folder,
                    struct problem *problem)
{
    struct checkpoint_source sources[SPAWN_NODES_MAX];
    char folders[SPAWN_NODES_MAX][FOLDER_PATH_SIZE];
    char epoch_name[MANIFEST_TEXT_SIZE];
    char target[FOLDER_PATH_SIZE];
    struct fs *fs = NULL;
    uint64_t deadline = clock_now_ms() + ASSEMBLE_MS;
    size_t count = 0;
    checkpoint_epoch_name((uint64_t)document_integer(end, "epoch"), epoch_name);
    (void)snprintf(target, sizeof(target), "checkpoint/%s", epoch_name);
    int code = fs_posix_open(spawn->base, &fs, &problem->err);
    if (code != 0) {
        return code;
    }
    for (size_t i = 0; i < spawn->count; i++) {
        (void)snprintf(folders[count], FOLDER_PATH_SIZE, "nodes/node-%zu/state/jobs/%lld-%s/%s",
                       i + 1, (long long)document_integer(end, "job"), document_text(end, "name"),
                       epoch_name);
        sources[count] = (struct checkpoint_source){fs, folders[count]};
        count++;
    }
    code = fs_mkdir_all(fs, "checkpoint", &problem->err);
    while (code == 0) {
        code = checkpoint_assemble(sources, count, fs, target, &problem->err);
        if (code == 0 || clock_now_ms() >= deadline || terminal_interrupted()) {
            break;
        }
        (void)usleep(100000); /* A node may still be renaming its folder. */
        code = 0;
    }
    fs_posix_close(fs);
    if (code != 0) {
        return err_prefix(&problem->err, "assembling the checkpoint: ");
    }
    problem->err = (struct err){0};
    int size = asprintf(ret_folder, "%s/%s", spawn->base, target);
    ASSERT(size > 0);
    return 0;
}

/* Prints the result: the document `job` with `checkpoint` being the assembled folder. */
static int print_result(const struct ctl *ctl, json_t *end, const char *folder,
                        struct problem *problem)
{
    (void)json_object_del(end, "event");
    (void)json_object_set_new(end, "checkpoint",
                              folder != NULL ? json_string(folder) : json_null());
    if (ctl->args.output == OUTPUT_JSON || ctl->args.output == OUTPUT_JSONL) {
        return output_json(ctl, end, problem);
    }
    struct buf out = BUF_NONE;
    watch_summary(end, &out);
    int code = output_bytes(&out, problem);
    buf_done(&out);
    return code;
}

int run_local(struct ctl *ctl, struct problem *problem)
{
    struct jobfile file;
    struct spawn_settings settings;
    struct spawn spawn;
    json_t *end = NULL;
    char *folder = NULL;
    bool keep = ctl->args.value[FLAG_KEEP] != NULL;
    int code = spawn_settings_of(&ctl->args, &settings, problem);
    if (code == 0) {
        code = jobfile_read(&ctl->args, ctl->args.words[0], &file, problem);
    }
    if (code != 0) {
        return code;
    }
    struct buf notes = BUF_NONE;
    if (job_notes(&file.job, &notes) > 0 && !ctl->quiet) {
        terminal_say_lines((const char *)notes.bytes);
    }
    buf_done(&notes);
    settings.folder = ctl->args.value[FLAG_DIR];
    code = spawn_start(&settings, &spawn, problem);
    if (code == 0 && spawn.count > 1) {
        say(ctl,
            "%zu daemons on 127.0.0.1, in plain text between them: nothing leaves this machine",
            spawn.count);
    }
    if (code == 0) {
        code = submit_and_watch(ctl, &spawn, &file, &end, problem);
    }
    if (code == 0 && document_has(end, "epoch")) {
        code = assemble(&spawn, end, &folder, problem);
    }
    spawn_stop(&spawn);
    if (end != NULL && code == 0) {
        bool stays = !spawn.temporary || keep;
        if (folder != NULL && !stays) {
            say(ctl, "the checkpoint goes with the temporary folder; --dir DIR keeps it");
        }
        code = print_result(ctl, end, stays ? folder : NULL, problem);
        if (code == 0) {
            code = watch_verdict(end, problem);
            problem->hint[0] = '\0'; /* It asks daemons, and these are gone. */
        }
    }
    bool told = code == 0 || problem->hint[0] != '\0' || spawn.base == NULL;
    if (!told && keep) {
        problem_hint(problem, "the daemons' logs are in %s/nodes/node-*/log", spawn.base);
    } else if (!told && !terminal_interrupted()) {
        spawn_keep_logs(&spawn, problem);
    }
    if (keep && spawn.base != NULL) {
        say(ctl, "kept: %s", spawn.base);
    }
    spawn_done(&spawn, keep);
    free(folder);
    json_decref(end);
    jobfile_done(&file);
    return code;
}

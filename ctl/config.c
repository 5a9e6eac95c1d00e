/* config check, show: the daemon reads its own file; coppeliusctl runs it and puts what it says
 * into its own forms of output, so that there is one reader of that file and no second opinion. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/document.h"
#include "ctl/jobfile.h"
#include "ctl/spawn.h"
#include "ctl/terminal.h"

#define CONFIG_FILE     "/etc/coppelius/coppeliusd.yaml"
#define OUTPUT_SIZE_MAX (4U << 20)

/* Runs the daemon with the option on the file; both outputs, zero-terminated, and its status. */
static int run_daemon(const struct ctl *ctl, char *option, struct buf *out, struct buf *err,
                      int *ret_status, struct problem *problem)
{
    char config[] = "--config";
    char *daemon = NULL;
    int status = 0;
    int code = spawn_find_daemon(&daemon, problem);
    if (code != 0) {
        return code;
    }
    bool named = ctl->args.words_count > 0;
    char *arguments[] = {daemon, option, named ? config : NULL, named ? ctl->args.words[0] : NULL,
                         NULL};
    FILE *files[2] = {tmpfile(), tmpfile()};
    pid_t pid = files[0] != NULL && files[1] != NULL ? fork() : -1;
    if (pid == 0) {
        (void)dup2(fileno(files[0]), STDOUT_FILENO);
        (void)dup2(fileno(files[1]), STDERR_FILENO);
        (void)execv(daemon, arguments);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid < 0) {
        code = problem_set(problem, ERR_INTERNAL, "cannot run '%s': %s", daemon, err_errno(errno));
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) == 127) {
        code = problem_set(problem, ERR_INTERNAL, "cannot run '%s'", daemon);
    }
    struct buf *bufs[2] = {out, err};
    for (size_t i = 0; i < 2; i++) {
        if (files[i] == NULL) {
            continue;
        }
        rewind(files[i]);
        buf_reserve(bufs[i], OUTPUT_SIZE_MAX + 1);
        bufs[i]->size = fread(bufs[i]->bytes, 1, OUTPUT_SIZE_MAX, files[i]);
        bufs[i]->bytes[bufs[i]->size] = '\0';
        (void)fclose(files[i]);
    }
    free(daemon);
    *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return code;
}

/* "place: key: sentence", each a line. */
static json_t *faults_of(char *text)
{
    json_t *list = json_array();
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *key = strstr(line, ": ");
        char *sentence = key != NULL ? strstr(key + 2, ": ") : NULL;
        if (key == NULL) {
            continue; /* Not a fault: a hint or a log line. */
        }
        *key = '\0';
        if (sentence != NULL) {
            *sentence = '\0';
        }
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "place", line, "key",
                                                    sentence != NULL ? key + 2 : "", "text",
                                                    sentence != NULL ? sentence + 2 : key + 2));
    }
    return list;
}

static json_t *settings_of(char *text)
{
    json_t *list = json_array();
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, '\t');
        char *origin = value != NULL ? strchr(value + 1, '\t') : NULL;
        if (origin != NULL) {
            *value = '\0';
            *origin = '\0';
            (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "key", line, "value",
                                                        value + 1, "origin", origin + 1));
        }
    }
    return list;
}

static void draw_settings(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    static const struct table_column columns[] = {
        {"KEY", false, false}, {"VALUE", false, false}, {"ORIGIN", false, false}};
    struct table table;
    size_t index = 0;
    json_t *item = NULL;
    (void)ctl;
    table_init(&table, columns, 3, false);
    json_array_foreach(document_list(document, "settings"), index, item)
    {
        cell_text(&table, item, "key");
        cell_text(&table, item, "value");
        cell_text(&table, item, "origin");
    }
    table_print(&table, out);
    table_done(&table);
}

static void draw_check(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    (void)ctl;
    buf_print(out, "%s: ok\n", document_text(document, "file"));
}

static int config_run(struct ctl *ctl, char *option, bool show, struct problem *problem)
{
    struct buf out = BUF_NONE;
    struct buf err = BUF_NONE;
    int status = 0;
    const char *file = ctl->args.words_count > 0 ? ctl->args.words[0] : CONFIG_FILE;
    bool json = ctl->args.output == OUTPUT_JSON || ctl->args.output == OUTPUT_JSONL;
    int code = run_daemon(ctl, option, &out, &err, &status, problem);
    if (code == 0 && (status == 0 || !json)) {
        terminal_say_lines((const char *)err.bytes); /* its warnings, or the faults */
    }
    if (code == 0 && (status == 0 || json)) {
        json_t *document = json_pack("{s:i, s:s, s:b, s:o}", "schema", 1, "file", file, "ok",
                                     status == 0, status != 0 ? "faults" : "settings",
                                     status != 0 ? faults_of((char *)err.bytes)
                                     : show      ? settings_of((char *)out.bytes)
                                                 : json_array());
        code = output_document(ctl, document, show && status == 0 ? "settings" : NULL, "key",
                               show ? draw_settings : draw_check, problem);
        json_decref(document);
    }
    buf_done(&out);
    buf_done(&err);
    return code == 0 && status != 0 ? ERR_CONFIG : code; /* The daemon has said why. */
}

int run_config_check(struct ctl *ctl, struct problem *problem)
{
    char option[] = "--check-config";
    return config_run(ctl, option, false, problem);
}

int run_config_show(struct ctl *ctl, struct problem *problem)
{
    char option[] = "--show-config";
    return config_run(ctl, option, true, problem);
}

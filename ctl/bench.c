/* bench tiles: the daemon's program times the candidates; its table becomes a document here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/document.h"
#include "ctl/spawn.h"

#define LINE_SIZE 512

/* Runs `coppeliusd --bench-tiles FOLDER`, its stdout into the file; it has said on stderr why it
 * failed where *ret_status is not 0. */
static int run_daemon(char *daemon, char *folder, FILE *table, int *ret_status,
                      struct problem *problem)
{
    char option[] = "--bench-tiles";
    char *const arguments[] = {daemon, option, folder, NULL};
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(fileno(table), STDOUT_FILENO);
        (void)execv(daemon, arguments);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == 127) {
        return problem_set(problem, ERR_INTERNAL, "cannot run '%s'%s%s", daemon,
                           pid < 0 ? ": " : "", pid < 0 ? err_errno(errno) : "");
    }
    *ret_status = WEXITSTATUS(status);
    return 0;
}

static void draw_table(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    size_t index = 0;
    json_t *line = NULL;
    (void)ctl;
    json_array_foreach(document_list(document, "choices"), index, line)
    {
        buf_print(out, "%s\n", document_text(line, "line"));
    }
}

/* "sm_90 16 tiled-... tile=9 ...": architecture, sequences and product, and the whole line. */
static json_t *choices_of(FILE *table)
{
    json_t *list = json_array();
    char line[LINE_SIZE];
    rewind(table);
    while (fgets(line, sizeof(line), table) != NULL) {
        char architecture[32];
        char product[128];
        int sequences = 0;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%31s %d %127s", architecture, &sequences, product) == 3) {
            (void)json_array_append_new(list, json_pack("{s:s, s:i, s:s, s:s}", "architecture",
                                                        architecture, "sequences", sequences,
                                                        "product", product, "line", line));
        }
    }
    return list;
}

int run_bench_tiles(struct ctl *ctl, struct problem *problem)
{
    char *daemon = NULL;
    int status = 0;
    int code = spawn_find_daemon(&daemon, problem);
    FILE *table = code == 0 ? tmpfile() : NULL;
    if (code == 0 && table == NULL) {
        code = problem_set(problem, ERR_DISK, "cannot make a file for the table: %s",
                           err_errno(errno));
    }
    code = code != 0 ? code : run_daemon(daemon, ctl->args.words[0], table, &status, problem);
    if (code == 0 && status == 0) {
        json_t *document = json_pack("{s:i, s:o}", "schema", 1, "choices", choices_of(table));
        code = output_document(ctl, document, "choices", "product", draw_table, problem);
        json_decref(document);
    }
    if (table != NULL) {
        (void)fclose(table);
    }
    free(daemon);
    return code == 0 && status != 0 ? ERR_DEVICE : code; /* The daemon has said why. */
}

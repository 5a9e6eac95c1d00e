/* bench tiles, bench images, images: the daemon's program times the candidates, loads and checks
 * the images, or lists those inside it; its table becomes a document here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/document.h"
#include "ctl/spawn.h"
#include "ctl/table.h"

#define LINE_SIZE 512

/* Runs `coppeliusd OPTION FOLDER` (NULL: without), its stdout into the file; it has said on stderr
 * why it failed where *ret_status is not 0. */
static int run_daemon(char *daemon, char *option, char *folder, FILE *table, int *ret_status,
                      struct problem *problem)
{
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
static json_t *choices_of(const struct ctl *ctl, FILE *table)
{
    (void)ctl;
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

/* The lines that the daemon's program prints with an option, as a list of a document. */
static int run_table(struct ctl *ctl, char *option, const char *list, const char *key, char *folder,
                     json_t *(*lines_of)(const struct ctl *, FILE *), output_draw_fn *draw,
                     struct problem *problem)
{
    char *daemon = NULL;
    int status = 0;
    int code = spawn_find_daemon(&daemon, problem);
    FILE *table = code == 0 ? tmpfile() : NULL;
    if (code == 0 && table == NULL) {
        code = problem_set(problem, ERR_DISK, "cannot make a file for the table: %s",
                           err_errno(errno));
    }
    code = code != 0 ? code : run_daemon(daemon, option, folder, table, &status, problem);
    if (code == 0 && status == 0) {
        json_t *document = json_pack("{s:i, s:o}", "schema", 1, list, lines_of(ctl, table));
        code = output_document(ctl, document, list, key, draw, problem);
        json_decref(document);
    }
    if (table != NULL) {
        (void)fclose(table);
    }
    free(daemon);
    return code == 0 && status != 0 ? ERR_DEVICE : code; /* The daemon has said why. */
}

int run_bench_tiles(struct ctl *ctl, struct problem *problem)
{
    char option[] = "--bench-tiles";
    char own[] = "-";
    return run_table(ctl, option, "choices", "product",
                     ctl->args.words_count > 0 ? ctl->args.words[0] : own, choices_of, draw_table,
                     problem);
}

static void draw_images(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    static const struct table_column columns[] = {
        {"image", false, false},  {"architecture", false, false}, {"registers", true, false},
        {"threads", true, false}, {"shared", true, false},        {"local", true, false}};
    struct table table;
    size_t index = 0;
    json_t *image = NULL;
    (void)ctl;
    table_init(&table, columns, 6, false);
    json_array_foreach(document_list(document, "images"), index, image)
    {
        table_cell(&table, "%s", document_text(image, "name"));
        table_cell(&table, "%s", document_text(image, "architecture"));
        table_cell(&table, "%lld", (long long)document_integer(image, "registers"));
        table_cell(&table, "%lld", (long long)document_integer(image, "threads"));
        table_cell(&table, "%lld", (long long)document_integer(image, "shared"));
        table_cell(&table, "%lld", (long long)document_integer(image, "local"));
    }
    table_print(&table, out);
    table_done(&table);
}

/* "add-bf16 sm_90 registers=22 threads=256 shared=0 local=0" */
static json_t *images_of(const struct ctl *ctl, FILE *table)
{
    (void)ctl;
    json_t *list = json_array();
    char line[LINE_SIZE];
    rewind(table);
    while (fgets(line, sizeof(line), table) != NULL) {
        char name[128];
        char architecture[32];
        int registers = 0;
        int threads = 0;
        int shared = 0;
        int local = 0;
        if (sscanf(line, "%127s %31s registers=%d threads=%d shared=%d local=%d", name,
                   architecture, &registers, &threads, &shared, &local) == 6) {
            (void)json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:i, s:i}", "name",
                                                        name, "architecture", architecture,
                                                        "registers", registers, "threads", threads,
                                                        "shared", shared, "local", local));
        }
    }
    return list;
}

int run_bench_images(struct ctl *ctl, struct problem *problem)
{
    char option[] = "--list-images";
    char own[] = "-";
    return run_table(ctl, option, "images", "name",
                     ctl->args.words_count > 0 ? ctl->args.words[0] : own, images_of, draw_images,
                     problem);
}

/* The same, of the architecture that was asked for. */
static json_t *own_images_of(const struct ctl *ctl, FILE *table)
{
    json_t *all = images_of(ctl, table);
    json_t *list = json_array();
    size_t index = 0;
    json_t *image = NULL;
    json_array_foreach(all, index, image)
    {
        if (ctl->args.words_count == 0 ||
            strcmp(document_text(image, "architecture"), ctl->args.words[0]) == 0) {
            (void)json_array_append(list, image);
        }
    }
    json_decref(all);
    return list;
}

int run_images(struct ctl *ctl, struct problem *problem)
{
    char option[] = "--images";
    return run_table(ctl, option, "images", "name", NULL, own_images_of, draw_images, problem);
}

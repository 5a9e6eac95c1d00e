/* model_records COMMITTED MADE REPORT…: makes the records of the language model's kernels from what
 * ptxas said when they were compiled (FILE_HALF.report), and compares the committed ones. Exit 1
 * with the differences (architectures that this build left out are not compared), 77 where a report
 * is missing: build the target model_images. To accept: copy MADE over COMMITTED and commit it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/model/entries.h"

#define LINE_SIZE   160
#define RECORDS_MAX 4096

struct lines {
    char line[RECORDS_MAX][LINE_SIZE];
    size_t count;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* "product_rr0_bf16" and what was found of it. */
static void add(struct lines *lines, char *symbol, int architecture, unsigned registers,
                unsigned shared, unsigned local)
{
    char *half = strrchr(symbol, '_');
    ASSERT(half != NULL && lines->count < RECORDS_MAX);
    *half = '\0';
    const struct model_entry *entry = model_entry_find(symbol);
    if (entry == NULL) {
        (void)printf("FAILED kernel %s is not in gpu/model/entries.c\n", symbol);
        exit(1);
    }
    char *line = lines->line[lines->count++];
    int size = snprintf(line, LINE_SIZE, "%s-%s", symbol, half + 1);
    for (int i = 0; i < size; i++) {
        line[i] = line[i] == '_' ? '-' : line[i];
    }
    (void)snprintf(line + size, (size_t)(LINE_SIZE - size),
                   " sm_%d registers=%u threads=%u shared=%u local=%u\n", architecture, registers,
                   entry->threads, shared, local);
}

static void read_report(struct lines *lines, const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        (void)printf("skipped: no %s: build the target model_images\n", path);
        exit(77);
    }
    char text[1024];
    char symbol[128] = "";
    int architecture = 0;
    unsigned local = 0;
    while (fgets(text, sizeof(text), file) != NULL) {
        const char *at = strstr(text, "Compiling entry function '");
        const char *used = strstr(text, "Used ");
        if (at != NULL) {
            if (sscanf(at, "Compiling entry function '%127[^']' for 'sm_%d", symbol,
                       &architecture) != 2) {
                symbol[0] = '\0';
            }
            local = 0;
        } else if (strstr(text, "bytes stack frame") != NULL) {
            (void)sscanf(text, " %u bytes stack frame", &local);
        } else if (used != NULL && symbol[0] != '\0') {
            unsigned registers = 0;
            unsigned shared = 0;
            (void)sscanf(used, "Used %u registers", &registers);
            const char *smem = strstr(used, " bytes smem");
            while (smem != NULL && smem > used && smem[-1] >= '0' && smem[-1] <= '9') {
                smem--;
            }
            if (smem != NULL) {
                shared = (unsigned)strtoul(smem, NULL, 10);
            }
            add(lines, symbol, architecture, registers, shared, local);
            symbol[0] = '\0';
        }
    }
    (void)fclose(file);
}

static void read_records(struct lines *lines, const char *path)
{
    FILE *file = fopen(path, "re");
    while (file != NULL && lines->count < RECORDS_MAX &&
           fgets(lines->line[lines->count], LINE_SIZE, file) != NULL) {
        lines->count += lines->line[lines->count][0] != '#' ? 1 : 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static bool has(const struct lines *lines, const char *line)
{
    return bsearch(line, lines->line, lines->count, LINE_SIZE, by_text) != NULL;
}

/* Does any of the lines speak of this line's architecture? */
static bool knows_architecture(const struct lines *lines, const char *line)
{
    int wanted = 0;
    (void)sscanf(line, "%*s sm_%d", &wanted);
    for (size_t i = 0; i < lines->count; i++) {
        int here = 0;
        if (sscanf(lines->line[i], "%*s sm_%d", &here) == 1 && here == wanted) {
            return true;
        }
    }
    return false;
}

int main(int count, char **words)
{
    if (count < 4) {
        (void)printf("skipped: give the committed records, where to make them, and the reports\n");
        return 77;
    }
    static struct lines made;
    static struct lines committed;
    for (int i = 3; i < count; i++) {
        read_report(&made, words[i]);
    }
    read_records(&committed, words[1]);
    qsort(made.line, made.count, LINE_SIZE, by_text);
    qsort(committed.line, committed.count, LINE_SIZE, by_text);
    unsigned differ = 0;
    for (size_t i = 0; i < committed.count; i++) {
        if (!has(&made, committed.line[i]) && knows_architecture(&made, committed.line[i])) {
            (void)printf("-%s", committed.line[i]);
            differ++;
        }
    }
    FILE *file = fopen(words[2], "we");
    if (file == NULL) {
        (void)printf("FAILED: cannot write %s\n", words[2]);
        return 1;
    }
    (void)fputs(
        "# Records of the language model's kernels, made by the target model_records; held "
        "against the\n# driver's own numbers when they are loaded. kernel-half architecture "
        "registers threads shared local\n",
        file);
    for (size_t i = 0; i < made.count; i++) {
        (void)fputs(made.line[i], file);
        if (!has(&committed, made.line[i])) {
            (void)printf("+%s", made.line[i]);
            differ++;
        }
    }
    (void)fclose(file);
    (void)printf("model.records: %zu made, %u differ (- committed, + built)%s%s\n", made.count,
                 differ, differ != 0 ? ": look at why, then copy over the committed: " : "",
                 differ != 0 ? words[2] : "");
    return differ == 0 ? 0 : 1;
}

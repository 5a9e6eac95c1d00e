/* data import --format tokens: token files, checked against a vocabulary, as one plain file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "ctl/bar.h"
#include "ctl/document.h"
#include "ctl/part.h"
#include "ctl/terminal.h"
#include "data/data.h"

#define PIECE_TOKENS (1U << 19)

static void draw_tokens(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    (void)ctl;
    buf_print(out, "%s: %lld tokens below %lld\nsha256 %s\n", document_text(document, "file"),
              (long long)document_integer(document, "tokens"),
              (long long)document_integer(document, "vocabulary"),
              document_text(document, "sha256"));
}

/* The tokens of one file behind those that are there. */
static int append(const char *path, uint32_t vocabulary, FILE *out, struct sha256 *sha,
                  struct bar *bar, uint64_t *count, struct problem *problem)
{
    struct tokens_file tokens = TOKENS_FILE_NONE;
    int code = tokens_open(path, vocabulary, &tokens, &problem->err);
    if (code != 0) {
        return code == ERR_NOT_FOUND ? ERR_DATA : code; /* refused input */
    }
    uint16_t *ids = malloc(PIECE_TOKENS * sizeof(*ids));
    for (uint64_t at = 0; code == 0 && ids != NULL && at < tokens.count;) {
        uint64_t left = tokens.count - at;
        size_t piece = left < PIECE_TOKENS ? (size_t)left : PIECE_TOKENS;
        code = tokens_read(&tokens, at, piece, ids, &problem->err);
        if (code != 0) {
            (void)err_prefix(&problem->err, "%s: ", path);
        } else if (fwrite(ids, sizeof(*ids), piece, out) != piece) {
            code = problem_set(problem, ERR_DISK, "writing: %s", err_errno(errno));
        } else if (!bar_progress(bar, "reading", (at + piece) * 2, tokens.count * 2)) {
            code = problem_set(problem, ERR_CANCELED, "interrupted");
        }
        sha256_update(sha, ids, piece * sizeof(*ids));
        at += piece;
    }
    *count += tokens.count;
    code = ids != NULL ? code : problem_set(problem, ERR_NOMEM, "no memory for tokens");
    free(ids);
    tokens_close(&tokens);
    return code;
}

static int check_flags(const struct ctl *ctl, uint32_t *ret_vocabulary, struct problem *problem)
{
    char *end = NULL;
    const char *text = ctl->args.value[FLAG_VOCABULARY];
    unsigned long vocabulary = text != NULL ? strtoul(text, &end, 10) : 0;
    struct stat status;
    if (text == NULL || *text == '\0' || *end != '\0' || vocabulary < 1 || vocabulary > 65536) {
        problem_hint(problem, "--vocabulary N: how many ids there are, 1 to 65536");
        return text == NULL ? problem_set(problem, ERR_USAGE, "--vocabulary is missing")
                            : problem_set(problem, ERR_USAGE, "--vocabulary %s is no count", text);
    }
    if (lstat(ctl->args.value[FLAG_OUTPUT], &status) == 0) {
        return problem_set(problem, ERR_USAGE,
                           "%s exists already; give another output or remove it",
                           ctl->args.value[FLAG_OUTPUT]);
    }
    *ret_vocabulary = (uint32_t)vocabulary;
    return 0;
}

static int show(const struct ctl *ctl, uint64_t count, uint32_t vocabulary, struct sha256 *sha,
                struct problem *problem)
{
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];
    sha256_finish(sha, digest);
    sha256_hex(digest, hex);
    json_t *document =
        json_pack("{s:i, s:s, s:I, s:I, s:s}", "schema", 1, "file", ctl->args.value[FLAG_OUTPUT],
                  "tokens", (json_int_t)count, "vocabulary", (json_int_t)vocabulary, "sha256", hex);
    if (document == NULL) {
        return problem_set(problem, ERR_USAGE, "the output's name is not UTF-8");
    }
    int code = output_document(ctl, document, NULL, "file", draw_tokens, problem);
    json_decref(document);
    return code;
}

int run_data_tokens(struct ctl *ctl, struct problem *problem)
{
    const char *output = ctl->args.value[FLAG_OUTPUT];
    struct bar bar = {.quiet = ctl->quiet};
    uint32_t vocabulary = 0;
    uint64_t count = 0;
    struct part part;
    FILE *out = NULL;
    int code = check_flags(ctl, &vocabulary, problem);
    if (code != 0) {
        return code;
    }
    code = part_file(output, &part, &out, problem);
    if (code != 0) {
        return code;
    }
    struct sha256 sha = {NULL};
    sha256_init(&sha);
    for (int i = 0; code == 0 && i < ctl->args.words_count; i++) {
        code = append(ctl->args.words[i], vocabulary, out, &sha, &bar, &count, problem);
    }
    bar_end(&bar);
    code = part_end(&part, output, out, code, problem);
    if (code == 0) {
        code = show(ctl, count, vocabulary, &sha, problem);
    }
    sha256_done(&sha);
    return code;
}

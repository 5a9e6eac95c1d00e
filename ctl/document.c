#include "ctl/document.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

const char *document_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

double document_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

bool document_has(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return value != NULL && !json_is_null(value);
}

int64_t document_integer(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

bool document_true(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

const json_t *document_list(const json_t *object, const char *name)
{
    const json_t *list = json_object_get(object, name);
    return json_is_array(list) ? list : NULL;
}

void cell_text(struct table *table, const json_t *object, const char *name)
{
    table_cell(table, "%s", document_text(object, name));
}

void cell_integer(struct table *table, const json_t *object, const char *name)
{
    if (json_is_integer(json_object_get(object, name))) {
        table_cell(table, "%lld", (long long)document_integer(object, name));
    } else {
        table_cell(table, "-");
    }
}

void cell_number(struct table *table, const json_t *object, const char *name)
{
    double value = document_number(object, name);
    if (isfinite(value)) {
        table_cell(table, "%.6g", value);
    } else {
        table_cell(table, "-");
    }
}

void cell_bytes(struct table *table, const json_t *object, const char *name)
{
    char text[32] = "-";
    double value = document_number(object, name);
    if (isfinite(value)) {
        text_bytes(value, text, sizeof(text));
    }
    table_cell(table, "%s", text);
}

void cell_seconds(struct table *table, const json_t *object, const char *name)
{
    char text[32];
    text_duration(document_number(object, name), text, sizeof(text));
    table_cell(table, "%s", text);
}

void cell_age(struct table *table, const json_t *object, const char *name)
{
    char text[32] = "-";
    if (document_integer(object, name) > 0) {
        double age_ms = (double)(clock_wall_ms() - document_integer(object, name));
        text_duration(fmax(age_ms, 0) / 1000, text, sizeof(text));
    }
    table_cell(table, "%s", text);
}

int output_bytes(const struct buf *bytes, struct problem *problem)
{
    bool whole = bytes->size == 0 || fwrite(bytes->bytes, 1, bytes->size, stdout) == bytes->size;
    if (fflush(stdout) != 0 || !whole) {
        return problem_set(problem, ERR_DISK, "cannot write to standard output: %s",
                           err_errno(errno));
    }
    return 0;
}

static int dump_into(const char *bytes, size_t size, void *context)
{
    buf_put(context, bytes, size);
    return 0;
}

static void put_json(const json_t *document, size_t flags, struct buf *out)
{
    (void)json_dump_callback(document, dump_into, out, flags | JSON_ENCODE_ANY);
    buf_print(out, "\n");
}

int output_json(const struct ctl *ctl, const json_t *document, struct problem *problem)
{
    struct buf out = BUF_NONE;
    put_json(document, ctl->args.output == OUTPUT_JSONL ? JSON_COMPACT : JSON_INDENT(2), &out);
    int code = output_bytes(&out, problem);
    buf_done(&out);
    return code;
}

static void put_name(const json_t *member, const char *key, struct buf *out)
{
    const json_t *value = json_object_get(member, key);
    if (json_is_string(value)) {
        buf_print(out, "%s\n", json_string_value(value));
    } else if (json_is_integer(value)) {
        buf_print(out, "%lld\n", (long long)json_integer_value(value));
    }
}

int output_document(const struct ctl *ctl, const json_t *document, const char *list_name,
                    const char *name_key, output_draw_fn *draw, struct problem *problem)
{
    struct buf out = BUF_NONE;
    const json_t *list = list_name != NULL ? document_list(document, list_name) : NULL;
    size_t index = 0;
    json_t *member = NULL;
    switch (ctl->args.output) {
    case OUTPUT_JSON:
        put_json(document, JSON_INDENT(2), &out);
        break;
    case OUTPUT_JSONL:
        if (list == NULL) {
            put_json(document, JSON_COMPACT, &out);
        }
        json_array_foreach(list, index, member)
        {
            put_json(member, JSON_COMPACT, &out);
        }
        break;
    case OUTPUT_NAME:
        if (list == NULL) {
            put_name(document, name_key, &out);
        }
        json_array_foreach(list, index, member)
        {
            put_name(member, name_key, &out);
        }
        break;
    case OUTPUT_TABLE:
    case OUTPUT_WIDE:
    default:
        draw(ctl, document, &out);
        break;
    }
    int code = output_bytes(&out, problem);
    buf_done(&out);
    return code;
}

int output_answer(struct ctl *ctl, Ctl__Request *request, const char *list_name,
                  const char *name_key, output_draw_fn *draw, struct problem *problem)
{
    struct client *client = NULL;
    struct answer answer = {NULL, NULL};
    int code = client_open_for(ctl, &client, problem);
    if (code == 0) {
        code = client_call(client, request, &answer, problem);
    }
    if (code == 0 && answer.json == NULL) {
        code = problem_set(problem, ERR_PROTO, "the daemon's answer has no document");
    }
    if (code == 0) {
        code = output_document(ctl, answer.json, list_name, name_key, draw, problem);
    }
    answer_done(&answer);
    client_close(client);
    return code;
}

void say(const struct ctl *ctl, const char *format, ...)
{
    if (ctl->quiet) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
}

#include "proto/faults.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void faults_done(struct faults *faults)
{
    free(faults->list);
    *faults = (struct faults)FAULTS_NONE;
}

/* What a person wrote may hold escape sequences for the terminal it will be shown on. */
static void make_printable(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f) {
            *at = '?';
        }
    }
}

void faults_add(struct faults *faults, const char *place, const char *key, const char *format, ...)
{
    if (faults->count == FAULTS_MAX) {
        faults->dropped++;
        return;
    }
    if (faults->list == NULL) {
        faults->list = calloc(FAULTS_MAX, sizeof(*faults->list));
        if (faults->list == NULL) {
            faults->dropped++; /* The count alone still says that something is wrong. */
            return;
        }
    }
    struct fault *fault = &faults->list[faults->count++];
    (void)snprintf(fault->place, sizeof(fault->place), "%s", place);
    (void)snprintf(fault->key, sizeof(fault->key), "%s", key);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(fault->text, sizeof(fault->text), format, arguments);
    va_end(arguments);
    make_printable(fault->place);
    make_printable(fault->key);
    make_printable(fault->text);
}

static void print_one(const struct fault *fault, struct buf *out)
{
    buf_print(out, "%s: %s%s%s", fault->place, fault->key, fault->key[0] != '\0' ? ": " : "",
              fault->text);
}

void faults_print(const struct faults *faults, struct buf *out)
{
    for (size_t i = 0; i < faults->count; i++) {
        print_one(&faults->list[i], out);
        buf_print(out, "\n");
    }
    if (faults->dropped > 0) {
        buf_print(out, "and %zu more\n", faults->dropped);
    }
}

int faults_err(const struct faults *faults, int code, struct err *err)
{
    size_t all = faults->count + faults->dropped;
    if (all == 0) {
        return 0;
    }
    if (faults->count == 0) {
        return err_set(err, code, "%zu faults", all);
    }
    struct buf line = BUF_NONE;
    print_one(&faults->list[0], &line);
    (void)err_set(err, code, "%.*s", (int)line.size, (const char *)line.bytes);
    if (all > 1) {
        (void)err_set(err, code, "%.*s (and %zu more)", (int)line.size, (const char *)line.bytes,
                      all - 1);
    }
    buf_done(&line);
    return code;
}

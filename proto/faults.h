/* What is wrong with a text that a person wrote: all of it, not only the first.
 *
 * Used by job files, config files, `--set` and the environment. A fault reads
 * "place: key: sentence", place being file:line:column, "--set optimizer.rate" or the name of an
 * environment variable. A struct faults belongs to its owner and one thread. */
#ifndef COPPELIUS_PROTO_FAULTS_H
#define COPPELIUS_PROTO_FAULTS_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define FAULTS_MAX 64 /* kept; more are counted only */

struct fault {
    char place[320];
    char key[128]; /* "optimizer.rate"; empty where the fault is about the file */
    char text[384];
};

struct faults {
    struct fault *list;
    size_t count;   /* kept */
    size_t dropped; /* further ones, counted only */
};

#define FAULTS_NONE \
    {               \
        NULL, 0, 0  \
    }

void faults_done(struct faults *faults); /* twice is fine */
void faults_add(struct faults *faults, const char *place, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* All faults, a line each, a zero behind the last: "job.yaml:6:11: model.l2: must be at least 0,
 * got -1\n". */
void faults_print(const struct faults *faults, struct buf *out);
/* 0 where there is none; else err gets `code` and the first fault's line, and how many more there
 * are. */
int faults_err(const struct faults *faults, int code, struct err *err);

#endif

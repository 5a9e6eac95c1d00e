/* Collects the first ten bad places of a data file, and cuts what a message shows of it to a size
 * and to bytes that a terminal can bear. Private to data. */
#ifndef COPPELIUS_DATA_FAULTS_H
#define COPPELIUS_DATA_FAULTS_H

#include <stddef.h>
#include <stdint.h>

#include "data/data.h"

#define EXCERPT_SIZE 48

/* Adds "path:line:column: sentence" (line 0: "path: sentence"); what comes past the tenth is
 * forgotten. */
void data_fault_add(struct data_faults *faults, const char *path, uint64_t line, uint64_t column,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The one to show where only one is shown: the first of structure, else the first. */
static inline const struct data_fault *faults_main(const struct data_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++) {
        if (faults->list[i].structure) {
            return &faults->list[i];
        }
    }
    return &faults->list[0];
}

static inline int faults_full(const struct data_faults *faults)
{
    return faults->count == DATA_FAULTS_MAX;
}

/* Up to 32 bytes of a field as printable UTF-8 ("…" where cut, "?" for what is not text). */
const char *excerpt(char text[EXCERPT_SIZE], const uint8_t *bytes, size_t size);

/* Bytes of the UTF-8 sequence at the front (1 to 4); 0 where there is none that is valid. */
size_t utf8_step(const uint8_t *bytes, size_t size);

/* What went wrong turned out to be fine (a file that may be absent). err may be NULL. */
static inline int err_forget(struct err *err)
{
    if (err != NULL) {
        err->code = 0;
        err->text[0] = '\0';
    }
    return 0;
}

#endif

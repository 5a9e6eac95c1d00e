/* An error: a code for the program and a sentence for the person.
 *
 * Who meets the fact writes the sentence with err_set(); a caller prefixes what only it knows with
 * err_prefix() and returns the code on. Nobody in between logs; daemon/ or ctl/ shows it once.
 * Any thread; a struct err belongs to its caller. */
#ifndef COPPELIUS_BASE_ERR_H
#define COPPELIUS_BASE_ERR_H

/* name, value, label (metrics, wire), exit status. Append only. */
#define ERR_MAP(X)                                                                                 \
    X(ERR_INTERNAL, -1, "internal", 1)                                                             \
    X(ERR_USAGE, -2, "usage", 2)                                                                   \
    X(ERR_JOB, -3, "bad-job", 2)                                                                   \
    X(ERR_DATA, -4, "bad-data", 2)                                                                 \
    X(ERR_CONFIG, -5, "bad-config", 2)                                                             \
    X(ERR_NOMEM, -6, "no-memory", 1)                                                               \
    X(ERR_DISK, -7, "disk", 1)                                                                     \
    X(ERR_PEER, -8, "peer", 1)                                                                     \
    X(ERR_REACH, -9, "unreachable", 5)                                                             \
    X(ERR_PROTO, -10, "protocol", 5)                                                               \
    X(ERR_AUTH, -11, "not-authorized", 5)                                                          \
    X(ERR_NOT_FOUND, -12, "not-found", 4)                                                          \
    X(ERR_UNHEALTHY, -13, "unhealthy", 3)                                                          \
    X(ERR_JOB_FAILED, -14, "job-failed", 6)                                                        \
    X(ERR_DAMAGED, -15, "damaged", 7)                                                              \
    X(ERR_TIMEOUT, -16, "timeout", 124)                                                            \
    X(ERR_CANCELED, -17, "canceled", 130)                                                          \
    X(ERR_DEVICE, -18, "device", 1)                                                                \
    X(ERR_DIVERGED, -19, "diverged", 6)                                                            \
    X(ERR_STATE, -20, "bad-state", 1)                                                              \
    X(ERR_BUSY, -21, "busy", 1)

#define ERR_ENUM(name, value, label, status) name = (value),
enum err_code { ERR_OK = 0, ERR_MAP(ERR_ENUM) };
#undef ERR_ENUM

#define ERR_TEXT_SIZE 512

struct err {
    int code;                 /* 0 or an ERR_* */
    char text[ERR_TEXT_SIZE]; /* one sentence, no line feed; empty when code is 0 */
};

/* Sets code and sentence; returns code. err may be NULL: then only the code is returned. A sentence
 * that does not fit is cut at its end. */
int err_set(struct err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts a prefix before the sentence; returns the code. What does not fit is cut off the prefix,
 * never off the cause. */
int err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "bad-data" for ERR_DATA; "unknown" for what is no code. */
const char *err_label(int code);

/* The process' exit status for a code; 0 for 0, 1 for what is no code. */
int err_exit_status(int code);

/* errno's text, thread safe, static storage. */
const char *err_errno(int number);

#endif

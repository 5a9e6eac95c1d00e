#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int code, const char *format, ...)
{
    if (err != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(err->text, sizeof(err->text), format, arguments);
        va_end(arguments);
        err->code = code;
    }
    return code;
}

int err_prefix(struct err *err, const char *format, ...)
{
    if (err == NULL) {
        return ERR_INTERNAL;
    }
    char prefix[ERR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(prefix, sizeof(prefix), format, arguments);
    va_end(arguments);
    size_t cause_size = strlen(err->text);
    size_t prefix_size = strlen(prefix);
    size_t room = sizeof(err->text) - 1 - cause_size;
    if (prefix_size > room) {
        prefix_size = room;
    }
    memmove(err->text + prefix_size, err->text, cause_size + 1);
    memcpy(err->text, prefix, prefix_size);
    return err->code;
}

const char *err_label(int code)
{
    switch (code) {
    case 0:
        return "ok";
#define ERR_LABEL(name, value, label, status)                                                      \
    case value:                                                                                    \
        return label;
        ERR_MAP(ERR_LABEL)
#undef ERR_LABEL
    default:
        return "unknown";
    }
}

int err_exit_status(int code)
{
    switch (code) {
    case 0:
        return 0;
#define ERR_STATUS(name, value, label, status)                                                     \
    case value:                                                                                    \
        return status;
        ERR_MAP(ERR_STATUS)
#undef ERR_STATUS
    default:
        return 1;
    }
}

const char *err_errno(int number)
{
    const char *text = strerrordesc_np(number);
    return text != NULL ? text : "unknown error";
}

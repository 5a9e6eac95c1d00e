#include "trust/openssl.h"

#include <stdio.h>

void openssl_text(char *text, size_t text_size)
{
    unsigned long number = ERR_get_error();
    const char *reason = number != 0 ? ERR_reason_error_string(number) : NULL;
    (void)snprintf(text, text_size, "%s", reason != NULL ? reason : "OpenSSL does not say why");
    ERR_clear_error();
}

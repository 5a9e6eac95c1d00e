/* The bearer token: its file, and whether it is the one. */
#include <string.h>

#include "base/buf.h"
#include "base/secrets.h"
#include "daemon/http.h"

bool http_token_is(const char *given, const char *token)
{
    size_t given_size = strlen(given);
    size_t token_size = strlen(token);
    unsigned different = given_size != token_size;
    for (size_t i = 0; i < token_size; i++) {
        different |= (unsigned)(unsigned char)token[i] ^
                     (unsigned)(unsigned char)(i < given_size ? given[i] : 0);
    }
    return different == 0;
}

int http_token_read(const char *path, char token[HTTP_TOKEN_MAX], struct err *err)
{
    struct buf bytes = BUF_NONE;
    if (secrets_read("http.token_file", path, HTTP_TOKEN_MAX + 1, &bytes, err) != 0) {
        buf_done(&bytes);
        if (err->code == ERR_NOT_FOUND) {
            return err_set(err, ERR_CONFIG,
                           "http.token_file '%s': there is none; make one: `openssl rand -hex 32 > "
                           "%s`, mode 600",
                           path, path);
        }
        return err->code;
    }
    size_t size = bytes.size;
    while (size > 0 && (bytes.bytes[size - 1] == '\n' || bytes.bytes[size - 1] == '\r')) {
        size--;
    }
    bool good = size >= 16 && size < HTTP_TOKEN_MAX;
    for (size_t i = 0; i < size; i++) {
        good &= bytes.bytes[i] > ' ' && bytes.bytes[i] <= '~';
    }
    if (good) {
        memcpy(token, bytes.bytes, size);
        token[size] = '\0';
    }
    explicit_bzero(bytes.bytes, bytes.size);
    buf_done(&bytes);
    return good ? 0
                : err_set(err, ERR_CONFIG,
                          "http.token_file '%s': a token is one line of 16 to %d visible ASCII "
                          "characters; `openssl rand -hex 32` makes one",
                          path, HTTP_TOKEN_MAX - 1);
}

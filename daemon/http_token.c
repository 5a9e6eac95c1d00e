/* The bearer token: its file, and whether it is the one. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0) {
        int error = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return err_set(err, ERR_CONFIG,
                       "http.token_file '%s': %s; make one: `openssl rand -hex 32 > %s`", path,
                       err_errno(error), path);
    }
    char text[HTTP_TOKEN_MAX + 2] = "";
    ssize_t got = S_ISREG(stat.st_mode) ? read(fd, text, sizeof(text) - 1) : -1;
    (void)close(fd);
    if (got < 0) {
        return err_set(err, ERR_CONFIG, "http.token_file '%s': not a readable file", path);
    }
    if ((stat.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return err_set(
            err, ERR_CONFIG,
            "http.token_file '%s': others may read it (mode %03o); `chmod 600 %s`, owned "
            "by the daemon's user, and make a new token",
            path, (unsigned)(stat.st_mode & 0777), path);
    }
    size_t size = (size_t)got;
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r')) {
        size--;
    }
    bool good = size >= 16 && size < HTTP_TOKEN_MAX;
    for (size_t i = 0; i < size; i++) {
        good &= text[i] > ' ' && text[i] <= '~';
    }
    if (!good) {
        return err_set(err, ERR_CONFIG,
                       "http.token_file '%s': a token is one line of 16 to %d visible ASCII "
                       "characters; `openssl rand -hex 32` makes one",
                       path, HTTP_TOKEN_MAX - 1);
    }
    memcpy(token, text, size);
    token[size] = '\0';
    return 0;
}

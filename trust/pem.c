#include "trust/pem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/secrets.h"
#include "trust/identity.h"
#include "trust/openssl.h"

void pem_wipe(struct buf *bytes)
{
    if (bytes->bytes != NULL) {
        OPENSSL_cleanse(bytes->bytes, bytes->capacity);
    }
    buf_done(bytes);
}

static int read_public(const char *what, const char *path, struct buf *bytes, struct err *err)
{
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_CONFIG,
                       "%s '%s' cannot be read: %s", what, path, err_errno(errno));
    }
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) {
        (void)close(fd);
        return err_set(err, ERR_CONFIG, "%s '%s' is no file", what, path);
    }
    buf_reserve(bytes, PEM_SIZE_MAX + 1);
    ssize_t got = 0;
    do {
        got = read(fd, bytes->bytes + bytes->size, PEM_SIZE_MAX + 1 - bytes->size);
        bytes->size += got > 0 ? (size_t)got : 0;
    } while (got > 0 && bytes->size <= PEM_SIZE_MAX);
    int number = errno;
    (void)close(fd);
    if (got < 0) {
        return err_set(err, ERR_CONFIG, "%s '%s' cannot be read: %s", what, path,
                       err_errno(number));
    }
    if (bytes->size > PEM_SIZE_MAX) {
        return err_set(err, ERR_CONFIG, "%s '%s' is larger than %u bytes", what, path,
                       PEM_SIZE_MAX);
    }
    return 0;
}

int pem_read_file(const char *what, const char *path, bool secret, struct buf *bytes,
                  struct err *err)
{
    return secret ? secrets_read(what, path, PEM_SIZE_MAX, bytes, err)
                  : read_public(what, path, bytes, err);
}

/* No passphrase is ever asked for. */
static int no_passphrase(char *text, int size, int writing, void *context)
{
    (void)text;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

/* Nothing at all is no error yet: whoever reads finds no PEM in it. */
static BIO *bio_over(const void *bytes, size_t size)
{
    ASSERT(size <= INT_MAX);
    BIO *bio = BIO_new_mem_buf(size > 0 ? bytes : "", (int)size);
    ASSERT(bio != NULL);
    return bio;
}

int pem_parse_certificate(const void *bytes, size_t size, X509 **ret_certificate)
{
    BIO *bio = bio_over(bytes, size);
    *ret_certificate = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
    (void)BIO_free(bio);
    ERR_clear_error();
    return *ret_certificate != NULL ? 0 : ERR_CONFIG;
}

int pem_certificate(const char *what, const char *path, X509 **ret_certificate, struct err *err)
{
    struct buf bytes = BUF_NONE;
    int code = pem_read_file(what, path, /* secret= */ false, &bytes, err);
    if (code == 0 && pem_parse_certificate(bytes.bytes, bytes.size, ret_certificate) != 0) {
        code = err_set(err, ERR_CONFIG, "%s '%s' has no PEM certificate in it", what, path);
    }
    buf_done(&bytes);
    return code;
}

int pem_key(const char *what, const char *path, EVP_PKEY **ret_key, struct err *err)
{
    struct buf bytes = BUF_NONE;
    int code = pem_read_file(what, path, /* secret= */ true, &bytes, err);
    if (code == 0) {
        BIO *bio = bio_over(bytes.bytes, bytes.size);
        *ret_key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
        (void)BIO_free(bio);
        ERR_clear_error();
        if (*ret_key == NULL) {
            code = err_set(err, ERR_CONFIG, "%s '%s' has no unencrypted PEM key in it", what, path);
        }
    }
    pem_wipe(&bytes);
    return code;
}

int pem_write_file(const char *path, bool secret, const void *bytes, size_t size, struct err *err)
{
    char folder[4096];
    char made[4104];
    if (snprintf(made, sizeof(made), "%s.new", path) >= (int)sizeof(made)) {
        return err_set(err, ERR_DISK, "'%.100s…': the path is too long", path);
    }
    (void)snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    (void)snprintf(slash != NULL ? slash + (slash == folder) : folder, 2, "%s",
                   slash != NULL ? "" : ".");
    mode_t mode = secret ? 0600 : 0644;
    (void)unlink(made);
    int fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    bool good = fd >= 0;
    for (size_t done = 0; good && done < size;) {
        ssize_t put = write(fd, (const char *)bytes + done, size - done);
        good = put >= 0 || errno == EINTR;
        done += put > 0 ? (size_t)put : 0;
    }
    good = good && fchmod(fd, mode) == 0 && fsync(fd) == 0;
    int number = errno;
    if (fd >= 0 && close(fd) != 0 && good) {
        good = false;
        number = errno;
    }
    if (good && rename(made, path) != 0) {
        good = false;
        number = errno;
    }
    if (!good) {
        (void)unlink(made);
        return err_set(err, ERR_DISK, "'%s' cannot be written: %s", path, err_errno(number));
    }
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd >= 0) {
        (void)fsync(folder_fd); /* A folder that cannot be synced keeps the file all the same. */
        (void)close(folder_fd);
    }
    return 0;
}

static void put_bio(struct buf *bytes, BIO *bio)
{
    char *text = NULL;
    long size = BIO_get_mem_data(bio, &text);
    buf_put(bytes, text, (size_t)size);
    OPENSSL_cleanse(text, (size_t)size);
    (void)BIO_free(bio);
}

void pem_put_certificate(struct buf *bytes, X509 *certificate)
{
    BIO *bio = BIO_new(BIO_s_mem());
    ASSERT(bio != NULL);
    ASSERT(PEM_write_bio_X509(bio, certificate) == 1);
    put_bio(bytes, bio);
}

void pem_put_key(struct buf *bytes, EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    ASSERT(bio != NULL);
    ASSERT(PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1);
    put_bio(bytes, bio);
}

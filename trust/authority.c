/* The folder: made, locked, signing; bundles for the offline way. */
#include "trust/authority.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/secrets.h"
#include "trust/authority_folder.h"
#include "trust/identity.h"
#include "trust/issue.h"
#include "trust/pem.h"

static const char common_prefix[] = "coppelius authority of ";

void authority_path(const char *folder, const char *name, char path[AUTHORITY_PATH_SIZE])
{
    (void)snprintf(path, AUTHORITY_PATH_SIZE, "%.4096s/%s", folder, name);
}

int authority_lock(const char *folder, int *ret_fd, struct err *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_CONFIG,
                       "the authority's folder '%s' cannot be opened: %s; `coppeliusctl cluster "
                       "init` makes one, --authority names another place",
                       folder, err_errno(errno));
    }
    if (secrets_check_folder("the authority's folder", folder, fd, err) != 0) {
        (void)close(fd);
        return err->code;
    }
    if (flock(fd, LOCK_EX) != 0) {
        (void)close(fd);
        return err_set(err, ERR_DISK, "'%s' cannot be locked: %s", folder, err_errno(errno));
    }
    *ret_fd = fd;
    return 0;
}

int authority_ca(const char *folder, X509 **ret_ca, struct err *err)
{
    char path[AUTHORITY_PATH_SIZE];
    authority_path(folder, "ca.crt", path);
    int code = pem_certificate("the authority's certificate", path, ret_ca, err);
    if (code == ERR_NOT_FOUND) {
        return err_set(
            err, code,
            "no authority is in '%s'; `coppeliusctl cluster init` makes one, --authority "
            "names another place",
            folder);
    }
    return code;
}

int authority_cluster(const char *folder, char cluster[TRUST_NAME_SIZE], struct err *err)
{
    X509 *ca = NULL;
    char common[200];
    if (authority_ca(folder, &ca, err) != 0) {
        return err->code;
    }
    identity_common_name(X509_get_subject_name(ca), common, sizeof(common));
    X509_free(ca);
    size_t prefix = sizeof(common_prefix) - 1;
    size_t size = strlen(common);
    if (size < prefix + 3 || strncmp(common + 1, common_prefix, prefix) != 0) {
        return err_set(err, ERR_CONFIG, "'%s/ca.crt' (%s) is no authority of this program", folder,
                       common);
    }
    common[size - 1] = '\0'; /* the quotes around it */
    (void)snprintf(cluster, TRUST_NAME_SIZE, "%.63s", common + 1 + prefix);
    return 0;
}

static int make_folder(const char *path, mode_t mode, struct err *err)
{
    if (mkdir(path, mode) != 0 && errno != EEXIST) {
        return err_set(err, ERR_DISK, "'%s' cannot be made: %s", path, err_errno(errno));
    }
    return 0;
}

static int write_pem(const char *folder, const char *name, bool secret, struct buf *bytes,
                     struct err *err)
{
    char path[AUTHORITY_PATH_SIZE];
    authority_path(folder, name, path);
    int code = pem_write_file(path, secret, bytes->bytes, bytes->size, err);
    pem_wipe(bytes);
    return code;
}

int authority_make(const char *folder, const char *cluster, enum authority_key kind,
                   struct err *err)
{
    char path[AUTHORITY_PATH_SIZE];
    EVP_PKEY *key = NULL;
    X509 *ca = NULL;
    struct buf bytes = BUF_NONE;
    if (!identity_is_name(cluster)) {
        return err_set(
            err, ERR_USAGE,
            "cluster '%.80s': a name of 1 to 63 letters, digits, '-', '_', '.' is needed", cluster);
    }
    if (make_folder(folder, 0700, err) != 0) {
        return err->code;
    }
    static const char *const names[] = {"ca.key", "ca.crt"};
    for (size_t i = 0; i < 2; i++) {
        authority_path(folder, names[i], path);
        if (access(path, F_OK) == 0) {
            return err_set(err, ERR_STATE,
                           "an authority is in '%s' already (%s); it was left as it is: another "
                           "one would lock every node of its cluster out",
                           folder, names[i]);
        }
    }
    int code = issue_key(kind, &key, err);
    code = code != 0 ? code : issue_ca(cluster, key, &ca, err);
    if (code == 0) {
        pem_put_key(&bytes, key);
        code = write_pem(folder, "ca.key", /* secret= */ true, &bytes, err);
    }
    if (code == 0) {
        pem_put_certificate(&bytes, ca);
        code = write_pem(folder, "ca.crt", /* secret= */ false, &bytes, err);
    }
    X509_free(ca);
    EVP_PKEY_free(key);
    return code;
}

int authority_new_key(enum authority_key kind, struct buf *key_pem, struct buf *request,
                      struct err *err)
{
    EVP_PKEY *key = NULL;
    if (issue_key(kind, &key, err) != 0) {
        return err->code;
    }
    pem_put_key(key_pem, key);
    int code = issue_request(key, request, err);
    EVP_PKEY_free(key);
    return code;
}

int authority_write(const char *path, bool secret, const struct buf *bytes, struct err *err)
{
    return pem_write_file(path, secret, bytes->bytes, bytes->size, err);
}

void authority_wipe(struct buf *bytes)
{
    pem_wipe(bytes);
}

int authority_request_of(const char *key_file, struct buf *request, struct err *err)
{
    EVP_PKEY *key = NULL;
    if (pem_key("the key", key_file, &key, err) != 0) {
        return err->code;
    }
    int code = issue_request(key, request, err);
    EVP_PKEY_free(key);
    return code;
}

/* A line for the operator; where it cannot be written nothing is signed. */
static int note_issued(const char *folder, const struct trust_identity *identity, X509 *leaf,
                       struct err *err)
{
    char path[AUTHORITY_PATH_SIZE];
    char uri[256];
    char now[IDENTITY_TIME_SIZE];
    char end[IDENTITY_TIME_SIZE];
    char line[400];
    authority_path(folder, "issued", path);
    identity_uri(identity, uri, sizeof(uri));
    identity_time((int64_t)time(NULL), now);
    identity_time(identity_seconds(X509_get0_notAfter(leaf)), end);
    int size = snprintf(line, sizeof(line), "%s  %s  until %s\n", now, uri, end);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool good = fd >= 0 && write(fd, line, (size_t)size) == size && fsync(fd) == 0;
    int number = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    return good ? 0 : err_set(err, ERR_DISK, "'%s' cannot be written: %s", path, err_errno(number));
}

static int sign_locked(const char *folder, const struct trust_identity *identity, unsigned days,
                       EVP_PKEY *public_key, struct buf *certificate_pem, struct buf *ca_pem,
                       struct err *err)
{
    char path[AUTHORITY_PATH_SIZE];
    char cluster[TRUST_NAME_SIZE];
    X509 *ca = NULL;
    X509 *leaf = NULL;
    EVP_PKEY *ca_key = NULL;
    authority_path(folder, "ca.key", path);
    int code = authority_cluster(folder, cluster, err);
    if (code == 0 && strcmp(cluster, identity->cluster) != 0) {
        code = err_set(err, ERR_CONFIG, "the authority in '%s' is of cluster '%s', not '%s'",
                       folder, cluster, identity->cluster);
    }
    code = code != 0 ? code : authority_ca(folder, &ca, err);
    code = code != 0 ? code : pem_key("the authority's key", path, &ca_key, err);
    if (code == ERR_NOT_FOUND) {
        code = err_set(err, code,
                       "the authority's key '%s' is not here; run this where it is, or put it back",
                       path);
    }
    code = code != 0 ? code
                     : issue_leaf(ca, ca_key, public_key, identity,
                                  days != 0 ? days : AUTHORITY_LEAF_DAYS, &leaf, err);
    code = code != 0 ? code : note_issued(folder, identity, leaf, err);
    if (code == 0) {
        pem_put_certificate(certificate_pem, leaf);
        pem_put_certificate(ca_pem, ca);
    }
    X509_free(ca);
    X509_free(leaf);
    EVP_PKEY_free(ca_key);
    return code;
}

int authority_check_request(const void *request, size_t request_size, struct err *err)
{
    EVP_PKEY *public_key = NULL;
    int code = issue_request_key(request, request_size, &public_key, err);
    EVP_PKEY_free(public_key);
    return code;
}

int authority_sign(const char *folder, const struct trust_identity *identity, unsigned days,
                   const void *request, size_t request_size, struct buf *certificate_pem,
                   struct buf *ca_pem, struct err *err)
{
    EVP_PKEY *public_key = NULL;
    int lock = -1;
    if (!identity_is_name(identity->name) || !identity_is_name(identity->cluster)) {
        return err_set(err, ERR_USAGE,
                       "'%.80s': a name of 1 to 63 letters, digits, '-', '_', '.' is needed, a "
                       "letter or digit first",
                       identity->name);
    }
    if (issue_request_key(request, request_size, &public_key, err) != 0) {
        return err->code;
    }
    int code = authority_lock(folder, &lock, err);
    if (code == 0) {
        code = sign_locked(folder, identity, days, public_key, certificate_pem, ca_pem, err);
        (void)close(lock);
    }
    EVP_PKEY_free(public_key);
    return code;
}

int authority_bundle(const char *folder, const struct trust_identity *identity, unsigned days,
                     enum authority_key kind, const char *output, struct err *err)
{
    char path[AUTHORITY_PATH_SIZE];
    struct buf key = BUF_NONE;
    struct buf request = BUF_NONE;
    struct buf certificate = BUF_NONE;
    struct buf ca = BUF_NONE;
    authority_path(output, "node.key", path);
    int code = access(path, F_OK) == 0
                   ? err_set(err, ERR_STATE, "'%s' is there already; give another --output", path)
                   : authority_new_key(kind, &key, &request, err);
    code = code != 0 ? code
                     : authority_sign(folder, identity, days, request.bytes, request.size,
                                      &certificate, &ca, err);
    code = code != 0 ? code : make_folder(output, 0700, err);
    code = code != 0 ? code : write_pem(output, "node.key", /* secret= */ true, &key, err);
    code = code != 0 ? code : write_pem(output, "node.crt", false, &certificate, err);
    code = code != 0 ? code : write_pem(output, "ca.crt", false, &ca, err);
    pem_wipe(&key);
    buf_done(&request);
    buf_done(&certificate);
    buf_done(&ca);
    return code;
}

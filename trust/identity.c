#include "trust/identity.h"
#include "trust/openssl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char scheme[] = "coppelius://";

static const char *const kinds[] = {
    [TRUST_NOBODY] = "nobody",
    [TRUST_NODE] = "node",
    [TRUST_ADMIN] = "admin",
    [TRUST_VIEWER] = "viewer",
};

const char *trust_kind_name(enum trust_kind kind)
{
    return kinds[kind];
}

bool identity_is_name(const char *name)
{
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t size = strlen(name);
    return size > 0 && size < TRUST_NAME_SIZE && strchr(first, name[0]) != NULL &&
           strspn(name, all) == size;
}

void identity_uri(const struct trust_identity *identity, char *text, size_t text_size)
{
    (void)snprintf(text, text_size, "%s%s/%s/%s", scheme, identity->cluster,
                   trust_kind_name(identity->kind), identity->name);
}

/* One of the parts up to a slash or the end; false where it is no name. */
static bool take_part(const char **at, char slash, char *part)
{
    const char *end = strchr(*at, slash);
    size_t size = end != NULL ? (size_t)(end - *at) : 0;
    if (end == NULL || size >= TRUST_NAME_SIZE) {
        return false;
    }
    memcpy(part, *at, size);
    part[size] = '\0';
    *at = end + (slash != '\0' ? 1 : 0);
    return identity_is_name(part);
}

static bool parse_uri(const char *uri, struct trust_identity *identity)
{
    char kind[TRUST_NAME_SIZE];
    const char *at = uri + strlen(scheme);
    if (!take_part(&at, '/', identity->cluster) || !take_part(&at, '/', kind) ||
        !take_part(&at, '\0', identity->name)) {
        return false;
    }
    for (int i = TRUST_NODE; i <= TRUST_VIEWER; i++) {
        if (strcmp(kind, kinds[i]) == 0) {
            identity->kind = (enum trust_kind)i;
            return true;
        }
    }
    return false;
}

int64_t identity_seconds(const ASN1_TIME *time)
{
    struct tm parts;
    return ASN1_TIME_to_tm(time, &parts) == 1 ? (int64_t)timegm(&parts) : 0;
}

int identity_of(X509 *certificate, struct trust_identity *ret_identity, struct err *err)
{
    struct trust_identity identity = {.kind = TRUST_NOBODY};
    unsigned found = 0;
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; names != NULL && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI) {
            continue;
        }
        char uri[256] = "";
        const ASN1_IA5STRING *text = name->d.uniformResourceIdentifier;
        int size = ASN1_STRING_length(text);
        if (size <= 0 || (size_t)size >= sizeof(uri)) {
            continue;
        }
        memcpy(uri, ASN1_STRING_get0_data(text), (size_t)size);
        if (strlen(uri) != (size_t)size || strncmp(uri, scheme, strlen(scheme)) != 0) {
            continue; /* A zero inside would show one name and mean another. */
        }
        found++;
        if (!parse_uri(uri, &identity)) {
            found = 2;
        }
    }
    GENERAL_NAMES_free(names);
    if (found != 1) {
        return err_set(err, ERR_AUTH,
                       "its certificate has %s among its alternative names; make it with "
                       "`coppeliusctl pki` or `cluster join`",
                       found == 0 ? "no URI coppelius://CLUSTER/node/NAME"
                                  : "several or malformed URIs coppelius://…");
    }
    identity.not_before = identity_seconds(X509_get0_notBefore(certificate));
    identity.not_after = identity_seconds(X509_get0_notAfter(certificate));
    *ret_identity = identity;
    return 0;
}

void identity_time(int64_t at, char text[IDENTITY_TIME_SIZE])
{
    time_t seconds = (time_t)at;
    struct tm parts;
    text[0] = '\0';
    if (gmtime_r(&seconds, &parts) != NULL) {
        (void)strftime(text, IDENTITY_TIME_SIZE, "%Y-%m-%d %H:%M UTC", &parts);
    }
}

void identity_common_name(const X509_NAME *name, char *text, size_t text_size)
{
    int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
    (void)snprintf(text, text_size, "without a name");
    if (at >= 0) {
        const ASN1_STRING *value = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at));
        (void)snprintf(text, text_size, "'%.*s'", ASN1_STRING_length(value),
                       (const char *)ASN1_STRING_get0_data(value));
        for (char *c = text; *c != '\0'; c++) {
            *c = (unsigned char)*c < ' ' || *c == '"' ? '?' : *c; /* It goes into a log line. */
        }
    }
}

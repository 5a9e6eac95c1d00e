/* A throw-away authority and certificates of it, for tests that speak TLS. */
#ifndef COPPELIUS_TESTS_TRUST_FILES_H
#define COPPELIUS_TESTS_TRUST_FILES_H

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "tests/lib/folder.h"
#include "trust/authority.h"
#include "trust/trust.h"

static inline void trust_file(const struct test_folder *folder, const char *name, char path[256])
{
    (void)snprintf(path, 256, "%s/%s", folder->path, name);
}

/* FOLDER/AUTHORITY */
static inline void trust_make_authority(const struct test_folder *folder, const char *authority,
                                        const char *cluster)
{
    char path[256];
    struct err err = {0};
    trust_file(folder, authority, path);
    if (authority_make(path, cluster, AUTHORITY_P256, &err) != 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        ASSERT(false);
    }
}

/* FOLDER/AUTHORITY-NAME/{ca.crt,node.crt,node.key} */
static inline void trust_make_bundle(const struct test_folder *folder, const char *authority,
                                     const char *cluster, enum trust_kind kind, const char *name)
{
    char path[256];
    char output[300];
    struct err err = {0};
    struct trust_identity identity = {.kind = kind};
    trust_file(folder, authority, path);
    (void)snprintf(identity.cluster, sizeof(identity.cluster), "%s", cluster);
    (void)snprintf(identity.name, sizeof(identity.name), "%s", name);
    (void)snprintf(output, sizeof(output), "%s-%s", path, name);
    if (authority_bundle(path, &identity, 0, AUTHORITY_P256, output, &err) != 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        ASSERT(false);
    }
}

/* Opens FOLDER/BUNDLE. */
static inline int trust_open_bundle(const struct test_folder *folder, const char *bundle,
                                    uint64_t records_max, struct trust **ret_trust, struct err *err)
{
    char ca[300];
    char certificate[300];
    char key[300];
    (void)snprintf(ca, sizeof(ca), "%s/%s/ca.crt", folder->path, bundle);
    (void)snprintf(certificate, sizeof(certificate), "%s/%s/node.crt", folder->path, bundle);
    (void)snprintf(key, sizeof(key), "%s/%s/node.key", folder->path, bundle);
    struct trust_settings settings = {
        .ca = ca, .certificate = certificate, .key = key, .records_max = records_max};
    return trust_open(&settings, ret_trust, err);
}

/* Both in one: an authority "ca" of the cluster and an open bundle of it for each name. */
static inline void trust_open_nodes(struct test_folder *folder, const char *cluster,
                                    const char *const *names, size_t count, struct trust **trusts)
{
    test_folder_open(folder);
    trust_make_authority(folder, "ca", cluster);
    for (size_t i = 0; i < count; i++) {
        char bundle[80];
        struct err err = {0};
        trust_make_bundle(folder, "ca", cluster, TRUST_NODE, names[i]);
        (void)snprintf(bundle, sizeof(bundle), "ca-%s", names[i]);
        ASSERT(trust_open_bundle(folder, bundle, 0, &trusts[i], &err) == 0);
    }
}

#endif

/* A throw-away folder with a real struct fs on it, for tests that touch files. */
#ifndef COPPELIUS_TESTS_FOLDER_H
#define COPPELIUS_TESTS_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/fs.h"

struct test_folder {
    char path[64];
    struct fs *fs;
};

static inline void test_folder_open(struct test_folder *folder)
{
    (void)snprintf(folder->path, sizeof(folder->path), "/tmp/coppelius-test-XXXXXX");
    ASSERT(mkdtemp(folder->path) != NULL);
    ASSERT(fs_posix_open(folder->path, &folder->fs, NULL) == 0);
}

static inline void on_test_folder_entry(void *context, const char *name, bool is_folder)
{
    struct test_folder *folder = context;
    if (is_folder) {
        (void)fs_remove_tree(folder->fs, name, NULL);
    } else {
        (void)folder->fs->ops->unlink(folder->fs, name, NULL);
    }
}

static inline void test_folder_close(struct test_folder *folder)
{
    (void)folder->fs->ops->list(folder->fs, ".", on_test_folder_entry, folder, NULL);
    fs_posix_close(folder->fs);
    (void)remove(folder->path);
}

/* Changes one byte of a file. */
static inline void test_folder_flip(const struct test_folder *folder, const char *name, long at)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    FILE *file = fopen(path, "r+b");
    ASSERT(file != NULL);
    ASSERT(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET) == 0);
    int byte = fgetc(file);
    ASSERT(byte != EOF);
    ASSERT(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET) == 0);
    ASSERT(fputc(byte ^ 0x10, file) != EOF);
    ASSERT(fclose(file) == 0);
}

#endif

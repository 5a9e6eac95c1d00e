#include "checkpoint/whole.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "checkpoint/files.h"
#include "checkpoint/folder.h"

#define SUMS_LINES_MAX (MANIFEST_SHARDS_MAX + 1)
#define SUMS_SIZE_MAX  (64U << 10)
#define PATH_SIZE      4096

static int join(char path[PATH_SIZE], const char *folder, const char *name, struct err *err)
{
    int size = snprintf(path, PATH_SIZE, "%s/%s", folder, name);
    return size > 0 && size < PATH_SIZE
               ? 0
               : err_set(err, ERR_DISK, "'%s/%s': the path is too long", folder, name);
}

static int read_manifest(struct fs *fs, const char *folder, struct manifest *ret_manifest,
                         uint8_t ret_sha256[SHA256_SIZE], struct err *err)
{
    char path[PATH_SIZE];
    struct buf bytes = BUF_NONE;
    int code = join(path, folder, "manifest.json", err);
    code = code != 0 ? code : fs_read_all(fs, path, MANIFEST_SIZE_MAX, &bytes, err);
    code = code != 0 ? code : manifest_parse(bytes.bytes, bytes.size, ret_manifest, err);
    if (code == 0) {
        sha256_of(bytes.bytes, bytes.size, ret_sha256);
    } else {
        (void)err_prefix(err, "checkpoint '%s': ", folder);
    }
    buf_done(&bytes);
    return code;
}

int checkpoint_read_manifest(struct fs *fs, const char *folder, struct manifest *ret_manifest,
                             struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    return read_manifest(fs, folder, ret_manifest, digest, err);
}

/* A shard against what the manifest says of it; its digest has the last word. */
static int read_shard(struct fs *fs, const char *folder, const struct manifest *m, uint32_t rank,
                      struct shard *ret_shard, struct err *err)
{
    char path[PATH_SIZE];
    const struct manifest_shard *expected = &m->shards[rank];
    struct shard made = SHARD_NONE;
    int code = join(path, folder, expected->file, err);
    code = code != 0 ? code : shard_read(fs, path, expected->sha256, &made, err);
    if (code != 0) {
        return code;
    }
    const struct shard_about *about = &made.about;
    if (made.size != expected->size || about->first != expected->first ||
        about->end != expected->end || about->coordinates != m->coordinates ||
        about->epoch != m->epoch || about->step != m->step || about->generation != m->generation ||
        about->rank != rank || about->ranks != m->shards_count ||
        memcmp(about->identity, m->identity, SHA256_SIZE) != 0) {
        shard_done(&made);
        return err_set(err, ERR_DAMAGED, "shard '%s' is not the one of the manifest", path);
    }
    *ret_shard = made;
    return 0;
}

static bool is_there(struct fs *fs, const char *folder, const char *name)
{
    char path[PATH_SIZE];
    bool there = false;
    return join(path, folder, name, NULL) == 0 && fs->ops->exists(fs, path, &there, NULL) == 0 &&
           there;
}

/* ---- verify ---- */

static int verify_sums(struct fs *fs, const char *folder, const struct manifest *m,
                       const uint8_t manifest_sha256[SHA256_SIZE],
                       bool ret_listed[MANIFEST_SHARDS_MAX], uint32_t *ret_files, struct err *err)
{
    char path[PATH_SIZE];
    struct buf bytes = BUF_NONE;
    struct sums_line *lines = calloc(SUMS_LINES_MAX, sizeof(*lines));
    size_t count = 0;
    bool has_manifest = false;
    ASSERT(lines != NULL);
    int code = join(path, folder, "SHA256SUMS", err);
    code = code != 0 ? code : fs_read_all(fs, path, SUMS_SIZE_MAX, &bytes, err);
    code =
        code != 0 ? code : sums_parse(bytes.bytes, bytes.size, lines, SUMS_LINES_MAX, &count, err);
    for (size_t i = 0; code == 0 && i < count; i++) {
        const uint8_t *expected = NULL;
        bool *seen = NULL;
        if (strcmp(lines[i].name, "manifest.json") == 0) {
            expected = manifest_sha256;
            seen = &has_manifest;
        }
        for (uint32_t k = 0; k < m->shards_count; k++) {
            if (strcmp(lines[i].name, m->shards[k].file) == 0) {
                expected = m->shards[k].sha256;
                seen = &ret_listed[k];
            }
        }
        if (seen == NULL || *seen || memcmp(expected, lines[i].sha256, SHA256_SIZE) != 0) {
            code = err_set(err, ERR_DAMAGED, "'%s': '%s' has another digest than the manifest",
                           path, lines[i].name);
        } else {
            *seen = true;
        }
    }
    if (code == 0 && !has_manifest) {
        code = err_set(err, ERR_DAMAGED, "'%s' does not name manifest.json", path);
    }
    *ret_files = (uint32_t)count;
    buf_done(&bytes);
    free(lines);
    return code;
}

static int compare_whole(const char *folder, const struct manifest *m,
                         const uint8_t parameter[SHA256_SIZE],
                         const uint8_t accumulator[SHA256_SIZE], struct err *err)
{
    bool same = memcmp(parameter, m->parameter_sha256, SHA256_SIZE) == 0;
    if (same && memcmp(accumulator, m->accumulator_sha256, SHA256_SIZE) == 0) {
        return 0;
    }
    return err_set(err, ERR_DAMAGED,
                   "checkpoint '%s': the whole %s's digest is not the published one", folder,
                   same ? "accumulator" : "parameter");
}

/* A shard at a time: they lie in the order of their coordinates. */
static int verify_whole(struct fs *fs, const char *folder, const struct manifest *m,
                        struct err *err)
{
    struct sha256 parameter;
    struct sha256 accumulator;
    uint8_t digests[2][SHA256_SIZE];
    int code = 0;
    sha256_init(&parameter);
    sha256_init(&accumulator);
    for (uint32_t i = 0; code == 0 && i < m->shards_count; i++) {
        struct shard shard = SHARD_NONE;
        code = read_shard(fs, folder, m, i, &shard, err);
        if (code == 0) {
            size_t size = (size_t)(m->shards[i].end - m->shards[i].first) * sizeof(double);
            sha256_update(&parameter, shard.parameter, size);
            sha256_update(&accumulator, shard.accumulator, size);
        }
        shard_done(&shard);
    }
    sha256_finish(&parameter, digests[0]);
    sha256_finish(&accumulator, digests[1]);
    sha256_done(&parameter);
    sha256_done(&accumulator);
    return code == 0 ? compare_whole(folder, m, digests[0], digests[1], err) : code;
}

int checkpoint_check_whole(struct fs *fs, const char *folder, struct err *err)
{
    struct manifest *m = calloc(1, sizeof(*m));
    ASSERT(m != NULL);
    int code = checkpoint_read_manifest(fs, folder, m, err);
    bool all = code == 0;
    for (uint32_t i = 0; all && i < m->shards_count; i++) {
        all = is_there(fs, folder, m->shards[i].file);
    }
    code = all ? verify_whole(fs, folder, m, err) : code;
    free(m);
    return code;
}

int checkpoint_verify(struct fs *fs, const char *folder, struct manifest *ret_manifest,
                      struct checkpoint_verdict *ret_verdict, struct err *err)
{
    struct manifest *m = calloc(1, sizeof(*m));
    struct checkpoint_verdict verdict = {0};
    bool listed[MANIFEST_SHARDS_MAX] = {false};
    uint8_t digest[SHA256_SIZE];
    ASSERT(m != NULL);
    int code = read_manifest(fs, folder, m, digest, err);
    code = code != 0 ? code : verify_sums(fs, folder, m, digest, listed, &verdict.files, err);
    for (uint32_t i = 0; code == 0 && i < m->shards_count; i++) {
        if (!listed[i]) {
            continue;
        }
        struct shard shard = SHARD_NONE;
        code = read_shard(fs, folder, m, i, &shard, err);
        shard_done(&shard);
        verdict.shards++;
    }
    if (code == 0 && verdict.shards == m->shards_count) {
        code = verify_whole(fs, folder, m, err);
        verdict.whole = true;
    }
    if (code == 0) {
        *ret_manifest = *m;
        *ret_verdict = verdict;
    }
    free(m);
    return code;
}

/* ---- assemble ---- */

int checkpoint_seal(struct fs *fs, const char *part, const char *folder, struct err *err)
{
    char path[PATH_SIZE];
    char above[PATH_SIZE];
    struct manifest *m = calloc(1, sizeof(*m));
    struct buf sums = BUF_NONE;
    uint8_t digest[SHA256_SIZE];
    bool there = false;
    ASSERT(m != NULL);
    int code = fs->ops->exists(fs, folder, &there, err);
    if (code == 0 && there) {
        code = err_set(err, ERR_USAGE, "'%s' exists already: give another folder", folder);
    }
    code = code != 0 ? code : read_manifest(fs, part, m, digest, err);
    code = code != 0 ? code : verify_whole(fs, part, m, err);
    if (code == 0) {
        sums_put(&sums, "manifest.json", digest);
        for (uint32_t i = 0; i < m->shards_count; i++) {
            sums_put(&sums, m->shards[i].file, m->shards[i].sha256);
        }
        code = join(path, part, "SHA256SUMS", err);
    }
    code = code != 0 ? code : fs->ops->unlink(fs, path, err);
    code = code != 0 ? code : fs_create(fs, path, sums.bytes, sums.size, err);
    code = code != 0 ? code : fs->ops->sync_folder(fs, part, err);
    code = code != 0 ? code : fs->ops->rename(fs, part, folder, err);
    if (code == 0) {
        fs_folder_of(folder, above, sizeof(above));
        code = fs->ops->sync_folder(fs, above, err);
    }
    buf_done(&sums);
    free(m);
    return code;
}

/* From the first source that has it right; the error is the last one's. */
static int copy_shard(const struct checkpoint_source *sources, size_t sources_count, struct fs *fs,
                      const char *part, const struct manifest_shard *shard, struct err *err)
{
    char from[PATH_SIZE];
    char to[PATH_SIZE];
    uint8_t digest[SHA256_SIZE];
    int code = join(to, part, shard->file, err);
    if (code != 0) {
        return code;
    }
    code =
        err_set(err, ERR_NOT_FOUND, "no source has '%s', node %s's part", shard->file, shard->node);
    for (size_t i = 0; i < sources_count; i++) {
        if (!is_there(sources[i].fs, sources[i].folder, shard->file)) {
            continue;
        }
        code = join(from, sources[i].folder, shard->file, err);
        code = code != 0 ? code : fs->ops->unlink(fs, to, err);
        code = code != 0 ? code : files_copy(sources[i].fs, from, shard->size, fs, to, digest, err);
        if (code == 0 && memcmp(digest, shard->sha256, SHA256_SIZE) == 0) {
            return 0;
        }
        if (code == 0) {
            code = err_set(err, ERR_DAMAGED, "'%s': its SHA-256 is not the one that was published",
                           from);
        }
    }
    return code;
}

int checkpoint_assemble(const struct checkpoint_source *sources, size_t sources_count,
                        struct fs *fs, const char *folder, struct err *err)
{
    char part[PATH_SIZE];
    char path[PATH_SIZE];
    uint8_t first[SHA256_SIZE];
    uint8_t digest[SHA256_SIZE];
    struct manifest *m = calloc(1, sizeof(*m));
    struct buf bytes = BUF_NONE;
    bool there = false;
    ASSERT(m != NULL);
    ASSERT(sources_count >= 1);
    int code = fs->ops->exists(fs, folder, &there, err);
    if (code == 0 && there) {
        code = err_set(err, ERR_USAGE, "'%s' exists already: give another folder", folder);
    }
    for (size_t i = 0; code == 0 && i < sources_count; i++) {
        code = read_manifest(sources[i].fs, sources[i].folder, m, i == 0 ? first : digest, err);
        if (code == 0 && i > 0 && memcmp(first, digest, SHA256_SIZE) != 0) {
            code = err_set(err, ERR_DAMAGED, "the manifests of '%s' and '%s' differ",
                           sources[0].folder, sources[i].folder);
        }
    }
    if (code == 0) {
        int size = snprintf(part, sizeof(part), "%s.part", folder);
        code = size > 0 && size < PATH_SIZE
                   ? 0
                   : err_set(err, ERR_DISK, "'%s': the path is too long", folder);
    }
    if (code != 0) {
        free(m);
        return code;
    }
    code = fs_remove_tree(fs, part, err);
    code = code != 0 ? code : fs_mkdir_all(fs, part, err);
    code = code != 0 ? code : join(path, sources[0].folder, "manifest.json", err);
    code = code != 0 ? code : fs_read_all(sources[0].fs, path, MANIFEST_SIZE_MAX, &bytes, err);
    code = code != 0 ? code : join(path, part, "manifest.json", err);
    code = code != 0 ? code : fs_create(fs, path, bytes.bytes, bytes.size, err);
    for (uint32_t i = 0; code == 0 && i < m->shards_count; i++) {
        code = copy_shard(sources, sources_count, fs, part, &m->shards[i], err);
    }
    code = code != 0 ? code : checkpoint_seal(fs, part, folder, err);
    if (code != 0) {
        (void)fs_remove_tree(fs, part, NULL);
    }
    buf_done(&bytes);
    free(m);
    return code;
}

/* ---- read ---- */

void checkpoint_whole_done(struct checkpoint_whole *whole)
{
    if (whole->columns != NULL) {
        for (uint64_t i = 0; i < whole->columns_count; i++) {
            free(whole->columns[i]);
        }
    }
    free(whole->columns);
    free(whole->parameter);
    free(whole->accumulator);
    free(whole->mean);
    free(whole->scale);
    free(whole->losses);
    *whole = (struct checkpoint_whole){.parameter = NULL};
}

static int grow(double **vector, uint64_t count, struct err *err)
{
    if (*vector == NULL) {
        *vector = calloc(count, sizeof(**vector));
    }
    return *vector != NULL
               ? 0
               : err_set(err, ERR_NOMEM, "no memory for %" PRIu64 " coordinates", count);
}

/* Moves a shard's values into the vectors that begin at `first`; `in` stays to be freed. */
static int take_shard(struct shard *in, uint64_t from, uint64_t to, uint64_t first, uint64_t count,
                      struct checkpoint_whole *out, struct err *err)
{
    const uint64_t skip = from - in->about.first;
    const uint64_t size = (to - from) * sizeof(double);
    int code = grow(&out->parameter, count, err);
    code = code != 0 ? code : grow(&out->accumulator, count, err);
    if (in->mean != NULL) {
        code = code != 0 ? code : grow(&out->mean, count, err);
        code = code != 0 ? code : grow(&out->scale, count, err);
    }
    if (code == 0 && in->columns != NULL && out->columns == NULL) {
        out->columns = calloc(count, sizeof(*out->columns));
        out->columns_count = count;
        code = out->columns != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for column names");
    }
    if (code != 0) {
        return code;
    }
    if ((in->mean == NULL) != (out->mean == NULL) ||
        (in->columns == NULL) != (out->columns == NULL)) {
        return err_set(err, ERR_DAMAGED, "its shards differ: some are standardised or named");
    }
    memcpy(out->parameter + (from - first), in->parameter + skip, size);
    memcpy(out->accumulator + (from - first), in->accumulator + skip, size);
    if (in->mean != NULL) {
        memcpy(out->mean + (from - first), in->mean + skip, size);
        memcpy(out->scale + (from - first), in->scale + skip, size);
    }
    if (out->losses == NULL) { /* The same in each of them. */
        out->losses = in->losses;
        in->losses = NULL;
    }
    for (uint64_t i = 0; in->columns != NULL && i < to - from; i++) {
        out->columns[from - first + i] = in->columns[skip + i];
        in->columns[skip + i] = NULL;
    }
    return 0;
}

/* Vectors of [first, end) out of the shards that lie over it. */
static int read_vectors(struct fs *fs, const char *folder, const struct manifest *m, uint64_t first,
                        uint64_t end, struct checkpoint_whole *out, struct err *err)
{
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < m->shards_count; i++) {
        uint64_t from = m->shards[i].first > first ? m->shards[i].first : first;
        uint64_t to = m->shards[i].end < end ? m->shards[i].end : end;
        if (from >= to) {
            continue;
        }
        struct shard shard = SHARD_NONE;
        code = read_shard(fs, folder, m, i, &shard, err);
        if (code == 0) {
            code = take_shard(&shard, from, to, first, end - first, out, err);
        }
        shard_done(&shard);
    }
    return code;
}

/* Bytes of all shards that are really there bound what is allocated for them. */
static int bounded(const struct manifest *m, uint64_t first, uint64_t end, struct err *err)
{
    for (uint32_t i = 0; i < m->shards_count; i++) {
        const struct manifest_shard *s = &m->shards[i];
        if (s->first < end && s->end > first && s->size / 16 < s->end - s->first) {
            return err_set(err, ERR_DAMAGED,
                           "manifest: '%s' of %" PRIu64 " bytes cannot hold %" PRIu64
                           " coordinates",
                           s->file, s->size, s->end - s->first);
        }
    }
    return 0;
}

/* Sizes on the disk against the manifest's, before anything large is allocated. */
static int sizes_right(struct fs *fs, const char *folder, const struct manifest *m, uint64_t first,
                       uint64_t end, struct err *err)
{
    char path[PATH_SIZE];
    int code = bounded(m, first, end, err);
    for (uint32_t i = 0; code == 0 && i < m->shards_count; i++) {
        const struct manifest_shard *s = &m->shards[i];
        struct fs_file *file = NULL;
        uint64_t size = 0;
        if (s->first >= end || s->end <= first) {
            continue;
        }
        code = join(path, folder, s->file, err);
        code = code != 0 ? code : fs_open(fs, path, FS_READ, &file, err);
        if (code != 0) {
            return code;
        }
        code = fs->ops->size(file, &size, err);
        (void)fs->ops->close(file, NULL);
        if (code == 0 && size != s->size) {
            code = err_set(err, ERR_DAMAGED, "shard '%s' has %" PRIu64 " bytes instead of %" PRIu64,
                           path, size, s->size);
        }
    }
    return code;
}

int checkpoint_read_whole(struct fs *fs, const char *folder, struct checkpoint_whole *ret_whole,
                          struct err *err)
{
    struct checkpoint_whole *made = calloc(1, sizeof(*made));
    ASSERT(made != NULL);
    struct manifest *m = &made->manifest;
    int code = checkpoint_read_manifest(fs, folder, m, err);
    code = code != 0 ? code : sizes_right(fs, folder, m, 0, m->coordinates, err);
    code = code != 0 ? code : read_vectors(fs, folder, m, 0, m->coordinates, made, err);
    if (code == 0) {
        uint8_t digests[2][SHA256_SIZE];
        sha256_of(made->parameter, m->coordinates * sizeof(double), digests[0]);
        sha256_of(made->accumulator, m->coordinates * sizeof(double), digests[1]);
        code = compare_whole(folder, m, digests[0], digests[1], err);
    }
    if (code == 0) {
        *ret_whole = *made;
    } else {
        checkpoint_whole_done(made);
    }
    free(made);
    return code;
}

int checkpoint_read_range(struct fs *fs, const char *folder, uint64_t first, uint64_t end,
                          struct shard *ret_shard, struct err *err)
{
    struct checkpoint_whole *made = calloc(1, sizeof(*made));
    ASSERT(made != NULL);
    struct manifest *m = &made->manifest;
    int code = checkpoint_read_manifest(fs, folder, m, err);
    if (code == 0 && (first >= end || end > m->coordinates)) {
        code = err_set(err, ERR_STATE,
                       "checkpoint '%s' has %" PRIu64 " coordinates; [%" PRIu64 ", %" PRIu64
                       ") is asked for",
                       folder, m->coordinates, first, end);
    }
    code = code != 0 ? code : sizes_right(fs, folder, m, first, end, err);
    code = code != 0 ? code : read_vectors(fs, folder, m, first, end, made, err);
    if (code == 0) {
        struct shard shard = SHARD_NONE;
        memcpy(shard.about.job, m->name, sizeof(shard.about.job));
        memcpy(shard.about.policy, m->policy, sizeof(shard.about.policy));
        memcpy(shard.about.identity, m->identity, SHA256_SIZE);
        shard.about.epoch = m->epoch;
        shard.about.step = m->step;
        shard.about.generation = m->generation;
        shard.about.ranks = 1;
        shard.about.first = first;
        shard.about.end = end;
        shard.about.coordinates = m->coordinates;
        shard.parameter = made->parameter;
        shard.accumulator = made->accumulator;
        shard.mean = made->mean;
        shard.scale = made->scale;
        shard.columns = made->columns;
        shard.losses = made->losses;
        *ret_shard = shard; /* It owns the vectors now. */
        *made = (struct checkpoint_whole){.parameter = NULL};
    }
    checkpoint_whole_done(made);
    free(made);
    return code;
}

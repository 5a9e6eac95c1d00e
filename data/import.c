/* data_import: settings in, a whole native folder out, or nothing. */
#include "data/data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/rand.h"
#include "data/digest.h"
#include "data/folder.h"
#include "data/intake.h"
#include "data/manifest.h"

#define PATH_SIZE         4096
#define NAMED_NUMBERS_MAX (1U << 20) /* wider data without a header gets no columns.txt */

int intake_open_sink(struct intake *intake, bool sparse, bool has_target, uint64_t features,
                     struct err *err)
{
    uint64_t memory = intake->settings->memory;
    int code = sink_init(&intake->sink, intake->folder, sparse, has_target, features,
                         memory > 0 ? memory : DATA_MEMORY_DEFAULT, err);
    intake->sink_ready = code == 0;
    intake->features = features;
    return code;
}

static int write_names(const struct intake *intake, struct err *err)
{
    struct buf text = BUF_NONE;
    const struct columns *columns = &intake->columns;
    if (intake->settings->format == DATA_FORMAT_SVM) {
        for (uint64_t j = 0; j < intake->features && intake->features <= NAMED_NUMBERS_MAX; j++) {
            buf_print(&text, "%llu\n", (unsigned long long)j + 1);
        }
    }
    for (size_t i = 0; i < columns->count; i++) {
        if (columns->roles[i] == COLUMN_FEATURE) {
            buf_print(&text, "%s\n", columns_name(columns, i));
        }
    }
    int code = text.size > 0 ? folder_write(intake->folder, "columns.txt", &text, err) : 0;
    buf_done(&text);
    return code;
}

static int write_manifest(const struct intake *intake, bool sparse,
                          const struct data_progress *progress, struct err *err)
{
    struct manifest manifest = {
        .sparse = sparse ? 1 : 0,
        .rows = intake->sink.rows,
        .features = intake->features,
        .nonzeros = intake->sink.nonzeros,
        .rows_dropped = intake->rows_dropped,
        .named = intake->settings->header && intake->columns.count > 0,
    };
    if (manifest.named && intake->columns.has_target) {
        (void)snprintf(manifest.target, sizeof(manifest.target), "%s",
                       columns_name(&intake->columns, intake->columns.target));
    }
    uint64_t total = 0;
    char path[PATH_SIZE];
    for (size_t i = 0; manifest_file_names[i] != NULL; i++) {
        struct stat status;
        (void)snprintf(path, sizeof(path), "%s/%s", intake->folder, manifest_file_names[i]);
        total += stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
    }
    struct meter meter;
    meter_start(&meter, progress, "digest", total);
    struct buf blocks = BUF_NONE;
    int code = 0;
    for (size_t i = 0; manifest_file_names[i] != NULL && code == 0; i++) {
        struct manifest_file *file = &manifest.files[manifest.files_count];
        (void)snprintf(path, sizeof(path), "%s/%s", intake->folder, manifest_file_names[i]);
        code = digest_file(path, &meter, file->digest, &blocks, &file->bytes, err);
        if (code == ERR_NOT_FOUND) {
            code = err_forget(err);
            continue;
        }
        (void)snprintf(file->name, sizeof(file->name), "%s", manifest_file_names[i]);
        manifest.files_count++;
    }
    struct buf bytes = BUF_NONE;
    if (code == 0) {
        manifest.has_blocks = true;
        sha256_of(blocks.bytes, blocks.size, manifest.blocks_digest);
        code = folder_write(intake->folder, "blocks.bin", &blocks, err);
    }
    buf_done(&blocks);
    if (code == 0) {
        data_manifest_write(&manifest, &bytes);
        code = folder_write(intake->folder, "manifest.json", &bytes, err);
    }
    buf_done(&bytes);
    return code;
}

static int read_all(struct intake *intake, struct err *err)
{
    const struct data_settings *settings = intake->settings;
    struct data_faults *faults = intake->faults;
    int code = settings->format == DATA_FORMAT_SVM   ? svm_read(intake, err)
               : settings->format == DATA_FORMAT_NPY ? npy_read(intake, err)
                                                     : table_read(intake, err);
    if ((code == ERR_DATA || code == ERR_DAMAGED) && !faults_full(faults)) {
        /* Damaged compression, a line without end: err's sentence names the file already. */
        struct data_fault *fault = &faults->list[faults->count];
        *fault = (struct data_fault){.path = settings->paths[0]};
        (void)snprintf(fault->text, sizeof(fault->text), "%s", err->text);
        faults->count++;
        code = 0;
    }
    if (code == 0 && faults->count == 0 && intake->rows == 0) {
        if (intake->rows_dropped > 0) {
            data_fault_add(faults, settings->paths[0], 0, 0,
                           "no data rows: all %llu were dropped for a missing field",
                           (unsigned long long)intake->rows_dropped);
        } else {
            data_fault_add(faults, settings->paths[0], 0, 0, "no data rows");
        }
    }
    if (code == 0 && faults->count > 0) {
        return err_set(err, ERR_DATA, "%s", faults_main(faults)->text);
    }
    return code;
}

/* CSC takes 12 bytes an entry and 8 a column; dense 4 bytes a value. */
static bool choose_sparse(const struct intake *intake)
{
    enum data_storage storage = intake->settings->storage;
    if (storage != DATA_STORAGE_AUTO || !intake->sink.sparse) {
        return storage == DATA_STORAGE_SPARSE;
    }
    double sparse = 12.0 * (double)intake->sink.nonzeros + 8.0 * (double)intake->features;
    return sparse <= 4.0 * (double)intake->sink.rows * (double)intake->features;
}

static int import_into(struct intake *intake, const char *output,
                       const struct data_progress *progress, struct data_report *report,
                       struct err *err)
{
    for (size_t i = 0; i < intake->settings->paths_count; i++) {
        struct stat status;
        report->source_bytes +=
            stat(intake->settings->paths[i], &status) == 0 ? (uint64_t)status.st_size : 0;
    }
    meter_start(&intake->meter, progress, "reading", report->source_bytes);
    int code = read_all(intake, err);
    if (code != 0) {
        return code;
    }
    ASSERT(intake->sink.rows == intake->rows);
    bool sparse = choose_sparse(intake);
    struct meter meter;
    uint64_t bytes = intake->sink.sparse ? intake->sink.nonzeros * sizeof(struct entry)
                                         : intake->sink.rows * intake->features * sizeof(float);
    meter_start(&meter, progress, "writing", bytes);
    code = sink_finish(&intake->sink, sparse, intake->features, &meter, err);
    code = code == 0 ? write_names(intake, err) : code;
    code = code == 0 ? write_manifest(intake, sparse, progress, err) : code;
    code = code == 0 ? folder_publish(intake->folder, output, err) : code;
    report->rows = intake->sink.rows;
    report->rows_dropped = intake->rows_dropped;
    report->features = intake->features;
    report->nonzeros = intake->sink.nonzeros;
    report->sparse = sparse;
    report->has_target = intake->sink.has_target;
    return code;
}

int data_import(const struct data_settings *settings, const char *output,
                const struct data_progress *progress, struct data_report *ret_report,
                struct data_faults *faults, struct err *err)
{
    struct err own_err = {0};
    struct data_faults own_faults = {0};
    struct data_report report = {0};
    err = err != NULL ? err : &own_err;
    faults = faults != NULL ? faults : &own_faults;
    faults->count = 0;
    int code = data_settings_check(settings, err);
    char target[PATH_SIZE];
    size_t output_size = strlen(output);
    while (output_size > 1 && output[output_size - 1] == '/') {
        output_size--;
    }
    if (code == 0 && (output_size == 0 || output_size > PATH_SIZE - 128)) {
        code = err_set(err, ERR_USAGE, "the output's path is empty or too long");
    }
    if (code != 0) {
        return code;
    }
    memcpy(target, output, output_size);
    target[output_size] = '\0';
    struct stat status;
    if (lstat(target, &status) == 0) {
        code =
            err_set(err, ERR_USAGE, "%s exists already; give another output or remove it", target);
    }
    char fresh[PATH_SIZE + 64];
    (void)snprintf(fresh, sizeof(fresh), "%s.importing-%016llx", target,
                   (unsigned long long)rand_entropy());
    if (code == 0 && mkdir(fresh, 0755) != 0) {
        code = err_set(err, ERR_DISK, "%s: %s", fresh, err_errno(errno));
    }
    if (code != 0) {
        return code;
    }
    struct intake intake = {
        .settings = settings, .folder = fresh, .faults = faults, .sink = SINK_NONE};
    code = import_into(&intake, target, progress, &report, err);
    sink_done(&intake.sink);
    columns_done(&intake.columns);
    if (code == ERR_DISK) {
        (void)err_prefix(err, "import to %s: ", target);
    }
    if (code != 0) {
        folder_remove(fresh);
    } else if (ret_report != NULL) {
        *ret_report = report;
    }
    return code;
}

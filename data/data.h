/* The door of data: a dataset as column blocks.
 *
 *      files ── data_import ──> native folder ── dataset_open ──> dataset ── dataset_load ──> block
 *      (CSV, table, svmlight,   (manifest.json,                   (small)    (a node's own columns
 *       NPY; gzip or zstd)       NumPy files)                                 of training and test
 * rows)
 *
 * Map: source (bytes of a file, decompressed) · number (decimal text to binary64) · table (CSV and
 * whitespace tables) · svm · npy · sink, assemble (rows to columns in bounded memory) · import ·
 * manifest · dataset (open, verify, info) · load (split, shuffle, standardise) · tokens.
 *
 * Threads: every call blocks on disk and belongs on a worker thread, never on a loop. Objects
 * belong to one thread at a time; nothing is global. Nothing is guessed: the format is said by the
 * caller; gzip and zstd are known by their magic bytes.
 *
 * From file to matrix, in this order (NUMERICS.md): parse (nearest binary64; features rounded to
 * binary32), drop columns, drop rows with a missing field among the kept columns or refuse, split,
 * shuffle, standardise. */
#ifndef COPPELIUS_DATA_DATA_H
#define COPPELIUS_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

/* ---- Limits. What goes past one is refused, naming it. ---- */
#define DATA_LINE_SIZE_MAX  (64U << 20)         /* bytes of one line, or of one quoted record */
#define DATA_NAME_SIZE_MAX  1024U               /* bytes of a column's name */
#define DATA_FEATURES_MAX   (UINT64_C(1) << 27) /* columns; also the highest svmlight index */
#define DATA_ROWS_MAX       (UINT64_C(1) << 40)
#define DATA_FAULTS_MAX     10U /* reading stops at the tenth bad place */
#define DATA_DROP_MAX       65536U
#define DATA_MEMORY_DEFAULT (UINT64_C(256) << 20) /* working memory of an import, bytes */

/* ---- What is to be read. The settings own nothing: every pointer is borrowed for the call. ----
 */
enum data_format {
    DATA_FORMAT_CSV,   /* RFC 4180; LF or CRLF; a UTF-8 byte order mark is skipped */
    DATA_FORMAT_SPACE, /* fields between runs of blanks and TABs, "quoted" ones too */
    DATA_FORMAT_SVM, /* svmlight/libsvm: label index:value … # comment; indices from 1, ascending */
    DATA_FORMAT_NPY,    /* one file (target a column of it), or two: x and y */
    DATA_FORMAT_NATIVE, /* an imported folder; data_import refuses it, dataset_open takes it */
};

enum data_target {
    DATA_TARGET_LAST, /* of the kept columns */
    DATA_TARGET_FIRST,
    DATA_TARGET_NAME,   /* target_name, among the kept columns; needs a header */
    DATA_TARGET_COLUMN, /* target_column: 1-based column of the file */
};

enum data_missing {
    DATA_MISSING_REFUSE,
    DATA_MISSING_DROP_ROW,
};

enum data_storage {
    DATA_STORAGE_AUTO, /* tables: dense; svmlight: sparse unless dense takes fewer bytes */
    DATA_STORAGE_DENSE,
    DATA_STORAGE_SPARSE,
};

struct data_settings {
    const char *const *paths; /* rows of all files in turn; NPY: x, or x and y */
    size_t paths_count;
    enum data_format format;
    bool header;    /* CSV and SPACE: the first line of each file has names, the same ones in all */
    char separator; /* CSV; 0 is ','. One byte, no quote, no digit, no sign, not the decimal mark */
    char decimal;   /* '.' or ','; 0 is '.' */
    enum data_target target;
    const char *target_name; /* DATA_TARGET_NAME */
    uint64_t target_column;  /* DATA_TARGET_COLUMN */
    const char *const
        *drop; /* names (every column of that name), or 1-based columns of the file where
                  no column has that name; without a header the names are 1, 2, … */
    size_t drop_count;
    enum data_missing missing;
    const char *const *missing_values; /* exact field texts besides the empty field */
    size_t missing_values_count;
    enum data_storage storage;
    uint64_t features; /* svmlight: the declared width; 0: the highest index over all rows */
    uint64_t memory;   /* working memory in bytes, a goal; 0: DATA_MEMORY_DEFAULT */

    /* For prediction: the columns that the model has. 0 and NULL: whatever the file has. Where set,
     * a file of another width or (both with a header) of other names is refused, naming the first
     * one that differs, and the target may be absent: its name is not in the header, or the kept
     * columns are exactly as many as the model's. svmlight: the declared width; every line has a
     * label. */
    uint64_t expect_features;
    const char *const *expect_names;
};

#define DATA_SETTINGS_DEFAULT                                       \
    {                                                               \
        .format = DATA_FORMAT_CSV, .separator = ',', .decimal = '.' \
    }

/* "csv", "space", "svm", "npy", "native"; -1 where the text is none of them. NULL where the value
 * is no format. */
int data_format_from_text(const char *text);
const char *data_format_name(enum data_format format);

/* Refuses settings that contradict each other (ERR_USAGE): data_import calls it first. */
int data_settings_check(const struct data_settings *settings, struct err *err);

/* ---- What went wrong in the data, in file order. ---- */
struct data_fault {
    const char *path; /* borrowed from the settings */
    uint64_t line;    /* from 1; 0: about the whole file */
    bool structure;   /* quotes or the number of fields: later faults may come of it */
    uint64_t column;  /* bytes from 1; 0 where line is 0. For gzip and zstd: of the text inside */
    char text[ERR_TEXT_SIZE]; /* "file:line:column: sentence" or "file: sentence" */
};

struct data_faults {
    size_t count;
    struct data_fault list[DATA_FAULTS_MAX];
};

/* Progress, from the calling thread, at most every few MiB. Return false to stop: the call then
 * fails with ERR_CANCELED. phase is static text: "reading", "writing", "digest", "loading". */
typedef bool data_progress_fn(void *context, const char *phase, uint64_t done_bytes,
                              uint64_t total_bytes);

struct data_progress {
    data_progress_fn *on_progress; /* NULL: none */
    void *context;
};

struct data_report {
    uint64_t rows;
    uint64_t rows_dropped; /* for a missing field */
    uint64_t features;
    uint64_t nonzeros;
    uint64_t source_bytes; /* as stored in the files */
    bool sparse;           /* how it was stored */
    bool has_target;
};

/* Reads the files once, in bounded memory, and writes the native folder: under the name
 * "OUTPUT.importing-<hex>" beside it, synced, renamed when whole. OUTPUT must not exist (its parent
 * must). faults, report and progress may be NULL. 0; ERR_DATA with *faults filled (err->text is the
 * first fault of structure, else the first one); ERR_USAGE (settings, or OUTPUT exists);
 * ERR_NOT_FOUND (a file); ERR_DISK; ERR_CANCELED. */
int data_import(const struct data_settings *settings, const char *output,
                const struct data_progress *progress, struct data_report *ret_report,
                struct data_faults *faults, struct err *err);

/* SHA-256 over the source files' bytes and every setting that decides what is written (paths,
 * memory and progress do not): the name of the cached import. Reads the files once. */
int data_cache_key(const struct data_settings *settings, const struct data_progress *progress,
                   uint8_t ret_key[SHA256_SIZE], struct err *err);

/* ---- A native folder. ---- */
struct dataset; /* heap; immutable after open but for the lazy digests */

struct dataset_info {
    uint64_t rows;
    uint64_t features;
    uint64_t nonzeros; /* sparse: stored entries; dense: rows * features */
    bool sparse;
    bool has_target;
    bool has_manifest;       /* a folder without one (NumPy or SciPy wrote it) is taken as it is */
    uint64_t bytes;          /* of all its files */
    const char *target_name; /* "" where unknown; the dataset's */
    const char *folder;      /* the dataset's */
};

/* Reads manifest and NumPy headers; every size is checked against the files' before anything is
 * allocated. Dense: x.npy (rows, features) <f4, Fortran order. Sparse: data.npy <f4, indices.npy
 * and indptr.npy <i8 or <i4, as scipy.sparse.csc_matrix has them. y.npy (rows) <f8 (may be absent).
 * columns.txt: a name a line (may be absent: 1, 2, …). ERR_NOT_FOUND, ERR_DATA (not ours: what to
 * do), ERR_DAMAGED (contradicts its manifest), ERR_DISK. */
int dataset_open(const char *folder, struct dataset **ret_dataset, struct err *err);
void dataset_close(struct dataset *dataset); /* NULL is fine */

const struct dataset_info *dataset_info_of(const struct dataset *dataset);
/* Name of a feature (0-based); the dataset's. Where more than 2^20 features have no columns.txt it
 * is the thread's, until its eighth call from then: copy it. */
const char *dataset_name(const struct dataset *dataset, uint64_t feature);
/* Stored entries of features first .. end-1 into counts (end - first values): from indptr when
 * sparse, rows each when dense. */
int dataset_counts(const struct dataset *dataset, uint64_t first, uint64_t end, uint64_t *counts,
                   struct err *err);
/* What names the dataset in a job's identity: SHA-256 over shape, storage and the digests of the
 * files. With a manifest its digests are taken as they stand; without one the files are read. */
int dataset_digest(struct dataset *dataset, uint8_t ret_digest[SHA256_SIZE], struct err *err);
/* Reads every file and compares with the manifest; ERR_DAMAGED names the file. */
int dataset_verify(const struct dataset *dataset, const struct data_progress *progress,
                   struct err *err);

/* ---- Loading. ---- */
struct dataset_view {
    double test;  /* the last floor(rows * test) rows are test rows; 0 <= test < 1 */
    bool shuffle; /* the training rows, Fisher-Yates from shuffle_seed */
    uint64_t shuffle_seed;
    bool standardize; /* by the training rows; sparse columns become dense */
    /* Given transform (prediction): features values each, borrowed for the call; then standardize
     * is not computed from the rows. NULL: none. */
    const double *mean;
    const double *scale;
    uint64_t memory_max; /* bytes that one block may take; 0: no limit. Refused with the numbers */
};

struct dataset_split {
    uint64_t train_rows; /* at least 1 */
    uint64_t test_rows;
};

/* A matrix of `rows` rows and end - first columns. Dense: value (i, j) at dense[j * ld + i], ld a
 * multiple of 16, dense 64-byte aligned, padding rows are +0. Sparse (CSC): column j has entries
 * indptr[j] .. indptr[j + 1] - 1 of values and row32 (rows < 2^32) or row64 (else), rows ascending.
 */
struct dataset_matrix {
    bool sparse;
    uint64_t rows;
    uint64_t columns;
    uint64_t ld;      /* dense */
    float *dense;     /* dense; NULL where there is nothing */
    uint64_t *indptr; /* sparse: columns + 1 */
    uint32_t *row32;
    uint64_t *row64;
    float *values;
    uint64_t nonzeros;
};

struct dataset_block {
    uint64_t first; /* features first .. end-1 of the dataset */
    uint64_t end;
    struct dataset_matrix train;
    struct dataset_matrix test;
    double *mean;  /* end - first values; NULL where nothing is standardised */
    double *scale; /* the divisor: 1 where a column is constant */
};

#define DATASET_BLOCK_NONE \
    {                      \
        .first = 0         \
    }

struct dataset_targets {
    double *train; /* in the order of the block's training rows */
    double *test;
    uint64_t train_rows;
    uint64_t test_rows;
};

/* rows, test: floor of the binary64 product. ERR_DATA where no training row is left. */
int dataset_split_rows(uint64_t rows, double test, struct dataset_split *ret_split,
                       struct err *err);

/* Bytes that the block of these columns takes once loaded (what memory_max is compared with). */
int dataset_block_bytes(const struct dataset *dataset, const struct dataset_view *view,
                        uint64_t first, uint64_t end, uint64_t *ret_bytes, struct err *err);

/* Reads the byte ranges of columns first .. end-1 and nothing else of the matrix. The block is the
 * caller's: dataset_block_done. ERR_NOMEM (memory_max, with the numbers), ERR_DAMAGED, ERR_DATA
 * (not finite: column and row), ERR_DISK, ERR_CANCELED. progress may be NULL. */
int dataset_load(const struct dataset *dataset, const struct dataset_view *view, uint64_t first,
                 uint64_t end, const struct data_progress *progress,
                 struct dataset_block *ret_block, struct err *err);
/* One of a block's matrices, when it is no longer needed; the rest of the block stays. */
void dataset_matrix_done(struct dataset_matrix *matrix);
void dataset_block_done(struct dataset_block *block); /* half-built or NONE, and twice, is fine */

/* Targets of training and test rows, same split and shuffle. ERR_DATA where the dataset has none.
 */
int dataset_load_targets(const struct dataset *dataset, const struct dataset_view *view,
                         struct dataset_targets *ret_targets, struct err *err);
void dataset_targets_done(struct dataset_targets *targets);

/* Checks that the dataset has the model's columns (count, and names where names is not NULL and the
 * dataset has a columns.txt); ERR_DATA names the first that differs. */
int dataset_expect(const struct dataset *dataset, uint64_t features, const char *const *names,
                   struct err *err);

/* ---- Token files (language model): uint16 little endian, as nanoGPT writes them, or with llm.c's
 * header of 256 int32 (magic 20240520), known by its magic and count. ---- */
struct tokens_file {
    int fd;
    uint64_t count;      /* tokens */
    uint64_t offset;     /* bytes before the first one: 0 or 1024 */
    uint32_t vocabulary; /* ids are below it */
};

#define TOKENS_FILE_NONE \
    {                    \
        .fd = -1         \
    }

/* Opens and checks size and header ("odd size 7", "no tokens"): ERR_DATA. vocabulary 1 .. 65536. */
int tokens_open(const char *path, uint32_t vocabulary, struct tokens_file *ret_tokens,
                struct err *err);
void tokens_close(struct tokens_file *tokens);
/* Tokens first .. first+count-1; each is below the vocabulary or ERR_DATA names the first that is
 * not. */
int tokens_read(const struct tokens_file *tokens, uint64_t first, size_t count, uint16_t *ret_ids,
                struct err *err);
/* Reads and checks all tokens. */
int tokens_verify(const struct tokens_file *tokens, const struct data_progress *progress,
                  struct err *err);

#endif

/* svmlight/libsvm: label index:value … # comment. Strict: indices from 1, ascending; every number
 * finite; a pair that is cut off, doubled or out of order is refused where it begins. Blank lines
 * and lines of comment only are no rows; qid: is refused. */
#include "data/intake.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "data/number.h"

struct svm {
    struct intake *intake;
    struct source source;
    uint32_t *columns; /* of the row, 0-based */
    float *values;
    size_t count;
    size_t capacity;
    double label;
};

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

/* The bytes up to the next blank, for a message. */
static const char *token_text(const uint8_t *at, const uint8_t *end, char text[EXCERPT_SIZE])
{
    const uint8_t *stop = at;
    while (stop < end && !is_blank(*stop)) {
        stop++;
    }
    return excerpt(text, at, (size_t)(stop - at));
}

static void svm_fault(struct svm *svm, const uint8_t *at, const char *before, const char *token,
                      const char *after)
{
    data_fault_add(svm->intake->faults, svm->source.path, svm->source.line,
                   (uint64_t)(at - source_bytes(&svm->source)) + 1, "%s'%s' %s", before, token,
                   after);
}

static int reserve(struct svm *svm, struct err *err)
{
    if (svm->count < svm->capacity) {
        return 0;
    }
    size_t capacity = svm->capacity == 0 ? 256 : svm->capacity * 2;
    uint32_t *columns = realloc(svm->columns, capacity * sizeof(*columns));
    svm->columns = columns != NULL ? columns : svm->columns;
    float *values = realloc(svm->values, capacity * sizeof(*values));
    svm->values = values != NULL ? values : svm->values;
    if (columns == NULL || values == NULL) {
        return err_set(err, ERR_NOMEM, "%s:%llu: no memory for a row of %zu entries",
                       svm->source.path, (unsigned long long)svm->source.line, capacity);
    }
    svm->capacity = capacity;
    return 0;
}

/* Reads a number that must end at a blank, a comment or the line's end; NULL after a fault. */
static const uint8_t *read_value(struct svm *svm, const uint8_t *text, const uint8_t *token,
                                 const uint8_t *end, const char *what, double *ret_value)
{
    char shown[EXCERPT_SIZE];
    const uint8_t *after = text;
    enum number_status status = number_parse(text, '.', &after, ret_value);
    if (status == NUMBER_RANGE) {
        svm_fault(svm, token, what, token_text(token, end, shown),
                  "is beyond the range of binary64");
        return NULL;
    }
    if (status != NUMBER_OK || (after < end && !is_blank(*after) && *after != '#')) {
        bool turned = memchr(token, '\r', (size_t)(end - token)) != NULL;
        svm_fault(svm, token, what, token_text(token, end, shown),
                  turned ? "is not a number: a carriage return inside a line; lines end with LF or "
                           "CRLF"
                         : "is not a number");
        return NULL;
    }
    return after;
}

/* What is wrong with the index of a pair, said where the pair begins. */
static void index_fault(struct svm *svm, const uint8_t *at, const uint8_t *end, uint64_t index,
                        uint64_t limit, uint64_t last)
{
    char shown[EXCERPT_SIZE];
    (void)token_text(at, end, shown);
    uint64_t column = (uint64_t)(at - source_bytes(&svm->source)) + 1;
    if (index == 0) {
        svm_fault(svm, at, "index 0 in ", shown,
                  "where indices count from 1; add 1 to the indices of a zero-based file");
    } else if (index > limit) {
        data_fault_add(svm->intake->faults, svm->source.path, svm->source.line, column,
                       "the index of '%s' is past the last feature, %llu", shown,
                       (unsigned long long)limit);
    } else if (index == last) {
        data_fault_add(svm->intake->faults, svm->source.path, svm->source.line, column,
                       "index %llu twice in one line", (unsigned long long)index);
    } else {
        data_fault_add(svm->intake->faults, svm->source.path, svm->source.line, column,
                       "index %llu after index %llu; indices ascend within a line",
                       (unsigned long long)index, (unsigned long long)last);
    }
}

static void pair_fault(struct svm *svm, const uint8_t *at, const uint8_t *end)
{
    char shown[EXCERPT_SIZE];
    bool query = end - at >= 4 && memcmp(at, "qid:", 4) == 0;
    svm_fault(svm, at, "", token_text(at, end, shown),
              query ? "is for ranking, which is not done here; remove the qid: pairs"
                    : "is not index:value");
}

/* index:value at `at`, after the highest index so far: behind it, or NULL after a fault. */
static const uint8_t *read_pair(struct svm *svm, const uint8_t *at, const uint8_t *end,
                                uint64_t limit, uint64_t *last)
{
    char shown[EXCERPT_SIZE];
    const uint8_t *digit = at;
    uint64_t index = 0;
    for (; (unsigned)(*digit - '0') <= 9U; digit++) {
        index = index <= DATA_FEATURES_MAX ? index * 10 + (uint64_t)(*digit - '0') : index;
    }
    if (digit == at || digit >= end || *digit != ':') {
        pair_fault(svm, at, end);
        return NULL;
    }
    if (index > limit || index <= *last) { /* last is at least 0 */
        index_fault(svm, at, end, index, limit, *last);
        return NULL;
    }
    digit++;
    if (digit >= end || is_blank(*digit) || *digit == '#') {
        svm_fault(svm, at, "the pair ", token_text(at, end, shown),
                  "has no value: is the line cut off?");
        return NULL;
    }
    double value = 0;
    const uint8_t *after = read_value(svm, digit, at, end, "the value of ", &value);
    if (after == NULL) {
        return NULL;
    }
    if (number_to_f32(value, &svm->values[svm->count]) != 0) {
        svm_fault(svm, at, "the value of ", token_text(at, end, shown),
                  "is beyond the range of binary32");
        return NULL;
    }
    svm->columns[svm->count] = (uint32_t)(index - 1);
    svm->count++;
    *last = index;
    return after;
}

/* One line: 1 where it is a row, 0 where it is none or had a fault, or an error. */
static int read_line(struct svm *svm, uint64_t limit, struct err *err)
{
    static const uint8_t mark[3] = {0xEF, 0xBB, 0xBF};
    const uint8_t *at = source_bytes(&svm->source);
    const uint8_t *end = at + svm->source.record_size;
    if (svm->source.line == 1 && end - at >= 3 && memcmp(at, mark, sizeof(mark)) == 0) {
        at += sizeof(mark);
    }
    end -= end > at && end[-1] == '\r' ? 1 : 0;
    while (at < end && is_blank(*at)) {
        at++;
    }
    if (at == end || *at == '#') {
        return 0;
    }
    at = read_value(svm, at, at, end, "the label ", &svm->label);
    svm->count = 0;
    uint64_t last = 0;
    while (at != NULL) {
        while (at < end && is_blank(*at)) {
            at++;
        }
        if (at == end || *at == '#') {
            if (last > svm->intake->features) {
                svm->intake->features = last;
            }
            return 1;
        }
        int code = reserve(svm, err);
        if (code != 0) {
            return code;
        }
        at = read_pair(svm, at, end, limit, &last);
    }
    return 0;
}

static int read_file(struct svm *svm, const char *path, uint64_t limit, struct err *err)
{
    struct intake *intake = svm->intake;
    int code = source_open(&svm->source, path, &intake->meter, err);
    bool any = false;
    while (code == 0 && !faults_full(intake->faults)) {
        int got = source_next(&svm->source, err);
        if (got <= 0) {
            code = got;
            break;
        }
        int row = read_line(svm, limit, err);
        if (row < 0) {
            code = row;
            break;
        }
        any = true;
        if (row == 1 && intake->faults->count == 0) {
            intake->rows++;
            code = sink_sparse_row(&intake->sink, svm->columns, svm->values, svm->count, svm->label,
                                   err);
        }
    }
    if (code == 0 && !any) {
        data_fault_add(intake->faults, path, 0, 0, "no data: the file is empty");
    }
    source_close(&svm->source);
    return code;
}

int svm_read(struct intake *intake, struct err *err)
{
    const struct data_settings *settings = intake->settings;
    struct svm svm = {.intake = intake, .source = SOURCE_NONE};
    uint64_t declared =
        settings->expect_features > 0 ? settings->expect_features : settings->features;
    uint64_t limit = declared > 0 ? declared : DATA_FEATURES_MAX;
    int code = intake_open_sink(intake, true, true, 0, err);
    for (size_t i = 0; i < settings->paths_count && code == 0 && intake->faults->count == 0; i++) {
        code = read_file(&svm, settings->paths[i], limit, err);
    }
    intake->features = declared > 0 ? declared : intake->features;
    if (code == 0 && intake->faults->count == 0 && intake->rows > 0 && intake->features == 0) {
        data_fault_add(intake->faults, settings->paths[0], 0, 0,
                       "no features: no line has an index:value pair");
    }
    free(svm.columns);
    free(svm.values);
    return code;
}

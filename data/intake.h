/* What the readers of all formats share while a dataset is read. Private to data. */
#ifndef COPPELIUS_DATA_INTAKE_H
#define COPPELIUS_DATA_INTAKE_H

#include "data/columns.h"
#include "data/faults.h"
#include "data/sink.h"
#include "data/source.h"

struct intake {
    const struct data_settings *settings; /* borrowed, checked */
    const char *folder;                   /* where the sink writes */
    struct data_faults *faults;
    struct meter meter;
    struct columns columns;
    struct sink sink;
    bool sink_ready;
    uint64_t rows; /* good ones; not all are in the sink once there was a fault */
    uint64_t rows_dropped;
    uint64_t features; /* svmlight: the width, declared or seen */
};

/* Each reads all the files. 0 where they were read to the end or to the tenth fault (look at
 * intake->faults); else an error of disk, memory or cancellation. */
int table_read(struct intake *intake, struct err *err);
int svm_read(struct intake *intake, struct err *err);
int npy_read(struct intake *intake, struct err *err);

/* The sink, once the columns are known. */
int intake_open_sink(struct intake *intake, bool sparse, bool has_target, uint64_t features,
                     struct err *err);

#endif

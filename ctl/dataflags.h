/* The keys of a job file's `data:` block as flags, for data import and predict. */
#ifndef COPPELIUS_CTL_DATAFLAGS_H
#define COPPELIUS_CTL_DATAFLAGS_H

#include "ctl/command.h"
#include "data/data.h"
#include "proto/job.h"

/* All faults of the flags in one pass, named "--header" and so on. format: used where --format was
 * not given; NULL: it must be. */
int dataflags_read(const struct args *args, const char *format, struct job_data *ret_data,
                   struct problem *problem);
/* The data room's form of it; borrows from data and from paths. */
void dataflags_settings(const struct job_data *data, const char *const *paths, size_t paths_count,
                        struct data_settings *ret_settings);

#endif

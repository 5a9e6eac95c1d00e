#include "daemon/recorder.h"

#include <stdlib.h>

#include "base/assert.h"

int recorder_init(struct recorder *recorder, size_t records_max, struct err *err)
{
    ASSERT(records_max > 0);
    *recorder = (struct recorder){.records_max = records_max};
    recorder->records = calloc(records_max, sizeof(*recorder->records));
    if (recorder->records == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu records", records_max);
    }
    return 0;
}

void recorder_done(struct recorder *recorder)
{
    free(recorder->records);
    *recorder = (struct recorder){.records = NULL};
}

void recorder_put(struct recorder *recorder, const struct record *record)
{
    ASSERT(recorder->records != NULL);
    recorder->records[recorder->count % recorder->records_max] = *record;
    recorder->count++;
}

size_t recorder_size(const struct recorder *recorder)
{
    return recorder->count < recorder->records_max ? (size_t)recorder->count
                                                   : recorder->records_max;
}

const struct record *recorder_at(const struct recorder *recorder, size_t index)
{
    size_t size = recorder_size(recorder);
    ASSERT(index < size);
    return &recorder->records[(recorder->count - size + index) % recorder->records_max];
}

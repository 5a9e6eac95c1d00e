#include "control/raft_log.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static void entry_done(struct raft_log *log, struct raft_entry *entry)
{
    log->size -= entry->size + ENTRY_HEADER_SIZE;
    free(entry->bytes);
    entry->bytes = NULL;
}

void raft_log_reset(struct raft_log *log, uint64_t base_index, uint64_t base_term)
{
    for (size_t i = 0; i < log->count; i++) {
        entry_done(log, &log->items[log->head + i]);
    }
    log->head = 0;
    log->count = 0;
    log->base_index = base_index;
    log->base_term = base_term;
    ASSERT(log->size == 0);
}

void raft_log_done(struct raft_log *log)
{
    raft_log_reset(log, 0, 0);
    free(log->items);
    *log = (struct raft_log){0};
}

uint64_t raft_log_last(const struct raft_log *log)
{
    return log->base_index + log->count;
}

uint64_t raft_log_last_term(const struct raft_log *log)
{
    return raft_log_term(log, raft_log_last(log));
}

const struct raft_entry *raft_log_at(const struct raft_log *log, uint64_t index)
{
    ASSERT(index > log->base_index);
    ASSERT(index <= raft_log_last(log));
    return &log->items[log->head + (size_t)(index - log->base_index - 1)];
}

uint64_t raft_log_term(const struct raft_log *log, uint64_t index)
{
    return index == log->base_index ? log->base_term : raft_log_at(log, index)->term;
}

void raft_log_append(struct raft_log *log, const struct message_entry *entry, uint64_t write)
{
    if (log->head + log->count == log->capacity) {
        if (log->head > log->capacity / 2) {
            memmove(log->items, log->items + log->head, log->count * sizeof(*log->items));
            log->head = 0;
        } else {
            log->capacity = log->capacity == 0 ? 64 : 2 * log->capacity;
            log->items = realloc(log->items, log->capacity * sizeof(*log->items));
            ASSERT(log->items != NULL);
        }
    }
    ASSERT(log->count == 0 || entry->term >= raft_log_last_term(log));
    struct raft_entry *made = &log->items[log->head + log->count];
    *made = (struct raft_entry){entry->term, write, entry->kind, entry->size, NULL};
    if (entry->size > 0) {
        made->bytes = malloc(entry->size);
        ASSERT(made->bytes != NULL);
        memcpy(made->bytes, entry->bytes, entry->size);
    }
    log->count++;
    log->size += entry->size + ENTRY_HEADER_SIZE;
}

void raft_log_truncate(struct raft_log *log, uint64_t index)
{
    ASSERT(index > log->base_index);
    while (raft_log_last(log) >= index) {
        entry_done(log, &log->items[log->head + log->count - 1]);
        log->count--;
    }
}

void raft_log_compact(struct raft_log *log, uint64_t index)
{
    ASSERT(index <= raft_log_last(log));
    if (index <= log->base_index) {
        return;
    }
    uint64_t term = raft_log_term(log, index);
    while (log->base_index < index) {
        entry_done(log, &log->items[log->head]);
        log->head++;
        log->count--;
        log->base_index++;
    }
    log->base_term = term;
    if (log->count == 0) {
        log->head = 0;
    }
}

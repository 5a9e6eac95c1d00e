/* Whatever is on the disk: a record that is accepted is written back to the same bytes; a start on
 * it either gives a log without holes, or refuses with a sentence. The bytes come as they are,
 * behind a valid beginning, and as a script of well-formed records in any order. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "control/wal.h"
#include "control/wal_record.h"
#include "tests/sim/fs_sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const uint8_t *data, size_t size)
{
    struct wal_record record;
    struct err err = {0};
    size_t used = 0;
    if (wal_parse_record(data, size, 1, 0, &record, &used, &err) == 0) {
        struct buf again = BUF_NONE;
        ASSERT(used <= size);
        wal_put_record(&again, &record);
        ASSERT(again.size == used);
        ASSERT(memcmp(again.bytes, data, used) == 0);
        buf_done(&again);
    }
    struct wal_segment segment;
    struct raft_snapshot snapshot;
    const uint8_t *bytes = NULL;
    size_t bytes_size = 0;
    (void)wal_parse_segment(data, size, &segment, &err);
    if (wal_parse_snapshot(data, size, &snapshot, &bytes, &bytes_size, &err) == 0) {
        ASSERT(bytes + bytes_size == data + size);
    }
}

static void start_on(const struct buf *file)
{
    struct sim_disk *disk = sim_disk_new(1);
    struct fs *fs = sim_disk_fs(disk);
    struct err err = {0};
    static const char format[] = "coppelius-log 2 node 1 voters 1 2 3\n";
    ASSERT(fs_mkdir_all(fs, "log", &err) == 0);
    ASSERT(fs_create(fs, "log/format", format, sizeof(format) - 1, &err) == 0);
    ASSERT(fs_create(fs, "log/segment-00000000000000000001", file->bytes, file->size, &err) == 0);
    struct control_settings settings;
    control_settings_default(&settings);
    settings.self = 1;
    settings.voters_count = 3;
    settings.voters[0] = 1;
    settings.voters[1] = 2;
    settings.voters[2] = 3;
    for (int round = 0; round < 2; round++) { /* What was accepted once is accepted again. */
        struct wal *wal = NULL;
        struct raft_recovered recovered = {0};
        bool fresh = true;
        int code = wal_open(fs, &settings, &wal, &recovered, &fresh, &err);
        if (code != 0) {
            ASSERT(round == 0);
            ASSERT(code == ERR_DAMAGED);
            ASSERT(err.text[0] != '\0');
            break;
        }
        ASSERT(!fresh);
        ASSERT(recovered.log.base_index == 0);
        ASSERT(raft_log_last_term(&recovered.log) <= recovered.term);
        raft_recovered_done(&recovered);
        wal_close(wal);
    }
    sim_disk_free(disk);
}

static void put_begin(struct buf *file)
{
    struct wal_segment segment = {.node = 1, .number = 1};
    struct wal_record hard = {
        .kind = WAL_HARD, .segment = 1, .position = WAL_SEGMENT_SIZE, .batch = 1, .term = 2};
    wal_put_segment(file, &segment);
    wal_put_record(file, &hard);
}

/* Four bytes a record: kind and damage, index, term, size. */
static void put_script(const uint8_t *data, size_t size, struct buf *file)
{
    static const uint8_t payload[256];
    for (size_t at = 0; at + 4 <= size && at < 4096; at += 4) {
        bool entry = (data[at] & 1U) != 0;
        struct wal_record record = {
            .kind = entry ? WAL_ENTRY : WAL_HARD,
            .segment = 1,
            .position = file->size,
            .batch = 2 + at / 8,
            .left = (data[at] >> 1) & 1U,
            .index = data[at + 1],
            .vote = data[at + 1],
            .term = data[at + 2],
            .entry_kind = ENTRY_COMMAND,
            .bytes = payload,
            .size = entry ? data[at + 3] : 0,
        };
        wal_put_record(file, &record);
        if (data[at] > 240) {
            file->bytes[file->size - 9] ^= 1;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(data, size);
    struct buf file = BUF_NONE;
    buf_put(&file, data, size);
    start_on(&file);
    buf_clear(&file);
    put_begin(&file);
    buf_put(&file, data, size);
    start_on(&file);
    buf_clear(&file);
    put_begin(&file);
    put_script(data, size, &file);
    start_on(&file);
    buf_done(&file);
    return 0;
}

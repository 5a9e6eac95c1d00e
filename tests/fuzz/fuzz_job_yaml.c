/* Whatever text comes as a job file: refused with at least one fault, or read, and then its
 * canonical text reads back to the same canonical text and the same identity. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "proto/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job job;
    struct faults faults = FAULTS_NONE;
    const char *text = (const char *)data;
    if (job_parse(text, size, "job.yaml", "/data", NULL, 0, &job, &faults) != 0) {
        ASSERT(faults.count + faults.dropped > 0);
        struct buf lines = BUF_NONE;
        faults_print(&faults, &lines);
        for (size_t i = 0; i < lines.size; i++) {
            ASSERT(lines.bytes[i] >= ' ' || lines.bytes[i] == '\n');
        }
        buf_done(&lines);
        faults_done(&faults);
        return 0;
    }
    ASSERT(faults.count == 0);
    struct job again;
    struct buf once = BUF_NONE;
    struct buf twice = BUF_NONE;
    uint8_t digest[SHA256_SIZE] = {0};
    uint8_t a[SHA256_SIZE];
    uint8_t b[SHA256_SIZE];
    job_write(&job, &once);
    int code =
        job_parse((const char *)once.bytes, once.size, "again", NULL, NULL, 0, &again, &faults);
    ASSERT(code == 0);
    job_write(&again, &twice);
    ASSERT(once.size == twice.size);
    ASSERT(memcmp(once.bytes, twice.bytes, once.size) == 0);
    job_identity(&job, digest, a);
    job_identity(&again, digest, b);
    ASSERT(memcmp(a, b, sizeof(a)) == 0);
    job_done(&job);
    job_done(&again);
    buf_done(&once);
    buf_done(&twice);
    return 0;
}

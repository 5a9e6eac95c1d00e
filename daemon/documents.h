/* The JSON documents of proto/documents.md, made from the facts. This is the only writer of them.
 *
 * Loop thread. Every function returns a new object (json_decref it) with "schema": 1, never NULL:
 * memory that is not there ends the process, a text that is no UTF-8 has its odd bytes replaced
 * by '?', a number that is not finite is null. */
#ifndef COPPELIUS_DAEMON_DOCUMENTS_H
#define COPPELIUS_DAEMON_DOCUMENTS_H

#include <jansson.h>
#include <stdint.h>

#include "base/buf.h"
#include "daemon/facts.h"
#include "daemon/logring.h"

#define DOCUMENTS_POINTS_MAX 512 /* of a history */
#define DOCUMENTS_SPARK_MAX  16  /* losses of a job in the listing */

struct work_meter;

/* What a check found, for people: doctor and the start's self-test. */
enum document_state { DOCUMENT_OK, DOCUMENT_WARNING, DOCUMENT_FAILED, DOCUMENT_SKIPPED };

struct document_check {
    char name[32];
    enum document_state state;
    char text[FACTS_TEXT_SIZE];
    char hint[FACTS_TEXT_SIZE];
};

/* The job must be there: the caller has asked facts->job. */
json_t *document_job(const struct facts *facts, const struct facts_job *job);
json_t *document_jobs(const struct facts *facts);
json_t *document_nodes(const struct facts *facts);
/* job 0: of all. */
json_t *document_checkpoints(const struct facts *facts, uint64_t job);
json_t *document_session(const struct facts *facts);
json_t *document_cluster(const struct facts *facts);
/* All members, and the place of the one of that name: the answer to `member`. */
json_t *document_members(const struct facts *facts, const char *name);
json_t *document_doctor(const struct document_check *checks, size_t checks_count);
/* The event `work`: how far a long answer is. */
json_t *document_work(const struct work_meter *meter);
json_t *document_predict(const struct facts_prediction *prediction);
json_t *document_logs(const char *node, const struct log_ring_line *lines, size_t lines_count);

/* Events of job_watch. */
json_t *document_history(const struct facts *facts, const struct facts_job *job);
json_t *document_progress(const struct facts_job *job);
json_t *document_state(const struct facts_job *job);
json_t *document_checkpoint(const struct facts_job *job, const struct facts_epoch *epoch);
json_t *document_end(const struct facts *facts, const struct facts_job *job);

/* HTTP: what the page shows, and Prometheus' targets. */
json_t *document_status(const struct facts *facts);
json_t *document_targets(const struct facts *facts, uint16_t http_port); /* a list */

/* Appends the document's text; takes the reference. */
void document_put(json_t *document, struct buf *out);

#endif

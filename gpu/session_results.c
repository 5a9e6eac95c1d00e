/* What comes out of a session: captured state, and the read-back with its counters. */
#include <stdlib.h>

#include "gpu/readback.h"
#include "gpu/session_room.h"

int session_capture(struct session *session, struct err *err)
{
    int code = session_expect(session, SESSION_READY, "a capture", err);
    if (code == 0 && session->in_flight > 0) {
        code = session_misuse(session, "a capture while local steps are in flight", err);
    }
    if (code != 0) {
        return code;
    }
    code = session->backend->capture(session->device, err);
    if (code == 0) {
        session->captured = true;
        session->captured_issues = session->issues;
    }
    return session_settle(session, code);
}

int session_capture_read(struct session *session, double *parameter, double *accumulator,
                         struct err *err)
{
    int code = session_expect(session, SESSION_READY, "captured state", err);
    if (code == 0 && !session->captured) {
        code = session_misuse(session, "captured state was asked for before a capture", err);
    }
    if (code != 0) {
        return code;
    }
    uint64_t issues = 0;
    code = session->backend->capture_read(session->device, parameter, accumulator, &issues, err);
    if (code == 0 && issues != session->captured_issues) {
        code = err_set(err, ERR_STATE,
                       "session: the device retired %llu issues, %llu were submitted before the "
                       "capture",
                       (unsigned long long)issues, (unsigned long long)session->captured_issues);
    }
    return session_settle(session, code);
}

int session_read_back(struct session *session, struct fs *fs, const char *path,
                      uint64_t issues_expected, struct err *err)
{
    int code = session_expect(session, SESSION_READY, "the read-back", err);
    if (code == 0 && !(session->captured && session->captured_issues == session->issues)) {
        code = session_misuse(session, "the read-back needs a capture behind the last submission",
                              err);
    }
    if (code != 0) {
        return code;
    }
    size_t coordinates = (size_t)session->shape.coordinates;
    double *vectors = calloc(2 * coordinates, sizeof(*vectors));
    if (vectors == NULL) {
        return session_settle(
            session,
            err_set(err, ERR_NOMEM, "no memory to read %zu coordinates back", coordinates));
    }
    struct readback readback = {.binding = session->binding,
                                .coordinate_first = session->shape.plan.coordinate_first,
                                .coordinate_end = session->shape.plan.coordinate_end,
                                .issues_host = session->issues,
                                .issues_expected = issues_expected};
    code = session->backend->capture_read(session->device, vectors, vectors + coordinates,
                                          &readback.issues_device, err);
    if (code == 0) { /* A mismatch is written too: the file is the evidence. */
        code = readback_write(fs, path, &readback, vectors, vectors + coordinates, err);
    }
    if (code == 0 &&
        (readback.issues_device != issues_expected || readback.issues_host != issues_expected)) {
        code = err_set(err, ERR_STATE,
                       "session: the device retired %llu issues, the host submitted %llu, the job "
                       "expects %llu: the run is void ('%s' has the state)",
                       (unsigned long long)readback.issues_device,
                       (unsigned long long)readback.issues_host,
                       (unsigned long long)issues_expected, path);
    }
    free(vectors);
    if (code == 0) {
        session_set_state(session, SESSION_READ_BACK);
    }
    return session_settle(session, code);
}

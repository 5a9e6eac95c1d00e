/* A job's events as a picture on a terminal, or as lines.
 *
 * A struct watch takes the documents of job_watch in order and knows what there is to show; drawing
 * it is a pure function of it. watch_job() drives it with a connection. */
#ifndef COPPELIUS_CTL_WATCH_H
#define COPPELIUS_CTL_WATCH_H

#include <jansson.h>
#include <stdbool.h>

#include "ctl/client.h"
#include "ctl/plot.h"

#define WATCH_POINTS_MAX 1024 /* more are thinned: every second one goes */

struct watch {
    json_t *now;        /* the newest progress, state or end: names of the document `job` */
    json_t *checkpoint; /* the newest checkpoint event, or NULL */
    struct plot_point points[WATCH_POINTS_MAX];
    size_t points_count;
    bool ended;
};

void watch_init(struct watch *watch);
void watch_done(struct watch *watch);
/* One event; of an unknown kind it changes nothing. */
void watch_take(struct watch *watch, const json_t *event);
/* Any number of lines for a screen of that size. */
void watch_draw(const struct watch *watch, int columns, int lines, bool utf8, bool color,
                struct buf *out);
/* What was drawn as bytes for a terminal of that size: over what is there, without flicker; lines
 * are cut at the last column and after the last line, and nothing wraps or scrolls. */
void watch_frame(const struct buf *drawn, int columns, int lines, struct buf *out);
/* One line about the newest event, without a line feed: "step 200/400 50 % loss …". */
void watch_line(const struct watch *watch, struct buf *out);

/* Where events go. */
enum watch_style {
    WATCH_SCREEN, /* redrawn on the alternate screen of stdout; a summary stays behind it */
    WATCH_BAR,    /* one line on stderr, redrawn */
    WATCH_LINES,  /* a line a report, stdout */
    WATCH_NOTES,  /* a line a report, stderr, at most one a second */
    WATCH_EVENTS, /* -o jsonl: the documents, stdout */
    WATCH_NOTHING,
};

/* Follows a job until it ends; timeout_ms UINT64_MAX: for ever. *ret_end (may be NULL) is the
 * document of the end, to be freed. alive (may be NULL) is asked now and then and may end the
 * watching with its problem: a throw-away daemon has died. */
int watch_job(const struct ctl *ctl, struct client *client, const char *job, enum watch_style style,
              uint64_t timeout_ms, int (*alive)(void *context, struct problem *problem),
              void *context, json_t **ret_end, struct problem *problem);
/* 0 for succeeded; else ERR_JOB_FAILED with the job's reason in *problem. */
int watch_verdict(const json_t *end, struct problem *problem);
/* A few lines about a job that has ended. */
void watch_summary(const json_t *end, struct buf *out);

#endif

/* A node whose log is empty: is this its first start, or was its disk lost? A voter that forgets
 * its votes and what it has acknowledged could help to elect a leader that lacks committed entries.
 * So with an empty log a node neither hears nor sends a Raft message before it knows that nobody
 * knows it:
 *
 *   NEWCOMER -> voter     with itself a majority of the voters have an empty log too, or have
 *                         caught up with a leader and never heard of this node
 *   NEWCOMER -> the end   one of them knows it from an earlier start
 *
 * The same after a restart in between: nothing is written before. A node alone asks nobody, nor
 * does one that was let in (join.h): its identity is new, and nobody ever counted on it. */
#include "base/clock.h"
#include "base/log.h"
#include "daemon/core.h"

#define TELL_MS 5000

void newcomer_init(struct daemon *daemon)
{
    struct control_stats stats;
    uint32_t voters = 0;
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        voters += daemon->members[i].role != DAEMON_SPARE ? 1 : 0;
    }
    control_stats(daemon->control, &stats);
    daemon->newcomer = !daemon->joined && voters > 1 && stats.last_index == 0 && stats.term == 0;
    daemon->newcomer_ms = clock_now_ms();
}

static void end(struct daemon *daemon, const struct member *by)
{
    struct err err = {0};
    (void)err_set(
        &err, ERR_DAMAGED,
        "state_dir '%s' is empty, but node '%s' knows this node '%s' from an earlier start: "
        "its votes and its checkpoints are lost, and a voter that forgets its votes "
        "endangers the others; put the folder back from a copy, or let it in as a new one "
        "('coppeliusctl cluster add %s' on another node) and start it again",
        daemon->state_dir, by->name, daemon->name, daemon->name);
    daemon->log_failed = true; /* It decides nothing any more. */
    daemon->hooks.on_failed(daemon->hooks.context, &err);
}

void newcomer_turn(struct daemon *daemon)
{
    uint32_t voters = 0;
    uint32_t agree = 1; /* this node */
    if (!daemon->newcomer || daemon->log_failed) {
        return;
    }
    for (uint32_t i = 0; i < daemon->members_count; i++) {
        const struct member *member = &daemon->members[i];
        if (member->role == DAEMON_SPARE) {
            continue;
        }
        voters++;
        if (member->self) {
            continue;
        }
        if (member->knows_self != 0) {
            end(daemon, member);
            return;
        }
        agree += member->log_empty || member->caught_up ? 1 : 0;
    }
    if (agree >= voters / 2 + 1) {
        struct err err = {0};
        if (daemon_mark_log(daemon, &err) != 0) {
            daemon->log_failed = true;
            daemon->hooks.on_failed(daemon->hooks.context, &err);
            return;
        }
        daemon->newcomer = false;
        log_info("newcomer.in", "node=%s asked=%u", daemon->name, agree - 1);
        return;
    }
    uint64_t now = clock_now_ms();
    if (now - daemon->newcomer_ms >= TELL_MS) {
        daemon->newcomer_ms = now;
        log_warning("newcomer.waits",
                    "node=%s reason=\"its log is empty: before it votes, %u more of its peers must "
                    "say that they do not know it; start them\"",
                    daemon->name, voters / 2 + 1 - agree);
    }
}

#include "daemon/facts.h"

#include "base/assert.h"

bool facts_ready(const struct facts *facts)
{
    static struct facts_check
        checks[FACTS_CHECKS_MAX]; /* The loop's only: too large for its stack. */
    size_t count = facts->checks(facts->daemon, checks, FACTS_CHECKS_MAX);
    ASSERT(count <= FACTS_CHECKS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (!checks[i].ok) {
            return false;
        }
    }
    return count > 0;
}

const char *facts_tls_failure(enum facts_tls_failure failure)
{
    static const char *const labels[FACTS_TLS_FAILURES] = {
        [FACTS_TLS_PLAIN] = "plain",     [FACTS_TLS_AUTHORITY] = "authority",
        [FACTS_TLS_EXPIRED] = "expired", [FACTS_TLS_NAME] = "name",
        [FACTS_TLS_MEMBER] = "member",   [FACTS_TLS_OTHER] = "other",
    };
    return labels[failure];
}

const char *facts_line(enum facts_line line)
{
    static const char *const labels[] = {[FACTS_LINE_UNKNOWN] = "unknown",
                                         [FACTS_LINE_GOOD] = "good",
                                         [FACTS_LINE_SLOW] = "slow",
                                         [FACTS_LINE_FAILED] = "failed"};
    return labels[line];
}

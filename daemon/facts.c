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

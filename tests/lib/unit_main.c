/* Runs the one suite that a test_<file>.c defines as unit_suite(): all of it, or what Check's
 * CK_RUN_CASE, CK_INCLUDE_TAGS and CK_EXCLUDE_TAGS choose. A choice of nothing is a failure. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/unit.h"

int main(void)
{
    SRunner *runner = srunner_create(unit_suite());
    srunner_run_all(runner, CK_NORMAL);
    int ran = srunner_ntests_run(runner);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (ran == 0) {
        (void)fprintf(stderr, "no check was run: the environment's CK_ variables choose none\n");
    }
    return ran > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

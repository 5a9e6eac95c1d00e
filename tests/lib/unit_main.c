/* Runs the one suite that a test_<file>.c defines as unit_suite(). */
#include <check.h>
#include <stdlib.h>

#include "tests/lib/unit.h"

int main(void)
{
    SRunner *runner = srunner_create(unit_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

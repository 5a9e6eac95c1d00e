/* What a unit test file owes: its suite. tests/lib/unit_main.c runs it. */
#ifndef COPPELIUS_TESTS_UNIT_H
#define COPPELIUS_TESTS_UNIT_H

#include <check.h>

Suite *unit_suite(void);

#endif

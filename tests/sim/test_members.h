/* Scenes of members, part of sim_test_world. */
#ifndef COPPELIUS_TESTS_SIM_TEST_MEMBERS_H
#define COPPELIUS_TESTS_SIM_TEST_MEMBERS_H

#include <check.h>

void test_members_add(Suite *suite);

#endif

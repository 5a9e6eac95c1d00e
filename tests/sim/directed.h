/* Scenes for the core alone, step by step, where random schedules rarely come. Each is true when
 * the core does right; the mutant that it was written for makes it false. */
#ifndef COPPELIUS_TESTS_SIM_DIRECTED_H
#define COPPELIUS_TESTS_SIM_DIRECTED_H

#include <stdbool.h>

bool directed_old_term_is_not_committed_by_counting(void); /* Figure 3.7 */
bool directed_commit_stays_within_what_matched(void);
bool directed_a_snapshot_on_its_way_is_finished(void);
bool directed_an_answer_of_an_older_term_counts_nothing(void);
bool directed_a_leader_that_hears_nobody_steps_down(void);
bool directed_a_candidate_waits_for_its_own_vote(void);
bool directed_a_snapshot_counts_when_it_is_durable(void);

/* Ongaro's three scenes of 2015 (directed_members.c): two leaders, each with its own change of the
 * same group; no entry is ever committed twice. */
bool directed_changes_wait_for_an_entry_of_the_own_term(void);
bool directed_two_adds(void);
bool directed_an_add_and_a_remove(void);
bool directed_two_removes(void);
bool directed_a_removed_leader_goes(void);
bool directed_a_snapshot_has_the_group_of_its_entry(void);
bool directed_one_change_at_a_time(void);
bool directed_a_group_that_is_cut_off_counts_no_more(void);

#endif

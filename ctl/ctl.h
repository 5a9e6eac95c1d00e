/* coppeliusctl: a question over a socket, an answer for a person or a script. The room's map:
 *
 *   command     the table of commands and flags, and what a command gets (struct ctl, struct args)
 *   args        argv into struct args; suggestions for what is misspelt
 *   help        help, usage, completion: printed from the table
 *   client      a blocking connection to a daemon: HELLO, requests, replies, deadlines
 *   document    reading JSON documents; output as table, wide, json, jsonl, name
 *   table       columns for a terminal · plot: braille, sparkline, bar · terminal: TTY, interrupt
 *   watch       a job's events as a picture or as lines
 *   spawn       throw-away daemons on this machine, for local and predict
 *   jobs, cluster, members, recover, checkpoints, data, predict, local, config, version    the commands
 *
 * One thread. stdout has data only; everything else goes to stderr; an error is one sentence and
 * one hint. Exit statuses: 0 done, 1 failed, 2 usage or refused input, 3 not healthy, 4 no such
 * object, 5 cannot reach or authenticate, 6 the job failed, 7 a damaged checkpoint or dataset, 124
 * timed out, 130 interrupted. */
#ifndef COPPELIUS_CTL_CTL_H
#define COPPELIUS_CTL_CTL_H

/* All of main(): returns the exit status. */
int ctl_main(int argc, char **argv);

#endif

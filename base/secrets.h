/* Private keys and tokens are in the memory of a program; what the kernel writes down when it dies
 * is a file that others may read. */
#ifndef COPPELIUS_BASE_SECRETS_H
#define COPPELIUS_BASE_SECRETS_H

/* From now on a core dump has registers and the headers of mapped programs, and no memory of this
 * process nor of its children, whoever takes the dump (a file, or a program behind core_pattern).
 * First thing in main. Where the kernel does not offer it, no core is written at all. */
void secrets_stay_out_of_dumps(void);

#endif

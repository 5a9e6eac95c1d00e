/* What the program prints of device images when it is started for that alone: tables on stdout, one
 * line each, for coppeliusctl to make documents of. Each returns the exit status, having said on
 * stderr what is wrong. FOLDER "-" means the images inside the program. Main thread. */
#ifndef COPPELIUS_DAEMON_TABLES_H
#define COPPELIUS_DAEMON_TABLES_H

/* Inside the program, with their records; needs no GPU. */
int tables_images(void);
/* The language model's, loaded on GPU 0 and held against their records. */
int tables_loaded(const char *folder);
/* The table of choices, measured on GPU 0; every candidate on stderr. */
int tables_tiles(const char *folder);

#endif

/* An authority's folder. Private to the room. */
#ifndef COPPELIUS_TRUST_AUTHORITY_FOLDER_H
#define COPPELIUS_TRUST_AUTHORITY_FOLDER_H

#include "base/err.h"
#include "trust/openssl.h"

#define AUTHORITY_PATH_SIZE 4200

/* "FOLDER/NAME" */
void authority_path(const char *folder, const char *name, char path[AUTHORITY_PATH_SIZE]);
/* The folder's lock, which other processes wait for; close() lets go. */
int authority_lock(const char *folder, int *ret_fd, struct err *err);
int authority_ca(const char *folder, X509 **ret_ca, struct err *err);

#endif

/* Flat folders of files that appear whole: made under another name, synced, renamed. Private to
 * data. */
#ifndef COPPELIUS_DATA_FOLDER_H
#define COPPELIUS_DATA_FOLDER_H

#include "base/buf.h"
#include "base/err.h"

/* Deletes a flat folder of ours; what cannot be deleted stays. */
void folder_remove(const char *folder);
/* folder/name, which must not exist, synced. */
int folder_write(const char *folder, const char *name, const struct buf *bytes, struct err *err);
/* The folder is whole: synced, renamed, the parent synced. ERR_USAGE where output exists. */
int folder_publish(const char *fresh, const char *output, struct err *err);

#endif

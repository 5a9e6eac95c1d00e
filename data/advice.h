/* What may be meant where a text file does not read as it was said: another decimal mark, another
 * separator, another format. A sentence's end that names the job's key and the flag. Private to
 * data. */
#ifndef COPPELIUS_DATA_ADVICE_H
#define COPPELIUS_DATA_ADVICE_H

#include "data/fields.h"

#define ADVICE_SIZE 128

/* For a field (text, size >= 1, blanks cut off) that is no number with the decimal mark `mark`;
 * NULL where nothing is known better. The text is followed by a byte that is part of no number. */
const char *advice_number(const struct fields *fields, uint8_t mark, const uint8_t *text,
                          size_t size, char sentence[ADVICE_SIZE]);
/* For a line that is one field. */
const char *advice_line(const struct fields *fields, uint8_t mark, const uint8_t *line, size_t size,
                        char sentence[ADVICE_SIZE]);

#endif

/* Private to proto: what the files that read a text by a schema share.
 *
 *   yaml_read.c    maps and their keys: unknown, twice, absent
 *   yaml_value.c   one value by its key's type and range */
#ifndef COPPELIUS_PROTO_YAML_READING_H
#define COPPELIUS_PROTO_YAML_READING_H

#include "proto/yaml_tree.h"

struct yaml_reading {
    const struct yaml_schema *top;
    const struct yaml_tree *tree;
    struct yaml_places *places;
    struct faults *faults;
};

/* Ends the process where there is no memory: what is asked for is bounded by the text. */
void *yaml_need(void *memory);
char *yaml_copy(const char *text);

void yaml_fault_at(const struct yaml_reading *reading, const struct yaml_node *node,
                   const char *path, const char *sentence);
/* "expected a number, got a list". */
void yaml_expected(const struct yaml_reading *reading, const struct yaml_node *node,
                   const char *path, const char *what);
/* False with a fault where the value is outside the key's range. `of`: what is measured, or "". */
bool yaml_in_range(const struct yaml_reading *reading, const struct yaml_node *node,
                   const struct yaml_key *key, double value, const char *path, const char *of);

/* Each writes the field where the node is what the key wants, and a fault where not. */
bool yaml_text_ok(const struct yaml_reading *reading, const struct yaml_node *node,
                  const struct yaml_key *key, const char *path);
void yaml_read_texts(const struct yaml_reading *reading, const struct yaml_node *node,
                     const struct yaml_key *key, void *field, const char *path);
void yaml_read_choice(const struct yaml_reading *reading, const struct yaml_node *node,
                      const struct yaml_key *key, void *field, const char *path);
void yaml_read_whole(const struct yaml_reading *reading, const struct yaml_node *node,
                     const struct yaml_key *key, void *field, const char *path);
void yaml_read_number(const struct yaml_reading *reading, const struct yaml_node *node,
                      const struct yaml_key *key, void *field, const char *path);

#endif

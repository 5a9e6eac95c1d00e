/* Private to proto: the nodes of a YAML text, with their places, before any schema is applied.
 * The tree owns all its nodes; a node refers to others of the same tree. */
#ifndef COPPELIUS_PROTO_YAML_TREE_H
#define COPPELIUS_PROTO_YAML_TREE_H

#include "proto/yaml.h"

#define YAML_NODES_MAX 131072U
#define YAML_PATH_SIZE 256 /* of "a.b.c"; longer ones are cut in messages */

enum yaml_node_kind { YAML_NODE_SCALAR, YAML_NODE_MAP, YAML_NODE_LIST };

struct yaml_node {
    enum yaml_node_kind kind;
    char *text; /* a scalar's, ends with a zero */
    size_t text_size;
    bool plain;      /* a scalar without quotes */
    uint32_t line;   /* of the value, from 1 */
    uint32_t column; /* characters, from 1 */
    char *place;     /* an override's; NULL: line and column count */
    char *key;       /* where the parent is a map */
    uint32_t key_line;
    uint32_t key_column;
    struct yaml_node *first; /* members */
    struct yaml_node *last;
    struct yaml_node *next; /* the next member of the same parent */
    struct yaml_node *all;  /* the tree's chain, for freeing */
};

struct yaml_tree {
    struct yaml_node *root; /* NULL: an empty text */
    struct yaml_node *all;
    size_t nodes;
    const char *file_name; /* borrowed */
    bool broken;           /* a syntax error ended the reading: what follows it is not known */
};

#define YAML_TREE_NONE             \
    {                              \
        NULL, NULL, 0, NULL, false \
    }

/* What can be read of the text; faults say the rest. */
void yaml_tree_read(const char *text, size_t size, const char *file_name, struct yaml_tree *tree,
                    struct faults *faults);
/* Puts the value in place of what the tree has under the key. */
void yaml_tree_put(struct yaml_tree *tree, const struct yaml_override *override,
                   struct faults *faults);
void yaml_tree_done(struct yaml_tree *tree);

/* "job.yaml:3:7" of the value, of the key. */
void yaml_node_place(const struct yaml_tree *tree, const struct yaml_node *node, char *place,
                     size_t capacity);
void yaml_node_key_place(const struct yaml_tree *tree, const struct yaml_node *node, char *place,
                         size_t capacity);

/* Scalars (yaml_scalar.c). Each returns NULL and the value, or what was expected. */
const char *yaml_scalar_integer(const char *text, uint64_t *ret_value);
const char *yaml_scalar_number(const char *text, double *ret_value);
const char *yaml_scalar_yes_no(const char *text, bool *ret_value);
const char *yaml_scalar_duration(const char *text, uint64_t *ret_ms);
const char *yaml_scalar_size(const char *text, uint64_t *ret_bytes);
/* The shortest decimal text that reads back to the same binary64. */
void yaml_print_number(double value, struct buf *out);
void yaml_print_duration(uint64_t ms, struct buf *out);
void yaml_print_size(uint64_t bytes, struct buf *out);

#endif

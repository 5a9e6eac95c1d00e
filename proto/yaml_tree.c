#include "proto/yaml_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/assert.h"

/* One reading: the parser, and the open maps and lists from the root down. */
struct growing {
    struct yaml_tree *tree;
    struct faults *faults;
    struct yaml_node *open[YAML_DEPTH_MAX];
    size_t depth;
    char *key; /* of the open map, waiting for its value */
    uint32_t key_line;
    uint32_t key_column;
    bool ended; /* nothing more is taken */
};

void yaml_tree_done(struct yaml_tree *tree)
{
    for (struct yaml_node *node = tree->all; node != NULL;) {
        struct yaml_node *next = node->all;
        free(node->text);
        free(node->key);
        free(node->place);
        free(node);
        node = next;
    }
    *tree = (struct yaml_tree)YAML_TREE_NONE;
}

void yaml_node_place(const struct yaml_tree *tree, const struct yaml_node *node, char *place,
                     size_t capacity)
{
    if (node->place != NULL) {
        (void)snprintf(place, capacity, "%s", node->place);
    } else {
        (void)snprintf(place, capacity, "%s:%u:%u", tree->file_name, node->line, node->column);
    }
}

void yaml_node_key_place(const struct yaml_tree *tree, const struct yaml_node *node, char *place,
                         size_t capacity)
{
    if (node->place != NULL) {
        (void)snprintf(place, capacity, "%s", node->place);
    } else {
        (void)snprintf(place, capacity, "%s:%u:%u", tree->file_name, node->key_line,
                       node->key_column);
    }
}

static void *need(void *memory)
{
    ASSERT(memory != NULL); /* The text is at most 1 MiB: there is memory, or nothing works. */
    return memory;
}

static char *copy_text(const char *text, size_t size)
{
    char *copy = need(malloc(size + 1));
    memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

static struct yaml_node *node_new(struct yaml_tree *tree, enum yaml_node_kind kind)
{
    struct yaml_node *node = need(calloc(1, sizeof(*node)));
    node->kind = kind;
    node->all = tree->all;
    tree->all = node;
    tree->nodes++;
    return node;
}

static void append(struct yaml_node *parent, struct yaml_node *node)
{
    if (parent->last == NULL) {
        parent->first = node;
    } else {
        parent->last->next = node;
    }
    parent->last = node;
}

/* "data.drop" of what is being read. */
static void path_of(const struct growing *growing, char *path, size_t capacity)
{
    size_t used = 0;
    path[0] = '\0';
    for (size_t i = 1; i <= growing->depth; i++) {
        const char *key = i < growing->depth ? growing->open[i]->key : growing->key;
        if (key != NULL && used < capacity) {
            int more = snprintf(path + used, capacity - used, "%s%s", used > 0 ? "." : "", key);
            used += more > 0 ? (size_t)more : 0;
        }
    }
}

static void refuse(struct growing *growing, const yaml_mark_t *mark, const char *sentence)
{
    char place[320];
    char path[YAML_PATH_SIZE];
    path_of(growing, path, sizeof(path));
    (void)snprintf(place, sizeof(place), "%s:%zu:%zu", growing->tree->file_name, mark->line + 1,
                   mark->column + 1);
    faults_add(growing->faults, place, path, "%s", sentence);
}

/* Hangs a new node into the open map or list. NULL where there is no place for it. */
static struct yaml_node *hang(struct growing *growing, enum yaml_node_kind kind,
                              const yaml_mark_t *mark)
{
    struct yaml_tree *tree = growing->tree;
    if (tree->nodes >= YAML_NODES_MAX) {
        refuse(growing, mark, "too many values in one file");
        growing->ended = true;
        tree->broken = true;
        return NULL;
    }
    struct yaml_node *node = node_new(tree, kind);
    node->line = (uint32_t)mark->line + 1;
    node->column = (uint32_t)mark->column + 1;
    if (growing->depth == 0) {
        tree->root = node;
        return node;
    }
    struct yaml_node *parent = growing->open[growing->depth - 1];
    if (parent->kind == YAML_NODE_MAP) {
        ASSERT(growing->key != NULL);
        node->key = growing->key;
        node->key_line = growing->key_line;
        node->key_column = growing->key_column;
        growing->key = NULL;
    }
    append(parent, node);
    return node;
}

static void on_scalar(struct growing *growing, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t size = event->data.scalar.length;
    bool is_key = growing->depth > 0 && growing->key == NULL &&
                  growing->open[growing->depth - 1]->kind == YAML_NODE_MAP;
    if (memchr(text, '\0', size) != NULL) {
        refuse(growing, &event->start_mark, "a zero byte inside a text");
        size = strlen(text);
    }
    if (is_key) {
        growing->key = copy_text(text, size);
        growing->key_line = (uint32_t)event->start_mark.line + 1;
        growing->key_column = (uint32_t)event->start_mark.column + 1;
        return;
    }
    struct yaml_node *node = hang(growing, YAML_NODE_SCALAR, &event->start_mark);
    if (node != NULL) {
        node->text = copy_text(text, size);
        node->text_size = size;
        node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    }
}

static void on_open(struct growing *growing, const yaml_event_t *event, enum yaml_node_kind kind)
{
    bool is_key = growing->depth > 0 && growing->key == NULL &&
                  growing->open[growing->depth - 1]->kind == YAML_NODE_MAP;
    if (is_key || growing->depth == YAML_DEPTH_MAX) {
        refuse(growing, &event->start_mark,
               is_key ? "a key must be a word, not a map or a list" : "nested too deeply");
        growing->ended = true;
        growing->tree->broken = true;
        return;
    }
    struct yaml_node *node = hang(growing, kind, &event->start_mark);
    if (node != NULL) {
        growing->open[growing->depth++] = node;
    }
}

static void refuse_extras(struct growing *growing, const yaml_event_t *event,
                          const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor != NULL) {
        refuse(growing, &event->start_mark, "anchors are not taken; write the value out");
    }
    if (tag != NULL) {
        refuse(growing, &event->start_mark, "tags are not taken; the key gives the type");
    }
}

static void on_event(struct growing *growing, const yaml_event_t *event, size_t *documents)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++*documents > 1) {
            refuse(growing, &event->start_mark, "a second document; one file is one document");
            growing->ended = true;
        }
        break;
    case YAML_ALIAS_EVENT:
        refuse(growing, &event->start_mark, "aliases are not taken; write the value out");
        if (growing->depth > 0 && growing->key == NULL &&
            growing->open[growing->depth - 1]->kind == YAML_NODE_MAP) {
            growing->ended = true; /* As a key: nothing behind it has a name. */
            growing->tree->broken = true;
        } else {
            free(growing->key);
            growing->key = NULL;
        }
        break;
    case YAML_SCALAR_EVENT:
        refuse_extras(growing, event, event->data.scalar.anchor, event->data.scalar.tag);
        on_scalar(growing, event);
        break;
    case YAML_SEQUENCE_START_EVENT:
        refuse_extras(growing, event, event->data.sequence_start.anchor,
                      event->data.sequence_start.tag);
        on_open(growing, event, YAML_NODE_LIST);
        break;
    case YAML_MAPPING_START_EVENT:
        refuse_extras(growing, event, event->data.mapping_start.anchor,
                      event->data.mapping_start.tag);
        on_open(growing, event, YAML_NODE_MAP);
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        ASSERT(growing->depth > 0);
        growing->depth--;
        break;
    case YAML_STREAM_END_EVENT:
        growing->ended = true;
        break;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
    default:
        break;
    }
}

static void on_syntax_error(struct growing *growing, const yaml_parser_t *parser, const char *text,
                            size_t size)
{
    char place[320];
    char sentence[256];
    const char *problem = parser->problem != NULL ? parser->problem : "not YAML";
    size_t at = parser->problem_mark.index;
    growing->tree->broken = true;
    if (parser->error == YAML_READER_ERROR) {
        (void)snprintf(place, sizeof(place), "%s", growing->tree->file_name);
        (void)snprintf(sentence, sizeof(sentence), "not UTF-8 text: %s at byte %zu", problem,
                       parser->problem_offset);
    } else {
        bool is_tab = at < size && text[at] == '\t';
        (void)snprintf(place, sizeof(place), "%s:%zu:%zu", growing->tree->file_name,
                       parser->problem_mark.line + 1, parser->problem_mark.column + 1);
        (void)snprintf(sentence, sizeof(sentence), "not YAML: %s%s", problem,
                       is_tab ? " (a TAB; indent with spaces)" : "");
    }
    faults_add(growing->faults, place, "", "%s", sentence);
}

void yaml_tree_read(const char *text, size_t size, const char *file_name, struct yaml_tree *tree,
                    struct faults *faults)
{
    *tree = (struct yaml_tree)YAML_TREE_NONE;
    tree->file_name = file_name;
    if (size > YAML_SIZE_MAX) {
        faults_add(faults, file_name, "", "%zu bytes; a file may have %u", size, YAML_SIZE_MAX);
        tree->broken = true;
        return;
    }
    struct growing growing = {.tree = tree, .faults = faults};
    yaml_parser_t parser;
    int made = yaml_parser_initialize(&parser);
    ASSERT(made == 1);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    size_t documents = 0;
    while (!growing.ended) {
        yaml_event_t event;
        if (yaml_parser_parse(&parser, &event) == 0) {
            on_syntax_error(&growing, &parser, text, size);
            break;
        }
        on_event(&growing, &event, &documents);
        yaml_event_delete(&event);
    }
    free(growing.key);
    yaml_parser_delete(&parser);
}

static struct yaml_node *member_of(struct yaml_node *map, const char *key, size_t key_size)
{
    for (struct yaml_node *node = map->first; node != NULL; node = node->next) {
        if (strlen(node->key) == key_size && memcmp(node->key, key, key_size) == 0) {
            return node;
        }
    }
    return NULL;
}

static void take_out(struct yaml_node *map, const struct yaml_node *node)
{
    struct yaml_node *before = NULL;
    for (struct yaml_node *at = map->first; at != NULL; at = at->next) {
        if (at == node) {
            *(before != NULL ? &before->next : &map->first) = at->next;
            map->last = map->last == at ? before : map->last;
            return;
        }
        before = at;
    }
}

/* All nodes of the small tree become the big one's, at the override's place. */
static void adopt(struct yaml_tree *tree, struct yaml_tree *small, const char *place)
{
    while (small->all != NULL) {
        struct yaml_node *node = small->all;
        small->all = node->all;
        node->all = tree->all;
        tree->all = node;
        tree->nodes++;
        free(node->place);
        node->place = copy_text(place, strlen(place));
    }
    small->root = NULL;
}

void yaml_tree_put(struct yaml_tree *tree, const struct yaml_override *override,
                   struct faults *faults)
{
    struct yaml_tree small;
    struct faults own = FAULTS_NONE;
    yaml_tree_read(override->value, strlen(override->value), override->place, &small, &own);
    if (own.count + own.dropped > 0) {
        faults_add(faults, override->place, override->key, "%s",
                   own.count > 0 ? own.list[0].text : "not a value");
        faults_done(&own);
        yaml_tree_done(&small);
        return;
    }
    struct yaml_node *value = small.root;
    if (value == NULL) { /* --set name= */
        value = node_new(&small, YAML_NODE_SCALAR);
        value->text = copy_text("", 0);
        value->plain = true;
    }
    adopt(tree, &small, override->place);
    if (tree->root == NULL || tree->root->kind != YAML_NODE_MAP) {
        tree->root = node_new(tree, YAML_NODE_MAP);
        tree->root->line = 1;
        tree->root->column = 1;
    }
    struct yaml_node *map = tree->root;
    const char *key = override->key;
    for (unsigned depth = 0; depth < YAML_DEPTH_MAX; depth++) {
        size_t key_size = strcspn(key, ".");
        bool is_leaf = key[key_size] == '\0';
        struct yaml_node *found = member_of(map, key, key_size);
        if (found != NULL && (is_leaf || found->kind != YAML_NODE_MAP)) {
            take_out(map, found);
            found = NULL;
        }
        if (found == NULL) {
            found = is_leaf ? value : node_new(tree, YAML_NODE_MAP);
            if (found->place == NULL) {
                found->place = copy_text(override->place, strlen(override->place));
            }
            free(found->key);
            found->key = copy_text(key, key_size);
            append(map, found);
        }
        if (is_leaf) {
            return;
        }
        map = found;
        key += key_size + 1;
    }
    faults_add(faults, override->place, override->key, "nested too deeply");
}

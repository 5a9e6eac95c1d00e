#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "proto/yaml_reading.h"

#define NAMES_MAX 256 /* of keys that a suggestion is looked for among */

static void note_place(const struct yaml_reading *reading, const struct yaml_node *node,
                       const char *path)
{
    struct yaml_places *places = reading->places;
    char place[320];
    if (places == NULL || node == NULL) {
        return;
    }
    yaml_node_place(reading->tree, node, place, sizeof(place));
    if ((places->count & (places->count - 1)) == 0) { /* full at each power of two */
        size_t capacity = places->count == 0 ? 1 : 2 * places->count;
        places->list = yaml_need(realloc(places->list, capacity * sizeof(*places->list)));
    }
    places->list[places->count].key = yaml_copy(path);
    places->list[places->count].place = yaml_copy(place);
    places->count++;
}

void yaml_places_done(struct yaml_places *places)
{
    for (size_t i = 0; i < places->count; i++) {
        free(places->list[i].key);
        free(places->list[i].place);
    }
    free(places->list);
    *places = (struct yaml_places)YAML_PLACES_NONE;
}

const char *yaml_place_of(const struct yaml_places *places, const char *key)
{
    const char *place = NULL;
    for (size_t i = 0; i < places->count; i++) {
        if (strcmp(places->list[i].key, key) == 0) {
            place = places->list[i].place;
        }
    }
    return place;
}

static void read_map(const struct yaml_reading *reading, const struct yaml_schema *schema,
                     const struct yaml_node *node, void *object, const char *path);

static void read_maps(const struct yaml_reading *reading, const struct yaml_node *node,
                      const struct yaml_key *key, void *field, const char *path)
{
    struct yaml_items *items = field;
    size_t count = 0;
    if (node->kind != YAML_NODE_LIST) {
        yaml_expected(reading, node, path, "a list");
        return;
    }
    for (const struct yaml_node *at = node->first; at != NULL; at = at->next) {
        count++;
    }
    if (count > YAML_LIST_MAX ||
        !yaml_in_range(reading, node, key, (double)count, path, "the number of its members")) {
        if (count > YAML_LIST_MAX) {
            yaml_fault_at(reading, node, path, "the list is too long");
        }
        return;
    }
    items->items = yaml_need(calloc(count > 0 ? count : 1, key->schema->size));
    const struct yaml_node *at = node->first;
    for (size_t i = 0; i < count; i++, at = at->next) {
        char member[YAML_PATH_SIZE];
        (void)snprintf(member, sizeof(member), "%s[%zu]", path, i + 1);
        items->count = i + 1;
        if (at->kind != YAML_NODE_MAP) {
            yaml_expected(reading, at, member, "a map of keys");
        } else {
            read_map(reading, key->schema, at, (char *)items->items + i * key->schema->size,
                     member);
        }
    }
}

static bool is_word(const struct yaml_node *node, const struct yaml_key *key)
{
    return key->word != NULL && node->kind == YAML_NODE_SCALAR &&
           strcmp(node->text, key->word) == 0;
}

static void read_value(const struct yaml_reading *reading, const struct yaml_key *key,
                       const struct yaml_node *node, void *object, const char *path)
{
    void *field = (char *)object + key->offset;
    bool word = is_word(node, key);
    char map_or_word[64];
    (void)snprintf(map_or_word, sizeof(map_or_word), "a map of keys or %s",
                   key->word != NULL ? key->word : "");
    const char *wrong = NULL;
    if (word && key->type != YAML_MAP) {
        ASSERT(key->type == YAML_INTEGER || key->type == YAML_DURATION || key->type == YAML_SIZE);
        *(uint64_t *)field = key->word_value;
        return;
    }
    switch (key->type) {
    case YAML_TEXT:
        if (yaml_text_ok(reading, node, key, path)) {
            *(char **)field = yaml_copy(node->text);
        }
        break;
    case YAML_TEXTS:
        yaml_read_texts(reading, node, key, field, path);
        break;
    case YAML_INTEGER:
    case YAML_DURATION:
    case YAML_SIZE:
        yaml_read_whole(reading, node, key, field, path);
        break;
    case YAML_NUMBER:
        yaml_read_number(reading, node, key, field, path);
        break;
    case YAML_YES_NO:
        wrong = node->kind == YAML_NODE_SCALAR && node->plain
                    ? yaml_scalar_yes_no(node->text, field)
                    : "yes or no";
        if (wrong != NULL) {
            yaml_expected(reading, node, path, wrong);
        }
        break;
    case YAML_CHOICE:
        yaml_read_choice(reading, node, key, field, path);
        break;
    case YAML_MAP:
        if (node->kind == YAML_NODE_MAP) {
            read_map(reading, key->schema, node, field, path);
        } else if (!word) {
            yaml_expected(reading, node, path, key->word != NULL ? map_or_word : "a map of keys");
        }
        break;
    case YAML_MAPS:
        read_maps(reading, node, key, field, path);
        break;
    default:
        ASSERT(key->type <= YAML_MAPS); /* Every type has its case. */
    }
}

static void join(char *path, const char *parent, const char *key)
{
    (void)snprintf(path, YAML_PATH_SIZE, "%s%s%s", parent, parent[0] != '\0' ? "." : "", key);
}

/* The path of a key of that name anywhere in the schema: somebody wrote it at the wrong depth. */
static bool path_elsewhere(const struct yaml_schema *schema, const char *parent, const char *name,
                           char *path)
{
    for (size_t i = 0; i < schema->count; i++) {
        const struct yaml_key *key = &schema->keys[i];
        char here[YAML_PATH_SIZE];
        join(here, parent, key->name);
        if (strcmp(key->name, name) == 0) {
            (void)snprintf(path, YAML_PATH_SIZE, "%s", here);
            return true;
        }
        if (key->type == YAML_MAP && path_elsewhere(key->schema, here, name, path)) {
            return true;
        }
    }
    return false;
}

static void fault_unknown(const struct yaml_reading *reading, const struct yaml_schema *schema,
                          const struct yaml_node *node, const char *parent, const char *path)
{
    const char *names[NAMES_MAX];
    char place[320];
    char other[YAML_PATH_SIZE];
    size_t count = schema->count < NAMES_MAX ? schema->count : NAMES_MAX;
    for (size_t i = 0; i < count; i++) {
        names[i] = schema->keys[i].name;
    }
    const char *near = yaml_nearest(node->key, names, count);
    yaml_node_key_place(reading->tree, node, place, sizeof(place));
    bool known = path_elsewhere(reading->top, "", node->key, other);
    if (!known && near != NULL) {
        join(other, parent, near);
    } else if (!known) {
        char list[256];
        size_t used = 0;
        for (size_t i = 0; i < count && used < sizeof(list); i++) {
            int more =
                snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "", names[i]);
            used += more > 0 ? (size_t)more : 0;
        }
        faults_add(reading->faults, place, path, "unknown key; known here: %s", list);
        return;
    }
    faults_add(reading->faults, place, path, "unknown key (did you mean \"%s\"?)", other);
}

static const struct yaml_key *key_named(const struct yaml_schema *schema, const char *name)
{
    for (size_t i = 0; i < schema->count; i++) {
        if (strcmp(schema->keys[i].name, name) == 0) {
            return &schema->keys[i];
        }
    }
    return NULL;
}

static void fill_absent(const struct yaml_reading *reading, const struct yaml_key *key,
                        const struct yaml_node *parent, void *object, const char *path)
{
    if (key->required) {
        char place[320];
        if (parent == NULL || parent == reading->tree->root) {
            (void)snprintf(place, sizeof(place), "%s", reading->tree->file_name);
        } else if (parent->key == NULL) { /* a list's member */
            yaml_node_place(reading->tree, parent, place, sizeof(place));
        } else {
            yaml_node_key_place(reading->tree, parent, place, sizeof(place));
        }
        if (!reading->tree->broken) {
            faults_add(reading->faults, place, path, "is missing%s%s",
                       key->about != NULL ? "; give " : "", key->about != NULL ? key->about : "");
        }
        if (key->type != YAML_MAP) {
            return;
        }
    }
    if (key->type == YAML_MAP && key->word == NULL) {
        read_map(reading, key->schema, NULL, (char *)object + key->offset, path);
    } else if (key->initial != NULL) {
        struct yaml_node node = {.kind = YAML_NODE_SCALAR,
                                 .text = yaml_copy(key->initial),
                                 .text_size = strlen(key->initial),
                                 .plain = true,
                                 .line = 1,
                                 .column = 1};
        read_value(reading, key, &node, object, path);
        free(node.text);
    } else if (key->type == YAML_TEXT && !key->nullable) {
        *(char **)(void *)((char *)object + key->offset) = yaml_copy("");
    }
}

/* node NULL: the map is absent, everything gets its default. */
static void read_map(const struct yaml_reading *reading, const struct yaml_schema *schema,
                     const struct yaml_node *node, void *object, const char *parent)
{
    const struct yaml_node *seen[NAMES_MAX] = {0};
    char path[YAML_PATH_SIZE];
    ASSERT(schema->count <= NAMES_MAX);
    for (const struct yaml_node *at = node != NULL ? node->first : NULL; at != NULL;
         at = at->next) {
        const struct yaml_key *key = key_named(schema, at->key);
        join(path, parent, at->key);
        if (key == NULL) {
            fault_unknown(reading, schema, at, parent, path);
            continue;
        }
        const struct yaml_node **first = &seen[key - schema->keys];
        if (*first != NULL) {
            char place[320];
            yaml_node_key_place(reading->tree, at, place, sizeof(place));
            faults_add(reading->faults, place, path, "duplicate key; it was given in line %u",
                       (*first)->key_line);
            continue;
        }
        *first = at;
        read_value(reading, key, at, object, path);
        if (key->given != 0) {
            *((bool *)((char *)object + key->given - 1)) =
                key->type != YAML_MAP || at->kind == YAML_NODE_MAP;
        }
        if (key->type != YAML_MAP || at->kind != YAML_NODE_MAP) {
            note_place(reading, at, path);
        }
    }
    for (size_t i = 0; i < schema->count; i++) {
        if (seen[i] == NULL) {
            join(path, parent, schema->keys[i].name);
            fill_absent(reading, &schema->keys[i], node, object, path);
        }
    }
}

int yaml_read(const struct yaml_schema *schema, const struct yaml_input *input, void *object,
              struct yaml_places *ret_places, struct faults *faults)
{
    size_t before = faults->count + faults->dropped;
    struct yaml_tree tree;
    struct yaml_places places = YAML_PLACES_NONE;
    struct yaml_reading reading = {
        .top = schema, .tree = &tree, .places = &places, .faults = faults};
    memset(object, 0, schema->size);
    yaml_tree_read(input->text, input->size, input->file_name, &tree, faults);
    if (tree.root != NULL && tree.root->kind != YAML_NODE_MAP) {
        yaml_expected(&reading, tree.root, "", "a map of keys");
        tree.broken = true;
    }
    for (size_t i = 0; i < input->overrides_count; i++) {
        yaml_tree_put(&tree, &input->overrides[i], faults);
    }
    if (tree.root == NULL || tree.root->kind == YAML_NODE_MAP) {
        read_map(&reading, schema, tree.root, object, "");
        if (input->check != NULL && !tree.broken) {
            input->check(input, object, &places, faults);
        }
    }
    yaml_tree_done(&tree);
    if (faults->count + faults->dropped > before) {
        yaml_release(schema, object);
        yaml_places_done(&places);
        return ERR_CONFIG;
    }
    if (ret_places != NULL) {
        *ret_places = places;
    } else {
        yaml_places_done(&places);
    }
    return 0;
}

void yaml_release(const struct yaml_schema *schema, void *object)
{
    for (size_t i = 0; i < schema->count; i++) {
        const struct yaml_key *key = &schema->keys[i];
        void *field = (char *)object + key->offset;
        if (key->type == YAML_TEXT) {
            free(*(char **)field);
        } else if (key->type == YAML_TEXTS) {
            struct yaml_texts *texts = field;
            for (size_t j = 0; j < texts->count; j++) {
                free(texts->items[j]);
            }
            free(texts->items);
        } else if (key->type == YAML_MAP) {
            yaml_release(key->schema, field);
        } else if (key->type == YAML_MAPS) {
            struct yaml_items *items = field;
            for (size_t j = 0; j < items->count; j++) {
                yaml_release(key->schema, (char *)items->items + j * key->schema->size);
            }
            free(items->items);
        }
    }
    memset(object, 0, schema->size);
}

int yaml_override_parse(const char *option, const char *argument,
                        struct yaml_override *ret_override, struct faults *faults)
{
    size_t key_size = strcspn(argument, "=");
    if (key_size == 0 || argument[key_size] == '\0') {
        faults_add(faults, option, "", "expected KEY=VALUE such as optimizer.rate=0.1, got \"%s\"",
                   argument);
        return ERR_USAGE;
    }
    char *key = yaml_need(strndup(argument, key_size));
    size_t place_size = strlen(option) + key_size + 2;
    char *place = yaml_need(malloc(place_size));
    (void)snprintf(place, place_size, "%s %s", option, key);
    *ret_override = (struct yaml_override){place, key, yaml_copy(argument + key_size + 1)};
    return 0;
}

static void free_text(const char *text)
{
    union {
        const char *borrowed;
        char *owned;
    } both = {.borrowed = text}; /* It was made above; the type says borrowed for everybody else. */
    free(both.owned);
}

void yaml_override_done(struct yaml_override *override)
{
    free_text(override->place);
    free_text(override->key);
    free_text(override->value);
    *override = (struct yaml_override){NULL, NULL, NULL};
}

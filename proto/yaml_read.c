#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "proto/yaml_tree.h"

#define NAMES_MAX 256 /* of keys that a suggestion is looked for among */

struct reading {
    const struct yaml_schema *top;
    const struct yaml_tree *tree;
    struct yaml_places *places;
    struct faults *faults;
};

static void *need(void *memory)
{
    ASSERT(memory != NULL); /* Bounded by the text, which is at most 1 MiB. */
    return memory;
}

static char *copy_text(const char *text)
{
    return need(strdup(text));
}

static void fault_at(const struct reading *reading, const struct yaml_node *node, const char *path,
                     const char *sentence)
{
    char place[320];
    yaml_node_place(reading->tree, node, place, sizeof(place));
    faults_add(reading->faults, place, path, "%s", sentence);
}

static void note_place(const struct reading *reading, const struct yaml_node *node,
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
        places->list = need(realloc(places->list, capacity * sizeof(*places->list)));
    }
    places->list[places->count].key = copy_text(path);
    places->list[places->count].place = copy_text(place);
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

/* What was given, for a sentence: "500", the text "5", a map. */
static void describe(const struct yaml_node *node, char *text, size_t capacity)
{
    if (node->kind != YAML_NODE_SCALAR) {
        (void)snprintf(text, capacity, "%s", node->kind == YAML_NODE_MAP ? "a map" : "a list");
    } else if (node->text_size > 60) {
        (void)snprintf(text, capacity, "\"%.57s...\"", node->text);
    } else {
        (void)snprintf(text, capacity, "\"%s\"", node->text);
    }
}

static void expected(const struct reading *reading, const struct yaml_node *node, const char *path,
                     const char *what)
{
    char got[80];
    char sentence[256];
    if (node->kind == YAML_NODE_SCALAR && node->plain && node->text_size == 0) {
        (void)snprintf(sentence, sizeof(sentence), "has no value; give %s", what);
    } else {
        describe(node, got, sizeof(got));
        (void)snprintf(sentence, sizeof(sentence), "expected %s, got %s", what, got);
    }
    fault_at(reading, node, path, sentence);
}

/* "must be in 1..128", "must be above 0"; empty where the value is inside. */
static void range_sentence(const struct yaml_key *key, double value, char *text, size_t capacity)
{
    struct buf least = BUF_NONE;
    struct buf most = BUF_NONE;
    bool low = key->above ? value <= key->least : value < key->least;
    bool has_most = key->most > 0 || (key->least < 0 && key->most < key->least);
    bool high = has_most && (key->below ? value >= key->most : value > key->most);
    text[0] = '\0';
    if (!low && !high) {
        return;
    }
    yaml_print_number(key->least, &least);
    yaml_print_number(key->most, &most);
    if (!has_most) {
        (void)snprintf(text, capacity, "must be %s %s", key->above ? "above" : "at least",
                       (const char *)least.bytes);
    } else {
        const char *without = key->above && key->below ? " without its ends"
                              : key->above             ? " without its start"
                              : key->below             ? " without its end"
                                                       : "";
        (void)snprintf(text, capacity, "must be in %s..%s%s", (const char *)least.bytes,
                       (const char *)most.bytes, without);
    }
    buf_done(&least);
    buf_done(&most);
}

static bool ranged(const struct yaml_key *key)
{
    return key->least != 0 || key->most != 0 || key->above || key->below;
}

/* False with a fault where the value is outside the key's range. */
static bool in_range(const struct reading *reading, const struct yaml_node *node,
                     const struct yaml_key *key, double value, const char *path, const char *of)
{
    char sentence[160];
    char whole[320];
    char got[80];
    if (!ranged(key)) {
        return true;
    }
    range_sentence(key, value, sentence, sizeof(sentence));
    if (sentence[0] == '\0') {
        return true;
    }
    describe(node, got, sizeof(got));
    if (of[0] != '\0') {
        (void)snprintf(whole, sizeof(whole), "%s %s, got %.0f", of, sentence, value);
    } else if (node->kind == YAML_NODE_SCALAR && node->plain) {
        (void)snprintf(whole, sizeof(whole), "%s, got %.60s", sentence, node->text);
    } else {
        (void)snprintf(whole, sizeof(whole), "%s, got %s", sentence, got);
    }
    fault_at(reading, node, path, whole);
    return false;
}

static bool text_ok(const struct reading *reading, const struct yaml_node *node,
                    const struct yaml_key *key, const char *path)
{
    if (node->kind != YAML_NODE_SCALAR || (node->plain && node->text_size == 0)) {
        expected(reading, node, path, "a text");
        return false;
    }
    if (key->type == YAML_TEXT &&
        !in_range(reading, node, key, (double)node->text_size, path, "its length in bytes")) {
        return false;
    }
    const char *wrong = key->check != NULL ? key->check(node->text) : NULL;
    if (wrong != NULL) {
        char got[80];
        char sentence[320];
        describe(node, got, sizeof(got));
        (void)snprintf(sentence, sizeof(sentence), "%s, got %s", wrong, got);
        fault_at(reading, node, path, sentence);
        return false;
    }
    return true;
}

static void read_texts(const struct reading *reading, const struct yaml_node *node,
                       const struct yaml_key *key, void *field, const char *path)
{
    struct yaml_texts *texts = field;
    size_t count = 0;
    if (node->kind == YAML_NODE_MAP ||
        (node->kind == YAML_NODE_SCALAR && node->plain && node->text_size == 0)) {
        expected(reading, node, path, "a list of texts");
        return;
    }
    const struct yaml_node *first = node->kind == YAML_NODE_LIST ? node->first : node;
    for (const struct yaml_node *at = first; at != NULL; at = at->next) {
        count++;
        if (node->kind != YAML_NODE_LIST) {
            break;
        }
    }
    if (count > YAML_LIST_MAX) {
        fault_at(reading, node, path, "the list is too long");
        return;
    }
    if (!in_range(reading, node, key, (double)count, path, "the number of its members")) {
        return;
    }
    texts->items = need(calloc(count > 0 ? count : 1, sizeof(*texts->items)));
    const struct yaml_node *at = first;
    for (size_t i = 0; i < count; i++, at = at->next) {
        if (text_ok(reading, at, key, path)) {
            texts->items[texts->count++] = copy_text(at->text);
        }
    }
}

static void read_choice(const struct reading *reading, const struct yaml_node *node,
                        const struct yaml_key *key, void *field, const char *path)
{
    size_t count = 0;
    while (key->choices[count] != NULL) {
        count++;
    }
    if (node->kind == YAML_NODE_SCALAR) {
        for (size_t i = 0; i < count; i++) {
            if (strcmp(node->text, key->choices[i]) == 0) {
                *(int *)field = (int)i;
                return;
            }
        }
    }
    char list[200];
    char whole[360];
    size_t used = 0;
    for (size_t i = 0; i < count && used < sizeof(list); i++) {
        const char *join = i == 0 ? "" : i + 1 == count ? " or " : ", ";
        int more = snprintf(list + used, sizeof(list) - used, "%s%s", join, key->choices[i]);
        used += more > 0 ? (size_t)more : 0;
    }
    const char *near =
        node->kind == YAML_NODE_SCALAR ? yaml_nearest(node->text, key->choices, count) : NULL;
    if (near == NULL) {
        expected(reading, node, path, list);
        return;
    }
    char got[80];
    describe(node, got, sizeof(got));
    (void)snprintf(whole, sizeof(whole), "expected %s, got %s (did you mean \"%s\"?)", list, got,
                   near);
    fault_at(reading, node, path, whole);
}

static void read_whole(const struct reading *reading, const struct yaml_node *node,
                       const struct yaml_key *key, void *field, const char *path)
{
    uint64_t value = 0;
    const char *wrong = "a whole number";
    if (node->kind == YAML_NODE_SCALAR && (node->plain || key->type != YAML_INTEGER)) {
        wrong = key->type == YAML_DURATION ? yaml_scalar_duration(node->text, &value)
                : key->type == YAML_SIZE   ? yaml_scalar_size(node->text, &value)
                                           : yaml_scalar_integer(node->text, &value);
    }
    if (wrong != NULL) {
        char both[120];
        (void)snprintf(both, sizeof(both), "%s%s%s", wrong, key->word != NULL ? " or " : "",
                       key->word != NULL ? key->word : "");
        expected(reading, node, path, both);
        return;
    }
    if (in_range(reading, node, key, (double)value, path, "")) {
        *(uint64_t *)field = value;
    }
}

static void read_number(const struct reading *reading, const struct yaml_node *node,
                        const struct yaml_key *key, void *field, const char *path)
{
    double value = 0;
    const char *wrong = "a number";
    if (node->kind == YAML_NODE_SCALAR && node->plain) {
        wrong = yaml_scalar_number(node->text, &value);
    }
    if (wrong != NULL) {
        expected(reading, node, path, wrong);
    } else if (in_range(reading, node, key, value, path, "")) {
        *(double *)field = value;
    }
}

static void read_map(const struct reading *reading, const struct yaml_schema *schema,
                     const struct yaml_node *node, void *object, const char *path);

static void read_maps(const struct reading *reading, const struct yaml_node *node,
                      const struct yaml_key *key, void *field, const char *path)
{
    struct yaml_items *items = field;
    size_t count = 0;
    if (node->kind != YAML_NODE_LIST) {
        expected(reading, node, path, "a list");
        return;
    }
    for (const struct yaml_node *at = node->first; at != NULL; at = at->next) {
        count++;
    }
    if (count > YAML_LIST_MAX ||
        !in_range(reading, node, key, (double)count, path, "the number of its members")) {
        if (count > YAML_LIST_MAX) {
            fault_at(reading, node, path, "the list is too long");
        }
        return;
    }
    items->items = need(calloc(count > 0 ? count : 1, key->schema->size));
    const struct yaml_node *at = node->first;
    for (size_t i = 0; i < count; i++, at = at->next) {
        char member[YAML_PATH_SIZE];
        (void)snprintf(member, sizeof(member), "%s[%zu]", path, i + 1);
        items->count = i + 1;
        if (at->kind != YAML_NODE_MAP) {
            expected(reading, at, member, "a map of keys");
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

static void read_value(const struct reading *reading, const struct yaml_key *key,
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
        if (text_ok(reading, node, key, path)) {
            *(char **)field = copy_text(node->text);
        }
        break;
    case YAML_TEXTS:
        read_texts(reading, node, key, field, path);
        break;
    case YAML_INTEGER:
    case YAML_DURATION:
    case YAML_SIZE:
        read_whole(reading, node, key, field, path);
        break;
    case YAML_NUMBER:
        read_number(reading, node, key, field, path);
        break;
    case YAML_YES_NO:
        wrong = node->kind == YAML_NODE_SCALAR && node->plain
                    ? yaml_scalar_yes_no(node->text, field)
                    : "yes or no";
        if (wrong != NULL) {
            expected(reading, node, path, wrong);
        }
        break;
    case YAML_CHOICE:
        read_choice(reading, node, key, field, path);
        break;
    case YAML_MAP:
        if (node->kind == YAML_NODE_MAP) {
            read_map(reading, key->schema, node, field, path);
        } else if (!word) {
            expected(reading, node, path, key->word != NULL ? map_or_word : "a map of keys");
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

static void fault_unknown(const struct reading *reading, const struct yaml_schema *schema,
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

static void fill_absent(const struct reading *reading, const struct yaml_key *key,
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
                                 .text = copy_text(key->initial),
                                 .text_size = strlen(key->initial),
                                 .plain = true,
                                 .line = 1,
                                 .column = 1};
        read_value(reading, key, &node, object, path);
        free(node.text);
    } else if (key->type == YAML_TEXT && !key->nullable) {
        *(char **)(void *)((char *)object + key->offset) = copy_text("");
    }
}

/* node NULL: the map is absent, everything gets its default. */
static void read_map(const struct reading *reading, const struct yaml_schema *schema,
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
    struct reading reading = {.top = schema, .tree = &tree, .places = &places, .faults = faults};
    memset(object, 0, schema->size);
    yaml_tree_read(input->text, input->size, input->file_name, &tree, faults);
    if (tree.root != NULL && tree.root->kind != YAML_NODE_MAP) {
        expected(&reading, tree.root, "", "a map of keys");
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
    char *key = need(strndup(argument, key_size));
    size_t place_size = strlen(option) + key_size + 2;
    char *place = need(malloc(place_size));
    (void)snprintf(place, place_size, "%s %s", option, key);
    *ret_override = (struct yaml_override){place, key, copy_text(argument + key_size + 1)};
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

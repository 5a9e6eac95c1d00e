/* One value of a text, by its key: type, range, choices; a sentence where it is something else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "proto/yaml_reading.h"

void *yaml_need(void *memory)
{
    ASSERT(memory != NULL); /* Bounded by the text, which is at most 1 MiB. */
    return memory;
}

char *yaml_copy(const char *text)
{
    return yaml_need(strdup(text));
}

void yaml_fault_at(const struct yaml_reading *reading, const struct yaml_node *node,
                   const char *path, const char *sentence)
{
    char place[320];
    yaml_node_place(reading->tree, node, place, sizeof(place));
    faults_add(reading->faults, place, path, "%s", sentence);
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

void yaml_expected(const struct yaml_reading *reading, const struct yaml_node *node,
                   const char *path, const char *what)
{
    char got[80];
    char sentence[256];
    if (node->kind == YAML_NODE_SCALAR && node->plain && node->text_size == 0) {
        (void)snprintf(sentence, sizeof(sentence), "has no value; give %s", what);
    } else {
        describe(node, got, sizeof(got));
        (void)snprintf(sentence, sizeof(sentence), "expected %s, got %s", what, got);
    }
    yaml_fault_at(reading, node, path, sentence);
}

/* "must be in 1..128", "must be above 0", "must be above 0 and at most 1e+30"; empty where the
 * value is inside. */
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
    } else if (!key->above && !key->below) {
        (void)snprintf(text, capacity, "must be in %s..%s", (const char *)least.bytes,
                       (const char *)most.bytes);
    } else {
        (void)snprintf(text, capacity, "must be %s %s and %s %s", key->above ? "above" : "at least",
                       (const char *)least.bytes, key->below ? "below" : "at most",
                       (const char *)most.bytes);
    }
    buf_done(&least);
    buf_done(&most);
}

static bool ranged(const struct yaml_key *key)
{
    return key->least != 0 || key->most != 0 || key->above || key->below;
}

/* False with a fault where the value is outside the key's range. */
bool yaml_in_range(const struct yaml_reading *reading, const struct yaml_node *node,
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
    yaml_fault_at(reading, node, path, whole);
    return false;
}

bool yaml_text_ok(const struct yaml_reading *reading, const struct yaml_node *node,
                  const struct yaml_key *key, const char *path)
{
    if (node->kind != YAML_NODE_SCALAR || (node->plain && node->text_size == 0)) {
        yaml_expected(reading, node, path, "a text");
        return false;
    }
    if (key->type == YAML_TEXT &&
        !yaml_in_range(reading, node, key, (double)node->text_size, path, "its length in bytes")) {
        return false;
    }
    const char *wrong = key->check != NULL ? key->check(node->text) : NULL;
    if (wrong != NULL) {
        char got[80];
        char sentence[320];
        describe(node, got, sizeof(got));
        (void)snprintf(sentence, sizeof(sentence), "%s, got %s", wrong, got);
        yaml_fault_at(reading, node, path, sentence);
        return false;
    }
    return true;
}

void yaml_read_texts(const struct yaml_reading *reading, const struct yaml_node *node,
                     const struct yaml_key *key, void *field, const char *path)
{
    struct yaml_texts *texts = field;
    size_t count = 0;
    if (node->kind == YAML_NODE_MAP ||
        (node->kind == YAML_NODE_SCALAR && node->plain && node->text_size == 0)) {
        yaml_expected(reading, node, path, "a list of texts");
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
        yaml_fault_at(reading, node, path, "the list is too long");
        return;
    }
    if (!yaml_in_range(reading, node, key, (double)count, path, "the number of its members")) {
        return;
    }
    texts->items = yaml_need(calloc(count > 0 ? count : 1, sizeof(*texts->items)));
    const struct yaml_node *at = first;
    for (size_t i = 0; i < count; i++, at = at->next) {
        if (yaml_text_ok(reading, at, key, path)) {
            texts->items[texts->count++] = yaml_copy(at->text);
        }
    }
}

void yaml_read_choice(const struct yaml_reading *reading, const struct yaml_node *node,
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
        yaml_expected(reading, node, path, list);
        return;
    }
    char got[80];
    describe(node, got, sizeof(got));
    (void)snprintf(whole, sizeof(whole), "expected %s, got %s (did you mean \"%s\"?)", list, got,
                   near);
    yaml_fault_at(reading, node, path, whole);
}

void yaml_read_whole(const struct yaml_reading *reading, const struct yaml_node *node,
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
        yaml_expected(reading, node, path, both);
        return;
    }
    if (yaml_in_range(reading, node, key, (double)value, path, "")) {
        *(uint64_t *)field = value;
    }
}

void yaml_read_number(const struct yaml_reading *reading, const struct yaml_node *node,
                      const struct yaml_key *key, void *field, const char *path)
{
    double value = 0;
    const char *wrong = "a number";
    if (node->kind == YAML_NODE_SCALAR && node->plain) {
        wrong = yaml_scalar_number(node->text, &value);
    }
    if (wrong != NULL) {
        yaml_expected(reading, node, path, wrong);
    } else if (yaml_in_range(reading, node, key, value, path, "")) {
        *(double *)field = value;
    }
}

#include "daemon/roll.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define FILE_NAME     "members.json"
#define FILE_SIZE_MAX 65536
#define FORMAT        1

static bool copy(const json_t *object, const char *key, char *text, size_t capacity)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (value == NULL || value[0] == '\0' || strlen(value) >= capacity) {
        return false;
    }
    memcpy(text, value, strlen(value) + 1);
    return true;
}

static bool number(const json_t *object, const char *key, json_int_t most, uint32_t *ret_value)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > most) {
        return false;
    }
    *ret_value = (uint32_t)json_integer_value(value);
    return true;
}

const struct roll_entry *roll_self(const struct roll *roll)
{
    for (uint32_t i = 0; i < roll->count; i++) {
        if (roll->entries[i].node == roll->node) {
            return &roll->entries[i];
        }
    }
    return NULL;
}

int roll_parse(const char *text, size_t size, struct roll *ret_roll, struct err *err)
{
    struct roll *made = calloc(1, sizeof(*made));
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    const json_t *members = json_object_get(root, "members");
    ASSERT(made != NULL);
    bool good = json_is_array(members) && json_array_size(members) <= ROLL_MAX &&
                number(root, "node", ROLL_MAX, &made->node) &&
                number(root, "life", 0xffffff, &made->life);
    for (size_t i = 0; good && i < json_array_size(members); i++) {
        const json_t *member = json_array_get(members, i);
        struct roll_entry *entry = &made->entries[made->count++];
        good = number(member, "node", ROLL_MAX, &entry->node) && entry->node >= 1 &&
               number(member, "life", 0xffffff, &entry->life) &&
               copy(member, "name", entry->name, sizeof(entry->name)) &&
               copy(member, "address", entry->address, sizeof(entry->address)) &&
               copy(member, "role", entry->role, sizeof(entry->role)) &&
               (i == 0 || entry->node > made->entries[i - 1].node);
    }
    const struct roll_entry *self = roll_self(made);
    good = good && self != NULL && self->life == made->life;
    if (good) {
        *ret_roll = *made;
    }
    free(made);
    json_decref(root);
    return good ? 0 : err_set(err, ERR_PROTO, "a list of members that is none");
}

int roll_read(struct fs *fs, struct roll *ret_roll, bool *ret_there, struct err *err)
{
    struct buf text = BUF_NONE;
    *ret_there = false;
    if (fs->ops->exists(fs, FILE_NAME, ret_there, err) != 0 || !*ret_there) {
        return err->code;
    }
    int code = fs_read_all(fs, FILE_NAME, FILE_SIZE_MAX, &text, err);
    if (code == 0 && roll_parse((const char *)text.bytes, text.size, ret_roll, err) != 0) {
        code =
            err_set(err, ERR_DAMAGED,
                    "'%s' cannot be read; put it back from a copy, or empty the state folder and "
                    "let the node join anew",
                    FILE_NAME);
    }
    buf_done(&text);
    return code;
}

int roll_write(struct fs *fs, const struct roll *roll, struct err *err)
{
    json_t *members = json_array();
    for (uint32_t i = 0; i < roll->count; i++) {
        const struct roll_entry *entry = &roll->entries[i];
        (void)json_array_append_new(members,
                                    json_pack("{s:i, s:i, s:s, s:s, s:s}", "node", (int)entry->node,
                                              "life", (int)entry->life, "name", entry->name,
                                              "address", entry->address, "role", entry->role));
    }
    json_t *root = json_pack("{s:i, s:i, s:i, s:o}", "format", FORMAT, "node", (int)roll->node,
                             "life", (int)roll->life, "members", members);
    ASSERT(root != NULL);
    char *text = json_dumps(root, JSON_INDENT(2));
    ASSERT(text != NULL);
    int code = fs_replace(fs, FILE_NAME, text, strlen(text), err);
    free(text);
    json_decref(root);
    return code;
}

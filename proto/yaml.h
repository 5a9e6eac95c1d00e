/* YAML with a schema: the text of a job or config file into a struct, every error in one pass.
 *
 * The subset: one document of maps, lists and scalars in block or flow style. Refused, each at its
 * place: anchors, aliases, tags, several documents, nesting over YAML_DEPTH_MAX, texts over
 * YAML_SIZE_MAX, unknown keys (with a suggestion), duplicate keys, values of another type or out of
 * range, missing required keys. The schema gives the type, never the text: `no` is a text where a
 * text is due and false where yes or no is due (yes, no, true and false are understood, unquoted).
 *
 * A schema is a table of keys, each naming the field of the struct that receives the value:
 *
 *     static const struct yaml_key keys[] = {
 *         {.name = "rate", .type = YAML_NUMBER, .offset = offsetof(struct x, rate), .required =
 * true, .most = 1e300, .about = "step size"}, …
 *     };
 *     static const struct yaml_schema schema = YAML_SCHEMA(struct x, keys);
 *
 * Text, lists and list members are heap memory of the struct's: yaml_release() frees them. The
 * struct must be plain data that zero bytes initialise. Immutable after reading; any thread. */
#ifndef COPPELIUS_PROTO_YAML_H
#define COPPELIUS_PROTO_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/faults.h"

#define YAML_SIZE_MAX  (1U << 20)
#define YAML_DEPTH_MAX 8U
#define YAML_LIST_MAX  65536U

enum yaml_type {
    YAML_TEXT,     /* char *; never NULL after reading where there is a default ("" else) */
    YAML_TEXTS,    /* struct yaml_texts; a lone scalar is a list of one */
    YAML_INTEGER,  /* uint64_t, least .. most */
    YAML_NUMBER,   /* double, finite, least .. most */
    YAML_YES_NO,   /* bool */
    YAML_CHOICE,   /* int: the index in choices */
    YAML_DURATION, /* uint64_t milliseconds: 500ms, 90s, 10min, 2h, 1d, also 1h30min */
    YAML_SIZE,     /* uint64_t bytes: 512M, 4G, 64K (binary), 4096 */
    YAML_MAP,      /* a struct inside, by .schema */
    YAML_MAPS,     /* struct yaml_items of structs, by .schema */
};

struct yaml_texts {
    char **items;
    size_t count;
};

struct yaml_items {
    void *items; /* count structs of the key's schema */
    size_t count;
};

struct yaml_schema;

struct yaml_key {
    const char *name;
    enum yaml_type type;
    size_t offset; /* of the field */
    bool required;
    bool hidden;   /* read, but not written by yaml_write (secrets) */
    bool nullable; /* YAML_TEXT: NULL where the key is absent, and then not written */
    /* The scalar (as if unquoted) where the key is absent; NULL: the zero of its type. A default is
     * held against the schema like any other value. */
    const char *initial;
    /* The range: of the number, of the integer, of a text's bytes, of a list's members, of a
     * duration (ms) or size. Both 0: no range. Where only `most` is 0 there is no upper end. */
    double least;
    double most;
    bool above;                 /* YAML_NUMBER: greater than least, not equal */
    bool below;                 /* YAML_NUMBER: less than most, not equal */
    const char *const *choices; /* YAML_CHOICE; ends with NULL */
    /* A word that is taken besides the type: `batch: all`, `tls: off`. YAML_INTEGER, YAML_DURATION
     * and YAML_SIZE get word_value. YAML_MAP leaves its fields zero (no defaults, nothing
     * required). */
    const char *word;
    uint64_t word_value;
    /* offsetof of a bool + 1 that says that the key was given (for YAML_MAP with a word: as a map);
     * 0: nobody asks. A key that has one and was not given is not written by yaml_write. */
    size_t given;
    const struct yaml_schema *schema; /* YAML_MAP, YAML_MAPS */
    /* One more test of a text; NULL or the sentence without the key ("must be …"). */
    const char *(*check)(const char *text);
    const char *about; /* one line for help and manual pages */
};

#define YAML_GIVEN(type, field) (offsetof(type, field) + 1)

struct yaml_schema {
    const struct yaml_key *keys;
    size_t count;
    size_t size; /* of the struct */
};

#define YAML_SCHEMA(type, keys)                                \
    {                                                          \
        (keys), sizeof(keys) / sizeof((keys)[0]), sizeof(type) \
    }

/* Where each given key came from, for cross checks and `config show --origin`. */
struct yaml_place {
    char *key;   /* "optimizer.rate" */
    char *place; /* "job.yaml:12:9" or the override's place */
};

struct yaml_places {
    struct yaml_place *list; /* in the text's order */
    size_t count;
};

/* A value from elsewhere, put over the text's: `--set optimizer.rate=0.1` or the environment. The
 * value is YAML itself ("[a, b]"). Borrowed for the call. */
struct yaml_override {
    const char *place; /* "--set optimizer.rate", "COPPELIUSD_LISTEN" */
    const char *key;   /* "optimizer.rate" */
    const char *value;
};

struct yaml_input {
    const char *text; /* need not end with a zero */
    size_t size;
    const char *file_name;                 /* for places */
    const struct yaml_override *overrides; /* later ones win over earlier ones and over the text */
    size_t overrides_count;
    /* Checks across keys, in the same pass: called where the text could be read to its end, also
     * where there are faults already (a text that was wrong is then NULL). NULL: none. */
    void (*check)(const struct yaml_input *input, const void *object,
                  const struct yaml_places *places, struct faults *faults);
};

#define YAML_PLACES_NONE \
    {                    \
        NULL, 0          \
    }

void yaml_places_done(struct yaml_places *places);
/* NULL where the key was not given. */
const char *yaml_place_of(const struct yaml_places *places, const char *key);

/* Fills *object (schema->size bytes, zeroed by this call; whatever it held is not freed). Returns
 * 0, or ERR_CONFIG with at least one more fault in *faults: the object then holds nothing that must
 * be freed. ret_places may be NULL. */
int yaml_read(const struct yaml_schema *schema, const struct yaml_input *input, void *object,
              struct yaml_places *ret_places, struct faults *faults);
/* Frees what the object's fields hold and zeroes it; a zeroed object is fine. */
void yaml_release(const struct yaml_schema *schema, void *object);
/* Appends the object as canonical YAML (a zero behind its end): every key in the schema's order,
 * defaults included, that reads back to an equal object. */
void yaml_write(const struct yaml_schema *schema, const void *object, struct buf *out);
/* Appends a line for each key: "key", TAB, its canonical value, TAB, where it came from ("default"
 * where it was not given), line feed. Members of lists are peers[1].name and so on. */
void yaml_show(const struct yaml_schema *schema, const void *object,
               const struct yaml_places *places, struct buf *out);
/* Appends one value as its canonical YAML text ("0.1", "[a, b]", "10min"). */
void yaml_write_value(const struct yaml_key *key, const void *object, struct buf *out);

/* Splits "key=value" of a --set option into *ret_override, whose three texts are new and freed by
 * yaml_override_done. Adds a fault and returns ERR_USAGE where there is no "=" or no key. */
int yaml_override_parse(const char *option, const char *argument,
                        struct yaml_override *ret_override, struct faults *faults);
void yaml_override_done(struct yaml_override *override);

/* The nearest of the names, or NULL where none is near ("did you mean"). */
const char *yaml_nearest(const char *word, const char *const *names, size_t names_count);

#endif

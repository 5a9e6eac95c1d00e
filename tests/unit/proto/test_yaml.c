/* The schema engine with a schema of its own; texts of faults are compared as a whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/yaml.h"
#include "tests/lib/unit.h"

struct peer {
    char *name;
    char *address;
};

struct thing {
    char *name;
    struct yaml_texts tags;
    uint64_t layers;
    uint64_t batch;
    double rate;
    bool header;
    int color;
    uint64_t every;
    uint64_t memory;
    struct yaml_items peers;
    bool tls_given;
    struct {
        char *cert;
    } tls;
};

static const char *const colors[] = {"red", "green", "blue", NULL};
static const struct yaml_key peer_keys[] = {
    {.name = "name", .type = YAML_TEXT, .offset = offsetof(struct peer, name), .required = true},
    {.name = "address", .type = YAML_TEXT, .offset = offsetof(struct peer, address)},
};
static const struct yaml_schema peer_schema = YAML_SCHEMA(struct peer, peer_keys);
static const struct yaml_key tls_keys[] = {
    {.name = "cert", .type = YAML_TEXT, .offset = 0, .required = true, .about = "a file"},
};
static const struct yaml_schema tls_schema = {tls_keys, 1, sizeof(((struct thing *)0)->tls)};
#define AT(field) offsetof(struct thing, field)
static const struct yaml_key keys[] = {
    {.name = "name",
     .type = YAML_TEXT,
     .offset = AT(name),
     .required = true,
     .least = 1,
     .most = 8},
    {.name = "tags", .type = YAML_TEXTS, .offset = AT(tags)},
    {.name = "layers",
     .type = YAML_INTEGER,
     .offset = AT(layers),
     .initial = "2",
     .least = 1,
     .most = 128},
    {.name = "batch",
     .type = YAML_INTEGER,
     .offset = AT(batch),
     .initial = "all",
     .least = 1,
     .word = "all"},
    {.name = "rate",
     .type = YAML_NUMBER,
     .offset = AT(rate),
     .initial = "0.1",
     .above = true,
     .most = 1,
     .below = true},
    {.name = "header", .type = YAML_YES_NO, .offset = AT(header)},
    {.name = "color", .type = YAML_CHOICE, .offset = AT(color), .choices = colors},
    {.name = "every", .type = YAML_DURATION, .offset = AT(every), .initial = "10min"},
    {.name = "memory", .type = YAML_SIZE, .offset = AT(memory), .initial = "512M"},
    {.name = "peers", .type = YAML_MAPS, .offset = AT(peers), .schema = &peer_schema},
    {.name = "tls",
     .type = YAML_MAP,
     .offset = AT(tls),
     .schema = &tls_schema,
     .word = "off",
     .given = YAML_GIVEN(struct thing, tls_given)},
};
static const struct yaml_schema schema = YAML_SCHEMA(struct thing, keys);

static int read_thing(const char *text, struct thing *thing, struct faults *faults)
{
    struct yaml_input input = {.text = text, .size = strlen(text), .file_name = "t.yaml"};
    return yaml_read(&schema, &input, thing, NULL, faults);
}

static void expect_faults(const char *text, const char *lines)
{
    struct thing thing;
    struct faults faults = FAULTS_NONE;
    struct buf out = BUF_NONE;
    ck_assert_int_eq(read_thing(text, &thing, &faults), ERR_CONFIG);
    faults_print(&faults, &out);
    ck_assert_str_eq((const char *)out.bytes, lines);
    buf_done(&out);
    faults_done(&faults);
}

static struct thing expect_read(const char *text)
{
    struct thing thing;
    struct faults faults = FAULTS_NONE;
    struct buf out = BUF_NONE;
    int code = read_thing(text, &thing, &faults);
    faults_print(&faults, &out);
    ck_assert_msg(code == 0, "%s", (const char *)out.bytes);
    buf_done(&out);
    faults_done(&faults);
    return thing;
}

START_TEST(values_of_every_type_are_read)
{
    struct thing thing = expect_read("name: no\n"
                                     "tags: [a, \"b c\", '']\n"
                                     "layers: 7\nbatch: 12\nrate: 2.5e-1\nheader: yes\n"
                                     "color: blue\nevery: 1h30min\nmemory: 4G\n"
                                     "peers:\n  - {name: x, address: 127.0.0.1:1}\n  - name: y\n"
                                     "tls: {cert: c.pem}\n");
    ck_assert_str_eq(thing.name, "no"); /* The schema, not the text, gives the type. */
    ck_assert_uint_eq(thing.tags.count, 3);
    ck_assert_str_eq(thing.tags.items[1], "b c");
    ck_assert_str_eq(thing.tags.items[2], "");
    ck_assert_uint_eq(thing.layers, 7);
    ck_assert_uint_eq(thing.batch, 12);
    ck_assert(thing.rate == 0.25);
    ck_assert(thing.header);
    ck_assert_int_eq(thing.color, 2);
    ck_assert_uint_eq(thing.every, 5400000);
    ck_assert_uint_eq(thing.memory, UINT64_C(4) << 30);
    ck_assert_uint_eq(thing.peers.count, 2);
    ck_assert_str_eq(((struct peer *)thing.peers.items)[1].name, "y");
    ck_assert_str_eq(((struct peer *)thing.peers.items)[1].address, "");
    ck_assert(thing.tls_given);
    ck_assert_str_eq(thing.tls.cert, "c.pem");
    yaml_release(&schema, &thing);
}
END_TEST

START_TEST(absent_keys_get_their_defaults)
{
    struct thing thing = expect_read("name: x\n");
    ck_assert_uint_eq(thing.layers, 2);
    ck_assert_uint_eq(thing.batch, 0);
    ck_assert(thing.rate == 0.1);
    ck_assert_uint_eq(thing.every, 600000);
    ck_assert(!thing.tls_given);
    yaml_release(&schema, &thing);
}
END_TEST

START_TEST(every_fault_is_found_in_one_pass)
{
    expect_faults("name: much-too-long\n"
                  "layers: 500\n"
                  "laiers: 3\n"
                  "batch: some\n"
                  "rate: 1\n"
                  "header: on\n"
                  "color: gren\n"
                  "every: \"10 minutes\"\n"
                  "memory: 4GB\n"
                  "layers: 3\n"
                  "peers:\n"
                  "  - adress: a\n"
                  "tls: {}\n"
                  "color_of_all: red\n",
                  "t.yaml:1:7: name: its length in bytes must be in 1..8, got 13\n"
                  "t.yaml:2:9: layers: must be in 1..128, got 500\n"
                  "t.yaml:3:1: laiers: unknown key (did you mean \"layers\"?)\n"
                  "t.yaml:4:8: batch: expected a whole number or all, got \"some\"\n"
                  "t.yaml:5:7: rate: must be above 0 and below 1, got 1\n"
                  "t.yaml:6:9: header: expected yes or no, got \"on\"\n"
                  "t.yaml:7:8: color: expected red, green or blue, got \"gren\" (did you mean "
                  "\"green\"?)\n"
                  "t.yaml:8:8: every: expected a duration such as 90s, 10min or 2h, got \"10 "
                  "minutes\"\n"
                  "t.yaml:9:9: memory: expected a size such as 512M or 4G, got \"4GB\"\n"
                  "t.yaml:10:1: layers: duplicate key; it was given in line 2\n"
                  "t.yaml:12:5: peers[1].adress: unknown key (did you mean "
                  "\"peers[1].address\"?)\n"
                  "t.yaml:12:5: peers[1].name: is missing\n"
                  "t.yaml:13:1: tls.cert: is missing; give a file\n"
                  "t.yaml:14:1: color_of_all: unknown key; known here: name, tags, layers, batch, "
                  "rate, header, color, every, memory, peers, tls\n");
}
END_TEST

START_TEST(a_key_at_the_wrong_depth_is_told_its_place)
{
    expect_faults("name: x\ncert: c.pem\n",
                  "t.yaml:2:1: cert: unknown key (did you mean \"tls.cert\"?)\n");
}
END_TEST

START_TEST(wrong_kinds_of_values_are_refused)
{
    expect_faults("name: [x]\ntags: {a: b}\nlayers: \"7\"\nrate: nan\npeers: x\ntls: on\n"
                  "header: \"yes\"\nmemory:\n",
                  "t.yaml:1:7: name: expected a text, got a list\n"
                  "t.yaml:2:7: tags: expected a list of texts, got a map\n"
                  "t.yaml:3:9: layers: expected a whole number, got \"7\"\n"
                  "t.yaml:4:7: rate: expected a number, got \"nan\"\n"
                  "t.yaml:5:8: peers: expected a list, got \"x\"\n"
                  "t.yaml:6:6: tls: expected a map of keys or off, got \"on\"\n"
                  "t.yaml:7:9: header: expected yes or no, got \"yes\"\n"
                  "t.yaml:8:8: memory: has no value; give a size such as 512M or 4G\n");
}
END_TEST

START_TEST(what_yaml_has_too_much_of_is_refused)
{
    expect_faults("name: &a x\ntags: *a\n", "t.yaml:1:7: name: anchors are not taken; write the "
                                            "value out\n"
                                            "t.yaml:2:7: tags: aliases are not taken; write the "
                                            "value out\n");
    expect_faults("name: !!str x\n",
                  "t.yaml:1:7: name: tags are not taken; the key gives the type\n");
    expect_faults("name: x\n---\nname: y\n",
                  "t.yaml:2:1: a second document; one file is one document\n");
    expect_faults("tags: [[[[[[[[[[x]]]]]]]]]]\n",
                  "t.yaml:1:14: tags: nested too deeply\n"
                  "t.yaml:1:8: tags: expected a text, got a list\n");
    expect_faults("name: x\n\tlayers: 3\n",
                  "t.yaml:2:1: not YAML: found a tab character that violates indentation (a TAB; "
                  "indent with spaces)\n");
    expect_faults("- a\n", "t.yaml:1:1: expected a map of keys, got a list\n");
    expect_faults("? {a: b}\n: c\n", "t.yaml:1:3: a key must be a word, not a map or a list\n");
    expect_faults("name: \"a\\0b\"\n", "t.yaml:1:7: name: a zero byte inside a text\n");
}
END_TEST

START_TEST(a_file_over_the_limit_is_not_read)
{
    struct thing thing;
    struct faults faults = FAULTS_NONE;
    struct err err = {0};
    size_t size = YAML_SIZE_MAX + 1;
    char *text = calloc(1, size);
    memset(text, '#', size);
    struct yaml_input input = {.text = text, .size = size, .file_name = "t.yaml"};
    ck_assert_int_eq(yaml_read(&schema, &input, &thing, NULL, &faults), ERR_CONFIG);
    ck_assert_int_eq(faults_err(&faults, ERR_CONFIG, &err), ERR_CONFIG);
    ck_assert_str_eq(err.text, "t.yaml: 1048577 bytes; a file may have 1048576");
    faults_done(&faults);
    free(text);
}
END_TEST

START_TEST(overrides_win_and_are_named)
{
    struct thing thing;
    struct faults faults = FAULTS_NONE;
    struct buf out = BUF_NONE;
    struct yaml_places places = YAML_PLACES_NONE;
    const char *text = "name: x\nlayers: 3\ntls: off\n";
    struct yaml_override good[] = {{"--set layers", "layers", "5"},
                                   {"--set tls.cert", "tls.cert", "c.pem"},
                                   {"THING_TAGS", "tags", "[a, b]"}};
    struct yaml_override bad[] = {{"--set layers", "layers", "many"},
                                  {"--set laiers", "laiers", "5"},
                                  {"--set rate", "rate", "[1"},
                                  {"--set tls.cert.x", "tls.cert.x", "1"}};
    struct yaml_input input = {text, strlen(text), "t.yaml", good, 3, NULL};
    ck_assert_int_eq(yaml_read(&schema, &input, &thing, &places, &faults), 0);
    ck_assert_uint_eq(thing.layers, 5);
    ck_assert_str_eq(thing.tls.cert, "c.pem");
    ck_assert_uint_eq(thing.tags.count, 2);
    ck_assert_str_eq(yaml_place_of(&places, "name"), "t.yaml:1:7");
    ck_assert_str_eq(yaml_place_of(&places, "layers"), "--set layers");
    ck_assert_str_eq(yaml_place_of(&places, "tags"), "THING_TAGS");
    ck_assert_ptr_null(yaml_place_of(&places, "rate"));
    yaml_places_done(&places);
    yaml_release(&schema, &thing);
    input.overrides = bad;
    input.overrides_count = 4;
    ck_assert_int_eq(yaml_read(&schema, &input, &thing, &places, &faults), ERR_CONFIG);
    faults_print(&faults, &out);
    ck_assert_str_eq((const char *)out.bytes,
                     "--set rate: rate: not YAML: did not find expected ',' or ']'\n"
                     "--set layers: layers: expected a whole number, got \"many\"\n"
                     "--set laiers: laiers: unknown key (did you mean \"layers\"?)\n"
                     "--set tls.cert.x: tls.cert: expected a text, got a map\n");
    buf_done(&out);
    faults_done(&faults);
}
END_TEST

START_TEST(what_is_written_reads_back)
{
    struct thing thing = expect_read("name: \"a\\\"\\n\"\ntags: ['', \"\\x01\", \"ä☃\", a/b, "
                                     "\"\\u2028\", -x]\nrate: 0.30000000000000004\n"
                                     "every: 90s\nmemory: 1536\nbatch: all\n"
                                     "peers: [{name: x}, {name: y, address: z}]\n");
    struct buf once = BUF_NONE;
    struct buf twice = BUF_NONE;
    yaml_write(&schema, &thing, &once);
    ck_assert_str_eq((const char *)once.bytes,
                     "name: \"a\\\"\\x0a\"\n"
                     "tags: [\"\", \"\\x01\", \"ä☃\", a/b, \"\\u2028\", \"-x\"]\n"
                     "layers: 2\nbatch: all\nrate: 0.30000000000000004\nheader: no\ncolor: red\n"
                     "every: 90s\nmemory: 1536\n"
                     "peers:\n  - name: x\n    address: \"\"\n  - name: y\n    address: z\n"
                     "tls: off\n");
    struct thing again = expect_read((const char *)once.bytes);
    yaml_write(&schema, &again, &twice);
    ck_assert_str_eq((const char *)once.bytes, (const char *)twice.bytes);
    buf_done(&once);
    buf_done(&twice);
    yaml_release(&schema, &thing);
    yaml_release(&schema, &again);
}
END_TEST

START_TEST(every_key_is_shown_with_where_it_came_from)
{
    struct thing thing;
    struct faults faults = FAULTS_NONE;
    struct buf out = BUF_NONE;
    struct yaml_places places = YAML_PLACES_NONE;
    const char *text = "name: x\nlayers: 3\npeers: [{name: p}]\n";
    struct yaml_override layers = {"THING_LAYERS", "layers", "5"};
    struct yaml_input input = {text, strlen(text), "t.yaml", &layers, 1, NULL};
    ck_assert_int_eq(yaml_read(&schema, &input, &thing, &places, &faults), 0);
    yaml_show(&schema, &thing, &places, &out);
    ck_assert_str_eq((const char *)out.bytes,
                     "name\tx\tt.yaml:1:7\ntags\t[]\tdefault\nlayers\t5\tTHING_LAYERS\n"
                     "batch\tall\tdefault\nrate\t0.1\tdefault\nheader\tno\tdefault\n"
                     "color\tred\tdefault\nevery\t10min\tdefault\nmemory\t512M\tdefault\n"
                     "peers[1].name\tp\tt.yaml:3:16\npeers[1].address\t\"\"\tt.yaml:3:8\n"
                     "tls\toff\tdefault\n");
    yaml_places_done(&places);
    yaml_release(&schema, &thing);
    buf_done(&out);
}
END_TEST

START_TEST(a_terminal_is_not_talked_to_by_a_file)
{
    expect_faults("name: x\n\"\\e[2Jlayers\": 3\n",
                  "t.yaml:2:1: ?[2Jlayers: unknown key; known here: name, tags, layers, batch, "
                  "rate, header, color, every, memory, peers, tls\n");
}
END_TEST

START_TEST(near_words_are_suggested_and_far_ones_not)
{
    static const char *const names[] = {"rate", "decay", "batch", "standardize"};
    ck_assert_str_eq(yaml_nearest("rat", names, 4), "rate");
    ck_assert_str_eq(yaml_nearest("btach", names, 4), "batch");
    ck_assert_str_eq(yaml_nearest("Decay", names, 4), "decay");
    ck_assert_str_eq(yaml_nearest("standardise", names, 4), "standardize");
    ck_assert_ptr_null(yaml_nearest("momentum", names, 4));
    ck_assert_ptr_null(yaml_nearest("x", names, 4));
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("yaml");
    TCase *tcase = tcase_create("yaml");
    tcase_add_test(tcase, values_of_every_type_are_read);
    tcase_add_test(tcase, absent_keys_get_their_defaults);
    tcase_add_test(tcase, every_fault_is_found_in_one_pass);
    tcase_add_test(tcase, a_key_at_the_wrong_depth_is_told_its_place);
    tcase_add_test(tcase, wrong_kinds_of_values_are_refused);
    tcase_add_test(tcase, what_yaml_has_too_much_of_is_refused);
    tcase_add_test(tcase, a_file_over_the_limit_is_not_read);
    tcase_add_test(tcase, overrides_win_and_are_named);
    tcase_add_test(tcase, what_is_written_reads_back);
    tcase_add_test(tcase, every_key_is_shown_with_where_it_came_from);
    tcase_add_test(tcase, a_terminal_is_not_talked_to_by_a_file);
    tcase_add_test(tcase, near_words_are_suggested_and_far_ones_not);
    suite_add_tcase(suite, tcase);
    return suite;
}

/* Prints coppeliusd(8) from --help's text and the table of the config's keys. Run by the build. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/roff.h"
#include "daemon/config.h"
#include "daemon/usage.h"
#include "daemon/version.h"

static void put_key(const struct yaml_key *key, const char *of, struct buf *out)
{
    struct buf term = BUF_NONE;
    struct buf text = BUF_NONE;
    buf_print(&term, "%s%s%s", of, of[0] != '\0' ? "." : "", key->name);
    const char *about = key->about != NULL ? key->about : "";
    buf_print(&text, "%s", about);
    bool named = key->choices == NULL || strstr(about, key->choices[0]) != NULL;
    for (size_t i = 0; !named && key->choices[i] != NULL; i++) {
        buf_print(&text, "%s%s", i == 0 ? ": " : ", ", key->choices[i]);
    }
    if (key->initial != NULL && key->initial[0] != '\0') {
        buf_print(&text, " (%s)", key->initial);
    }
    roff_item(out, (const char *)term.bytes, (const char *)text.bytes);
    for (size_t i = 0; key->schema != NULL && i < key->schema->count; i++) {
        put_key(&key->schema->keys[i], (const char *)term.bytes, out);
    }
    buf_done(&text);
    buf_done(&term);
}

int main(void)
{
    struct buf out = BUF_NONE;
    roff_begin(&out, "coppeliusd", 8, COPPELIUS_VERSION,
               "a node of a cluster that trains partitioned models");
    roff_section(&out, "SYNOPSIS");
    roff_lines(&out, daemon_usage);
    roff_section(&out, "CONFIGURATION");
    roff_text(&out, "The file is YAML. In brackets: what holds where a key is absent.");
    for (size_t i = 0; i < config_schema()->count; i++) {
        put_key(&config_schema()->keys[i], "", &out);
    }
    roff_section(&out, "SIGNALS");
    roff_item(&out, "SIGTERM, SIGINT",
              "a clean stop within 10 s: the others are told, the last step is published. A second "
              "SIGINT hurries.");
    roff_item(&out, "SIGHUP",
              "reads the configuration and the certificates again: these, log_level, "
              "http.token_file and limits.storage_free count at once, other changed keys wait for "
              "a restart and are named in the log. A bad file changes nothing.");
    roff_section(&out, "FILES");
    roff_item(&out, CONFIG_PATH, "the configuration, where --config is not given");
    roff_section(&out, "SEE ALSO");
    roff_text(&out, "coppeliusctl(1)");
    bool good = fwrite(out.bytes, 1, out.size, stdout) == out.size && fflush(stdout) == 0;
    buf_done(&out);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

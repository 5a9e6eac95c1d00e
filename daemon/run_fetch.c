/* The columns of a job's data from nodes that have them, into the cache. Compute thread.
 *
 * A copy that an earlier generation began is gone on with. A holder whose bytes are not as they
 * should be, or that fails, is named in the log and the next one is asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/run_compute.h"
#include "daemon/serve.h"
#include "data/cache.h"
#include "data/share.h"

#define SAVE_BYTES (UINT64_C(32) << 20) /* fetched between two saves of the record */
#define ROUNDS     2                    /* over all holders */

struct fetching {
    struct run *run;
    const struct run_load *load;
    struct dataset_copy *copy;
    const struct run_holder *holder; /* that is asked */
    char name[RUN_CACHE_NAME_SIZE];
    char folder[DAEMON_PATH_SIZE + RUN_CACHE_NAME_SIZE];
    uint64_t first, end;
    uint64_t bytes;
    bool local; /* the error at hand is this node's own: no other holder helps */
};

static int own(struct fetching *f, int code)
{
    f->local = f->local || code != 0;
    return code;
}

/* Manifest and table from the holder, and the copy with holes. */
static int begin_copy(struct fetching *f, struct fetch *fetch, struct err *err)
{
    size_t manifest_size = (size_t)fetch_manifest_size(fetch);
    uint8_t *manifest = malloc(manifest_size);
    uint8_t *table = NULL;
    uint64_t table_size = 0;
    ASSERT(manifest != NULL); /* At most FETCH_MANIFEST_MAX. */
    int code = fetch_whole(fetch, SHARE_MANIFEST, manifest, manifest_size, err);
    code = code == 0 ? dataset_copy_table_size(manifest, manifest_size, f->load->dataset,
                                               &table_size, err)
                     : code;
    if (code == 0 && table_size != fetch_table_size(fetch)) {
        code = err_set(err, ERR_DAMAGED, "its table of blocks is of %llu bytes, not %llu",
                       (unsigned long long)fetch_table_size(fetch), (unsigned long long)table_size);
    }
    if (code == 0 && (table = malloc((size_t)table_size + 1)) == NULL) {
        code = own(f, err_set(err, ERR_NOMEM, "no memory for a table of %llu bytes",
                              (unsigned long long)table_size));
    }
    code = code == 0 ? fetch_whole(fetch, SHARE_TABLE, table, table_size, err) : code;
    if (code == 0) {
        code = dataset_copy_make(f->folder, f->load->dataset, manifest, manifest_size, table,
                                 (size_t)table_size, &f->copy, err);
        f->local = code != 0 && code != ERR_DAMAGED;
    }
    free(manifest);
    free(table);
    return code;
}

/* All pieces, several requests under way; the record is saved now and then, and at the end. */
static int pull_pieces(struct fetching *f, struct fetch *fetch, const struct dataset_piece *pieces,
                       size_t count, struct err *err)
{
    size_t asked = 0;
    uint64_t unsaved = 0;
    struct err saving = {0};
    int code = 0;
    for (size_t done = 0; done < count && code == 0; done++) {
        const uint8_t *bytes = NULL;
        uint32_t size = 0;
        while (asked < count && fetch_unanswered(fetch) < FETCH_WINDOW && code == 0) {
            code =
                fetch_ask(fetch, pieces[asked].part, pieces[asked].offset, pieces[asked].size, err);
            asked += code == 0 ? 1 : 0;
        }
        code = code == 0 ? fetch_take(fetch, &bytes, &size, err) : code;
        if (code == 0) {
            code = dataset_copy_put(f->copy, &pieces[done], bytes, err);
            f->local = code != 0 && code != ERR_DAMAGED;
        }
        if (code == 0) {
            f->bytes += size;
            unsaved += size;
            serve_count_in(f->run->daemon->serve, f->holder->node_id, size);
            atomic_fetch_add(&f->run->ticks, 1);
        }
        if (code == 0 && unsaved >= SAVE_BYTES) {
            unsaved = 0;
            code = own(f, dataset_copy_save(f->copy, err));
        }
    }
    if (dataset_copy_save(f->copy, &saving) != 0 && code == 0) {
        *err = saving;
        code = own(f, saving.code);
    }
    return code;
}

/* 0: all is there. fetch NULL: only what is there already; ERR_NOT_FOUND where something lacks. */
static int pull_all(struct fetching *f, struct fetch *fetch, struct err *err)
{
    for (;;) {
        struct dataset_piece *pieces = NULL;
        size_t count = 0;
        uint64_t bytes = 0;
        int code = dataset_copy_plan(f->copy, f->first, f->end, &pieces, &count, err);
        if (code != 0 || count == 0) {
            free(pieces);
            return code;
        }
        for (size_t i = 0; i < count; i++) {
            bytes += pieces[i].size;
        }
        if (fetch == NULL) {
            free(pieces);
            return err_set(err, ERR_NOT_FOUND, "the copy lacks %llu bytes",
                           (unsigned long long)bytes);
        }
        code = own(f, data_cache_room(f->run->daemon->cache, bytes, err));
        code = code == 0 ? pull_pieces(f, fetch, pieces, count, err) : code;
        free(pieces);
        if (code != 0) {
            return code;
        }
    }
}

static void drop_copy(struct fetching *f)
{
    dataset_copy_close(f->copy);
    f->copy = NULL;
    data_cache_drop(f->run->daemon->cache, f->name);
}

static int fetch_from(struct fetching *f, const struct run_holder *holder, struct err *err)
{
    struct run *run = f->run;
    const struct daemon *daemon = run->daemon;
    struct fetch_settings settings = {.cluster = daemon->cluster,
                                      .node = daemon->name,
                                      .node_id = daemon->node_id,
                                      .life = daemon->life,
                                      .incarnation = daemon->incarnation,
                                      .job = run->job,
                                      .generation = run->generation,
                                      .holder = holder->name,
                                      .holder_id = holder->node_id,
                                      .holder_life = holder->life,
                                      .address = holder->address,
                                      .trust = daemon->trust,
                                      .connect_ms = 300000, /* BUSY: others fetch at the moment */
                                      .cancel = &run->cancel,
                                      .ticks = &run->ticks};
    struct fetch *fetch = NULL;
    uint64_t begin_ns = clock_now_ns();
    uint64_t before = f->bytes;
    f->holder = holder;
    memcpy(settings.digest, f->load->dataset, SHA256_SIZE);
    int code = fetch_open(&settings, &fetch, err);
    code = code == 0 && f->copy == NULL ? begin_copy(f, fetch, err) : code;
    code = code == 0 ? pull_all(f, fetch, err) : code;
    fetch_close(fetch);
    if (code == 0 && (code = dataset_copy_check(f->copy, err)) == ERR_DAMAGED) {
        drop_copy(f);
    }
    double seconds = (double)(clock_now_ns() - begin_ns) * 1e-9;
    log_info("data.fetch", "run=%s from=%s bytes=%llu seconds=%.3f columns=%llu-%llu done=%s",
             run->name, holder->name, (unsigned long long)(f->bytes - before), seconds,
             (unsigned long long)f->first + 1, (unsigned long long)f->end,
             code == 0 ? "yes" : "no");
    return code;
}

/* What an earlier generation began, where it is whole in itself. */
static int open_old(struct fetching *f, struct err *err)
{
    int code = dataset_copy_open(f->folder, f->load->dataset, &f->copy, err);
    if (code == ERR_DAMAGED) {
        log_warning("data.copy", "run=%s error=\"%s\" next=\"it is fetched anew\"", f->run->name,
                    err->text);
        data_cache_drop(f->run->daemon->cache, f->name);
    }
    code = code == 0 ? pull_all(f, NULL, err) : code;
    if (code == ERR_NOT_FOUND || code == ERR_DAMAGED) {
        *err = (struct err){0};
        return 1; /* Holders are asked. */
    }
    return own(f, code);
}

static int ask_holders(struct fetching *f, struct err *err)
{
    const struct run_load *load = f->load;
    int code = err_set(err, ERR_PEER, "no node has the data");
    for (uint32_t i = 0; i < ROUNDS * load->holders_count; i++) {
        /* Each begins with another one: the work is spread. */
        const struct run_holder *holder = &load->holders[(i + load->rank) % load->holders_count];
        *err = (struct err){0};
        code = fetch_from(f, holder, err);
        if (code == 0 || code == ERR_CANCELED || f->local) {
            return code;
        }
        log_warning("data.fetch", "run=%s from=%s error=\"%s\" next=\"%s\"", f->run->name,
                    holder->name, err->text,
                    i + 1 < ROUNDS * load->holders_count ? "another try" : "given up");
        if (strstr(err->text, holder->name) == NULL) {
            (void)err_prefix(err, "data from node %s: ", holder->name);
        }
    }
    /* Only damage would be the same in the next generation. */
    err->code = code == ERR_DAMAGED ? code : ERR_PEER;
    return err->code;
}

int run_fetch(struct compute *c, struct err *err)
{
    struct run *run = c->run;
    const struct run_load *load = c->load;
    struct fetching f = {.run = run, .load = load};
    char hex[SHA256_HEX_SIZE];
    sha256_hex(load->dataset, hex);
    (void)snprintf(f.name, sizeof(f.name), "fetched-%s", hex);
    (void)snprintf(f.folder, sizeof(f.folder), "%s/%s", run->cache_dir, f.name);
    f.first = load->bounds[load->rank];
    f.end = load->bounds[load->rank + 1]; /* The copy clamps it: the intercept has no column. */
    run_data_hold(run, f.name);
    dataset_close(c->dataset);
    c->dataset = NULL;
    int code = open_old(&f, err);
    code = code == 1 ? ask_holders(&f, err) : code;
    dataset_copy_close(f.copy);
    if (code != 0) {
        return code;
    }
    return dataset_open(f.folder, &c->dataset, err);
}

/* checkpoint export: a whole checkpoint as JSON, CSV or NPZ. The file appears whole or not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "checkpoint/checkpoint.h"
#include "ctl/document.h"
#include "ctl/folder.h"

static void column_name(const struct checkpoint_whole *whole, uint64_t index, char *name,
                        size_t capacity)
{
    if (whole->columns != NULL && index < whole->columns_count) {
        (void)snprintf(name, capacity, "%s", whole->columns[index]);
    } else {
        (void)snprintf(name, capacity, "%llu", (unsigned long long)index + 1);
    }
}

/* Zeros of infinite or missing places do not exist in a published checkpoint: all are finite. */
static void put_json(const struct checkpoint_whole *whole, struct buf *out)
{
    const struct manifest *manifest = &whole->manifest;
    char hex[SHA256_HEX_SIZE];
    sha256_hex(manifest->parameter_sha256, hex);
    buf_print(out,
              "{\"schema\": 1, \"name\": \"%s\", \"epoch\": %llu, \"step\": %llu, \"policy\": "
              "\"%s\",\n \"parameter_sha256\": \"%s\",\n \"coordinates\": [",
              manifest->name, (unsigned long long)manifest->epoch,
              (unsigned long long)manifest->step, manifest->policy, hex);
    for (uint64_t i = 0; i < manifest->coordinates; i++) {
        char name[1100];
        column_name(whole, i, name, sizeof(name));
        json_t *text = json_string(name);
        char *quoted = text != NULL ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
        buf_print(out, "%s\n  {\"name\": %s, \"parameter\": %.17g, \"accumulator\": %.17g",
                  i > 0 ? "," : "", quoted != NULL ? quoted : "null", whole->parameter[i],
                  whole->accumulator[i]);
        if (whole->mean != NULL) {
            buf_print(out, ", \"mean\": %.17g, \"scale\": %.17g", whole->mean[i], whole->scale[i]);
        }
        buf_print(out, "}");
        free(quoted);
        json_decref(text);
    }
    buf_print(out, "\n]}\n");
}

static void put_csv(const struct checkpoint_whole *whole, struct buf *out)
{
    buf_print(out, "name,parameter,accumulator%s\n", whole->mean != NULL ? ",mean,scale" : "");
    for (uint64_t i = 0; i < whole->manifest.coordinates; i++) {
        char name[1100];
        column_name(whole, i, name, sizeof(name));
        bool quote = strpbrk(name, ",\"\r\n") != NULL;
        buf_print(out, "%s", quote ? "\"" : "");
        for (const char *at = name; *at != '\0'; at++) {
            buf_print(out, *at == '"' ? "\"%c" : "%c", *at);
        }
        buf_print(out, "%s,%.17g,%.17g", quote ? "\"" : "", whole->parameter[i],
                  whole->accumulator[i]);
        if (whole->mean != NULL) {
            buf_print(out, ",%.17g,%.17g", whole->mean[i], whole->scale[i]);
        }
        buf_print(out, "\n");
    }
}

/* One member of an NPZ: a ZIP entry, stored, of an NPY file of binary64. */
static void put_npy_entry(const char *name, const double *values, uint64_t count, struct buf *out,
                          struct buf *central, unsigned *entries)
{
    struct buf npy = BUF_NONE;
    struct buf header = BUF_NONE;
    buf_print(&header, "{'descr': '<f8', 'fortran_order': False, 'shape': (%llu,), }",
              (unsigned long long)count);
    while ((10 + header.size + 1) % 64 != 0) {
        buf_print(&header, " ");
    }
    buf_print(&header, "\n");
    buf_put(&npy, "\x93NUMPY\x01\x00", 8);
    buf_put_u16(&npy, (uint16_t)header.size);
    buf_put(&npy, header.bytes, header.size);
    for (uint64_t i = 0; i < count; i++) {
        buf_put_f64(&npy, values[i]);
    }
    uint32_t crc = (uint32_t)crc32_z(0, npy.bytes, npy.size);
    uint32_t offset = (uint32_t)out->size;
    uint16_t name_size = (uint16_t)strlen(name);
    for (int in_central = 0; in_central < 2; in_central++) {
        struct buf *to = in_central ? central : out;
        buf_put_u32(to, in_central ? 0x02014b50U : 0x04034b50U);
        if (in_central) {
            buf_put_u16(to, 20); /* made by */
        }
        buf_put_u16(to, 20);          /* needed */
        buf_put_u16(to, 0);           /* flags */
        buf_put_u16(to, 0);           /* stored */
        buf_put_u32(to, 0x00210000U); /* 1980-01-01: the same bytes each time */
        buf_put_u32(to, crc);
        buf_put_u32(to, (uint32_t)npy.size);
        buf_put_u32(to, (uint32_t)npy.size);
        buf_put_u16(to, name_size);
        buf_put_u16(to, 0); /* extra */
        if (in_central) {
            buf_put_u16(to, 0); /* comment */
            buf_put_u16(to, 0); /* disk */
            buf_put_u16(to, 0); /* internal */
            buf_put_u32(to, 0); /* external */
            buf_put_u32(to, offset);
        }
        buf_put(to, name, name_size);
    }
    buf_put(out, npy.bytes, npy.size);
    (*entries)++;
    buf_done(&header);
    buf_done(&npy);
}

static int put_npz(const struct checkpoint_whole *whole, struct buf *out, struct problem *problem)
{
    struct buf central = BUF_NONE;
    unsigned entries = 0;
    uint64_t count = whole->manifest.coordinates;
    if (count > (UINT64_C(1) << 26)) { /* four vectors stay below ZIP's 4 GiB */
        problem_hint(problem, "the shards are safetensors files, which NumPy users open too");
        return problem_set(problem, ERR_USAGE, "%llu coordinates do not fit an NPZ of 4 GiB",
                           (unsigned long long)count);
    }
    put_npy_entry("parameter.npy", whole->parameter, count, out, &central, &entries);
    put_npy_entry("accumulator.npy", whole->accumulator, count, out, &central, &entries);
    if (whole->mean != NULL) {
        put_npy_entry("mean.npy", whole->mean, count, out, &central, &entries);
        put_npy_entry("scale.npy", whole->scale, count, out, &central, &entries);
    }
    uint32_t start = (uint32_t)out->size;
    buf_put(out, central.bytes, central.size);
    buf_put_u32(out, 0x06054b50U);
    buf_put_u16(out, 0);
    buf_put_u16(out, 0);
    buf_put_u16(out, (uint16_t)entries);
    buf_put_u16(out, (uint16_t)entries);
    buf_put_u32(out, (uint32_t)central.size);
    buf_put_u32(out, start);
    buf_put_u16(out, 0);
    buf_done(&central);
    return 0;
}

static void draw_export(const struct ctl *ctl, const json_t *document, struct buf *out)
{
    buf_print(out, "%s: %lld coordinates as %s\n", document_text(document, "output"),
              (long long)document_integer(document, "coordinates"),
              document_text(document, "format"));
    (void)ctl;
}

static int write_out(const char *output, const struct buf *bytes, struct problem *problem)
{
    struct folder target;
    int code = folder_make(output, &target, problem);
    if (code == 0) {
        code = fs_replace(target.fs, target.name, bytes->bytes, bytes->size, &problem->err);
        folder_close(&target);
    }
    return code;
}

int run_checkpoint_export(struct ctl *ctl, struct problem *problem)
{
    const char *format = ctl->args.value[FLAG_FORMAT];
    const char *output = ctl->args.value[FLAG_OUTPUT];
    struct folder folder;
    struct checkpoint_whole whole;
    struct buf out = BUF_NONE;
    if (format == NULL || output == NULL) {
        problem_hint(problem, "give --format json, csv or npz, and --output PATH");
        return problem_set(problem, ERR_USAGE, "%s is missing",
                           format == NULL ? "--format" : "--output");
    }
    if (strcmp(format, "json") != 0 && strcmp(format, "csv") != 0 && strcmp(format, "npz") != 0) {
        problem_hint(problem, "give --format json, csv or npz");
        return problem_set(problem, ERR_USAGE, "--format %s is not a form of export", format);
    }
    int code = folder_open(ctl->args.words[0], &folder, problem);
    if (code != 0) {
        return code;
    }
    code = checkpoint_read_whole(folder.fs, folder.name, &whole, &problem->err);
    if (code != 0) {
        (void)err_prefix(&problem->err, "%s: ", ctl->args.words[0]);
        folder_close(&folder);
        return code;
    }
    if (strcmp(format, "json") == 0) {
        put_json(&whole, &out);
    } else if (strcmp(format, "csv") == 0) {
        put_csv(&whole, &out);
    } else {
        code = put_npz(&whole, &out, problem);
    }
    if (code == 0) {
        code = write_out(output, &out, problem);
    }
    if (code == 0) {
        json_t *document = json_pack("{s:i, s:s, s:s, s:s, s:I}", "schema", 1, "folder",
                                     folder.path, "output", output, "format", format, "coordinates",
                                     (json_int_t)whole.manifest.coordinates);
        code = output_document(ctl, document, NULL, "output", draw_export, problem);
        json_decref(document);
    }
    buf_done(&out);
    checkpoint_whole_done(&whole);
    folder_close(&folder);
    return code;
}

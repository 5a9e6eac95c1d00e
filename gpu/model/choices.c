#include "gpu/model/choices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gpu/gpu.h"
#include "gpu/model/tiles.h"

#define LINE_SIZE 256

/* tiles.choices, kept in the binary. */
__asm__(".pushsection .rodata\n"
        ".hidden model_choices_text\n"
        ".globl model_choices_text\n"
        "model_choices_text:\n"
        ".incbin \"" COPPELIUS_TILES_CHOICES "\"\n"
        ".hidden model_choices_end\n"
        ".globl model_choices_end\n"
        "model_choices_end:\n"
        ".byte 0\n"
        ".popsection\n");
extern const char model_choices_text[];
extern const char model_choices_end[];

struct line {
    int architecture;
    uint32_t sequences;
    char name[IMAGE_NAME_SIZE];
    struct model_choice choice;
};

static bool parse(const char *text, struct line *ret)
{
    struct model_choice *choice = &ret->choice;
    return sscanf(text,
                  "sm_%d %u %63s tile=%d split=%u us=%lf tflops=%lf registers=%u local=%u "
                  "shared=%u blocks=%u",
                  &ret->architecture, &ret->sequences, ret->name, &choice->tile, &choice->split,
                  &choice->microseconds, &choice->tflops, &choice->registers, &choice->local_bytes,
                  &choice->shared_bytes, &choice->blocks) == 11;
}

static bool serves(const struct line *line, const struct model_launch *launch)
{
    struct model_launch with = *launch;
    with.split = line->choice.split;
    return model_tile_serves(line->choice.tile, &with);
}

/* Is the line for the product, rather than the one found before? */
static bool better(const struct line *line, const struct line *found, uint32_t sequences)
{
    if (found->architecture == 0 ||
        (line->sequences <= sequences && found->sequences > sequences)) {
        return true;
    }
    return line->sequences <= sequences ? line->sequences > found->sequences
                                        : line->sequences < found->sequences;
}

/* Copies the line at `at`, without its feed, where it is one of the table; returns where the next
 * begins. ERR_CONFIG where it is too long or says nothing. *ret_is: it is a line, in *ret_line. */
static int next_line(const char *text, size_t size, const char *origin, unsigned number, size_t *at,
                     bool *ret_is, struct line *ret_line, struct err *err)
{
    const char *start = text + *at;
    const char *end = memchr(start, '\n', size - *at);
    const size_t length = end != NULL ? (size_t)(end - start) : size - *at;
    char copy[LINE_SIZE];
    *at += length + 1;
    *ret_is = length != 0 && start[0] != '#';
    if (!*ret_is) {
        return 0;
    }
    if (length >= sizeof(copy) || memchr(start, '\0', length) != NULL) {
        return err_set(err, ERR_CONFIG, "%s:%u: no line of text of at most %d bytes", origin,
                       number, LINE_SIZE - 1);
    }
    memcpy(copy, start, length);
    copy[length] = '\0';
    if (!parse(copy, ret_line)) {
        return err_set(err, ERR_CONFIG, "%s:%u: not a choice: '%s'", origin, number, copy);
    }
    return 0;
}

int model_choice_in(const char *text, size_t size, const char *origin, int architecture,
                    const char *name, uint32_t sequences, const struct model_launch *launch,
                    struct model_choice *ret_choice, struct err *err)
{
    struct line own = {.architecture = 0};
    struct line family = {.architecture = 0};
    size_t at = 0;
    for (unsigned number = 1; at < size; number++) {
        struct line line;
        bool is = false;
        int status = next_line(text, size, origin, number, &at, &is, &line, err);
        if (status != 0) {
            return status;
        }
        if (!is || line.architecture != architecture) {
            continue;
        }
        if (strcmp(line.name, name) == 0 && better(&line, &own, sequences)) {
            own = line;
        } else if (family.architecture == 0 && strlen(line.name) == sizeof("tiled-rr") - 1 &&
                   strncmp(line.name, name, sizeof("tiled-rr") - 1) == 0 && serves(&line, launch)) {
            family = line;
        }
    }
    const struct line *found = own.architecture != 0 ? &own : &family;
    if (found->architecture == 0) {
        return err_set(err, ERR_DEVICE,
                       "product '%s' has no measured choice for sm_%d in %s: run 'coppeliusctl "
                       "bench tiles > tiles.choices' on such a GPU and give the daemon the file as "
                       "'tile_choices:'",
                       name, architecture, origin);
    }
    if (!serves(found, launch)) {
        return err_set(err, ERR_DEVICE,
                       "product '%s': the choice for it on sm_%d in %s, tile %d in %u parts, does "
                       "not serve %u x %u x %u: run 'coppeliusctl bench tiles > tiles.choices' and "
                       "give the daemon the file as 'tile_choices:'",
                       name, architecture, origin, found->choice.tile, found->choice.split,
                       launch->m, launch->n, launch->k);
    }
    *ret_choice = found->choice;
    return 0;
}

/* Has the table a line of that architecture? It was checked. */
static bool knows(const struct model_choices *own, int architecture)
{
    size_t at = 0;
    bool found = false;
    while (own != NULL && own->text != NULL && at < own->size && !found) {
        struct line line;
        bool is = false;
        struct err none;
        found = next_line(own->text, own->size, own->path, 0, &at, &is, &line, &none) == 0 && is &&
                line.architecture == architecture;
    }
    return found;
}

int model_choice_find(const struct model_choices *own, int architecture, const char *name,
                      uint32_t sequences, const struct model_launch *launch,
                      struct model_choice *ret_choice, struct err *err)
{
    if (knows(own, architecture)) {
        return model_choice_in(own->text, own->size, own->path, architecture, name, sequences,
                               launch, ret_choice, err);
    }
    return model_choice_in(model_choices_text, (size_t)(model_choices_end - model_choices_text),
                           "the built-in table", architecture, name, sequences, launch, ret_choice,
                           err);
}

/* -- a table of one's own ----------------------------------------------------------------------
 */

static int check_all(const struct model_choices *choices, struct err *err)
{
    size_t at = 0;
    size_t lines = 0;
    for (unsigned number = 1; at < choices->size; number++) {
        struct line line;
        bool is = false;
        int status =
            next_line(choices->text, choices->size, choices->path, number, &at, &is, &line, err);
        if (status != 0) {
            return status;
        }
        if (is && (line.choice.tile < 0 || line.choice.tile >= MODEL_TILES_COUNT)) {
            return err_set(err, ERR_CONFIG, "%s:%u: tile %d: this build has 0 to %d", choices->path,
                           number, line.choice.tile, MODEL_TILES_COUNT - 1);
        }
        lines += is ? 1 : 0;
    }
    return lines != 0 ? 0
                      : err_set(err, ERR_CONFIG,
                                "%s: a table without a line; 'coppeliusctl bench tiles' makes one",
                                choices->path);
}

int model_choices_init(struct model_choices *choices, const char *path, struct err *err)
{
    struct model_choices made = {.text = NULL};
    int status = 0;
    if (snprintf(made.path, sizeof(made.path), "%s", path) >= (int)sizeof(made.path)) {
        return err_set(err, ERR_CONFIG, "'%.64s…': a path of at most %zu bytes", path,
                       sizeof(made.path) - 1);
    }
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DISK, "%s: cannot be opened: %s",
                       path, err_errno(errno));
    }
    made.text = malloc(MODEL_CHOICES_MAX + 1);
    if (made.text == NULL) {
        status = err_set(err, ERR_NOMEM, "%s: no memory for it", path);
    } else {
        made.size = fread(made.text, 1, MODEL_CHOICES_MAX + 1, file);
        if (ferror(file) != 0) {
            status = err_set(err, ERR_DISK, "%s: cannot be read: %s", path, err_errno(errno));
        } else if (made.size > MODEL_CHOICES_MAX) {
            status = err_set(err, ERR_CONFIG, "%s: more than %u bytes", path, MODEL_CHOICES_MAX);
        } else {
            status = check_all(&made, err);
        }
    }
    (void)fclose(file);
    if (status != 0) {
        model_choices_done(&made);
        return status;
    }
    *choices = made;
    return 0;
}

void model_choices_done(struct model_choices *choices)
{
    free(choices->text);
    choices->text = NULL;
    choices->size = 0;
}

void model_choices_count(const struct model_choices *own, int architecture,
                         const struct model_shape *shape, size_t *ret_served, size_t *ret_count,
                         struct err *ret_missing)
{
    static const uint32_t sequences[] = {1, 16, 64};
    struct model_name names[MODEL_PRODUCTS_MAX];
    const size_t count = model_products(shape, names);
    size_t served = 0;
    for (size_t i = 0; i < count; i++) {
        size_t good = 0;
        for (size_t s = 0; s < sizeof(sequences) / sizeof(sequences[0]); s++) {
            struct model_launch launch = {.shape = *shape};
            const struct model_image *image = NULL;
            struct model_choice choice;
            struct err why = {0};
            int status = model_image_find(names[i].text, &launch, &image, &why);
            ASSERT(status == 0);
            model_launch_sequences(&launch, sequences[s]);
            launch.half_out = launch.add == 0 && launch.a_columns == 0;
            status = model_choice_find(own, architecture, names[i].text, sequences[s], &launch,
                                       &choice, &why);
            good += status == 0 ? 1 : 0;
            if (status != 0 && served == i && good == s) {
                *ret_missing = why;
            }
        }
        served += good == sizeof(sequences) / sizeof(sequences[0]) ? 1 : 0;
    }
    *ret_served = served;
    *ret_count = count;
}

size_t model_choice_line(const struct model_choice *choice, int architecture, const char *name,
                         uint32_t sequences, char *text, size_t capacity)
{
    int size = snprintf(text, capacity,
                        "sm_%d %u %s tile=%d split=%u us=%.1f tflops=%.0f registers=%u local=%u "
                        "shared=%u blocks=%u\n",
                        architecture, sequences, name, choice->tile, choice->split,
                        choice->microseconds, choice->tflops, choice->registers,
                        choice->local_bytes, choice->shared_bytes, choice->blocks);
    return size < 0 || (size_t)size >= capacity ? 0 : (size_t)size;
}

int gpu_check_tiles(const char *path, int architecture, size_t *ret_served, size_t *ret_count,
                    struct err *ret_missing, struct err *err)
{
    static const struct model_shape shape = {1, 1024, 512, 8, 64, 1408, 12288};
    struct model_choices own = {.text = NULL};
    int status = path[0] != '\0' ? model_choices_init(&own, path, err) : 0;
    if (status == 0 && architecture != 0) {
        model_choices_count(&own, architecture, &shape, ret_served, ret_count, ret_missing);
    }
    model_choices_done(&own);
    return status;
}

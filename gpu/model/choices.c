#include "gpu/model/choices.h"

#include <stdio.h>
#include <string.h>

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

int model_choice_in(const char *text, size_t size, int architecture, const char *name,
                    uint32_t sequences, const struct model_launch *launch,
                    struct model_choice *ret_choice, struct err *err)
{
    struct line own = {.architecture = 0};
    struct line family = {.architecture = 0};
    size_t at = 0;
    for (unsigned number = 1; at < size; number++) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : size - at;
        char copy[LINE_SIZE];
        struct line line;
        if (length != 0 && text[at] != '#') {
            if (length >= sizeof(copy)) {
                return err_set(err, ERR_DEVICE, "tiles.choices:%u: a line of %zu bytes", number,
                               length);
            }
            memcpy(copy, text + at, length);
            copy[length] = '\0';
            if (!parse(copy, &line)) {
                return err_set(err, ERR_DEVICE, "tiles.choices:%u: not a choice: '%s'", number,
                               copy);
            }
            if (line.architecture == architecture && strcmp(line.name, name) == 0 &&
                better(&line, &own, sequences)) {
                own = line;
            } else if (line.architecture == architecture && family.architecture == 0 &&
                       strlen(line.name) == sizeof("tiled-rr") - 1 &&
                       strncmp(line.name, name, sizeof("tiled-rr") - 1) == 0 &&
                       serves(&line, launch)) {
                family = line;
            }
        }
        at += length + 1;
    }
    const struct line *found = own.architecture != 0 ? &own : &family;
    if (found->architecture == 0) {
        return err_set(err, ERR_DEVICE,
                       "device image '%s': no tile was chosen for it on sm_%d: measure with "
                       "'coppeliusctl bench tiles'",
                       name, architecture);
    }
    if (!serves(found, launch)) {
        return err_set(err, ERR_DEVICE,
                       "device image '%s': the tile chosen for it on sm_%d, %d in %u parts, does "
                       "not serve %u x %u x %u: measure with 'coppeliusctl bench tiles'",
                       name, architecture, found->choice.tile, found->choice.split, launch->m,
                       launch->n, launch->k);
    }
    *ret_choice = found->choice;
    return 0;
}

int model_choice_find(int architecture, const char *name, uint32_t sequences,
                      const struct model_launch *launch, struct model_choice *ret_choice,
                      struct err *err)
{
    return model_choice_in(model_choices_text, (size_t)(model_choices_end - model_choices_text),
                           architecture, name, sequences, launch, ret_choice, err);
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

#include "gpu/arena.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

static bool is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

int arena_add(struct arena *arena, const char *name, uint64_t bytes, uint64_t alignment,
              struct err *err)
{
    ASSERT(!arena->certified);
    ASSERT(is_power_of_two(alignment));
    if (arena->regions_count == ARENA_REGIONS_MAX) {
        return err_set(err, ERR_INTERNAL, "arena: no place for region '%s'; the most is %d regions",
                       name, ARENA_REGIONS_MAX);
    }
    if (strlen(name) >= ARENA_NAME_SIZE) {
        return err_set(err, ERR_INTERNAL, "arena: the name '%s' is too long", name);
    }
    uint64_t offset = (arena->bytes + alignment - 1) & ~(alignment - 1);
    if (bytes > ARENA_BYTES_MAX || offset > ARENA_BYTES_MAX - bytes) {
        return err_set(err, ERR_NOMEM, "arena: region '%s' of %llu bytes is beyond any memory",
                       name, (unsigned long long)bytes);
    }
    struct arena_region *region = &arena->regions[arena->regions_count];
    *region = (struct arena_region){.offset = offset, .bytes = bytes, .alignment = alignment};
    memcpy(region->name, name, strlen(name) + 1);
    arena->bytes = offset + bytes;
    return (int)arena->regions_count++;
}

const struct arena_region *arena_find(const struct arena *arena, const char *name)
{
    for (size_t i = 0; i < arena->regions_count; i++) {
        if (strcmp(arena->regions[i].name, name) == 0) {
            return &arena->regions[i];
        }
    }
    return NULL;
}

/* What is wrong with one region on its own, or NULL. */
static const char *fault_of(const struct arena *arena, const struct arena_region *region)
{
    if (region->name[0] == '\0' || memchr(region->name, '\0', sizeof(region->name)) == NULL) {
        return "has no name";
    }
    if (!is_power_of_two(region->alignment) || region->alignment > ARENA_BASE_ALIGNMENT) {
        return "has an alignment that the base does not keep";
    }
    if (region->offset % region->alignment != 0) {
        return "is not aligned";
    }
    if (region->bytes > arena->bytes || region->offset > arena->bytes - region->bytes) {
        return "is out of bounds";
    }
    return NULL;
}

int arena_certify(struct arena *arena, struct err *err)
{
    ASSERT(arena->regions_count <= ARENA_REGIONS_MAX);
    for (size_t i = 0; i < arena->regions_count; i++) {
        const struct arena_region *region = &arena->regions[i];
        const char *fault = fault_of(arena, region);
        if (fault != NULL) {
            return err_set(err, ERR_STATE,
                           "arena: region '%.*s' %s (offset %llu, %llu bytes of %llu)",
                           ARENA_NAME_SIZE, region->name, fault, (unsigned long long)region->offset,
                           (unsigned long long)region->bytes, (unsigned long long)arena->bytes);
        }
        for (size_t j = 0; j < i; j++) {
            const struct arena_region *other = &arena->regions[j];
            if (strcmp(region->name, other->name) == 0) {
                return err_set(err, ERR_STATE, "arena: two regions are named '%s'", region->name);
            }
            bool apart = region->bytes == 0 || other->bytes == 0 ||
                         region->offset >= other->offset + other->bytes ||
                         other->offset >= region->offset + region->bytes;
            if (!apart) {
                return err_set(err, ERR_STATE, "arena: regions '%s' and '%s' overlap", other->name,
                               region->name);
            }
        }
    }
    arena->certified = true;
    return 0;
}

void arena_print(const struct arena *arena, struct buf *text)
{
    buf_print(text, "%-24s %16s %16s %9s\n", "region", "offset", "bytes", "alignment");
    for (size_t i = 0; i < arena->regions_count; i++) {
        const struct arena_region *region = &arena->regions[i];
        buf_print(text, "%-24s %16llu %16llu %9llu\n", region->name,
                  (unsigned long long)region->offset, (unsigned long long)region->bytes,
                  (unsigned long long)region->alignment);
    }
    buf_print(text, "%-24s %16s %16llu %9s\n", "arena", "", (unsigned long long)arena->bytes,
              arena->certified ? "certified" : "");
}

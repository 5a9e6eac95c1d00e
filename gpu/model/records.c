#include "gpu/model/records.h"

#include <stdio.h>
#include <string.h>

#include "gpu/cuda.h"

__asm__(".pushsection .rodata\n"
        ".hidden model_records_text\n"
        ".globl model_records_text\n"
        "model_records_text:\n"
        ".incbin \"" COPPELIUS_MODEL_RECORDS "\"\n"
        ".hidden model_records_end\n"
        ".globl model_records_end\n"
        "model_records_end:\n"
        ".byte 0\n"
        ".popsection\n");
extern const char model_records_text[];
extern const char model_records_end[];

void model_record_name(const char *entry, enum model_half half, char ret[IMAGE_NAME_SIZE])
{
    (void)snprintf(ret, IMAGE_NAME_SIZE, "%s-%s", entry, half == MODEL_HALF_FP16 ? "fp16" : "bf16");
    for (char *at = ret; *at != '\0'; at++) {
        *at = *at == '_' ? '-' : *at;
    }
}

int model_record_find(const char *entry, enum model_half half, int architecture,
                      struct image_record *ret_record, struct err *err)
{
    char name[IMAGE_NAME_SIZE];
    model_record_name(entry, half, name);
    return cuda_record_find(model_records_text, (size_t)(model_records_end - model_records_text),
                            name, architecture, ret_record, err);
}

int model_record_check(const char *entry, enum model_half half, int architecture,
                       const struct image_record *reported, struct err *err)
{
    char name[IMAGE_NAME_SIZE];
    model_record_name(entry, half, name);
    struct image_record record;
    int status = model_record_find(entry, half, architecture, &record, err);
    return status != 0 ? status : cuda_record_check(name, architecture, &record, reported, err);
}

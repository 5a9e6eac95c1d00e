/* Replays every file of the corpus folders named on the command line through the fuzz target of
 * this program, so that a fixed crash stays fixed where no libFuzzer is. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return -1;
    }
    static uint8_t bytes[1 << 20];
    size_t size = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    uint8_t *exact = malloc(size > 0 ? size : 1); /* Its own block, so that ASan sees each overrun. */
    if (exact == NULL) {
        return -1;
    }
    for (size_t i = 0; i < size; i++) {
        exact[i] = bytes[i];
    }
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            perror(argv[i]);
            return 1;
        }
        for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
            char path[4096];
            if (entry->d_name[0] == '.') {
                continue;
            }
            (void)snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
            if (replay_file(path) != 0) {
                return 1;
            }
            files++;
        }
        (void)closedir(folder);
    }
    printf("%d corpus files replayed\n", files);
    return files > 0 ? 0 : 1;
}

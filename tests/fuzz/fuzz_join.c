/* What joiner and host parse of each other, and what an operator pastes: by the first byte a
 * token's text, a wish with its request for a certificate, an answer with its certificates, the
 * authority's file of tokens. Either it is refused with a sentence, or what came out keeps its own
 * rules. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "tests/lib/trust_files.h"
#include "trust/join_room.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct test_folder folder;
static char authority[256];

static void done(void)
{
    test_folder_close(&folder);
}

static void try_token(const uint8_t *data, size_t size)
{
    char text[200];
    struct token token;
    struct err err = {0};
    size_t taken = size < sizeof(text) - 1 ? size : sizeof(text) - 1;
    memcpy(text, data, taken);
    text[taken] = '\0';
    if (token_parse(text, &token, &err) == 0) {
        ASSERT(strlen(token.id) == TOKEN_ID_SIZE - 1);
        ASSERT(strlen(token.secret) == TOKEN_SECRET_SIZE - 1);
    } else {
        ASSERT(err.text[0] != '\0');
    }
}

static void try_wish(const uint8_t *data, size_t size)
{
    struct join_wish wish = {.name = ""};
    struct buf request = BUF_NONE;
    struct err err = {0};
    if (join_read_wish(data, size, &wish, &request, &err) == 0) {
        ASSERT(identity_is_name(wish.name));
        ASSERT(request.size > 0 && request.size <= AUTHORITY_REQUEST_MAX);
    } else {
        ASSERT(err.text[0] != '\0');
        ASSERT(wish.name[0] == '\0');
    }
    buf_done(&request);
}

static void try_answer(const uint8_t *data, size_t size)
{
    struct reader reader = {data, size, false};
    struct join_answer answer = JOIN_ANSWER_NONE;
    struct join_wish wish = {.name = "b"};
    struct token token = {.id = ""};
    struct err err = {0};
    int code = join_read_answer(&reader, &answer, &err);
    /* No authority has the pin of zeros. */
    ASSERT(code != 0 || join_check_answer(&token, &wish, data, size, &answer, &err) != 0);
    ASSERT(err.text[0] != '\0');
    join_answer_done(&answer);
}

static void try_file(const uint8_t *data, size_t size)
{
    char path[300];
    struct buf bytes = BUF_NONE;
    struct token_verifier verifier;
    struct err err = {0};
    (void)snprintf(path, sizeof(path), "%s/tokens", authority);
    buf_put(&bytes, data, size);
    ASSERT(authority_write(path, /* secret= */ true, &bytes, &err) == 0);
    if (token_find(authority, "AAAAAAAAAAAA", &verifier, &err) == 0) {
        ASSERT(token_take(authority, "AAAAAAAAAAAA", &verifier, 1, &err) == 0);
    } else {
        ASSERT(err.text[0] != '\0');
    }
    buf_done(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {try_token, try_wish, try_answer,
                                                             try_file};
    if (authority[0] == '\0') {
        test_folder_open(&folder);
        trust_make_authority(&folder, "ca", "test");
        trust_file(&folder, "ca", authority);
        ASSERT(atexit(done) == 0);
    }
    if (size > 0) {
        tries[data[0] % 4](data + 1, size - 1);
    }
    return 0;
}

#include "trust/proof.h"

#include <string.h>

#include "base/assert.h"
#include "trust/openssl.h"

static void derive(const char *secret, const char *label, uint8_t ret_key[TOKEN_KEY_SIZE])
{
    unsigned size = 0;
    uint8_t digest[EVP_MAX_MD_SIZE];
    ASSERT(HMAC(EVP_sha256(), secret, (int)strlen(secret), (const unsigned char *)label,
                strlen(label), digest, &size) != NULL);
    ASSERT(size == TOKEN_KEY_SIZE);
    memcpy(ret_key, digest, TOKEN_KEY_SIZE);
    OPENSSL_cleanse(digest, sizeof(digest));
}

static EVP_PKEY *joiner_key(const char *secret)
{
    uint8_t seed[TOKEN_KEY_SIZE];
    derive(secret, "coppelius token 2 joiner", seed);
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, sizeof(seed));
    OPENSSL_cleanse(seed, sizeof(seed));
    ASSERT(key != NULL);
    return key;
}

void proof_verifier(const char *secret, struct token_verifier *ret_verifier)
{
    size_t size = sizeof(ret_verifier->joiner);
    EVP_PKEY *key = joiner_key(secret);
    ASSERT(EVP_PKEY_get_raw_public_key(key, ret_verifier->joiner, &size) == 1);
    ASSERT(size == sizeof(ret_verifier->joiner));
    EVP_PKEY_free(key);
    derive(secret, "coppelius token 2 host", ret_verifier->host);
}

/* Each text with its end, so that no two scenes read the same. */
static void put_scene(struct buf *bytes, const char *who, const struct proof_scene *scene)
{
    const char *const texts[] = {"coppelius join 2", who, scene->id, scene->cluster, scene->host};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        buf_put(bytes, texts[i], strlen(texts[i]) + 1);
    }
    buf_put(bytes, scene->exporter, sizeof(scene->exporter));
}

void proof_of_host(const struct token_verifier *verifier, const struct proof_scene *scene,
                   uint8_t ret_proof[PROOF_HOST_SIZE])
{
    struct buf bytes = BUF_NONE;
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    put_scene(&bytes, "host", scene);
    ASSERT(HMAC(EVP_sha256(), verifier->host, sizeof(verifier->host), bytes.bytes, bytes.size,
                digest, &size) != NULL);
    ASSERT(size == PROOF_HOST_SIZE);
    memcpy(ret_proof, digest, PROOF_HOST_SIZE);
    buf_done(&bytes);
}

void proof_of_joiner(const char *secret, const struct proof_scene *scene, const void *message,
                     size_t size, uint8_t ret_proof[PROOF_JOINER_SIZE])
{
    struct buf bytes = BUF_NONE;
    size_t proof_size = PROOF_JOINER_SIZE;
    EVP_PKEY *key = joiner_key(secret);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    put_scene(&bytes, "joiner", scene);
    buf_put(&bytes, message, size);
    ASSERT(context != NULL);
    ASSERT(EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1);
    ASSERT(EVP_DigestSign(context, ret_proof, &proof_size, bytes.bytes, bytes.size) == 1);
    ASSERT(proof_size == PROOF_JOINER_SIZE);
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    buf_done(&bytes);
}

bool proof_check_joiner(const struct token_verifier *verifier, const struct proof_scene *scene,
                        const void *message, size_t size, const uint8_t proof[PROOF_JOINER_SIZE])
{
    struct buf bytes = BUF_NONE;
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, verifier->joiner,
                                                sizeof(verifier->joiner));
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    put_scene(&bytes, "joiner", scene);
    buf_put(&bytes, message, size);
    ASSERT(context != NULL);
    bool good = key != NULL && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
                EVP_DigestVerify(context, proof, PROOF_JOINER_SIZE, bytes.bytes, bytes.size) == 1;
    ERR_clear_error();
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    buf_done(&bytes);
    return good;
}

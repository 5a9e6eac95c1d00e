#include "tests/bench/aes_gcm.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

#define RECORD   16384
#define BATCH    16 /* records: as much as a bulk frame, so that the caches see the same */
#define FAR_SIZE ((size_t)64 << 20)

struct aes_gcm {
    EVP_CIPHER_CTX *seal, *open;
    unsigned char *from, *to; /* FAR_SIZE each */
    unsigned char *sealed;    /* BATCH records */
    unsigned char tags[BATCH][16];
    size_t at;
};

static double thread_s(void)
{
    struct timespec now;
    ASSERT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct aes_gcm *aes_gcm_new(void)
{
    static const unsigned char key[16] = {1};
    static const unsigned char nonce[12] = {2};
    struct aes_gcm *aes = calloc(1, sizeof(*aes));
    ASSERT(aes != NULL);
    aes->from = malloc(FAR_SIZE);
    aes->to = malloc(FAR_SIZE);
    aes->sealed = malloc((size_t)RECORD * BATCH);
    aes->seal = EVP_CIPHER_CTX_new();
    aes->open = EVP_CIPHER_CTX_new();
    ASSERT(aes->from != NULL);
    ASSERT(aes->to != NULL);
    ASSERT(aes->sealed != NULL);
    memset(aes->from, 7, FAR_SIZE); /* Its pages are there before time counts. */
    memset(aes->to, 8, FAR_SIZE);
    memset(aes->sealed, 9, (size_t)RECORD * BATCH);
    ASSERT(EVP_EncryptInit_ex(aes->seal, EVP_aes_128_gcm(), NULL, key, nonce) == 1);
    ASSERT(EVP_DecryptInit_ex(aes->open, EVP_aes_128_gcm(), NULL, key, nonce) == 1);
    return aes;
}

void aes_gcm_free(struct aes_gcm *aes)
{
    if (aes == NULL) {
        return;
    }
    EVP_CIPHER_CTX_free(aes->seal);
    EVP_CIPHER_CTX_free(aes->open);
    free(aes->from);
    free(aes->to);
    free(aes->sealed);
    free(aes);
}

static void do_batch(struct aes_gcm *aes)
{
    static const unsigned char header[5] = {23, 3, 3, 64, 17};
    unsigned char nonce[12] = {2};
    unsigned char last[16];
    int got = 0;
    for (int r = 0; r < BATCH; r++) {
        unsigned char *to = aes->sealed + (size_t)r * RECORD;
        const unsigned char *from = aes->from + aes->at + (size_t)r * RECORD;
        nonce[11] = (unsigned char)r;
        ASSERT(EVP_EncryptInit_ex(aes->seal, NULL, NULL, NULL, nonce) == 1);
        ASSERT(EVP_EncryptUpdate(aes->seal, NULL, &got, header, 5) == 1);
        ASSERT(EVP_EncryptUpdate(aes->seal, to, &got, from, RECORD) == 1);
        ASSERT(EVP_EncryptFinal_ex(aes->seal, last, &got) == 1);
        ASSERT(EVP_CIPHER_CTX_ctrl(aes->seal, EVP_CTRL_AEAD_GET_TAG, 16, aes->tags[r]) == 1);
    }
    for (int r = 0; r < BATCH; r++) {
        unsigned char *to = aes->to + aes->at + (size_t)r * RECORD;
        const unsigned char *from = aes->sealed + (size_t)r * RECORD;
        nonce[11] = (unsigned char)r;
        ASSERT(EVP_DecryptInit_ex(aes->open, NULL, NULL, NULL, nonce) == 1);
        ASSERT(EVP_DecryptUpdate(aes->open, NULL, &got, header, 5) == 1);
        ASSERT(EVP_DecryptUpdate(aes->open, to, &got, from, RECORD) == 1);
        ASSERT(EVP_CIPHER_CTX_ctrl(aes->open, EVP_CTRL_AEAD_SET_TAG, 16, aes->tags[r]) == 1);
        ASSERT(EVP_DecryptFinal_ex(aes->open, last, &got) == 1);
    }
}

double aes_gcm_cost(struct aes_gcm *aes, enum aes_gcm_place place, double seconds)
{
    double bytes = 0;
    double spent = 0;
    if (place == AES_GCM_NEAR) {
        do_batch(aes); /* It comes from wherever it lay. */
    }
    double began = thread_s();
    do {
        do_batch(aes);
        bytes += (double)RECORD * BATCH;
        if (place == AES_GCM_FAR) {
            aes->at = (aes->at + (size_t)RECORD * BATCH) % FAR_SIZE;
        }
        spent = thread_s() - began;
    } while (spent < seconds);
    return spent * 1e9 / bytes;
}

#include "tests/bench/aes_gcm.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

#define RECORD 16384
#define BATCH  16 /* records: as much as a bulk frame, so that the caches see the same */

static double thread_s(void)
{
    struct timespec now;
    ASSERT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double aes_gcm_cost(double seconds)
{
    static const unsigned char key[16] = {1};
    unsigned char nonce[12] = {2};
    unsigned char tags[BATCH][16];
    const unsigned char header[5] = {23, 3, 3, 64, 17};
    unsigned char *plain = malloc((size_t)RECORD * BATCH);
    unsigned char *sealed = malloc((size_t)RECORD * BATCH);
    EVP_CIPHER_CTX *seal = EVP_CIPHER_CTX_new();
    EVP_CIPHER_CTX *open = EVP_CIPHER_CTX_new();
    int got = 0;
    double bytes = 0;
    ASSERT(plain != NULL);
    ASSERT(sealed != NULL);
    memset(plain, 7, (size_t)RECORD * BATCH);
    ASSERT(EVP_EncryptInit_ex(seal, EVP_aes_128_gcm(), NULL, key, nonce) == 1);
    ASSERT(EVP_DecryptInit_ex(open, EVP_aes_128_gcm(), NULL, key, nonce) == 1);
    double began = thread_s();
    while (thread_s() - began < seconds) {
        for (int r = 0; r < BATCH; r++) {
            unsigned char *at = sealed + (size_t)r * RECORD;
            nonce[11] = (unsigned char)r;
            ASSERT(EVP_EncryptInit_ex(seal, NULL, NULL, NULL, nonce) == 1);
            ASSERT(EVP_EncryptUpdate(seal, NULL, &got, header, 5) == 1);
            ASSERT(EVP_EncryptUpdate(seal, at, &got, plain + (size_t)r * RECORD, RECORD) == 1);
            ASSERT(EVP_EncryptFinal_ex(seal, at, &got) == 1);
            ASSERT(EVP_CIPHER_CTX_ctrl(seal, EVP_CTRL_AEAD_GET_TAG, 16, tags[r]) == 1);
        }
        for (int r = 0; r < BATCH; r++) {
            nonce[11] = (unsigned char)r;
            ASSERT(EVP_DecryptInit_ex(open, NULL, NULL, NULL, nonce) == 1);
            ASSERT(EVP_DecryptUpdate(open, NULL, &got, header, 5) == 1);
            ASSERT(EVP_DecryptUpdate(open, plain + (size_t)r * RECORD, &got,
                                     sealed + (size_t)r * RECORD, RECORD) == 1);
            ASSERT(EVP_CIPHER_CTX_ctrl(open, EVP_CTRL_AEAD_SET_TAG, 16, tags[r]) == 1);
            ASSERT(EVP_DecryptFinal_ex(open, plain, &got) == 1);
        }
        bytes += (double)RECORD * BATCH;
    }
    double spent = thread_s() - began;
    EVP_CIPHER_CTX_free(seal);
    EVP_CIPHER_CTX_free(open);
    free(plain);
    free(sealed);
    return spent * 1e9 / bytes;
}

/* What AES-128-GCM itself costs here: seconds of processor time for a GB sealed and the same GB
 * opened, in records of TLS (16 KiB, a header of 5 bytes), by OpenSSL's EVP. Thread: one. */
#ifndef COPPELIUS_TESTS_BENCH_AES_GCM_H
#define COPPELIUS_TESTS_BENCH_AES_GCM_H

struct aes_gcm;

enum aes_gcm_place {
    AES_GCM_NEAR, /* all in 512 KiB, which stay in the second-level cache */
    AES_GCM_FAR,  /* sealed from 64 MiB and opened to as many, in order: as vectors lie */
};

struct aes_gcm *aes_gcm_new(void);
void aes_gcm_free(struct aes_gcm *aes); /* NULL is fine */
/* Works for so long (of this thread's processor time). */
double aes_gcm_cost(struct aes_gcm *aes, enum aes_gcm_place place, double seconds);

#endif

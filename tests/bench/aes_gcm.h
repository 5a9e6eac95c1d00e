/* What AES-128-GCM itself costs here: seconds of processor time for a GB sealed and the same GB
 * opened, in records of TLS (16 KiB, a header of 5 bytes), by OpenSSL's EVP. */
#ifndef COPPELIUS_TESTS_BENCH_AES_GCM_H
#define COPPELIUS_TESTS_BENCH_AES_GCM_H

double aes_gcm_cost(double seconds);

#endif

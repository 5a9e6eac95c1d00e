/* A TCP proxy on 127.0.0.1 that delays what it carries at random, so that connections overtake each
 * other, and that can freeze or cut them. Own threads; functions may be called from any. */
#ifndef COPPELIUS_TESTS_DELAY_PROXY_H
#define COPPELIUS_TESTS_DELAY_PROXY_H

#include <stdint.h>

struct delay_proxy;

/* Listens on a free port and forwards to 127.0.0.1:target_port (which may not listen yet: each
 * connection is then closed). Each piece waits 0 .. delay_us_max-1 microseconds. */
struct delay_proxy *delay_proxy_new(uint16_t target_port, uint32_t delay_us_max, uint64_t seed);
uint16_t delay_proxy_port(const struct delay_proxy *proxy);
/* From now on nothing is carried in either direction; connections stay open. */
void delay_proxy_freeze(struct delay_proxy *proxy);
/* Cuts the newest connection; 0, or -1 when there is none. */
int delay_proxy_cut_one(struct delay_proxy *proxy);
void delay_proxy_free(struct delay_proxy *proxy);

#endif

/* What data this node can give to others: the whole datasets that its runs have opened, by digest,
 * and the server of fetches over them (peer/fetch.h over data/share.h).
 *
 * An entry stays when its run ends: the others may still fetch, also where this node takes no part
 * in the job. The newest SERVE_MAX are kept. Threads: put and get from any; open, take, close on
 * the loop; the source's calls on the server's threads. */
#ifndef COPPELIUS_DAEMON_SERVE_H
#define COPPELIUS_DAEMON_SERVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "peer/fetch.h"

#define SERVE_MAX 8

struct serve;

int serve_open(struct serve **ret_serve, struct err *err);
void serve_close(struct serve *serve); /* NULL is fine; waits for the threads */
/* The whole dataset of that digest is in the folder. */
void serve_put(struct serve *serve, const uint8_t digest[SHA256_SIZE], const char *folder);
/* A shard's file that this node has, by its digest: part 0 of a fetch is its bytes. */
struct serve_file {
    uint8_t digest[SHA256_SIZE];
    char path[1152];
};
/* The files of that job, in place of those before. What is open stays so. */
void serve_put_files(struct serve *serve, uint64_t job, const struct serve_file *files,
                     size_t count);
void serve_take(struct serve *serve, const struct peer_incoming *incoming);
/* This node fetched so many bytes of data from that one. */
void serve_count_in(struct serve *serve, uint32_t node_id, uint64_t bytes);
/* Bytes of data to ([0]) and from ([1]) that node. */
void serve_traffic(struct serve *serve, uint32_t node_id, uint64_t ret_bytes[2]);

#endif

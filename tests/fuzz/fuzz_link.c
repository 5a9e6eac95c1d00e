/* Whatever a stranger sends to the listening port: links, handshake and mesh neither crash nor keep
 * anything of it, and tell the owner of each peer that came up that it went down.
 *
 * The first byte chooses: even, the rest is sent as it is; odd, the rest is a list of records {u16
 * kind, u8 tweak, u16 size, bytes} that are sent as frames with the right check and sequence (tweak
 * 1: a wrong sequence; 2: a generation), so that what lies behind them is reached. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/log.h"
#include "dial.h"
#include "peer/peer.h"
#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uv_loop_t loop;
static struct mesh *mesh;
static int up;

static void on_up(void *context, uint32_t node_id, uint64_t incarnation)
{
    (void)context;
    (void)incarnation;
    ASSERT(node_id == 1);
    ASSERT(up == 0);
    up++;
}

static void on_down(void *context, uint32_t node_id, const char *reason)
{
    (void)context;
    ASSERT(node_id == 1);
    ASSERT(up == 1);
    ASSERT(reason[0] != '\0');
    up--;
}

static void on_message(void *context, uint32_t node_id, uint16_t kind, const uint8_t *bytes,
                       size_t size)
{
    (void)context;
    ASSERT(up == 1);
    ASSERT(node_id == 1);
    ASSERT(kind >= MESH_KIND_FIRST);
    uint8_t sum = 0; /* All of it can be read. */
    for (size_t i = 0; i < size; i++) {
        sum = (uint8_t)(sum + bytes[i]);
    }
    (void)sum;
}

static void on_incoming(void *context, const struct peer_incoming *incoming)
{
    struct peer_incoming copy = *incoming;
    (void)context;
    ASSERT(strlen(copy.hello.node) < PEER_NAME_SIZE);
    peer_refuse(&copy, ERR_BUSY, "not now");
}

static void open_mesh(void)
{
    struct err err = {0};
    const struct mesh_peer peers[] = {{.node_id = 1, .name = "a", .address = "127.0.0.1:9"}};
    struct mesh_settings settings = {.cluster = "test",
                                     .name = "b",
                                     .node_id = 2,
                                     .incarnation = 5,
                                     .listen = "127.0.0.1:0",
                                     .peers = peers,
                                     .peers_count = 1,
                                     .on_up = on_up,
                                     .on_down = on_down,
                                     .on_message = on_message,
                                     .on_bulk = on_incoming,
                                     .on_ctl = on_incoming};
    log_set_level(LOG_LEVEL_ERROR);
    ASSERT(uv_loop_init(&loop) == 0);
    ASSERT(mesh_open(&settings, &loop, &mesh, &err) == 0);
}

static void put_frames(struct buf *bytes, const uint8_t *data, size_t size)
{
    struct reader reader = {data, size, false};
    uint64_t sequence = 0;
    while (reader.size >= 5) {
        uint16_t kind = read_u16(&reader);
        uint8_t tweak = read_u8(&reader);
        size_t body_size = read_u16(&reader);
        body_size = body_size < reader.size ? body_size : reader.size;
        struct frame frame = {.kind = kind,
                              .generation = (tweak & 2U) != 0 ? 7 : 0,
                              .sequence = sequence++ + (tweak & 1U),
                              .body = reader.bytes,
                              .body_size = body_size};
        frame_write(bytes, &frame);
        reader.bytes += body_size;
        reader.size -= body_size;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf bytes = BUF_NONE;
    char answer[4096];
    if (mesh == NULL) {
        open_mesh();
    }
    if (size == 0 || size > 100000) {
        return 0;
    }
    if ((data[0] & 1U) != 0) {
        put_frames(&bytes, data + 1, size - 1);
    } else {
        buf_put(&bytes, data + 1, size - 1);
    }
    int fd = dial(mesh_port(mesh));
    /* The other end may refuse, close and reset before all is sent: so be it. */
    (void)send(fd, bytes.bytes, bytes.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    for (int turn = 0; turn < 1000; turn++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            break;
        }
    }
    (void)close(fd);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    struct mesh_stats stats;
    mesh_stats(mesh, &stats);
    ASSERT(up == 0);
    ASSERT(stats.peers_up == 0);
    buf_done(&bytes);
    return 0;
}

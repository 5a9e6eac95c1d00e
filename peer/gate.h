/* Who may begin a handshake: so many a second of a source, and so many of all strangers together.
 *
 * A handshake costs about a millisecond of CPU and up to 32 KiB; whoever can reach the port may ask
 * for one. So a connection is let in by the address that it comes from:
 *
 *   known    the address of a member, or our own: GATE_KNOWN_BURST at once, GATE_KNOWN_RATE a
 *            second of each address; strangers' numbers do not touch them
 *   others   GATE_SOURCE_BURST and GATE_SOURCE_RATE of an address, and of all of them together
 *            GATE_ALL_BURST and GATE_ALL_RATE
 *
 * What is over the rate is closed at once, unread and unanswered, and counted: who is honest dials
 * again. Sources are remembered in a table of a fixed size; the one that came least recently makes
 * way, whose bucket is full again by then unless there are more sources than places, and for that
 * the bound on all is there. No allocation, no I/O, no clock: whoever has it is its thread. */
#ifndef COPPELIUS_PEER_GATE_H
#define COPPELIUS_PEER_GATE_H

#include <stdbool.h>
#include <stdint.h>

#define GATE_SOURCES      256U
#define GATE_KNOWN_BURST  512U
#define GATE_KNOWN_RATE   64U
#define GATE_SOURCE_BURST 64U
#define GATE_SOURCE_RATE  16U
#define GATE_ALL_BURST    256U
#define GATE_ALL_RATE     64U

struct gate_bucket {
    uint64_t milli; /* thousandths of a connection that may still come */
    uint64_t at_ms;
};

struct gate_source {
    uint32_t address; /* as in struct in_addr */
    bool used;
    struct gate_bucket bucket;
};

struct gate {
    struct gate_bucket all;
    struct gate_source sources[GATE_SOURCES];
};

void gate_init(struct gate *gate, uint64_t now_ms);
/* Whether one more from this address may begin; takes its share where it may. now_ms never goes
 * back. */
bool gate_admits(struct gate *gate, uint32_t address, bool known, uint64_t now_ms);

#endif

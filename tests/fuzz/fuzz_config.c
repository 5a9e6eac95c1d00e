/* Promise: any text is either a config whose node is among its peers and whose advertised address
 * can be dialled, or it is refused with at least one fault; nothing of a refused one is left to
 * free. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/config.h"
#include "peer/peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct config config;
    struct faults faults = FAULTS_NONE;
    struct buf warnings = BUF_NONE;
    struct config_input input = {
        .file_name = "fuzz.yaml", .text = (const char *)bytes, .size = size};
    int status = config_read(&input, &config, &faults, &warnings);
    if (status == 0) {
        struct sockaddr_in address;
        ASSERT(faults.count == 0);
        ASSERT(config.node_id >= 1);
        ASSERT(config.node_id <= config.peers.count);
        ASSERT(strcmp(config_peer(&config, config.node_id)->name, config.name) == 0);
        ASSERT(peer_address_parse(config.advertise_address, &address, NULL) == 0);
        ASSERT(config.state_dir[0] == '/');
        config_done(&config);
    } else {
        ASSERT(faults.count > 0);
    }
    faults_done(&faults);
    buf_done(&warnings);
    return 0;
}

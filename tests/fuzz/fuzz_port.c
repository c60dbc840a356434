/* Fuzz target: descriptions of memory. The input is laid over a right one of this process, as bytes to be changed, and
 * once more with a right hash; whatever is attached has a size that its memory has. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ashlar/transfer.h"
#include "base/hash.h"

#define BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ash_port *port;
static struct ash_port_description good;
static size_t hash_at;

static void open_port(void)
{
    static struct ash_port_memory *memory;
    struct ash_port_opts opts;
    uint64_t hash, found;

    ash_port_opts_init(&opts);
    opts.path = "shm";
    if (ash_port_open(&opts, &port, NULL) < 0 || ash_port_register(port, NULL, BYTES, &memory, NULL) < 0) abort();
    ash_port_describe(port, memory, &good);
    for (hash_at = 0; hash_at < sizeof(good) - sizeof(hash); hash_at += sizeof(hash)) {
        hash = ash_hash_bytes(good.bytes, hash_at, 0);
        memcpy(&found, good.bytes + hash_at, sizeof(found));
        if (found == hash) return;
    }
    abort();
}

static void attach(const struct ash_port_description *description)
{
    struct ash_port_remote *remote = NULL;
    struct ash_err err = {0};

    if (ash_port_attach(port, description, &remote, &err) < 0) {
        if (remote != NULL || err.text[0] == '\0') abort();
        return;
    }
    if (ash_port_remote_bytes(remote) > BYTES) abort();
    ash_port_detach(remote);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_port_description description;
    uint64_t hash;

    if (port == NULL) open_port();
    description = good;
    for (size_t i = 0; i + 3 <= size; i += 3)
        description.bytes[(data[i] | (size_t)data[i + 1] << 8) % hash_at] ^= data[i + 2];
    attach(&description);
    hash = ash_hash_bytes(description.bytes, hash_at, 0);
    memcpy(description.bytes + hash_at, &hash, sizeof(hash));
    attach(&description);
    return 0;
}

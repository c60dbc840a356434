/* port_priv - the transfer library's objects, over an endpoint. */
#ifndef ASH_FABRIC_PORT_PRIV_H
#define ASH_FABRIC_PORT_PRIV_H

#include "ashlar/transfer.h"
#include "base/pool.h"
#include "fabric/fabric.h"

#define ASH_PORT_HEADER_BYTES ((size_t)64) /* of memory of versions; another one follows, for takes */

/* A process that something was attached of. Its number at the endpoint is its index. */
struct ash_port_peer {
    uint64_t id; /* of its endpoint; 0: the number is free */
    size_t remotes;
};

struct ash_port {
    struct ash_fabric *fabric;
    struct ash_fabric_addr addr;
    struct ash_pool *posts; /* struct ash_port_op: transfers under way */
    struct ash_port_peer *peers;
    size_t peer_count, peer_capacity;
};

struct ash_port_memory {
    struct ash_port *port;
    struct ash_region *region;
    size_t size_bytes; /* of the user's; of versions, of one */
    bool has_versions, is_taking;
    unsigned spare; /* of two halves: where the next version is written */
};

struct ash_port_remote {
    struct ash_port *port;
    struct ash_remote *remote; /* NULL: only its port */
    uint64_t peer;
    uint32_t number;
    size_t size_bytes;
    bool has_versions;
};

/* What memory of versions begins with: which half is the newest version. A reader checks it by its own hash and the
 * version by data_hash, so nothing depends on the order in which bytes arrive. */
struct ash_port_header {
    uint64_t half, size_bytes, version, data_hash, hash;
};
_Static_assert(sizeof(struct ash_port_header) <= ASH_PORT_HEADER_BYTES, "a header fits");

enum ash_port_stage { ASH_PORT_PLAIN, ASH_PORT_TAKES_HEADER, ASH_PORT_TAKES_DATA };

/* Something under way. */
struct ash_port_op {
    enum ash_port_stage stage;
    uint64_t cookie;
    struct ash_port_memory *local; /* of a take, and the next two */
    struct ash_port_remote *remote;
    struct ash_port_header header;
};

/* port_versions.c: bytes of a region for versions of size_bytes; 0 if there are no such regions. */
size_t ash_port_versions_bytes(size_t size_bytes);
/* port_versions.c: a read of a take has ended. Returns whether the take has, with its status. */
bool ash_port_continue_take(struct ash_port *port, struct ash_port_op *op, int status, int *status_out);

#endif

/* wire - addresses and keys as they travel: fixed layouts with a magic number and a version. What comes from a peer is
 * checked here once, before anything believes it. Private to fabric. */
#ifndef ASH_FABRIC_WIRE_H
#define ASH_FABRIC_WIRE_H

#include "fabric/fabric.h"
#include "fabric/segment.h"

#define ASH_WIRE_NODE_BYTES 64
#define ASH_WIRE_PROVIDER_BYTES 32
#define ASH_WIRE_RAIL_BYTES 304
#define ASH_FABRIC_RAILS_MAX 8

/* An endpoint. */
struct ash_wire_addr {
    uint32_t magic;
    uint16_t version;
    uint8_t has_shm, has_ofi;
    uint64_t id;                            /* of the endpoint; never 0 */
    uint64_t machine;                       /* equal where processes see each other in /proc */
    char node[ASH_WIRE_NODE_BYTES];         /* failure domain */
    struct ash_segment_key box;             /* shm: where notifications are put */
    uint64_t token;                         /* shm: address of a copy of id in its memory */
    char provider[ASH_WIRE_PROVIDER_BYTES]; /* ofi */
    uint32_t heartbeat_port;                /* ofi: a TCP port that is open as long as the process lives */
    uint8_t heartbeat_ip[16];               /* IPv6, or IPv4 mapped into it */
    uint8_t rail_count, reserved[3];
    uint8_t rails[ASH_WIRE_RAIL_BYTES]; /* rail_count times: a byte of length, then the provider's address */
};

/* A region. */
struct ash_wire_key {
    uint32_t magic;
    uint16_t version;
    uint8_t is_segment, rail_count;
    uint64_t endpoint; /* id of its owner */
    uint64_t region;   /* its number there */
    uint64_t size_bytes;
    uint64_t base;   /* its address there */
    int32_t pid, fd; /* segment */
    uint64_t device, inode;
    uint64_t rails[ASH_FABRIC_RAILS_MAX]; /* ofi: a key for each */
};

_Static_assert(sizeof(struct ash_wire_addr) <= ASH_FABRIC_ADDR_BYTES, "an address fits");
_Static_assert(sizeof(struct ash_wire_key) == ASH_FABRIC_KEY_WORDS * sizeof(uint64_t), "a key fits");

/* Magic and version are set here, the rest by the caller. */
void ash_wire_put_addr(struct ash_wire_addr *wire, struct ash_fabric_addr *addr_out);
/* The same of a key. */
void ash_wire_put_key(struct ash_wire_key *wire, struct ash_fabric_key *key_out);
/* Check and take over. -EPROTO: not one, or of another version. */
int ash_wire_get_addr(const struct ash_fabric_addr *addr, struct ash_wire_addr *wire_out, struct ash_err *err);
/* The same of a key. */
int ash_wire_get_key(const struct ash_fabric_key *key, struct ash_wire_key *wire_out, struct ash_err *err);

/* Append a rail's address. -ENOSPC when it does not fit. */
int ash_wire_add_rail(struct ash_wire_addr *wire, const void *bytes, size_t size_bytes);
/* Rail number `rail` of a checked address: its bytes; NULL when there is none. */
const void *ash_wire_rail(const struct ash_wire_addr *wire, size_t rail, size_t *size_out);

#endif

/* fabric - bytes between the memories of processes: register, post, poll, notify. Collectives, recovery, storage and
 * serving all move data through this one interface.
 *
 * An endpoint is one process's attachment. Peers have numbers that the caller chooses (ranks). A peer on the same node
 * is reached through shared memory (`shm/`), any other through libfabric (`ofi/`); the caller sees no difference,
 * except in ash_remote_direct. Memory is registered once and described to others by a key, which is plain data and may
 * be sent.
 *
 * Order: what is posted to one peer arrives in any order, but a notification arrives after everything that was posted
 * to the same peer before it. One owner thread per endpoint. Nothing here waits; ash_fabric_poll makes progress. */
#ifndef ASH_FABRIC_FABRIC_H
#define ASH_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/opts.h"

#define ASH_FABRIC_ADDR_BYTES 512
#define ASH_FABRIC_KEY_WORDS 8

enum ash_fabric_path { ASH_FABRIC_AUTO, ASH_FABRIC_SHM, ASH_FABRIC_OFI };

/* Section `fabric` of the settings. */
struct ash_fabric_opts {
    int path;             /* enum ash_fabric_path: auto takes shm inside a node and ofi across */
    const char *provider; /* libfabric's: tcp, shm, udp, efa, ...; NULL: the best it finds */
    const char *node;     /* failure domain of this process; NULL: the host's name. Peers of equal name share memory. */
    const char *interface; /* network interfaces or addresses, comma-separated: one rail each; NULL: all that the
                              provider offers */
    int64_t rails;         /* at most so many; 0: no limit */
    int64_t stripe_bytes;  /* transfers from this size on are cut over the rails */
};
extern const struct ash_opt_table ash_fabric_table;

struct ash_fabric;

/* What others need to reach an endpoint. */
struct ash_fabric_addr {
    uint16_t size_bytes;
    uint8_t bytes[ASH_FABRIC_ADDR_BYTES];
};

/* What others need to reach a region of an endpoint. */
struct ash_fabric_key {
    uint64_t words[ASH_FABRIC_KEY_WORDS];
};

int ash_fabric_open(const struct ash_fabric_opts *opts, struct ash_fabric **fabric_out, struct ash_err *err);
/* Regions and remotes must be gone. */
void ash_fabric_close(struct ash_fabric *fabric);
void ash_fabric_addr(const struct ash_fabric *fabric, struct ash_fabric_addr *addr_out);

/* Make a peer known, or known again under a new address (it has restarted: a new epoch); its remotes must be opened
 * anew. */
int ash_fabric_add_peer(struct ash_fabric *fabric, uint32_t peer, const struct ash_fabric_addr *addr,
                        struct ash_err *err);
/* Forget a peer: everything posted to it ends with -ECONNRESET. */
void ash_fabric_drop_peer(struct ash_fabric *fabric, uint32_t peer);
/* How a peer is reached: ASH_FABRIC_SHM or ASH_FABRIC_OFI. */
enum ash_fabric_path ash_fabric_peer_path(const struct ash_fabric *fabric, uint32_t peer);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

struct ash_region; /* memory of this process that peers may read and write */
struct ash_remote; /* a peer's region as this process sees it */

/* New zeroed memory, made so that peers on the node can map it: the fastest kind. */
int ash_region_alloc(struct ash_fabric *fabric, size_t size_bytes, struct ash_region **region_out, struct ash_err *err);
/* Memory that exists already (any mapping; borrowed until close). */
int ash_region_register(struct ash_fabric *fabric, void *data, size_t size_bytes, struct ash_region **region_out,
                        struct ash_err *err);
void ash_region_close(struct ash_region *region);
void *ash_region_data(const struct ash_region *region);
size_t ash_region_size(const struct ash_region *region);
void ash_region_key(const struct ash_region *region, struct ash_fabric_key *key_out);

int ash_remote_open(struct ash_fabric *fabric, uint32_t peer, const struct ash_fabric_key *key,
                    struct ash_remote **remote_out, struct ash_err *err);
void ash_remote_close(struct ash_remote *remote);
/* The peer's memory itself where it can be mapped, else NULL. */
void *ash_remote_direct(const struct ash_remote *remote);

/* ---- transfers --------------------------------------------------------------------------------------------------- */

/* Copy size_bytes from local (offset in region) to remote, or the other way round. The event of kind ASH_FABRIC_DONE
 * carries cookie when local may be used again (read: when the data are there). Returns 0, -EAGAIN (too much is under
 * way: poll, then try again), or an error that concerns the peer. */
struct ash_transfer {
    struct ash_region *local;
    size_t local_offset;
    struct ash_remote *remote;
    size_t remote_offset;
    size_t size_bytes;
    uint64_t cookie;
};
int ash_fabric_write(struct ash_fabric *fabric, const struct ash_transfer *transfer);
int ash_fabric_read(struct ash_fabric *fabric, const struct ash_transfer *transfer);
/* Tell peer one word, after everything written to it before. */
int ash_fabric_notify(struct ash_fabric *fabric, uint32_t peer, uint64_t word);

enum ash_fabric_event_kind { ASH_FABRIC_DONE, ASH_FABRIC_NOTIFIED, ASH_FABRIC_LOST };

struct ash_fabric_event {
    enum ash_fabric_event_kind kind;
    uint32_t peer;
    uint64_t word; /* DONE: the transfer's cookie; NOTIFIED: the peer's word */
    int status;    /* DONE: 0 or a negative errno; LOST: why */
};

/* Make progress and take up to max events; returns how many. Never waits. */
size_t ash_fabric_poll(struct ash_fabric *fabric, struct ash_fabric_event *events, size_t max);
/* A descriptor that becomes readable when a poll may have something to do, or -1 where there is only polling. */
int ash_fabric_wait_fd(const struct ash_fabric *fabric);

/* ---- counters ---------------------------------------------------------------------------------------------------- */

struct ash_fabric_stats {
    uint64_t messages, bytes; /* posted */
    uint64_t retries;         /* posts that had to be repeated */
    uint64_t stalls;          /* times a post was refused for want of room */
    enum ash_fabric_path path;
};
/* Of one peer. Totals by path are exported as metrics: ashlar_fabric_bytes_total{path=...}. */
void ash_fabric_peer_stats(const struct ash_fabric *fabric, uint32_t peer, struct ash_fabric_stats *stats_out);

#endif

/* fabric - bytes between the memories of processes: register, post, poll, notify. Collectives, recovery, storage and
 * serving all move data through this one interface.
 *
 * An endpoint is one process's attachment. Peers have numbers that the caller chooses (ranks). A peer on the same node
 * is reached through shared memory (`shm/`), any other through libfabric (`ofi/`); the caller sees no difference.
 * Memory is registered once and described to others by a key, which is plain data and may
 * be sent.
 *
 * Order: messages posted to one peer arrive in any order, but a notification arrives after everything that was posted
 * to the same peer before it. One owner thread per endpoint. Nothing here waits; ash_fabric_poll makes progress. */
#ifndef ASH_FABRIC_FABRIC_H
#define ASH_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/opts.h"

#define ASH_FABRIC_ADDR_BYTES 512
#define ASH_FABRIC_KEY_WORDS 16

enum ash_fabric_path { ASH_FABRIC_AUTO, ASH_FABRIC_SHM, ASH_FABRIC_OFI };

/* How registered memory of a peer on the node is reached, which cannot be mapped: by the kernel, from process to
 * process, where it permits that; or through shared memory, with the peer's help in its polls. */
enum ash_fabric_copy { ASH_FABRIC_COPY_AUTO, ASH_FABRIC_COPY_NEVER };

/* Section `fabric` of the settings. All zero is as good as the defaults. Strings are borrowed during open only. */
struct ash_fabric_opts {
    int path;             /* enum ash_fabric_path: auto takes shm inside a node and ofi between nodes */
    const char *provider; /* libfabric's: tcp, shm, udp, efa, ...; NULL: the best it finds */
    const char *node;     /* failure domain of this process; NULL: the host's name. Peers of equal name share memory. */
    const char *interface; /* network interfaces or addresses, comma-separated: one rail each; NULL: all that the
                              provider offers (of IP networks only the first that leads out of the machine) */
    int64_t rails;         /* at most; 0: no limit */
    int64_t stripe_bytes;  /* transfers from this size on are cut over the rails; 0: the default */
    int64_t silence_ms;    /* ofi: a machine that does not answer for so long is lost; 0: the default */
    int single_copy;       /* enum ash_fabric_copy */
    const char *address;   /* not a setting: an IP address of this host at which peers reach it, where the caller knows
                              one; decides among IP networks when interface is NULL */
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

/* Attach this process. Path auto without a usable network is no error: then only peers on the node can be added. */
int ash_fabric_open(const struct ash_fabric_opts *opts, struct ash_fabric **fabric_out, struct ash_err *err);
/* Regions and remotes must be gone. Peers that stay see this endpoint as lost with -ESHUTDOWN. Waits, a second at most,
 * until the network has taken all posted messages. NULL is a no-op. */
void ash_fabric_close(struct ash_fabric *fabric);
/* The address of this endpoint, for others to add it as a peer. */
void ash_fabric_get_addr(const struct ash_fabric *fabric, struct ash_fabric_addr *addr_out);

/* Make a peer known, or known again under a new address (it has restarted: a new epoch); its remotes must be opened
 * again. Notifications that it sent before it was known here are kept for it. -EPROTO: not an address, or one of
 * another version. -ENETUNREACH: no path leads there. -ESRCH: it is gone already. */
int ash_fabric_add_peer(struct ash_fabric *fabric, uint32_t peer, const struct ash_fabric_addr *addr,
                        struct ash_err *err);
/* Forget a peer: everything posted to it ends with -ECONNRESET. An unknown number is a no-op. */
void ash_fabric_drop_peer(struct ash_fabric *fabric, uint32_t peer);
/* How a peer is reached: ASH_FABRIC_SHM or ASH_FABRIC_OFI; ASH_FABRIC_AUTO where it is not known. */
enum ash_fabric_path ash_fabric_peer_path(const struct ash_fabric *fabric, uint32_t peer);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

struct ash_region; /* memory of this process that peers may read and write */
struct ash_remote; /* a peer's region as this process sees it */

/* New zeroed memory, made so that peers on the node can map it: the fastest kind. */
int ash_region_alloc(struct ash_fabric *fabric, size_t size_bytes, struct ash_region **region_out, struct ash_err *err);
/* Memory that exists already (any mapping; borrowed until close). */
int ash_region_register(struct ash_fabric *fabric, void *data, size_t size_bytes, struct ash_region **region_out,
                        struct ash_err *err);
/* Posted messages that have not left yet (to a peer that does not answer, say) end with -ECANCELED. */
void ash_region_close(struct ash_region *region);
/* The memory. */
void *ash_region_data(const struct ash_region *region);
/* What peers need to reach it. */
void ash_region_key(const struct ash_region *region, struct ash_fabric_key *key_out);

/* -EPROTO: not a key. -ESTALE: a key of another endpoint than the peer's present one. -ESRCH: the peer is gone. */
int ash_remote_open(struct ash_fabric *fabric, uint32_t peer, const struct ash_fabric_key *key,
                    struct ash_remote **remote_out, struct ash_err *err);
/* No transfer to it may be in flight. NULL is a no-op. */
void ash_remote_close(struct ash_remote *remote);

/* ---- transfers --------------------------------------------------------------------------------------------------- */

/* Copy size_bytes from local (offset in region) to remote, or the other way round. The event of kind ASH_FABRIC_DONE
 * carries cookie when local may be used again (read: when the data are there). Returns 0, -EAGAIN (too much is under
 * way: poll, then try again), -ERANGE (outside of a region), or an error that concerns the peer: -ECONNRESET (it is
 * lost or dropped), -ENOTCONN (it is not known). */
struct ash_transfer {
    struct ash_region *local;
    size_t local_offset;
    struct ash_remote *remote;
    size_t remote_offset;
    size_t size_bytes;
    uint64_t cookie;
};
/* Write local to remote. */
int ash_fabric_write(struct ash_fabric *fabric, const struct ash_transfer *transfer);
/* Read remote into local. */
int ash_fabric_read(struct ash_fabric *fabric, const struct ash_transfer *transfer);
/* Tell peer one word, after everything written to it before. Returns as above. */
int ash_fabric_notify(struct ash_fabric *fabric, uint32_t peer, uint64_t word);

enum ash_fabric_event_kind { ASH_FABRIC_DONE, ASH_FABRIC_NOTIFIED, ASH_FABRIC_LOST };

struct ash_fabric_event {
    enum ash_fabric_event_kind kind;
    uint32_t peer;
    uint64_t word; /* DONE: the transfer's cookie; NOTIFIED: the peer's word */
    int status;    /* DONE: 0 or a negative errno; LOST: -ESHUTDOWN (it closed its endpoint), -ECONNRESET (it died),
                      -ETIMEDOUT (its machine does not answer) or what the network says */
};

/* Make progress and take up to max events; returns how many. Never waits. A lost peer is reported once, after
 * everything it sent and after the end of everything posted to it. An endpoint that is not polled does not answer
 * others. */
size_t ash_fabric_poll(struct ash_fabric *fabric, struct ash_fabric_event *events, size_t max);
/* Before sleeping: a descriptor that becomes readable when a poll may have something to do, or -1 where there is only
 * polling. It is good for one sleep: call this, poll once more, and wait (100 ms at most) if that gave nothing. */
int ash_fabric_wait_fd(struct ash_fabric *fabric);

/* ---- counters ---------------------------------------------------------------------------------------------------- */

struct ash_fabric_stats {
    uint64_t messages, bytes; /* posted; a notification is a message without bytes */
    uint64_t retries;         /* posts that had to be repeated */
    uint64_t stalls;          /* times a post was refused for want of room */
    enum ash_fabric_path path;
};
/* Of one peer, zeroes where it is not known. Totals by path are exported as metrics, brought up to date a few times
 * a second: ashlar_fabric_{bytes,messages,retries,stalls}_total{path="shm"}, so inside a node, and "ofi", between
 * nodes. */
void ash_fabric_peer_stats(const struct ash_fabric *fabric, uint32_t peer, struct ash_fabric_stats *stats_out);

#endif

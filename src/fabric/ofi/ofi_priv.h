/* ofi_priv - the path between machines as ofi.c, rail.c, flow.c and heartbeat.c see it. */
#ifndef ASH_FABRIC_OFI_OFI_PRIV_H
#define ASH_FABRIC_OFI_OFI_PRIV_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "base/pool.h"
#include "fabric/transport.h"

#define ASH_OFI_STATE (ASH_FABRIC_OFI - ASH_FABRIC_SHM) /* of a region: its registrations, by rail */
#define ASH_OFI_OPS 2048                                /* transfers of an endpoint at once */
#define ASH_OFI_PARTS 4096                              /* parts of them that the network has */
#define ASH_OFI_NOTIFICATIONS 4096                      /* notifications that wait */
#define ASH_OFI_EAGER_SENDS 512                         /* ... that the network has */
#define ASH_OFI_EAGER_RECVS 256
#define ASH_OFI_EARLY 65536 /* notifications kept for peers that are not known yet */

#define ASH_OFI_MESSAGE_MAGIC 0x4e485341u /* "ASHN" */

/* What travels as a message. */
struct ash_ofi_message {
    uint32_t magic;
    uint32_t reserved;
    uint64_t from, to; /* ids of endpoints: to tells those that are gone from those that have their address now */
    uint64_t word;
};

/* Everything that is given to the network starts with this. */
enum ash_ofi_kind { ASH_OFI_PART, ASH_OFI_EAGER_SEND, ASH_OFI_EAGER_RECV };
struct ash_ofi_context {
    struct fi_context2 own; /* the provider's to write; first */
    enum ash_ofi_kind kind;
};

/* A transfer. */
struct ash_ofi_op {
    struct ash_ofi_link *link;      /* NULL: ended, but the network still has parts of it */
    struct ash_ofi_op *prev, *next; /* in the order of posting */
    bool blocks;                    /* a notification that was posted later must wait */
    bool queued, write, striped;    /* queued: the network has not been given all of it */
    int failed;
    uint64_t number; /* in the order of posting */
    const struct ash_region *region;
    uint64_t cookie, local, remote; /* offsets */
    struct ash_wire_key key;
    size_t size_bytes, part_bytes, given; /* given: bytes */
    size_t out;                           /* parts that the network has */
};

struct ash_ofi_part {
    struct ash_ofi_context context;
    struct ash_ofi_op *op;
};

/* A notification that waits for its turn. */
struct ash_ofi_notification {
    struct ash_ofi_notification *next;
    uint64_t word;
    uint64_t after; /* transfers with a smaller number come first */
};

/* A notification that the network has, out or in. */
struct ash_ofi_eager {
    struct ash_ofi_context context;
    struct ash_ofi_link *link;  /* out; NULL: it is gone */
    struct ash_ofi_eager *next; /* while free */
    struct ash_ofi_message message;
};

/* One network interface. */
struct ash_ofi_rail {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *eager_mr; /* of all eager buffers, where the provider wants to know local memory */
    int wait_fd;             /* -1: the provider has none */
    bool ordered;            /* a message arrives after the writes that were posted before it */
    uint8_t addr[UINT8_MAX];
    size_t addr_bytes;
};

/* A peer beyond this node. */
struct ash_ofi_link {
    struct ash_ofi *ofi;
    struct ash_peer *peer;
    size_t rail_count, rail_round_robin;
    fi_addr_t to[ASH_FABRIC_RAILS_MAX];
    struct ash_ofi_op *first, *last; /* transfers that have not ended */
    struct ash_ofi_op *queue;        /* of them, the first that the network has not been given */
    struct ash_ofi_op *blocker;      /* the first that blocks */
    struct ash_ofi_notification *notifications, *notifications_end;
    uint64_t number;  /* of the next transfer */
    size_t out;       /* parts and eager_buffers that the network has */
    bool busy;        /* in the list of links with something to give */
    int heartbeat_fd; /* connected to the peer's port, or connecting; -1: not watched */
    bool connected;
    uint64_t since_ns; /* connecting, or dying, since */
    int dying;         /* not 0: gone for this reason; its sent messages are still received */
};

struct ash_ofi {
    struct ash_fabric *fabric;
    size_t rail_count, stripe_bytes;
    uint64_t silence_ns;
    struct ash_ofi_rail rails[ASH_FABRIC_RAILS_MAX];
    struct ash_pool *ops, *parts, *notifications;
    struct ash_ofi_eager *eager_buffers; /* MAILS to send, then RECEIPTS to receive */
    struct ash_ofi_eager *free_eager;
    struct ash_ofi_eager *idle_recvs; /* that the network did not take back yet */
    struct ash_ofi_link **links;
    size_t link_count, link_room;
    struct ash_ofi_link **busy; /* as long as links */
    size_t busy_count;
    struct ash_ofi_message *early; /* of senders that are not known yet, oldest first */
    size_t early_count, early_room;
    bool early_changed; /* a peer has come: scan them */
    uint64_t now_ns;
    bool quiet;  /* the last poll found nothing */
    int kick_fd; /* wakes the sleeper where the provider says that it must not sleep */
    bool kicked;
    int listen_fd, heartbeat_epoll;
    uint16_t port;
    uint8_t ip[16];
    int *watchers; /* connections of peers that watch this process */
    size_t watcher_count, watcher_room;
};

/* library.c: libfabric itself, and the functions of it that its headers do not hold. */
struct ash_libfabric {
    __typeof__(fi_version) *version;
    __typeof__(fi_getinfo) *getinfo;
    __typeof__(fi_freeinfo) *freeinfo;
    __typeof__(fi_dupinfo) *dupinfo; /* of NULL: an empty one */
    __typeof__(fi_fabric) *fabric;
    __typeof__(fi_strerror) *strerror;
};
extern struct ash_libfabric ash_libfabric; /* to be used after ash_ofi_load */
/* Load the library, once; signals keep their handlers. provider: what the user asks for, or NULL. */
int ash_ofi_load(const char *provider, struct ash_err *err);

/* provider.c: all that depends on the provider, and nothing else does. */
/* Settings that libfabric reads when it is loaded; those that the user has made stay. */
void ash_ofi_prepare(const char *provider);
/* The network interfaces to use: rails_out gets infos that the caller frees. */
int ash_ofi_find(const struct ash_fabric_opts *opts, struct fi_info **rails_out, size_t *count_out,
                 struct ash_err *err);
/* The host's address on that rail, or another one where the rail has none: IPv6, or IPv4 mapped into it. */
void ash_ofi_host_ip(const struct fi_info *info, uint8_t ip_out[16]);
/* What a failed transfer means: the negative errno, and whether the peer is gone with it. */
int ash_ofi_status(int fi_error, bool *lost_out);

/* rail.c */
/* Open an interface; takes info over, also on error. */
int ash_rail_open(struct ash_ofi_rail *rail, struct fi_info *info, struct ash_err *err);
/* Also half-open; zeroed: a no-op. */
void ash_rail_close(struct ash_ofi_rail *rail);
/* Register memory under a key. Returns 0 or a negative fi error; the caller owns *mr_out. */
int ash_rail_register(struct ash_ofi_rail *rail, void *data, size_t size_bytes, uint64_t key, struct fid_mr **mr_out);

/* flow.c: what goes to a peer, in which order. */
/* Queue a transfer. -EAGAIN: too many are in flight. */
int ash_flow_post(struct ash_ofi_link *link, const struct ash_transfer *transfer, bool write);
/* Queue a notification. -EAGAIN: too many wait. */
int ash_flow_notify(struct ash_ofi_link *link, uint64_t word);
/* Hand queued transfers to the network until it refuses one. */
void ash_flow_progress(struct ash_ofi *ofi);
/* The network has finished with a part or an eager buffer; fi_error is 0 or positive. */
void ash_flow_part_done(struct ash_ofi *ofi, struct ash_ofi_part *part, int fi_error);
/* The same of an eager send. */
void ash_flow_eager_done(struct ash_ofi *ofi, struct ash_ofi_eager *eager, int fi_error);
/* A region goes: what waits to be sent from it, or read into it, ends with -ECANCELED. */
void ash_flow_forget(struct ash_ofi *ofi, const struct ash_region *region);
/* End everything to a peer with -ECONNRESET. */
void ash_flow_fail(struct ash_ofi_link *link);
/* The same, and report the peer as lost. */
void ash_flow_lose(struct ash_ofi_link *link, int status);

/* inbox.c: what the network has for this process. */
/* Let the network use a recv_buffer for the next message. */
void ash_inbox_give(struct ash_ofi *ofi, struct ash_ofi_eager *recv_buffer);
/* Take completed ones: up to max NOTIFIED events; returns how many. */
size_t ash_inbox_poll(struct ash_ofi *ofi, struct ash_fabric_event *events, size_t max);

/* heartbeat.c: who lives. */
/* Listen for watchers. */
int ash_heartbeat_open(struct ash_ofi *ofi, struct ash_err *err);
/* Tell the watchers of the orderly end. */
void ash_heartbeat_close(struct ash_ofi *ofi);
/* Connect to a peer's port, and notice when the connection ends. */
void ash_heartbeat_watch(struct ash_ofi_link *link, const struct ash_wire_addr *addr);
/* Stop that; a link that is not watched is a no-op. */
void ash_heartbeat_unwatch(struct ash_ofi_link *link);
/* Look at all connections. */
void ash_heartbeat_tick(struct ash_ofi *ofi);

#endif

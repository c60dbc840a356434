/* transport - what a path between processes implements, and what fabric.c gives it. Private to fabric. */
#ifndef ASH_FABRIC_TRANSPORT_H
#define ASH_FABRIC_TRANSPORT_H

#include "fabric/fabric.h"
#include "fabric/wire.h"

#define ASH_FABRIC_UNDER_WAY_MAX 4096 /* transfers of an endpoint whose DONE has not been taken */

#define ASH_FABRIC_PATHS 2

struct ash_segment;
struct ash_transport; /* a path, opened: the path's own type */

/* A peer, under one address. */
struct ash_peer {
    struct ash_fabric *fabric;
    uint32_t number;
    uint64_t id; /* of its endpoint */
    const struct ash_transport_ops *ops;
    struct ash_transport *transport;
    void *link; /* the path's own; NULL before link_open and after link_close */
    int status; /* 0, or why it is lost */
    bool told;  /* ... and whether poll has reported it */
    struct ash_fabric_stats stats;
};

struct ash_region {
    struct ash_fabric *fabric;
    void *data;
    size_t size_bytes;
    struct ash_segment *memory; /* NULL where it is the caller's */
    struct ash_wire_key key;
    void *states[ASH_FABRIC_PATHS]; /* each path's own, from region_open to region_close */
    struct ash_region *next;
};

struct ash_remote {
    struct ash_fabric *fabric;
    const struct ash_transport_ops *ops; /* of the path that opened it */
    uint32_t peer;
    struct ash_wire_key key;
    void *direct; /* the peer's memory where the path has mapped it, else NULL */
    void *state;  /* the path's own, from remote_open to remote_close */
};

/* One path. All calls come from the endpoint's owner thread; none waits, except flush. */
struct ash_transport_ops {
    size_t size; /* of this struct */
    enum ash_fabric_path path;
    const char *name;
    int (*open)(struct ash_fabric *fabric, const struct ash_fabric_opts *opts, struct ash_transport **transport_out,
                struct ash_err *err);
    /* Before the links are closed: wait, a second at most, until posted messages are on their way. */
    void (*flush)(struct ash_transport *transport);
    /* Links and registrations are gone. */
    void (*close)(struct ash_transport *transport);
    /* Write this path's part of the endpoint's address. */
    void (*describe)(const struct ash_transport *transport, struct ash_wire_addr *addr);
    int (*link_open)(struct ash_transport *transport, struct ash_peer *peer, const struct ash_wire_addr *addr,
                     struct ash_err *err);
    /* Everything under way to the peer ends: ash_fabric_done with -ECONNRESET. */
    void (*link_close)(struct ash_transport *transport, struct ash_peer *peer);
    /* Write this path's part of the region's key. */
    int (*region_open)(struct ash_transport *transport, struct ash_region *region, struct ash_err *err);
    /* Also of a region whose region_open failed or was not called. */
    void (*region_close)(struct ash_transport *transport, struct ash_region *region);
    /* Prepare to reach remote->key; may set direct and state. */
    int (*remote_open)(struct ash_transport *transport, struct ash_peer *peer, struct ash_remote *remote,
                       struct ash_err *err);
    /* The peer may be gone by now. */
    void (*remote_close)(struct ash_remote *remote);
    /* 0: ash_fabric_done has been or will be called once. size_bytes > 0 and the bounds were checked. */
    int (*post)(struct ash_transport *transport, struct ash_peer *peer, const struct ash_transfer *transfer,
                bool write);
    int (*notify)(struct ash_transport *transport, struct ash_peer *peer, uint64_t word);
    /* Make progress; write up to max NOTIFIED events and return how many. */
    size_t (*poll)(struct ash_transport *transport, struct ash_fabric_event *events, size_t max);
    /* Called a few times per 100 ms: find peers that are gone. */
    void (*tick)(struct ash_transport *transport, uint64_t now_ns);
    /* Make the endpoint's descriptor readable as soon as poll has something to do. -ENOTSUP: there is only polling. */
    int (*arm)(struct ash_transport *transport);
};

extern const struct ash_transport_ops ash_shm_ops, ash_ofi_ops;

/* The endpoint's own number; never 0. */
uint64_t ash_fabric_id(const struct ash_fabric *fabric);
/* A transfer has ended: queue its event. */
void ash_fabric_done(struct ash_peer *peer, uint64_t cookie, int status);
/* The peer is gone (status says why): queue the event, once. The path has ended the transfers under way. */
void ash_fabric_lost(struct ash_peer *peer, int status);
/* The region of this endpoint with that number, or NULL. */
struct ash_region *ash_fabric_region(const struct ash_fabric *fabric, uint64_t number);
/* The peer whose endpoint has that id, or NULL. */
struct ash_peer *ash_fabric_peer_of(const struct ash_fabric *fabric, uint64_t id);
/* Watch a descriptor, level-triggered, in the endpoint's; it leaves when it is closed or unwatched. */
int ash_fabric_watch(struct ash_fabric *fabric, int fd);
/* Stop watching it. */
void ash_fabric_unwatch(struct ash_fabric *fabric, int fd);

#endif

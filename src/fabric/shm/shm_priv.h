/* shm_priv - the shared-memory path as shm.c, link.c and bounce.c see it. */
#ifndef ASH_FABRIC_SHM_SHM_PRIV_H
#define ASH_FABRIC_SHM_SHM_PRIV_H

#include <sys/types.h>

#include "base/pool.h"
#include "fabric/segment.h"
#include "fabric/shm/box.h"
#include "fabric/transport.h"

#define ASH_SHM_MOVES 256 /* transfers of an endpoint through chunks at once */

/* A transfer through chunks. */
struct ash_shm_move {
    struct ash_shm_move *next; /* in the order of posting */
    uint8_t *local;
    uint64_t region, offset, size_bytes, cookie;
    uint64_t issued, answered; /* bytes */
    bool write;
    int status;
};

/* A peer on this node. */
struct ash_shm_link {
    struct ash_shm *shm;
    struct ash_peer *peer;
    pid_t pid;
    int pidfd, wake_fd;
    uint64_t token;             /* where its id is in its memory */
    bool single_copy;           /* the kernel lets us reach its memory */
    int dying;                  /* not 0: it is gone for this reason; its sent messages are still received */
    struct ash_segment segment; /* its box, mapped */
    struct ash_box *box;
    struct ash_box_slot *out, *in; /* our slot in its box; its slot in ours, NULL before it has one */
    struct ash_box_cursor out_cursor, in_cursor;
    struct ash_shm_move *moves, *moves_end; /* oldest first */
    struct {
        struct ash_shm_move *move;
        size_t size_bytes;
        uint64_t mark; /* that its answer carries */
    } chunks[ASH_BOX_CHUNKS];
    uint64_t chunks_issued, chunks_answered;
};

struct ash_shm {
    struct ash_fabric *fabric;
    uint64_t token; /* a copy of the endpoint's id, for others to read through the kernel */
    bool single_copy;
    struct ash_segment segment;
    struct ash_box *box;
    int wake_pipe[2]; /* pipe: others open its writing end through /proc */
    bool armed;
    uint32_t claims;   /* of the box, when slots were last searched */
    uint64_t swept_ns; /* when slots of strangers were last looked at */
    struct ash_pool *moves;
    struct ash_shm_link **links;
    size_t link_count, link_room, turn;
};

/* link.c: a peer comes and goes. */
/* Map a peer's box. -ESRCH: it is gone. */
int ash_shm_link_open(struct ash_transport *transport, struct ash_peer *peer, const struct ash_wire_addr *addr,
                      struct ash_err *err);
/* Fail transfers in flight to a peer and forget it. */
void ash_shm_link_close(struct ash_transport *transport, struct ash_peer *peer);
/* Look for the slots of peers that have none here yet. */
void ash_shm_bind(struct ash_shm *shm);
/* See who is gone. */
void ash_shm_tick(struct ash_transport *transport, uint64_t now_ns);
/* Does the process still live? */
bool ash_shm_alive(const struct ash_shm_link *link);
/* Wake a peer that sleeps. Call after a notification to it. */
void ash_shm_wake(struct ash_shm_link *link);

/* bounce.c: memory that can neither be mapped nor reached by the kernel. */
/* -EAGAIN: too many are under way. */
int ash_bounce_post(struct ash_shm_link *link, const struct ash_transfer *transfer, bool write);
/* Fill free chunks, take answers. */
void ash_bounce_progress(struct ash_shm_link *link);
/* Is a write under way whose last chunk is not in the ring? Then a notification would overtake it. */
bool ash_bounce_pending(const struct ash_shm_link *link);
/* Carry out what a peer asks for in chunk `index` of its slot; mark is its entry's. */
void ash_bounce_serve(struct ash_shm_link *link, uint64_t index, uint64_t mark);
/* End everything with status. */
void ash_bounce_fail(struct ash_shm_link *link, int status);

#endif

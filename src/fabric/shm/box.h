/* box - the shared memory of an endpoint, where others on the node put notifications for it. Every sender has a slot of
 * its own: a ring with one writer and one reader, and chunks through which memory travels that cannot be mapped. Flags,
 * no locks: a process that dies at any point leaves nothing that others would wait for. Private to fabric/shm. */
#ifndef ASH_FABRIC_SHM_BOX_H
#define ASH_FABRIC_SHM_BOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_BOX_SLOTS 256 /* endpoints of a node that can send to one */
#define ASH_BOX_ENTRIES 512
#define ASH_BOX_CHUNKS 4
#define ASH_BOX_CHUNK_BYTES ((size_t)32 * 1024)

enum ash_box_kind { ASH_BOX_NOTIFY, ASH_BOX_CHUNK };

/* Four to a cache line; data and flag arrive together. */
struct ash_box_entry {
    _Atomic uint64_t mark; /* position + 1, above the kind: this entry has been written for the so-manieth time */
    uint64_t word;
};

/* A part of a transfer, which the owner of the box executes when it reads the chunk's entry in the ring. */
struct ash_box_chunk {
    _Alignas(64) _Atomic uint64_t answered; /* position + 1 of the entry that was carried out */
    int32_t status;
    uint32_t write;
    uint64_t region, offset, size_bytes;
    _Alignas(4096) uint8_t data[ASH_BOX_CHUNK_BYTES];
};

struct ash_box_slot {
    _Alignas(64) _Atomic uint64_t owner; /* id of the endpoint that writes here; 0: free */
    _Atomic int32_t pid;                 /* its process; 0: not set yet */
    _Atomic uint32_t closed;             /* it will not write again */
    _Alignas(64) _Atomic uint64_t taken; /* entries that the reader has taken */
    _Alignas(64) struct ash_box_entry entries[ASH_BOX_ENTRIES];
    struct ash_box_chunk chunks[ASH_BOX_CHUNKS];
};

struct ash_box {
    uint64_t magic;
    uint64_t id;                          /* of the endpoint it belongs to */
    int32_t wake_fd;                      /* a pipe of the owner's that wakes it */
    _Alignas(64) _Atomic uint32_t armed;  /* the owner sleeps, or is about to */
    _Alignas(64) _Atomic uint32_t claims; /* grows with every slot that gets an owner */
    _Atomic uint32_t closed;              /* the endpoint is gone, in order */
    struct ash_box_slot slots[ASH_BOX_SLOTS];
};

#define ASH_BOX_MAGIC 0x31584f42485341ull /* "ASHBOX1" */

/* Take a free slot for the endpoint `id` of process pid. NULL: all are taken. */
struct ash_box_slot *ash_box_claim(struct ash_box *box, uint64_t id, int32_t pid);
/* Owner of the box: the slot of a sender that has not been read to its end, closed ones first. NULL: none. */
struct ash_box_slot *ash_box_find(struct ash_box *box, uint64_t id);
/* Owner of the box: make the slot of a sender that does not write any more free for others. */
void ash_box_free(struct ash_box_slot *slot);

/* The position of a writer or a reader in a slot. */
struct ash_box_cursor {
    uint64_t next;  /* position of the next entry */
    uint64_t taken; /* writer: what the reader was last seen to have taken */
};

/* Append an entry. False: the ring is full. */
bool ash_box_put(struct ash_box_slot *slot, struct ash_box_cursor *cursor, enum ash_box_kind kind, uint64_t word);
/* Look at the next entry without taking it. False: there is none. */
bool ash_box_peek(const struct ash_box_slot *slot, const struct ash_box_cursor *cursor, enum ash_box_kind *kind_out,
                  uint64_t *word_out);

#endif

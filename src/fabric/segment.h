/* segment - memory that other processes of this machine can map. It has no name in any file system: peers find it
 * through /proc while its owner lives, and the kernel frees it with the last process that maps it, however that one
 * ends. */
#ifndef ASH_FABRIC_SEGMENT_H
#define ASH_FABRIC_SEGMENT_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

/* What a peer needs to map a segment. Plain data: may be sent. */
struct ash_segment_key {
    int32_t pid, fd;
    uint64_t device, inode; /* against a process id that was used again */
    uint64_t size_bytes;
};

/* Caller's storage. */
struct ash_segment {
    void *data; /* zeroed when created; page-aligned */
    size_t size_bytes;
    int fd; /* -1 where it was mapped from a key */
};

/* A number that is equal in processes that can map each other's segments: they have one kernel and one PID
 * namespace. */
uint64_t ash_segment_machine(void);

/* A new segment of size_bytes (rounded up to pages). what names it in messages and in /proc/PID/maps. */
int ash_segment_create(struct ash_segment *segment, size_t size_bytes, const char *what, struct ash_err *err);
/* The key of a segment that this process created. Returns 0 or a negative errno. */
int ash_segment_get_key(const struct ash_segment *segment, struct ash_segment_key *key_out);
/* Map the segment of another process (or of this one). -ESRCH: its owner is gone. -EACCES: the system forbids it
 * (another user, another process namespace). */
int ash_segment_map(struct ash_segment *segment, const struct ash_segment_key *key, struct ash_err *err);
/* All of a new segment's memory will be used: have it there now, in huge pages where the system has them. Products that
 * add to it, and sums over it, are slow where every few elements lie in another small page. */
void ash_segment_fill(struct ash_segment *segment);
/* Drop some bytes (those that there are) from this process's page table: their pages stay, but do not count as this
 * process's until it touches them again. */
void ash_segment_unmap_pages(const struct ash_segment *segment, size_t first_byte, size_t size_bytes);
/* Unmap and close; a zeroed struct is a no-op. Peers keep what they mapped. */
void ash_segment_fini(struct ash_segment *segment);

#endif

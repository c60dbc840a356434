/* held - a counted set of hashes: blocks of prompts that a replica says it holds, or is computing. One thread. */
#ifndef ASH_SERVE_ROUTE_HELD_H
#define ASH_SERVE_ROUTE_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise. */
struct ash_route_held {
    struct ash_route_held_slot *slots; /* [mask + 1], or NULL */
    size_t mask, count;                /* of the set */
};

/* Free it; a zeroed one is fine. */
void ash_route_held_fini(struct ash_route_held *held);
/* One more of this hash. Returns 0 or -ENOMEM; then the set is as it was. */
int ash_route_held_add(struct ash_route_held *held, uint64_t hash);
/* One less, if it is there. */
void ash_route_held_remove(struct ash_route_held *held, uint64_t hash);
/* Is it there? */
bool ash_route_held_has(const struct ash_route_held *held, uint64_t hash);
/* Forget all. */
void ash_route_held_clear(struct ash_route_held *held);

#endif

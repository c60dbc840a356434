/* token_counts - how often each token occurred in a text that grows: what penalties read. Kept token by token, so a
 * choice costs the distinct tokens and never the whole text. One owner thread. */
#ifndef ASH_SERVE_ENGINE_TOKEN_COUNTS_H
#define ASH_SERVE_ENGINE_TOKEN_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "compute/ops_sample.h"

/* Zero-initialise. */
struct ash_token_counts {
    struct ash_token_count *items; /* [count]: each id once, in the order of their first use; a count may be 0 again */
    size_t count, capacity;
    int32_t *slots; /* [slot_mask + 1]: index into items, or -1 */
    size_t slot_mask;
};

/* Room for texts of max_tokens. Returns 0 or -ENOMEM. */
int ash_token_counts_init(struct ash_token_counts *counts, size_t max_tokens);
/* Free it. A zeroed struct is a no-op. */
void ash_token_counts_fini(struct ash_token_counts *counts);
/* A token more. */
void ash_token_counts_add(struct ash_token_counts *counts, int32_t id, bool in_answer);
/* One less: it left the window that penalties look at. It was added before. */
void ash_token_counts_remove(struct ash_token_counts *counts, int32_t id, bool in_answer);

#endif

/* view - who belongs to an epoch of a job, by rank. A view never changes; all that need it share it. */
#ifndef ASH_COLLECTIVE_MEMBER_VIEW_H
#define ASH_COLLECTIVE_MEMBER_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_VIEW_SIZE_MAX ((size_t)1 << 20)
#define ASH_VIEW_NEW UINT32_MAX /* rank_before of a process that was not in the epoch before */

/* One member. */
struct ash_view_member {
    uint64_t id;          /* of the process, never used again */
    uint32_t rank_before; /* its rank in the epoch before, or ASH_VIEW_NEW */
};

/* Fields are read by all, written by view.c only. */
struct ash_view {
    uint32_t epoch;
    size_t size;
    uint64_t proposal;               /* names this view among all that were ever proposed for its epoch */
    struct ash_view_member *members; /* [size] by rank */
    char *cards;                     /* [size * card_bytes] what each brought, opaque; NULL: nothing */
    size_t card_bytes;
    uint32_t *order; /* [size] ranks by id, for ash_view_find */
    size_t refs;     /* one owner thread */
};

/* A view with one reference, whose members and cards the caller fills before ash_view_seal. NULL: out of memory. */
struct ash_view *ash_view_new(size_t size, size_t card_bytes);
/* Members are complete: make them findable. Returns 0, or -EEXIST where two have one id. */
int ash_view_seal(struct ash_view *view);
/* One more reference; NULL stays NULL. Returns view. */
struct ash_view *ash_view_get(struct ash_view *view);
/* One reference less; the last one frees it. NULL is a no-op. */
void ash_view_put(struct ash_view *view);
/* The rank of a process, or SIZE_MAX. */
size_t ash_view_find(const struct ash_view *view, uint64_t id);
/* The card of a rank. */
void *ash_view_card(const struct ash_view *view, size_t rank);

#endif

/* See ahead.h. Links are in a table of places by address, which is full at three quarters: any more products have no
 * links. */
#include "compute/cuda/host/ahead.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/math.h"

#define PLACES 4096 /* a power of two: twice the products of any model's step */
#define LINE_BORDER 128

struct link {
    struct ash_cuda_ahead reads;
    const struct link *next;
};

struct ash_cuda_links {
    enum ash_cuda_links_way way;
    struct link places[PLACES];
    size_t count, most; /* most: bytes that a product asks for */
    struct link *last;  /* of this step */
};

static bool has_links(struct ash_cuda_backend *backend)
{
    if (backend->links != NULL) return true;
    backend->links = calloc(1, sizeof(*backend->links));
    if (backend->links == NULL) return false;
    backend->links->most = ASH_CUDA_AHEAD_BYTES;
    return true;
}

void ash_cuda_links_turn(struct ash_cuda_backend *backend, enum ash_cuda_links_way way)
{
    if (!has_links(backend)) return;
    backend->links->way = way;
    backend->links->last = NULL;
}

void ash_cuda_links_limit(struct ash_cuda_backend *backend, size_t bytes)
{
    if (has_links(backend)) backend->links->most = bytes;
}

/* The link of these weights, or where it goes. */
static struct link *find(struct ash_cuda_links *links, const char *weights)
{
    size_t at = ash_hash_mix((uintptr_t)weights) % PLACES;

    while (links->places[at].reads.bytes != 0 && links->places[at].reads.parts[0].data != weights)
        at = (at + 1) % PLACES;
    return &links->places[at];
}

/* As many bytes of each line as all of them may have. */
static unsigned shorten(const struct ash_cuda_ahead *reads, size_t most)
{
    size_t lines = 0;

    for (size_t i = 0; i < ASH_PROJECT_OUTS_MAX; i++)
        lines += reads->parts[i].count;
    if (lines * reads->bytes <= most) return reads->bytes;
    return (unsigned)(most / lines / LINE_BORDER * LINE_BORDER);
}

/* Weights at this address may be others than before, or read in another way. */
static void watch(struct ash_cuda_links *links, const struct ash_cuda_ahead *reads)
{
    struct link *link = find(links, reads->parts[0].data);

    if (link->reads.bytes == 0 && links->count >= PLACES / 4 * 3) {
        links->last = NULL;
        return;
    }
    links->count += link->reads.bytes == 0;
    link->reads = *reads;
    link->next = NULL;
    if (links->last != NULL) links->last->next = link;
    links->last = link;
}

struct ash_cuda_ahead ash_cuda_links_next(struct ash_cuda_backend *backend, const struct ash_cuda_ahead *reads)
{
    struct ash_cuda_links *links = backend->links;
    struct ash_cuda_ahead none = {0}, ahead;
    const struct link *link;

    if (links == NULL || links->way == ASH_LINKS_OFF || reads->bytes == 0) return none;
    if (links->way == ASH_LINKS_WATCH) {
        watch(links, reads);
        return none;
    }
    link = find(links, reads->parts[0].data);
    if (link->reads.bytes == 0 || link->next == NULL) return none;
    ahead = link->next->reads;
    ahead.bytes = shorten(&ahead, links->most);
    return ahead;
}

void ash_cuda_links_close(struct ash_cuda_backend *backend)
{
    free(backend->links);
    backend->links = NULL;
}

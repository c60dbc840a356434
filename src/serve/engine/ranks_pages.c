/* ranks: whole pages of the cache, of which each rank has its heads. Ranks copy them to and from one page in memory
 * that all share: what tiers hold is as of one process. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/cache.h"
#include "serve/engine/ranks_priv.h"

int ash_ranks_open_page(struct ash_ranks *ranks, const struct ash_cache *cache, struct ash_err *err)
{
    struct ash_axis axis = ash_axis_link_axis(&ranks->link, 0);

    ash_assert(ranks->page.data == NULL);
    ranks->page_bytes = ash_cache_page_bytes(cache);
    return axis.ops->shared_open(axis.ctx, ash_div_up(ranks->page_bytes, sizeof(float)), &ranks->page, err);
}

void ash_ranks_close_page(struct ash_ranks *ranks)
{
    struct ash_axis axis;

    if (ranks == NULL || ranks->page.data == NULL) return;
    axis = ash_axis_link_axis(&ranks->link, 0);
    axis.ops->shared_close(axis.ctx, &ranks->page);
}

int ash_ranks_put_part(struct ash_ranks *ranks, const struct ash_cache *cache, int32_t page, struct ash_err *err)
{
    int rc = ash_cache_read_page(cache, page, ranks->page.data);

    if (rc < 0) return ash_err_set(err, rc, "page %d cannot be read", page);
    return ash_group_barrier(ranks->group, err);
}

int ash_ranks_take_part(struct ash_ranks *ranks, struct ash_cache *cache, int32_t page, struct ash_err *err)
{
    int rc = ash_cache_write_page(cache, page, ranks->page.data);

    if (rc < 0) return ash_err_set(err, rc, "page %d cannot be written", page);
    return ash_group_barrier(ranks->group, err); /* the memory is free for the next page */
}

int ash_ranks_share_pages(struct ash_ranks *ranks, const struct ash_cache *cache, struct ash_err *err)
{
    int rc;

    if (ranks == NULL) return 0;
    rc = ash_ranks_send_page(ranks, ASH_RANKS_SHARE_PAGES, 0, err);
    return rc < 0 ? rc : ash_ranks_open_page(ranks, cache, err);
}

int ash_ranks_read_page(struct ash_ranks *ranks, const struct ash_cache *cache, int32_t page, void *data)
{
    struct ash_err ignored = {0}; /* the group has it, and the next step says it */
    int rc;

    if (ranks == NULL) return ash_cache_read_page(cache, page, data);
    rc = ash_ranks_send_page(ranks, ASH_RANKS_READ_PAGE, page, &ignored);
    if (rc == 0) rc = ash_ranks_put_part(ranks, cache, page, &ignored);
    if (rc == 0) memcpy(data, ranks->page.data, ranks->page_bytes);
    return rc;
}

int ash_ranks_write_page(struct ash_ranks *ranks, struct ash_cache *cache, int32_t page, const void *data)
{
    struct ash_err ignored = {0};
    int rc;

    if (ranks == NULL) return ash_cache_write_page(cache, page, data);
    memcpy(ranks->page.data, data, ranks->page_bytes);
    rc = ash_ranks_send_page(ranks, ASH_RANKS_WRITE_PAGE, page, &ignored);
    return rc < 0 ? rc : ash_ranks_take_part(ranks, cache, page, &ignored);
}

/* ranks: whole pages of the cache, of which each rank has its heads. Ranks copy them to and from one page in memory
 * that all share: what tiers hold is as of one process. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/cache.h"
#include "serve/engine/ranks_priv.h"

/* The page that ranks copy to and from. */
static void *page_data(const struct ash_ranks *ranks)
{
    return ranks->sent_page != NULL ? ranks->sent_page : ranks->page.data;
}

int ash_ranks_open_page(struct ash_ranks *ranks, const struct ash_cache *cache, struct ash_err *err)
{
    struct ash_axis axis = ash_axis_link_axis(&ranks->link, 0);

    ash_assert(page_data(ranks) == NULL);
    ranks->page_bytes = ash_cache_page_bytes(cache);
    if (ash_group_is_on_one_node(ranks->group))
        return axis.ops->shared_open(axis.ctx, ash_div_up(ranks->page_bytes, sizeof(float)), &ranks->page, err);
    ranks->sent_page = malloc(ranks->page_bytes);
    return ranks->sent_page != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for a page of the cache");
}

void ash_ranks_close_page(struct ash_ranks *ranks)
{
    struct ash_axis axis;

    if (ranks == NULL) return;
    free(ranks->sent_page);
    ranks->sent_page = NULL;
    if (ranks->page.data == NULL) return;
    axis = ash_axis_link_axis(&ranks->link, 0);
    axis.ops->shared_close(axis.ctx, &ranks->page);
}

/* Parts of a page that is zero elsewhere: the largest of each byte is the page. */
static int join_parts(struct ash_ranks *ranks, struct ash_err *err)
{
    return ash_group_all_reduce(ranks->group, ranks->sent_page, ranks->sent_page, ranks->page_bytes, ASH_COLL_U8,
                                ASH_COLL_MAX, err);
}

int ash_ranks_put_part(struct ash_ranks *ranks, const struct ash_cache *cache, int32_t page, struct ash_err *err)
{
    int rc;

    if (ranks->sent_page != NULL) memset(ranks->sent_page, 0, ranks->page_bytes);
    rc = ash_cache_read_page(cache, page, page_data(ranks));
    if (rc < 0) return ash_err_set(err, rc, "page %d cannot be read", page);
    return ranks->sent_page != NULL ? join_parts(ranks, err) : ash_group_barrier(ranks->group, err);
}

int ash_ranks_take_part(struct ash_ranks *ranks, struct ash_cache *cache, int32_t page, struct ash_err *err)
{
    int rc = 0;

    if (ranks->sent_page != NULL) rc = ash_group_broadcast(ranks->group, ranks->sent_page, ranks->page_bytes, 0, err);
    if (rc < 0) return rc;
    rc = ash_cache_write_page(cache, page, page_data(ranks));
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
    if (rc == 0) memcpy(data, page_data(ranks), ranks->page_bytes);
    return rc;
}

int ash_ranks_write_page(struct ash_ranks *ranks, struct ash_cache *cache, int32_t page, const void *data)
{
    struct ash_err ignored = {0};
    int rc;

    if (ranks == NULL) return ash_cache_write_page(cache, page, data);
    memcpy(page_data(ranks), data, ranks->page_bytes);
    rc = ash_ranks_send_page(ranks, ASH_RANKS_WRITE_PAGE, page, &ignored);
    return rc < 0 ? rc : ash_ranks_take_part(ranks, cache, page, &ignored);
}

/* The number of events of each code of a GPU is the larger count of the two sources. */
#include "observe/health/xid_pairs.h"

#include <stdio.h>
#include <string.h>

/* The index of a pair, added if there is room; ASH_XID_PAIRS_MAX if there is none. */
static size_t find(struct ash_xid_pairs *pairs, int code, const char *part)
{
    size_t i = 0;

    while (i < pairs->count && (pairs->items[i].code != code || strcmp(pairs->items[i].part, part) != 0))
        i++;
    if (i < pairs->count || i == ASH_XID_PAIRS_MAX) return i;
    memset(&pairs->items[i], 0, sizeof(pairs->items[i]));
    snprintf(pairs->items[i].part, sizeof(pairs->items[i].part), "%s", part);
    pairs->items[i].code = code;
    pairs->count++;
    return i;
}

bool ash_xid_pairs_line(struct ash_xid_pairs *pairs, int code, const char *part)
{
    size_t i = find(pairs, code, part);

    if (i == ASH_XID_PAIRS_MAX) return true;
    pairs->items[i].lines++;
    if (pairs->items[i].lines <= pairs->items[i].counted) return false;
    pairs->items[i].counted = pairs->items[i].lines;
    return true;
}

uint64_t ash_xid_pairs_told(struct ash_xid_pairs *pairs, int code, const char *part, uint64_t total)
{
    size_t i = find(pairs, code, part);
    uint64_t fresh;

    if (i == ASH_XID_PAIRS_MAX) return 0;
    pairs->items[i].told += total >= pairs->items[i].total ? total - pairs->items[i].total : total;
    pairs->items[i].total = total;
    if (pairs->items[i].told <= pairs->items[i].counted) return 0;
    fresh = pairs->items[i].told - pairs->items[i].counted;
    pairs->items[i].counted = pairs->items[i].told;
    return fresh;
}

/* range_index: a sorted list that is also a balanced tree. The root of entries [low, high) is the middle one, and
 * stores the largest end of them; subtrees that end too early are skipped. */
#include "train/recover/range_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

/* A search. */
struct query {
    struct ash_patch_range range;
    ash_range_found_fn found;
    void *ctx;
};

static int by_place(const struct ash_range_entry *x, const struct ash_range_entry *y)
{
    if (x->range.param != y->range.param) return x->range.param < y->range.param ? -1 : 1;
    if (x->range.first != y->range.first) return x->range.first < y->range.first ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The end of the sorted run that begins at `from`. */
static size_t run_end(const struct ash_range_entry *entries, size_t from, size_t count)
{
    size_t end = from + 1;

    ash_assert(from < count);
    while (end < count && by_place(&entries[end - 1], &entries[end]) < 0)
        end++;
    return end;
}

static void merge_runs(const struct ash_range_entry *from, size_t middle, size_t count, struct ash_range_entry *to)
{
    size_t a = 0, b = middle;

    ash_assert(middle <= count);
    while (a < middle || b < count) {
        bool takes_a = b == count || (a < middle && by_place(&from[a], &from[b]) < 0);

        *to++ = takes_a ? from[a++] : from[b++];
    }
}

/* Sort. Lists are a few sorted ones, one after the other, so runs that are there already are merged. Returns where the
 * result is: entries, or spare. */
static struct ash_range_entry *sort_entries(struct ash_range_entry *entries, struct ash_range_entry *spare,
                                            size_t count)
{
    while (run_end(entries, 0, count) < count) {
        struct ash_range_entry *swap = entries;

        for (size_t begin = 0, middle, end; begin < count; begin = end) {
            middle = run_end(entries, begin, count);
            end = middle < count ? run_end(entries, middle, count) : middle;
            merge_runs(entries + begin, middle - begin, end - begin, spare + begin);
        }
        entries = spare;
        spare = swap;
    }
    return entries;
}

static size_t middle_of(size_t low, size_t high)
{
    return low + (high - low) / 2;
}

static uint64_t end_of(const struct ash_range_entry *entry)
{
    return entry->range.first + entry->range.count;
}

/* Where a part of the list spans several parameters, its reach may be too far: that costs a few steps, and finds the
 * same. */
static void set_reach(struct ash_range_entry *entries, size_t low, size_t high)
{
    size_t middle = middle_of(low, high);
    uint64_t reach = end_of(&entries[middle]);

    if (low < middle) {
        set_reach(entries, low, middle);
        reach = ash_max(reach, entries[middle_of(low, middle)].reach);
    }
    if (middle + 1 < high) {
        set_reach(entries, middle + 1, high);
        reach = ash_max(reach, entries[middle_of(middle + 1, high)].reach);
    }
    entries[middle].reach = reach;
}

int ash_range_index_init(struct ash_range_index *index, const void *ranges, size_t count, size_t stride_bytes)
{
    struct ash_range_entry *entries = calloc(2 * count + 1, sizeof(*entries));

    if (entries == NULL) return -ENOMEM;
    *index = (struct ash_range_index){.memory = entries, .entries = entries, .count = count};
    if (count == 0) return 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(&entries[i].range, (const char *)ranges + i * stride_bytes, sizeof(entries[i].range));
        entries[i].id = i;
    }
    index->entries = sort_entries(entries, entries + count, count);
    set_reach(index->entries, 0, count);
    return 0;
}

void ash_range_index_fini(struct ash_range_index *index)
{
    free(index->memory);
    memset(index, 0, sizeof(*index));
}

static void visit(const struct ash_range_index *index, size_t low, size_t high, const struct query *query)
{
    while (low < high) {
        size_t middle = middle_of(low, high);
        const struct ash_range_entry *entry = &index->entries[middle];
        const struct ash_patch_range *held = &entry->range, *range = &query->range;
        bool is_before = held->param < range->param || (held->param == range->param && held->first <= range->first);

        if (entry->reach < range->first + range->count) return;
        if (!is_before) {
            high = middle;
            continue;
        }
        if (held->param == range->param) {
            visit(index, low, middle, query);
            if (held->has_moments >= range->has_moments && end_of(entry) >= range->first + range->count)
                query->found(query->ctx, entry);
        }
        low = middle + 1;
    }
}

void ash_range_index_find(const struct ash_range_index *index, const struct ash_patch_range *range,
                          ash_range_found_fn found, void *ctx)
{
    const struct query query = {*range, found, ctx};

    visit(index, 0, index->count, &query);
}

size_t ash_range_index_at(const struct ash_range_index *index, uint32_t param, uint64_t first)
{
    size_t low = 0, high = index->count;

    while (low < high) {
        size_t middle = middle_of(low, high);
        const struct ash_patch_range *held = &index->entries[middle].range;

        if (held->param < param || (held->param == param && held->first < first))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

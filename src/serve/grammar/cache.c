/* The deterministic automaton of a pushdown automaton, made while answers walk through it. A config is a set of places;
 * equal sets have one number, so that transitions found for one answer serve all others of the grammar. Reading them
 * takes no lock. */
#include "serve/grammar/pda_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/hash.h"

#define CONFIG_PLACES_MAX 4096 /* beyond that a grammar is too ambiguous to follow */
#define CLOSURE_MAX 200000

/* ---- numbers of places and configs ------------------------------------------------------------------------------- */

static int list_add(struct ash_pda_list *list, uint32_t item)
{
    if (ash_array_reserve(&list->items, &list->capacity, list->count + 1, sizeof(item)) < 0) return -ENOMEM;
    list->items[list->count++] = item;
    return 0;
}

static uint64_t place_hash(const struct ash_pda_place *place)
{
    return ash_hash_mix(((uint64_t)place->parent << 32 | place->state) + ash_hash_mix(place->count + 1));
}

static int grow_place_slots(struct ash_pda_cache *cache)
{
    size_t count = cache->place_slot_count > 0 ? 2 * cache->place_slot_count : 256;
    uint32_t *slots = calloc(count, sizeof(*slots));

    if (slots == NULL) return -ENOMEM;
    for (uint32_t i = 1; i < cache->place_count; i++) {
        size_t at = place_hash(&cache->places[i]) & (count - 1);
        while (slots[at] != 0)
            at = (at + 1) & (count - 1);
        slots[at] = i;
    }
    free(cache->place_slots);
    cache->place_slots = slots;
    cache->used_bytes += (count - cache->place_slot_count) * sizeof(*slots);
    cache->place_slot_count = count;
    return 0;
}

/* The number of a place. 0 and *number_out, or a negative errno. */
static int find_place(struct ash_pda_cache *cache, struct ash_pda_place place, uint32_t *number_out)
{
    size_t mask = cache->place_slot_count - 1, at = place_hash(&place) & mask;
    uint32_t number;

    for (; (number = cache->place_slots[at]) != 0; at = (at + 1) & mask) {
        const struct ash_pda_place *there = &cache->places[number];
        if (there->state == place.state && there->count == place.count && there->parent == place.parent) {
            *number_out = number;
            return 0;
        }
    }
    if (cache->used_bytes > cache->limit_bytes) return -ENOSPC;
    number = (uint32_t)cache->place_count;
    if (ash_array_reserve(&cache->places, &cache->place_capacity, number + 1u, sizeof(place)) < 0 ||
        ash_array_reserve(&cache->stamps, &cache->stamp_capacity, number + 1u, sizeof(uint32_t)) < 0)
        return -ENOMEM;
    cache->places[number] = place;
    cache->stamps[number] = 0;
    cache->place_slots[at] = number;
    cache->place_count++;
    cache->used_bytes += sizeof(place) + sizeof(uint32_t);
    *number_out = number;
    return 2 * cache->place_count > cache->place_slot_count ? grow_place_slots(cache) : 0;
}

struct ash_pda_config *ash_pda_cache_config(const struct ash_pda_cache *cache, uint32_t config)
{
    return &cache->blocks[config / ASH_PDA_CONFIG_BLOCK][config % ASH_PDA_CONFIG_BLOCK];
}

static uint64_t config_hash(const uint32_t *places, size_t count, bool is_complete)
{
    return ash_hash_bytes(places, count * sizeof(*places), is_complete);
}

static int grow_config_slots(struct ash_pda_cache *cache)
{
    size_t count = cache->config_slot_count > 0 ? 2 * cache->config_slot_count : 256;
    uint32_t *slots = calloc(count, sizeof(*slots));

    if (slots == NULL) return -ENOMEM;
    for (uint32_t i = 1; i < cache->config_count; i++) {
        const struct ash_pda_config *config = ash_pda_cache_config(cache, i);
        size_t at = config_hash(config->places, config->count, config->is_complete) & (count - 1);
        while (slots[at] != 0)
            at = (at + 1) & (count - 1);
        slots[at] = i;
    }
    free(cache->config_slots);
    cache->config_slots = slots;
    cache->used_bytes += (count - cache->config_slot_count) * sizeof(*slots);
    cache->config_slot_count = count;
    return 0;
}

/* How many plain characters any of the places allows in a row. */
static uint8_t find_text_depth(const struct ash_pda_cache *cache, const uint32_t *places, size_t count)
{
    uint32_t most = 0;

    for (size_t i = 0; i < count; i++) {
        const struct ash_pda_place *place = &cache->places[places[i]], *counter = &cache->places[place->parent];
        const struct ash_pda_edge *edge = &cache->pda->edges[cache->pda->states[counter->state].first];
        if (!cache->pda->states[place->state].is_text_start || place->parent == 0) continue;
        if (cache->pda->states[counter->state].count != 1 || edge->kind != ASH_PDA_REPEAT) continue;
        if (edge->max == ASH_PDA_UNBOUNDED) return ASH_PDA_TEXT_UNBOUNDED;
        if (edge->max - counter->count + 1 > most) most = edge->max - counter->count + 1;
    }
    return (uint8_t)(most < ASH_PDA_TEXT_UNBOUNDED ? most : ASH_PDA_TEXT_UNBOUNDED - 1);
}

static int add_config(struct ash_pda_cache *cache, const uint32_t *places, size_t count, bool is_complete,
                      uint32_t *number_out)
{
    uint32_t number = (uint32_t)cache->config_count;
    struct ash_pda_config **block = &cache->blocks[number / ASH_PDA_CONFIG_BLOCK], *config;

    if (cache->used_bytes > cache->limit_bytes || number == ASH_PDA_CONFIG_BLOCK * ASH_PDA_CONFIG_BLOCKS)
        return -ENOSPC;
    if (*block == NULL) {
        *block = calloc(ASH_PDA_CONFIG_BLOCK, sizeof(**block));
        if (*block == NULL) return -ENOMEM;
        cache->used_bytes += ASH_PDA_CONFIG_BLOCK * sizeof(**block);
    }
    config = &(*block)[number % ASH_PDA_CONFIG_BLOCK];
    config->places = malloc((count + 1) * sizeof(*places));
    if (config->places == NULL) return -ENOMEM;
    if (count > 0) memcpy(config->places, places, count * sizeof(*places));
    config->count = (uint32_t)count;
    config->is_complete = is_complete;
    config->text_depth = find_text_depth(cache, places, count);
    cache->used_bytes += (count + 1) * sizeof(*places);
    cache->config_count++;
    *number_out = number;
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

/* The number of a set of places; the dead config for none. Sorts them. */
static int find_config(struct ash_pda_cache *cache, struct ash_pda_list *places, bool is_complete, uint32_t *number_out)
{
    size_t mask = cache->config_slot_count - 1, bytes = places->count * sizeof(*places->items), at;
    uint32_t number;
    int rc;

    if (places->count == 0 && !is_complete) {
        *number_out = ASH_PDA_DEAD;
        return 0;
    }
    if (places->count > 1) qsort(places->items, places->count, sizeof(*places->items), compare_places);
    at = config_hash(places->items, places->count, is_complete) & mask;
    for (; (number = cache->config_slots[at]) != 0; at = (at + 1) & mask) {
        const struct ash_pda_config *there = ash_pda_cache_config(cache, number);
        if (there->count == places->count && there->is_complete == is_complete &&
            (bytes == 0 || memcmp(there->places, places->items, bytes) == 0)) {
            *number_out = number;
            return 0;
        }
    }
    rc = add_config(cache, places->items, places->count, is_complete, number_out);
    if (rc < 0) return rc;
    cache->config_slots[at] = *number_out;
    return 2 * cache->config_count > cache->config_slot_count ? grow_config_slots(cache) : 0;
}

/* ---- closure: where a text can be without another byte ----------------------------------------------------------- */

static int see(struct ash_pda_cache *cache, uint32_t number)
{
    if (cache->stamps[number] == cache->stamp) return 0;
    if (cache->queue.count > CLOSURE_MAX) return -E2BIG;
    cache->stamps[number] = cache->stamp;
    return list_add(&cache->queue, number);
}

static int see_place(struct ash_pda_cache *cache, uint32_t state, uint32_t count, uint32_t parent)
{
    uint32_t number;
    int rc = find_place(cache, (struct ash_pda_place){state, count, parent}, &number);

    return rc < 0 ? rc : see(cache, number);
}

/* One more time round, or on. */
static int follow_repeat(struct ash_pda_cache *cache, struct ash_pda_place place, const struct ash_pda_edge *edge)
{
    bool is_unbounded = edge->max == ASH_PDA_UNBOUNDED;
    uint32_t after = is_unbounded && place.count >= edge->min ? edge->min : place.count + 1, frame;
    int rc = place.count >= edge->min ? see_place(cache, edge->to, 0, place.parent) : 0;

    if (rc < 0 || place.count >= edge->max) return rc;
    rc = find_place(cache, (struct ash_pda_place){place.state, after, place.parent}, &frame);
    return rc < 0 ? rc : see_place(cache, cache->pda->rules[edge->rule].start, 0, frame);
}

static int follow_call(struct ash_pda_cache *cache, struct ash_pda_place place, const struct ash_pda_edge *edge)
{
    uint32_t frame = place.parent;
    int rc = 0;

    if (!cache->pda->states[edge->to].is_tail)
        rc = find_place(cache, (struct ash_pda_place){edge->to, 0, place.parent}, &frame);
    return rc < 0 ? rc : see_place(cache, cache->pda->rules[edge->rule].start, 0, frame);
}

static int follow(struct ash_pda_cache *cache, uint32_t number)
{
    struct ash_pda_place place = cache->places[number];
    const struct ash_pda_state *state = &cache->pda->states[place.state];
    int rc = state->has_bytes ? list_add(&cache->result, number) : 0;

    for (uint32_t i = 0; i < state->count && rc == 0; i++) {
        const struct ash_pda_edge *edge = &cache->pda->edges[state->first + i];
        if (edge->kind == ASH_PDA_EMPTY) rc = see_place(cache, edge->to, 0, place.parent);
        if (edge->kind == ASH_PDA_CALL) rc = follow_call(cache, place, edge);
        if (edge->kind == ASH_PDA_REPEAT) rc = follow_repeat(cache, place, edge);
    }
    return rc;
}

/* The config of everything that can be reached from these places without a byte. */
static int close_places(struct ash_pda_cache *cache, const uint32_t *seeds, size_t count, uint32_t *config_out)
{
    bool is_complete = false;
    int rc = 0;

    cache->stamp++;
    cache->queue.count = cache->result.count = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = see(cache, seeds[i]);
    for (size_t done = 0; done < cache->queue.count && rc == 0; done++) {
        uint32_t number = cache->queue.items[done];
        if (!cache->pda->states[cache->places[number].state].is_end)
            rc = follow(cache, number);
        else if (cache->places[number].parent == 0)
            is_complete = true;
        else
            rc = see(cache, cache->places[number].parent);
    }
    if (rc == 0 && cache->result.count > CONFIG_PLACES_MAX) rc = -E2BIG;
    return rc < 0 ? rc : find_config(cache, &cache->result, is_complete, config_out);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Append the places right after byte to seeds. */
static int step_places(struct ash_pda_cache *cache, const struct ash_pda_config *config, uint8_t byte)
{
    for (uint32_t i = 0; i < config->count; i++) {
        struct ash_pda_place place = cache->places[config->places[i]];
        const struct ash_pda_state *state = &cache->pda->states[place.state];
        for (uint32_t e = 0; e < state->count; e++) {
            const struct ash_pda_edge *edge = &cache->pda->edges[state->first + e];
            uint32_t number;
            int rc;
            if (edge->kind != ASH_PDA_BYTES || byte < edge->low || byte > edge->high) continue;
            rc = find_place(cache, (struct ash_pda_place){edge->to, 0, place.parent}, &number);
            if (rc == 0) rc = list_add(&cache->seeds, number);
            if (rc < 0) return rc;
        }
    }
    return 0;
}

/* Fill next: classes whose bytes lead to the same places share one look. */
static int fill_next(struct ash_pda_cache *cache, const struct ash_pda_config *config, uint32_t *next)
{
    size_t starts[257] = {0};
    int rc = 0;

    cache->seeds.count = 0;
    for (size_t class = 0; class < cache->pda->class_count && rc == 0; class ++) {
        size_t start = cache->seeds.count, count, same;
        rc = step_places(cache, config, cache->pda->members[class]);
        count = cache->seeds.count - start;
        starts[class] = start;
        starts[class + 1] = cache->seeds.count;
        if (rc < 0 || count == 0) continue;
        for (same = 0; same < class; same++)
            if (starts[same + 1] - starts[same] == count &&
                memcmp(cache->seeds.items + starts[same], cache->seeds.items + start, count * sizeof(uint32_t)) == 0)
                break;
        if (same < class)
            next[class] = next[same];
        else
            rc = close_places(cache, cache->seeds.items + start, count, &next[class]);
    }
    return rc;
}

const uint32_t *ash_pda_cache_next(struct ash_pda_cache *cache, uint32_t config, int *rc_out)
{
    struct ash_pda_config *from = ash_pda_cache_config(cache, config);
    uint32_t *next = atomic_load_explicit(&from->next, memory_order_acquire);
    size_t bytes = cache->pda->class_count * sizeof(*next);

    if (next != NULL) return next;
    *rc_out = 0;
    pthread_mutex_lock(&cache->lock);
    next = atomic_load_explicit(&from->next, memory_order_relaxed);
    if (next == NULL) {
        next = calloc(1, bytes);
        *rc_out = next == NULL ? -ENOMEM : fill_next(cache, from, next);
        if (*rc_out < 0) {
            free(next);
            next = NULL;
        } else {
            cache->used_bytes += bytes;
            atomic_store_explicit(&from->next, next, memory_order_release);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return next;
}

/* ---- from one cache to another ----------------------------------------------------------------------------------- */

/* The stack of a place, top first, appended to chain. */
static int copy_chain(const struct ash_pda_cache *cache, uint32_t number, struct ash_pda_list *chain)
{
    int rc = 0;

    for (; number != 0 && rc == 0; number = cache->places[number].parent) {
        rc = list_add(chain, cache->places[number].state);
        if (rc == 0) rc = list_add(chain, cache->places[number].count);
    }
    return rc == 0 ? list_add(chain, ASH_PDA_NONE) : rc;
}

/* The numbers that the stacks in chain have here. */
static int add_chains(struct ash_pda_cache *cache, const struct ash_pda_list *chain, struct ash_pda_list *places)
{
    int rc = 0;

    for (size_t start = 0, end; start < chain->count && rc == 0; start = end + 1) {
        uint32_t number = 0;
        for (end = start; chain->items[end] != ASH_PDA_NONE;)
            end += 2;
        for (size_t at = end; at > start && rc == 0; at -= 2)
            rc = find_place(cache, (struct ash_pda_place){chain->items[at - 2], chain->items[at - 1], number}, &number);
        if (rc == 0) rc = list_add(places, number);
    }
    return rc;
}

int ash_pda_cache_copy(struct ash_pda_cache *cache, uint32_t config, struct ash_pda_cache *other, uint32_t *config_out)
{
    const struct ash_pda_config *from = ash_pda_cache_config(cache, config);
    struct ash_pda_list chain = {0}, places = {0};
    int rc = 0;

    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < from->count && rc == 0; i++)
        rc = copy_chain(cache, from->places[i], &chain);
    pthread_mutex_unlock(&cache->lock);
    pthread_mutex_lock(&other->lock);
    if (rc == 0) rc = add_chains(other, &chain, &places);
    if (rc == 0) rc = find_config(other, &places, from->is_complete, config_out);
    pthread_mutex_unlock(&other->lock);
    free(chain.items);
    free(places.items);
    return rc;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Place 0 is none, config 0 dead, config 1 the start. */
static int fill_start(struct ash_pda_cache *cache)
{
    struct ash_pda_list none = {0};
    uint32_t number, start;
    int rc = grow_place_slots(cache);

    if (rc == 0) rc = grow_config_slots(cache);
    if (rc == 0) rc = ash_array_reserve(&cache->places, &cache->place_capacity, 1, sizeof(*cache->places));
    if (rc == 0) rc = ash_array_reserve(&cache->stamps, &cache->stamp_capacity, 1, sizeof(uint32_t));
    if (rc < 0) return rc;
    cache->places[0] = (struct ash_pda_place){0};
    cache->stamps[0] = 0;
    cache->place_count = 1;
    rc = add_config(cache, none.items, 0, false, &number);
    if (rc == 0)
        rc = find_place(cache, (struct ash_pda_place){cache->pda->rules[cache->pda->root].start, 0, 0}, &start);
    if (rc == 0) rc = close_places(cache, &start, 1, &number);
    ash_assert(rc < 0 || number == ASH_PDA_START);
    return rc;
}

int ash_pda_cache_open(const struct ash_pda *pda, const struct ash_vocab_trie *trie, size_t limit_bytes,
                       struct ash_pda_cache **cache_out)
{
    struct ash_pda_cache *cache = calloc(1, sizeof(*cache));
    int rc;

    if (cache == NULL) return -ENOMEM;
    cache->pda = pda;
    cache->trie = trie;
    cache->limit_bytes = limit_bytes;
    atomic_init(&cache->references, 1);
    if (pthread_mutex_init(&cache->lock, NULL) != 0) {
        free(cache);
        return -ENOMEM;
    }
    rc = fill_start(cache);
    if (rc < 0) {
        ash_pda_cache_put(cache);
        return rc;
    }
    *cache_out = cache;
    return 0;
}

void ash_pda_cache_put(struct ash_pda_cache *cache)
{
    if (cache == NULL || atomic_fetch_sub(&cache->references, 1) > 1) return;
    for (uint32_t i = 0; i < cache->config_count; i++) {
        struct ash_pda_config *config = ash_pda_cache_config(cache, i);
        free(config->places);
        free(atomic_load(&config->next));
        free((void *)(uintptr_t)atomic_load(&config->mask));
    }
    for (size_t i = 0; i < ASH_PDA_CONFIG_BLOCKS; i++)
        free(cache->blocks[i]);
    free(cache->config_slots);
    free(cache->places);
    free(cache->stamps);
    free(cache->place_slots);
    free(cache->queue.items);
    free(cache->result.items);
    free(cache->seeds.items);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

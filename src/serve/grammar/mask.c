/* Masks: the tokens whose bytes the automaton can read from a config. If it can read any plain character, the plain
 * tokens are taken as a whole, and the walk through the trie visits only the others. */
#include "serve/grammar/pda_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

#define LOOPS 16 /* configs whose loops a walk remembers */

/* A node on the way down: its children left, and the configs after it. */
struct level {
    uint32_t end, config;
    const uint32_t *next;
};

static void set_tokens(const struct ash_vocab_trie *trie, uint32_t first, uint32_t end, uint64_t *mask)
{
    for (uint32_t t = first; t < end; t++) {
        size_t id = (size_t)trie->tokens[t];
        mask[id / 64] |= UINT64_C(1) << id % 64;
    }
}

/* What a walk carries along. */
struct walk {
    struct ash_pda_cache *cache;
    struct level *levels; /* the depth of the trie and one more */
    uint64_t *mask;
    struct { /* configs by their number modulo LOOPS: the bytes that lead back to them */
        uint32_t config;
        struct ash_byte_set bytes;
    } loops[LOOPS];
};

/* The bytes that lead from config back to it. */
static const struct ash_byte_set *find_loop(struct walk *walk, uint32_t config, const uint32_t *next)
{
    struct ash_byte_set *bytes = &walk->loops[config % LOOPS].bytes;

    if (walk->loops[config % LOOPS].config == config) return bytes;
    walk->loops[config % LOOPS].config = config;
    *bytes = (struct ash_byte_set){{0}};
    for (int byte = 0; byte < 256; byte++)
        if (next[walk->cache->pda->classes[byte]] == config) bytes->words[byte / 64] |= UINT64_C(1) << byte % 64;
    return bytes;
}

/* Can everything below a node be read from the config after it? Either its bytes all lead back there, or they are plain
 * characters where any may stand. */
static bool allows_all(struct walk *walk, const struct ash_trie_node *node, uint32_t config, const uint32_t *next)
{
    const uint64_t *below = walk->cache->trie->sets[node->set].words, *loop;

    if (node->set == 0) return false;
    loop = find_loop(walk, config, next)->words;
    if ((below[0] & ~loop[0]) == 0 && (below[1] & ~loop[1]) == 0 && (below[2] & ~loop[2]) == 0 &&
        (below[3] & ~loop[3]) == 0)
        return true;
    if (node->characters == 0) return false;
    return ash_pda_cache_text_run(walk->cache, config, node->plain - node->characters) >=
           (size_t)(node->plain - node->characters);
}

/* Set the bits of all tokens that can be read from config, but for plain ones of up to `plain` characters. */
static int walk_trie(struct walk *walk, uint32_t config, size_t plain)
{
    const struct ash_vocab_trie *trie = walk->cache->trie;
    const uint8_t *classes = walk->cache->pda->classes;
    struct level *level = walk->levels;
    int rc = 0;

    *level = (struct level){(uint32_t)trie->node_count, config, ash_pda_cache_next(walk->cache, config, &rc)};
    if (level->next == NULL) return rc;
    for (uint32_t n = 0; n < trie->node_count;) {
        const struct ash_trie_node *node = &trie->nodes[n];
        const uint32_t *next;
        uint32_t after;
        while (n >= level->end)
            level--;
        if (node->plain <= plain || (after = level->next[classes[node->byte]]) == ASH_PDA_DEAD) {
            n = node->end;
            continue;
        }
        set_tokens(trie, node->first_token, node->first_token + node->token_count, walk->mask);
        if (node->end == ++n) continue;
        next = after == level->config ? level->next : ash_pda_cache_next(walk->cache, after, &rc);
        if (next == NULL) return rc;
        if (allows_all(walk, node, after, next)) {
            set_tokens(trie, node->first_token, ash_trie_tokens_end(trie, node), walk->mask);
            n = node->end;
        } else {
            *++level = (struct level){node->end, after, next};
        }
    }
    return 0;
}

static int fill_mask(struct walk *walk, uint32_t number)
{
    struct ash_pda_cache *cache = walk->cache;
    const struct ash_vocab_trie *trie = cache->trie;
    const struct ash_pda_config *config = ash_pda_cache_config(cache, number);
    size_t run =
        config->text_depth > 0 ? config->text_depth : ash_pda_cache_text_run(cache, number, ASH_TRIE_PLAIN_MAX - 1);
    size_t plain = ash_min(run, ASH_TRIE_PLAIN_MAX - 1);
    int rc;

    if (run == ASH_PDA_TEXT_UNBOUNDED) plain = ASH_PDA_TEXT_UNBOUNDED - 1;
    memcpy(walk->mask, trie->plain + ash_min(plain, ASH_TRIE_PLAIN_MAX) * trie->words,
           trie->words * sizeof(*walk->mask));
    rc = walk_trie(walk, number, plain);
    for (size_t i = 0; i < trie->eos_count; i++) { /* an eos id ends the answer; its bytes are no text */
        size_t id = (size_t)trie->eos[i];
        walk->mask[id / 64] &= ~(UINT64_C(1) << id % 64);
        if (config->is_complete) walk->mask[id / 64] |= UINT64_C(1) << id % 64;
    }
    return rc;
}

const uint64_t *ash_pda_cache_mask(struct ash_pda_cache *cache, uint32_t config, int *rc_out)
{
    struct ash_pda_config *from = ash_pda_cache_config(cache, config);
    const uint64_t *mask = atomic_load_explicit(&from->mask, memory_order_acquire), *there = NULL;
    size_t bytes = (cache->trie->words + 1) * sizeof(*mask);
    struct walk walk = {.cache = cache};
    uint64_t *fresh;

    if (mask != NULL) return mask;
    pthread_mutex_lock(&cache->lock);
    *rc_out = cache->used_bytes > cache->limit_bytes ? -ENOSPC : 0;
    pthread_mutex_unlock(&cache->lock);
    if (*rc_out < 0) return NULL;
    walk.mask = fresh = malloc(bytes);
    walk.levels = malloc((cache->trie->depth + 2) * sizeof(*walk.levels));
    *rc_out = fresh == NULL || walk.levels == NULL ? -ENOMEM : fill_mask(&walk, config);
    free(walk.levels);
    if (*rc_out < 0) {
        free(fresh);
        return NULL;
    }
    if (!atomic_compare_exchange_strong(&from->mask, &there, fresh)) { /* another thread was faster */
        free(fresh);
        return there;
    }
    pthread_mutex_lock(&cache->lock);
    cache->used_bytes += bytes;
    pthread_mutex_unlock(&cache->lock);
    return fresh;
}

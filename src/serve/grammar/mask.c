/* Masks: the tokens whose bytes the automaton can read from a config. Where it can read any plain character, the plain
 * tokens are taken as a whole, and the walk through the trie visits only the others. */
#include "serve/grammar/pda_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

/* A node on the way down: what is below it, and the configs after it. */
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

/* Are this many plain characters allowed in a row, whichever they are? */
static bool is_all_text(struct ash_pda_cache *cache, uint32_t config, size_t characters)
{
    return ash_pda_cache_text_run(cache, config, characters) >= characters;
}

/* Set the bits of all tokens that can be read from config, but for plain ones of up to `plain` characters. levels: the
 * depth of the trie and one more. */
static int walk(struct ash_pda_cache *cache, uint32_t config, size_t plain, struct level *levels, uint64_t *mask)
{
    const struct ash_vocab_trie *trie = cache->trie;
    const uint8_t *classes = cache->pda->classes;
    size_t depth = 0;
    int rc = 0;

    levels[0] = (struct level){
        .end = (uint32_t)trie->node_count, .config = config, .next = ash_pda_cache_next(cache, config, &rc)};
    if (levels[0].next == NULL) return rc;
    for (uint32_t n = 0; n < trie->node_count;) {
        const struct ash_trie_node *node = &trie->nodes[n];
        uint32_t after;
        while (n >= levels[depth].end)
            depth--;
        if (node->plain <= plain || (after = levels[depth].next[classes[node->byte]]) == ASH_PDA_DEAD) {
            n = node->end;
            continue;
        }
        if (node->characters > 0 && is_all_text(cache, after, node->plain - node->characters)) {
            set_tokens(trie, node->first_token, ash_trie_tokens_end(trie, node), mask);
            n = node->end;
            continue;
        }
        if (node->token_count > 0) set_tokens(trie, node->first_token, node->first_token + node->token_count, mask);
        if (node->end > ++n) {
            const uint32_t *next = levels[depth].next;
            if (after != levels[depth].config) next = ash_pda_cache_next(cache, after, &rc);
            if (next == NULL) return rc;
            levels[++depth] = (struct level){.end = node->end, .config = after, .next = next};
        }
    }
    return 0;
}

static int fill_mask(struct ash_pda_cache *cache, uint32_t number, struct level *levels, uint64_t *mask)
{
    const struct ash_vocab_trie *trie = cache->trie;
    const struct ash_pda_config *config = ash_pda_cache_config(cache, number);
    size_t run =
        config->text_depth > 0 ? config->text_depth : ash_pda_cache_text_run(cache, number, ASH_TRIE_PLAIN_MAX - 1);
    size_t plain = ash_min(run, ASH_TRIE_PLAIN_MAX - 1);
    int rc;

    if (run == ASH_PDA_TEXT_UNBOUNDED) plain = ASH_PDA_TEXT_UNBOUNDED - 1;
    memcpy(mask, trie->plain + ash_min(plain, ASH_TRIE_PLAIN_MAX) * trie->words, trie->words * sizeof(*mask));
    rc = walk(cache, number, plain, levels, mask);
    for (size_t i = 0; i < trie->eos_count; i++) { /* an eos id ends the answer; its bytes are no text */
        size_t id = (size_t)trie->eos[i];
        mask[id / 64] &= ~(UINT64_C(1) << id % 64);
        if (config->is_complete) mask[id / 64] |= UINT64_C(1) << id % 64;
    }
    return rc;
}

const uint64_t *ash_pda_cache_mask(struct ash_pda_cache *cache, uint32_t config, int *rc_out)
{
    struct ash_pda_config *from = ash_pda_cache_config(cache, config);
    const uint64_t *mask = atomic_load_explicit(&from->mask, memory_order_acquire), *there = NULL;
    size_t bytes = (cache->trie->words + 1) * sizeof(*mask);
    struct level *levels;
    uint64_t *fresh;

    if (mask != NULL) return mask;
    pthread_mutex_lock(&cache->lock);
    *rc_out = cache->used_bytes > cache->limit_bytes ? -ENOSPC : 0;
    pthread_mutex_unlock(&cache->lock);
    if (*rc_out < 0) return NULL;
    fresh = malloc(bytes);
    levels = malloc((cache->trie->depth + 2) * sizeof(*levels));
    *rc_out = fresh == NULL || levels == NULL ? -ENOMEM : fill_mask(cache, config, levels, fresh);
    free(levels);
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

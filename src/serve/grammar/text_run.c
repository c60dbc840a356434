/* Where an automaton reads text: configs from which every plain character leads to one and the same config. Tokens of
 * plain characters need not be walked through there one by one. */
#include "serve/grammar/pda_priv.h"

#include "base/assert.h"

/* The config after any byte in [low, high], when that is one config; else ASH_PDA_DEAD. */
static uint32_t after_range(struct ash_pda_cache *cache, uint32_t config, uint8_t low, uint8_t high)
{
    const uint8_t *classes = cache->pda->classes;
    int rc = 0;
    const uint32_t *next = ash_pda_cache_next(cache, config, &rc);

    if (next == NULL) return ASH_PDA_DEAD;
    for (size_t class = classes[low]; class <= classes[high]; class ++) /* classes ascend with bytes */
        if (next[class] != next[classes[low]]) return ASH_PDA_DEAD;
    return next[classes[low]];
}

/* The characters of more than one byte lead to target, too. */
static bool is_wide_text(struct ash_pda_cache *cache, uint32_t config, uint32_t target)
{
    static const struct {
        uint8_t count, ranges[4][2];
    } forms[] = {
        {2, {{0xc2, 0xdf}, {0x80, 0xbf}}},
        {3, {{0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}}},
        {3, {{0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}}},
        {3, {{0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}}},
        {3, {{0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}}},
        {4, {{0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}},
        {4, {{0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}},
        {4, {{0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}}},
    };

    for (size_t i = 0; i < ASH_COUNT(forms); i++) {
        uint32_t at = config;
        for (size_t b = 0; b < forms[i].count && at != ASH_PDA_DEAD; b++)
            at = after_range(cache, at, forms[i].ranges[b][0], forms[i].ranges[b][1]);
        if (at != target) return false;
    }
    return true;
}

uint32_t ash_pda_cache_text_next(struct ash_pda_cache *cache, uint32_t config)
{
    struct ash_pda_config *from = ash_pda_cache_config(cache, config);
    uint32_t known = atomic_load_explicit(&from->text_next, memory_order_acquire), target;

    if (known > 0) return known - 1;
    target = after_range(cache, config, 'a', 'z');
    if (target != ASH_PDA_DEAD &&
        (after_range(cache, config, 0x20, '"' - 1) != target ||
         after_range(cache, config, '"' + 1, '\\' - 1) != target ||
         after_range(cache, config, '\\' + 1, 0x7e) != target || !is_wide_text(cache, config, target)))
        target = ASH_PDA_DEAD;
    atomic_store_explicit(&from->text_next, target + 1, memory_order_release);
    return target;
}

size_t ash_pda_cache_text_run(struct ash_pda_cache *cache, uint32_t config, size_t most)
{
    size_t run = 0;

    while (run < most) {
        uint32_t next = ash_pda_cache_text_next(cache, config);
        if (next == ASH_PDA_DEAD) break;
        if (next == config) return ASH_PDA_TEXT_UNBOUNDED;
        config = next;
        run++;
    }
    return run;
}

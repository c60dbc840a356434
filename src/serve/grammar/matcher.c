/* A matcher is a config per accepted token. When the cache that its grammar shares is full, it moves to a new one. */
#include "serve/grammar/grammar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "serve/grammar/grammar_priv.h"

#define ENDED UINT32_MAX /* config: an eos id was accepted */

struct ash_matcher {
    struct ash_grammar *grammar;
    struct ash_pda_cache *cache;
    uint64_t *nothing;                              /* the mask after the end */
    size_t count;                                   /* tokens accepted, and not taken back */
    size_t kept;                                    /* of them, how many can be taken back */
    uint32_t configs[ASH_MATCHER_ROLLBACK_MAX + 1]; /* after count tokens: configs[count % size] */
};

#define HISTORY (ASH_MATCHER_ROLLBACK_MAX + 1)

static uint32_t *config_of(struct ash_matcher *matcher, size_t count)
{
    return &matcher->configs[count % HISTORY];
}

int ash_matcher_open(struct ash_grammar *grammar, const struct ash_vocab_trie *trie, struct ash_matcher **matcher_out,
                     struct ash_err *err)
{
    struct ash_matcher *matcher = calloc(1, sizeof(*matcher));
    int rc;

    if (matcher == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a matcher");
    matcher->nothing = calloc(trie->words + 1, sizeof(uint64_t));
    rc = matcher->nothing == NULL ? -ENOMEM : ash_grammar_get_cache(grammar, trie, NULL, &matcher->cache);
    matcher->grammar = ash_grammar_get(grammar);
    if (rc < 0) {
        ash_matcher_close(matcher);
        if (rc == -ENOMEM) return ash_err_set(err, rc, "out of memory for a matcher");
        return ash_err_set(err, -E2BIG,
                           "the grammar is too large: its first state alone takes more than %zu MiB; repetitions in "
                           "each other multiply: simplify it",
                           grammar->limits.cache_bytes >> 20);
    }
    matcher->configs[0] = ASH_PDA_START;
    *matcher_out = matcher;
    return 0;
}

void ash_matcher_close(struct ash_matcher *matcher)
{
    if (matcher == NULL) return;
    ash_pda_cache_put(matcher->cache);
    ash_grammar_put(matcher->grammar);
    free(matcher->nothing);
    free(matcher);
}

/* Go on in a cache with room. */
static int move(struct ash_matcher *matcher)
{
    struct ash_pda_cache *fresh = NULL;
    int rc = ash_grammar_get_cache(matcher->grammar, matcher->cache->trie, matcher->cache, &fresh);

    for (size_t back = 0; back <= matcher->kept && rc == 0; back++) {
        uint32_t *config = config_of(matcher, matcher->count - back);
        if (*config != ENDED) rc = ash_pda_cache_copy(matcher->cache, *config, fresh, config);
        if (rc < 0 && back > 0) { /* no room for the whole past */
            matcher->kept = back - 1;
            rc = 0;
            break;
        }
    }
    if (rc < 0) {
        ash_pda_cache_put(fresh);
        return rc;
    }
    ash_pda_cache_put(matcher->cache);
    matcher->cache = fresh;
    return 0;
}

const uint64_t *ash_matcher_mask(struct ash_matcher *matcher)
{
    const uint64_t *mask = NULL;
    int rc = 0;

    if (*config_of(matcher, matcher->count) == ENDED) return matcher->nothing;
    for (int tries = 0; tries < 2 && mask == NULL; tries++) {
        mask = ash_pda_cache_mask(matcher->cache, *config_of(matcher, matcher->count), &rc);
        if (mask == NULL && (rc != -ENOSPC || tries > 0 || move(matcher) < 0)) return NULL;
    }
    return mask;
}

/* The config after the bytes of id; ASH_PDA_DEAD where they cannot be read. */
static int read_token(struct ash_matcher *matcher, int32_t id, uint32_t *config_out)
{
    const struct ash_vocab_trie *trie = matcher->cache->trie;
    uint32_t config = *config_of(matcher, matcher->count);
    int rc = 0;

    ash_assert(id >= 0);
    for (uint32_t at = trie->offsets[id]; at < trie->offsets[id + 1] && config != ASH_PDA_DEAD; at++) {
        const uint32_t *next = ash_pda_cache_next(matcher->cache, config, &rc);
        if (next == NULL) return rc;
        config = next[matcher->cache->pda->classes[(uint8_t)trie->bytes[at]]];
    }
    *config_out = config;
    return 0;
}

static bool is_eos(const struct ash_vocab_trie *trie, int32_t id)
{
    for (size_t i = 0; i < trie->eos_count; i++)
        if (trie->eos[i] == id) return true;
    return false;
}

int ash_matcher_accept(struct ash_matcher *matcher, int32_t id)
{
    const struct ash_vocab_trie *trie = matcher->cache->trie;
    uint32_t config = ASH_PDA_DEAD;
    int rc;

    if (id < 0 || (size_t)id >= trie->vocab || *config_of(matcher, matcher->count) == ENDED) return -EINVAL;
    if (is_eos(trie, id)) {
        if (!ash_matcher_is_complete(matcher)) return -EINVAL;
        config = ENDED;
    } else {
        if (trie->offsets[id] == trie->offsets[id + 1]) return -EINVAL;
        rc = read_token(matcher, id, &config);
        if (rc == -ENOSPC) {
            rc = move(matcher);
            if (rc == 0) rc = read_token(matcher, id, &config);
        }
        if (rc < 0) return rc == -ENOSPC ? -E2BIG : rc;
        if (config == ASH_PDA_DEAD) return -EINVAL;
    }
    matcher->count++;
    matcher->kept = ash_min(matcher->kept + 1, ASH_MATCHER_ROLLBACK_MAX);
    *config_of(matcher, matcher->count) = config;
    return 0;
}

void ash_matcher_rollback(struct ash_matcher *matcher, size_t tokens)
{
    ash_assert(tokens <= matcher->kept);
    matcher->count -= tokens;
    matcher->kept -= tokens;
}

bool ash_matcher_is_complete(const struct ash_matcher *matcher)
{
    uint32_t config = matcher->configs[matcher->count % HISTORY];

    return config == ENDED || ash_pda_cache_config(matcher->cache, config)->is_complete;
}

bool ash_matcher_must_end(struct ash_matcher *matcher)
{
    uint32_t config = *config_of(matcher, matcher->count);

    return config == ENDED || ash_pda_cache_config(matcher->cache, config)->count == 0;
}

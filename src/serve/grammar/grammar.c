/* Grammars: an automaton, and the cache that all its matchers share. */
#include "serve/grammar/grammar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/grammar/grammar_priv.h"

struct ash_grammar_limits ash_grammar_default_limits(void)
{
    return (struct ash_grammar_limits){
        .source_bytes = (size_t)1 << 20, .states = 200000, .depth = 128, .seconds = 2, .cache_bytes = (size_t)64 << 20};
}

struct ash_grammar_opts ash_grammar_default_opts(void)
{
    return (struct ash_grammar_opts){.limits = ash_grammar_default_limits(), .space = ASH_JSON_SPACE_COMPACT};
}

int ash_grammar_from_pda(struct ash_pda *pda, const struct ash_grammar_limits *limits, struct ash_grammar **grammar_out,
                         struct ash_err *err)
{
    struct ash_grammar *grammar = calloc(1, sizeof(*grammar));

    if (grammar == NULL || pthread_mutex_init(&grammar->lock, NULL) != 0) {
        free(grammar);
        ash_pda_close(pda);
        return ash_err_set(err, -ENOMEM, "out of memory for a grammar");
    }
    grammar->pda = pda;
    grammar->limits = *limits;
    atomic_init(&grammar->references, 1);
    *grammar_out = grammar;
    return 0;
}

struct ash_grammar *ash_grammar_get(struct ash_grammar *grammar)
{
    atomic_fetch_add(&grammar->references, 1);
    return grammar;
}

void ash_grammar_put(struct ash_grammar *grammar)
{
    if (grammar == NULL || atomic_fetch_sub(&grammar->references, 1) > 1) return;
    ash_pda_cache_put(grammar->cache);
    ash_pda_close(grammar->pda);
    pthread_mutex_destroy(&grammar->lock);
    free(grammar);
}

int ash_grammar_get_cache(struct ash_grammar *grammar, const struct ash_vocab_trie *trie,
                          const struct ash_pda_cache *full, struct ash_pda_cache **cache_out)
{
    int rc = 0;

    pthread_mutex_lock(&grammar->lock);
    if (grammar->cache == NULL || grammar->cache->trie != trie || grammar->cache == full) {
        ash_pda_cache_put(grammar->cache);
        grammar->cache = NULL;
        rc = ash_pda_cache_open(grammar->pda, trie, grammar->limits.cache_bytes, &grammar->cache);
    }
    if (rc == 0) {
        atomic_fetch_add(&grammar->cache->references, 1);
        *cache_out = grammar->cache;
    }
    pthread_mutex_unlock(&grammar->lock);
    return rc;
}

/* Inside of grammars. */
#ifndef ASH_SERVE_GRAMMAR_GRAMMAR_PRIV_H
#define ASH_SERVE_GRAMMAR_GRAMMAR_PRIV_H

#include "serve/grammar/grammar.h"
#include "serve/grammar/pda_priv.h"

struct ash_grammar {
    struct ash_pda *pda;
    struct ash_grammar_limits limits;
    atomic_int references;
    pthread_mutex_t lock;        /* over cache */
    struct ash_pda_cache *cache; /* the one that new matchers share; NULL: none yet */
};

/* The cache that matchers over trie share, but not `full` (may be NULL), with a reference. Errors of
 * ash_pda_cache_open. */
int ash_grammar_get_cache(struct ash_grammar *grammar, const struct ash_vocab_trie *trie,
                          const struct ash_pda_cache *full, struct ash_pda_cache **cache_out);

#endif

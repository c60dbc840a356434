/* Inside of automata: what a finished one holds, and the deterministic automaton that walking makes of it. */
#ifndef ASH_SERVE_GRAMMAR_PDA_PRIV_H
#define ASH_SERVE_GRAMMAR_PDA_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include "serve/grammar/pda.h"

enum ash_pda_edge_kind { ASH_PDA_BYTES, ASH_PDA_EMPTY, ASH_PDA_CALL, ASH_PDA_REPEAT };

struct ash_pda_edge {
    uint8_t kind, low, high; /* low, high: bytes */
    uint32_t to;
    uint32_t rule;     /* call and repeat */
    uint32_t min, max; /* repeat */
    uint32_t next;     /* draft: the state's next edge, or ASH_PDA_NONE */
};

#define ASH_PDA_NONE UINT32_MAX

struct ash_pda_rule {
    uint32_t start, end;
    bool is_text;       /* ash_pda_mark_text */
    bool can_be_empty;  /* matches the empty text */
    bool is_productive; /* matches something */
};

/* A state's edges are edges[first .. first + count) in a finished automaton. Edges that lead nowhere are gone. */
struct ash_pda_state {
    uint32_t first, count;
    uint32_t start_of;  /* the rule that starts here, or ASH_PDA_NONE */
    bool is_end;        /* of its rule */
    bool is_tail;       /* nothing but the end of its rule follows, without a byte */
    bool has_bytes;     /* an edge reads a byte */
    bool is_text_start; /* the start of a rule that ash_pda_mark_text marked */
};

/* A repeat edge is the only one of its state, whose places in the automaton count. */
struct ash_pda {
    struct ash_pda_state *states;
    size_t state_count;
    struct ash_pda_edge *edges;
    size_t edge_count;
    struct ash_pda_rule *rules;
    size_t rule_count;
    uint32_t root;
    uint8_t classes[256]; /* bytes that no edge tells apart have the same class */
    uint8_t members[256]; /* a byte of each class */
    size_t class_count;
};

struct ash_pda_draft {
    struct ash_grammar_limits limits;
    uint64_t end_ns;
    int rc;
    const char *what; /* why rc is -E2BIG */
    uint32_t *heads;  /* the first edge of each state, or ASH_PDA_NONE */
    size_t state_count, state_capacity;
    struct ash_pda_edge *edges;
    size_t edge_count, edge_capacity;
    struct ash_pda_rule *rules;
    size_t rule_count, rule_capacity;
};

/* Nothing can be drawn any more: rc is -ENOMEM or -E2BIG. */
void ash_pda_draft_stop(struct ash_pda_draft *draft, int rc);

/* ---- cache: the deterministic automaton, as far as answers walked through it ------------------------------------- */

/* A place is a state with a count (of a repetition; else 0) and the place to return to at the end of the state's rule.
 * Places are numbered, equal ones have one number, so a stack is one number too. */
struct ash_pda_place {
    uint32_t state, count, parent; /* parent 0: the end of the rule is the end of the text */
};

#define ASH_PDA_TEXT_UNBOUNDED 255

/* A set of places: where a text may be. */
struct ash_pda_config {
    uint32_t *places; /* ascending, those that read a byte */
    uint32_t count;
    bool is_complete;               /* the text may end here */
    uint8_t text_depth;             /* any plain characters are allowed, up to this number; 255: any number */
    _Atomic(uint32_t *) next;       /* [class_count] configs; NULL: not looked for yet */
    _Atomic(uint32_t) text_next;    /* ash_pda_cache_text_next and 1; 0: not looked for yet */
    _Atomic(const uint64_t *) mask; /* NULL: not computed yet */
};

#define ASH_PDA_CONFIG_BLOCK 256
#define ASH_PDA_CONFIG_BLOCKS 4096
#define ASH_PDA_DEAD 0  /* config: no text continues like this */
#define ASH_PDA_START 1 /* config: before any text */

struct ash_pda_cache {
    const struct ash_pda *pda;
    const struct ash_vocab_trie *trie; /* of the masks */
    atomic_int references;
    size_t limit_bytes;
    pthread_mutex_t lock; /* over everything but reading configs and their next and mask */
    size_t used_bytes;
    struct ash_pda_config *blocks[ASH_PDA_CONFIG_BLOCKS];
    size_t config_count;
    uint32_t *config_slots; /* open addressing; 0: free */
    size_t config_slot_count;
    struct ash_pda_place *places; /* the first is not used */
    uint32_t *stamps;             /* of each place: the closure that saw it last */
    size_t place_count, place_capacity, stamp_capacity;
    uint32_t *place_slots;
    size_t place_slot_count;
    uint32_t stamp;
    struct ash_pda_list {
        uint32_t *items;
        size_t count, capacity;
    } queue, result, seeds; /* of the closure at work, and of each class of bytes */
};

/* An empty cache with one reference; limit_bytes of memory, then it is full. Borrows pda and trie. 0, -ENOMEM, or
 * -ENOSPC if the first state alone exceeds limit_bytes. */
int ash_pda_cache_open(const struct ash_pda *pda, const struct ash_vocab_trie *trie, size_t limit_bytes,
                       struct ash_pda_cache **cache_out);
/* One reference less; the last one frees it. NULL is a no-op. */
void ash_pda_cache_put(struct ash_pda_cache *cache);
/* The config of a number that some call gave. */
struct ash_pda_config *ash_pda_cache_config(const struct ash_pda_cache *cache, uint32_t config);
/* The configs after a byte of each class. NULL: *rc_out is -ENOMEM, -ENOSPC (full) or -E2BIG (too many places). */
const uint32_t *ash_pda_cache_next(struct ash_pda_cache *cache, uint32_t config, int *rc_out);
/* The one config that any plain character leads to, or ASH_PDA_DEAD if there is none. */
uint32_t ash_pda_cache_text_next(struct ash_pda_cache *cache, uint32_t config);
/* How many plain characters are certainly allowed in a row, up to most; ASH_PDA_TEXT_UNBOUNDED: any number. */
size_t ash_pda_cache_text_run(struct ash_pda_cache *cache, uint32_t config, size_t most);
/* The mask of a config, computed when it is asked for first. NULL: *rc_out as above. */
const uint64_t *ash_pda_cache_mask(struct ash_pda_cache *cache, uint32_t config, int *rc_out);
/* The same config in another cache of the same automaton. 0 or a negative errno as above. */
int ash_pda_cache_copy(struct ash_pda_cache *cache, uint32_t config, struct ash_pda_cache *other, uint32_t *config_out);

/* ---- vocabulary -------------------------------------------------------------------------------------------------- */

#define ASH_TRIE_LARGE 8      /* tokens below a node from which on it pays to look whether all are allowed */
#define ASH_TRIE_PLAIN_MAX 32 /* plain tokens are grouped by their characters, up to this number */

/* A node in preorder: what comes after a node is below it until `end`. 16 bytes: walks are bound by memory. */
struct ash_trie_node {
    uint32_t end;
    uint32_t first_token; /* of those at and below it, in the order of nodes */
    uint16_t token_count; /* that end here */
    uint8_t characters;   /* up to here, when they are plain and complete and the node is large; else 0 */
    uint8_t byte;
    uint32_t plain : 8; /* characters of the longest token at or below, when all are plain; else 255 */
    uint32_t set : 24;  /* of a large node: the set of bytes below it; else 0 */
};

/* Bytes as bits. */
struct ash_byte_set {
    uint64_t words[4];
};

struct ash_vocab_trie {
    struct ash_trie_node *nodes;
    size_t node_count, depth;
    int32_t *tokens; /* ids in the order of nodes */
    size_t token_count;
    size_t vocab, words;
    uint32_t *offsets; /* [vocab + 1] of each id's bytes */
    char *bytes;       /* the special mark first, for those */
    int32_t *eos;
    size_t eos_count;
    struct ash_byte_set *sets; /* the first is not used */
    size_t set_count;
    uint64_t *plain; /* [ASH_TRIE_PLAIN_MAX + 1][words] plain tokens of at most that many characters; last: all */
};
/* One after the last of the tokens at and below a node, which begin at its first_token. */
uint32_t ash_trie_tokens_end(const struct ash_vocab_trie *trie, const struct ash_trie_node *node);

#endif

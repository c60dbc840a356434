/* The vocabulary as a trie in preorder: a walk is one pass over an array that jumps over what cannot match. */
#include "serve/grammar/pda_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/str.h"
#include "base/utf8.h"

#define NOT_PLAIN 255

/* ---- the bytes of each id ---------------------------------------------------------------------------------------- */

/* Everything ids have, in the trie's own memory. */
static int copy_tokens(struct ash_vocab_trie *trie, const struct ash_vocab_token *tokens, size_t count)
{
    size_t total = 0;

    for (size_t i = 0; i < count; i++)
        total += tokens[i].size_bytes + 1;
    trie->offsets = malloc((count + 1) * sizeof(*trie->offsets));
    trie->bytes = malloc(total + 1);
    if (trie->offsets == NULL || trie->bytes == NULL || total > UINT32_MAX) return -ENOMEM;
    total = 0;
    for (size_t i = 0; i < count; i++) {
        trie->offsets[i] = (uint32_t)total;
        if (tokens[i].size_bytes == 0) continue;
        if (!tokens[i].is_special && memchr(tokens[i].bytes, ASH_VOCAB_SPECIAL_BYTE, tokens[i].size_bytes) != NULL)
            continue; /* no text, and not to be taken for a special token */
        if (tokens[i].is_special) trie->bytes[total++] = (char)ASH_VOCAB_SPECIAL_BYTE;
        memcpy(trie->bytes + total, tokens[i].bytes, tokens[i].size_bytes);
        total += tokens[i].size_bytes;
    }
    trie->offsets[count] = (uint32_t)total;
    return 0;
}

/* Characters of a token that is plain: of JSON strings without an escape, the last one perhaps cut off, which counts as
 * one. NOT_PLAIN for others. */
static size_t plain_characters(const char *text, size_t size_bytes)
{
    size_t characters = 0;

    for (size_t at = 0; at < size_bytes; characters++) {
        uint32_t point;
        int size = ash_utf8_decode(text + at, size_bytes - at, &point);
        if (size == 0 && ash_utf8_incomplete_tail(text + at, size_bytes - at) == size_bytes - at)
            return characters + 1 < NOT_PLAIN ? characters + 1 : NOT_PLAIN;
        if (size == 0 || point < 0x20 || point == '"' || point == '\\' || point == 0x7f) return NOT_PLAIN;
        at += (size_t)size;
    }
    return characters < NOT_PLAIN ? characters : NOT_PLAIN;
}

uint32_t ash_trie_tokens_end(const struct ash_vocab_trie *trie, const struct ash_trie_node *node)
{
    return node->end < trie->node_count ? trie->nodes[node->end].first_token : (uint32_t)trie->token_count;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

struct sorted_token {
    const uint8_t *bytes;
    size_t size_bytes;
    int32_t id;
};

static int compare_tokens(const void *a, const void *b)
{
    const struct sorted_token *left = a, *right = b;
    int order = memcmp(left->bytes, right->bytes, ash_min(left->size_bytes, right->size_bytes));

    if (order == 0) order = (left->size_bytes > right->size_bytes) - (left->size_bytes < right->size_bytes);
    return order != 0 ? order : (left->id > right->id) - (left->id < right->id);
}

/* Characters in the first bytes of a token, or 0 where they end inside of one or are too many. */
static uint8_t count_characters(const uint8_t *bytes, size_t size_bytes)
{
    size_t characters = 0;

    if (ash_utf8_incomplete_tail((const char *)bytes, size_bytes) > 0) return 0;
    for (size_t i = 0; i < size_bytes; i++)
        characters += (bytes[i] & 0xc0) != 0x80;
    return (uint8_t)(characters < NOT_PLAIN ? characters : 0);
}

/* Nodes for sorted tokens. open: the path of the token before. */
static void add_nodes(struct ash_vocab_trie *trie, const struct sorted_token *tokens, size_t count, uint32_t *open)
{
    size_t depth = 0;

    for (size_t i = 0; i < count; i++) {
        const struct sorted_token *token = &tokens[i];
        size_t shared = 0;
        while (shared < depth && shared < token->size_bytes && trie->nodes[open[shared]].byte == token->bytes[shared])
            shared++;
        for (; depth > shared; depth--)
            trie->nodes[open[depth - 1]].end = (uint32_t)trie->node_count;
        for (; depth < token->size_bytes; depth++) {
            open[depth] = (uint32_t)trie->node_count;
            trie->nodes[trie->node_count++] =
                (struct ash_trie_node){.byte = token->bytes[depth],
                                       .first_token = (uint32_t)i,
                                       .characters = count_characters(token->bytes, depth + 1)};
        }
        if (trie->nodes[open[depth - 1]].token_count == 0) trie->nodes[open[depth - 1]].first_token = (uint32_t)i;
        trie->nodes[open[depth - 1]].token_count++;
        trie->tokens[i] = token->id;
    }
    for (; depth > 0; depth--)
        trie->nodes[open[depth - 1]].end = (uint32_t)trie->node_count;
}

/* The number of nodes, and the longest token. */
static size_t count_nodes(const struct sorted_token *tokens, size_t count, size_t *depth_out)
{
    size_t nodes = 0;

    for (size_t i = 0; i < count; i++) {
        size_t shared = 0;
        while (i > 0 && shared < tokens[i].size_bytes && shared < tokens[i - 1].size_bytes &&
               tokens[i].bytes[shared] == tokens[i - 1].bytes[shared])
            shared++;
        nodes += tokens[i].size_bytes - shared;
        *depth_out = ash_max(*depth_out, tokens[i].size_bytes);
    }
    return nodes;
}

static int build_nodes(struct ash_vocab_trie *trie)
{
    struct sorted_token *tokens = malloc((trie->vocab + 1) * sizeof(*tokens));
    uint32_t *open = NULL;
    size_t count = 0;
    int rc = -ENOMEM;

    if (tokens == NULL) return rc;
    for (size_t id = 0; id < trie->vocab; id++) {
        uint32_t start = trie->offsets[id], end = trie->offsets[id + 1];
        if (end > start)
            tokens[count++] = (struct sorted_token){(const uint8_t *)trie->bytes + start, end - start, (int32_t)id};
    }
    qsort(tokens, count, sizeof(*tokens), compare_tokens);
    trie->token_count = count;
    trie->nodes = malloc((count_nodes(tokens, count, &trie->depth) + 1) * sizeof(*trie->nodes));
    trie->tokens = malloc((count + 1) * sizeof(*trie->tokens));
    open = malloc((trie->depth + 1) * sizeof(*open));
    if (trie->nodes != NULL && trie->tokens != NULL && open != NULL) {
        add_nodes(trie, tokens, count, open);
        rc = 0;
    }
    free(open);
    free(tokens);
    return rc;
}

static void set_bit(uint64_t *mask, int32_t id)
{
    mask[(size_t)id / 64] |= UINT64_C(1) << (size_t)id % 64;
}

/* Which tokens and which nodes are plain. Nodes last to first: children come before parents. */
static int find_plain(struct ash_vocab_trie *trie)
{
    trie->plain = calloc((ASH_TRIE_PLAIN_MAX + 1) * trie->words + 1, sizeof(*trie->plain));
    if (trie->plain == NULL) return -ENOMEM;
    for (size_t n = trie->node_count; n > 0; n--) {
        struct ash_trie_node *node = &trie->nodes[n - 1];
        size_t most = 0;
        for (uint32_t below = (uint32_t)n; below < node->end; below = trie->nodes[below].end)
            most = ash_max(most, trie->nodes[below].plain);
        for (uint32_t t = node->first_token; t < node->first_token + node->token_count; t++) {
            int32_t id = trie->tokens[t];
            uint32_t start = trie->offsets[id];
            size_t characters = plain_characters(trie->bytes + start, trie->offsets[id + 1] - start);
            most = ash_max(most, characters);
            if (characters == NOT_PLAIN) continue;
            for (size_t k = characters; k < ASH_TRIE_PLAIN_MAX; k++)
                set_bit(trie->plain + k * trie->words, id);
            set_bit(trie->plain + ASH_TRIE_PLAIN_MAX * trie->words, id);
        }
        node->plain = most & 0xff;
        if (most == NOT_PLAIN || ash_trie_tokens_end(trie, node) - node->first_token < ASH_TRIE_LARGE)
            node->characters = 0;
    }
    return 0;
}

/* The bytes below each large node. */
static int find_sets(struct ash_vocab_trie *trie)
{
    trie->set_count = 1;
    for (size_t n = 0; n < trie->node_count; n++) {
        struct ash_trie_node *node = &trie->nodes[n];
        if (ash_trie_tokens_end(trie, node) - node->first_token >= ASH_TRIE_LARGE && trie->set_count < 1u << 24)
            node->set = (uint32_t)trie->set_count++ & 0xffffff;
    }
    trie->sets = calloc(trie->set_count, sizeof(*trie->sets));
    if (trie->sets == NULL) return -ENOMEM;
    for (size_t n = 0; n < trie->node_count; n++)
        for (uint32_t below = (uint32_t)n + 1; trie->nodes[n].set != 0 && below < trie->nodes[n].end; below++) {
            uint8_t byte = trie->nodes[below].byte;
            trie->sets[trie->nodes[n].set].words[byte / 64] |= UINT64_C(1) << byte % 64;
        }
    return 0;
}

static int copy_eos(struct ash_vocab_trie *trie, const int32_t *eos_ids, size_t count, struct ash_err *err)
{
    trie->eos = malloc((count + 1) * sizeof(*trie->eos));
    if (trie->eos == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a vocabulary");
    for (size_t i = 0; i < count; i++) {
        if (eos_ids[i] < 0 || (size_t)eos_ids[i] >= trie->vocab)
            return ash_err_set(err, -EINVAL, "end-of-text id %d is not in the vocabulary of %zu", (int)eos_ids[i],
                               trie->vocab);
        trie->eos[trie->eos_count++] = eos_ids[i];
    }
    return 0;
}

int ash_vocab_trie_from_tokens(const struct ash_vocab_token *tokens, size_t count, const int32_t *eos_ids,
                               size_t eos_count, struct ash_vocab_trie **trie_out, struct ash_err *err)
{
    struct ash_vocab_trie *trie = calloc(1, sizeof(*trie));
    int rc = -ENOMEM;

    if (trie == NULL) goto fail;
    trie->vocab = count;
    trie->words = ash_div_up(count, 64);
    if (copy_tokens(trie, tokens, count) < 0 || build_nodes(trie) < 0 || find_plain(trie) < 0 || find_sets(trie) < 0)
        goto fail;
    rc = copy_eos(trie, eos_ids, eos_count, err);
    if (rc < 0) {
        ash_vocab_trie_close(trie);
        return rc;
    }
    *trie_out = trie;
    return 0;

fail:
    ash_vocab_trie_close(trie);
    return ash_err_set(err, rc, "out of memory for a vocabulary");
}

int ash_vocab_trie_open(const struct ash_tokenizer *tokenizer, size_t vocab, const int32_t *eos_ids, size_t eos_count,
                        struct ash_vocab_trie **trie_out, struct ash_err *err)
{
    size_t known = ash_tokenizer_vocab_size(tokenizer), count = ash_max(vocab, known);
    struct ash_vocab_token *tokens = calloc(count + 1, sizeof(*tokens));
    size_t *starts = calloc(known + 1, sizeof(*starts));
    struct ash_str bytes = {0};
    int rc = tokens == NULL || starts == NULL ? -ENOMEM : 0;

    for (size_t id = 0; id < known && rc == 0; id++) {
        rc = ash_tokenizer_add_bytes(tokenizer, (int32_t)id, &bytes);
        tokens[id].is_special = ash_tokenizer_is_special(tokenizer, (int32_t)id);
        starts[id + 1] = bytes.size_bytes;
        tokens[id].size_bytes = starts[id + 1] - starts[id];
    }
    for (size_t id = 0; id < known && rc == 0; id++)
        tokens[id].bytes = bytes.data + starts[id];
    rc = rc < 0 ? ash_err_set(err, rc, "out of memory for a vocabulary")
                : ash_vocab_trie_from_tokens(tokens, count, eos_ids, eos_count, trie_out, err);
    ash_str_fini(&bytes);
    free(starts);
    free(tokens);
    return rc;
}

void ash_vocab_trie_close(struct ash_vocab_trie *trie)
{
    if (trie == NULL) return;
    free(trie->nodes);
    free(trie->tokens);
    free(trie->offsets);
    free(trie->bytes);
    free(trie->eos);
    free(trie->sets);
    free(trie->plain);
    free(trie);
}

size_t ash_vocab_trie_mask_words(const struct ash_vocab_trie *trie)
{
    return trie->words;
}

bool ash_vocab_trie_has_special(const struct ash_vocab_trie *trie, const char *text)
{
    size_t size_bytes = strlen(text);

    for (size_t id = 0; id < trie->vocab; id++) {
        const char *bytes = trie->bytes + trie->offsets[id];
        if (trie->offsets[id + 1] - trie->offsets[id] == size_bytes + 1 &&
            (uint8_t)bytes[0] == ASH_VOCAB_SPECIAL_BYTE && memcmp(bytes + 1, text, size_bytes) == 0)
            return true;
    }
    return false;
}

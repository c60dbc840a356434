/* Added tokens: contents that are taken out of the text before anything else, the longest at the leftmost place. Those
 * that are not normalized are looked for in the text as it comes, the others after normalizing, exactly in the
 * library's order. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/utf8.h"

/* ---- the tree of contents ---------------------------------------------------------------------------------------- */

#define NO_NODE UINT32_MAX

struct node {
    uint32_t child, sibling;
    int32_t token; /* index of the token that ends here, or -1 */
    uint8_t byte;
};

struct ash_tok_trie {
    struct node *nodes; /* nodes[0] is the root */
    size_t count, capacity;
    bool first[256]; /* can a content begin with this byte? */
};

static struct ash_tok_trie *trie_open(size_t node_count)
{
    struct ash_tok_trie *trie = calloc(1, sizeof(*trie));

    if (trie == NULL) return NULL;
    trie->nodes = malloc(node_count * sizeof(*trie->nodes));
    if (trie->nodes == NULL) {
        free(trie);
        return NULL;
    }
    trie->capacity = node_count;
    trie->nodes[trie->count++] = (struct node){.child = NO_NODE, .sibling = NO_NODE, .token = -1};
    return trie;
}

static void trie_close(struct ash_tok_trie *trie)
{
    if (trie == NULL) return;
    free(trie->nodes);
    free(trie);
}

static uint32_t trie_child(const struct ash_tok_trie *trie, uint32_t node, uint8_t byte)
{
    uint32_t child = trie->nodes[node].child;

    while (child != NO_NODE && trie->nodes[child].byte != byte)
        child = trie->nodes[child].sibling;
    return child;
}

/* Room for all nodes was made at open. Of two tokens with one shape the first stays. */
static void trie_add(struct ash_tok_trie *trie, const struct ash_str *shape, int32_t token)
{
    uint32_t at = 0;

    if (shape->size_bytes == 0) return;
    trie->first[(uint8_t)shape->data[0]] = true;
    for (size_t i = 0; i < shape->size_bytes; i++) {
        uint8_t byte = (uint8_t)shape->data[i];
        uint32_t child = trie_child(trie, at, byte);
        if (child == NO_NODE) {
            child = (uint32_t)trie->count++;
            trie->nodes[child] =
                (struct node){.child = NO_NODE, .sibling = trie->nodes[at].child, .token = -1, .byte = byte};
            trie->nodes[at].child = child;
        }
        at = child;
    }
    if (trie->nodes[at].token < 0) trie->nodes[at].token = token;
}

/* The longest content that text begins with: its token and length, or -1. */
static int32_t trie_match(const struct ash_tok_trie *trie, const char *text, size_t size_bytes, size_t *size_out)
{
    uint32_t at = 0;
    int32_t token = -1;

    for (size_t i = 0; i < size_bytes; i++) {
        at = trie_child(trie, at, (uint8_t)text[i]);
        if (at == NO_NODE) break;
        if (trie->nodes[at].token >= 0) {
            token = trie->nodes[at].token;
            *size_out = i + 1;
        }
    }
    return token;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int load_token(struct ash_tok_added_token *token, const json_t *item, struct ash_err *err)
{
    const char *content = NULL;
    int64_t id = -1;
    int rc = ash_json_string(item, "content", &content, err);

    if (rc >= 0) rc = ash_json_int(item, "id", 0, ASH_TOK_ID_MAX, &id, err);
    if (rc >= 0) rc = ash_json_bool(item, "single_word", &token->single_word, err);
    if (rc >= 0) rc = ash_json_bool(item, "lstrip", &token->lstrip, err);
    if (rc >= 0) rc = ash_json_bool(item, "rstrip", &token->rstrip, err);
    if (rc >= 0) rc = ash_json_bool(item, "special", &token->special, err);
    token->normalized = !token->special;
    if (rc >= 0) rc = ash_json_bool(item, "normalized", &token->normalized, err);
    if (rc < 0) return rc;
    if (content == NULL || id < 0) return ash_err_set(err, -EINVAL, "an added token lacks its 'content' or 'id'");
    token->id = (int32_t)id;
    return ash_str_adds(&token->content, content) < 0 ? ash_err_set(err, -ENOMEM, "out of memory for added tokens") : 0;
}

/* The id that the library gives: the vocabulary's, an earlier added token's, or the next free one. The file must agree,
 * or a model would be fed other ids than it was trained with. */
static int check_id(const struct ash_tok_added *added, const struct ash_tok_vocab *vocab, int32_t *next,
                    const struct ash_tok_added_token *token, struct ash_err *err)
{
    int32_t id = ash_tok_added_find(added, token->content.data);

    if (id < 0) id = ash_tok_vocab_find(vocab, token->content.data, token->content.size_bytes);
    if (id < 0) id = (*next)++;
    if (id == token->id) return 0;
    return ash_err_set(err, -EINVAL,
                       "added token '%.64s' has id %d in the file, but the vocabulary before it makes it %d",
                       token->content.data, token->id, id);
}

/* What to look for. */
static int set_shape(struct ash_tok_added_token *token, const struct ash_tok_norms *norms,
                     struct ash_tok_scratch *scratch, struct ash_err *err)
{
    struct ash_tok_span shape = {token->content.data, token->content.size_bytes};
    int rc = 0;

    ash_tok_scratch_limit(scratch, shape.size_bytes);
    if (token->normalized) rc = ash_tok_norms_apply(norms, scratch, shape, &shape, err);
    if (rc == 0) rc = ash_str_add(&token->shape, shape.data, shape.size_bytes);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for added tokens") : rc;
}

static int build_tries(struct ash_tok_added *added, struct ash_err *err)
{
    size_t nodes[2] = {1, 1};

    for (size_t i = 0; i < added->count; i++)
        nodes[added->tokens[i].normalized] += added->tokens[i].shape.size_bytes;
    if (nodes[0] > UINT32_MAX / 2 || nodes[1] > UINT32_MAX / 2)
        return ash_err_set(err, -E2BIG, "too many bytes of added tokens");
    added->raw = trie_open(nodes[0]);
    added->normalized = trie_open(nodes[1]);
    if (added->raw == NULL || added->normalized == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for added tokens");
    for (size_t i = 0; i < added->count; i++)
        trie_add(added->tokens[i].normalized ? added->normalized : added->raw, &added->tokens[i].shape, (int32_t)i);
    return 0;
}

static int enter_ids(struct ash_tok_added *added, struct ash_tok_vocab *vocab, struct ash_err *err)
{
    for (size_t i = 0; i < added->count; i++) {
        const struct ash_tok_added_token *token = &added->tokens[i];
        struct ash_tok_entry *entry;
        if (ash_tok_vocab_reach(vocab, token->id) < 0)
            return ash_err_set(err, -ENOMEM, "out of memory for added tokens");
        entry = &vocab->entries[token->id];
        entry->content = token->content.data;
        entry->size_bytes = (uint32_t)token->content.size_bytes;
        entry->added = (int32_t)i;
    }
    return 0;
}

/* The slot of a content: the index of its token, or -1. */
static int32_t *content_slot(const struct ash_tok_added *added, const char *content)
{
    size_t at = ash_hash_str(content) & added->slot_mask;

    while (added->slots[at] >= 0 && strcmp(added->tokens[added->slots[at]].content.data, content) != 0)
        at = (at + 1) & added->slot_mask;
    return &added->slots[at];
}

static int make_room(struct ash_tok_added *added, size_t count, struct ash_err *err)
{
    size_t slots = 16;

    while (slots < count * 2)
        slots *= 2;
    added->tokens = calloc(count + 1, sizeof(*added->tokens));
    added->slots = malloc(slots * sizeof(*added->slots));
    if (added->tokens == NULL || added->slots == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for added tokens");
    memset(added->slots, 0xff, slots * sizeof(*added->slots));
    added->slot_mask = slots - 1;
    return 0;
}

static void token_fini(struct ash_tok_added_token *token)
{
    ash_str_fini(&token->content);
    ash_str_fini(&token->shape);
}

/* Take the token over. One that is listed again replaces the earlier entry. */
static void keep(struct ash_tok_added *added, struct ash_tok_added_token token)
{
    int32_t *slot = content_slot(added, token.content.data);

    if (*slot >= 0) {
        token.special |= added->tokens[*slot].special;
        token_fini(&added->tokens[*slot]);
    } else {
        *slot = (int32_t)added->count++;
    }
    added->tokens[*slot] = token;
}

int ash_tok_added_load(struct ash_tok_added *added, const json_t *root, struct ash_tok_vocab *vocab,
                       const struct ash_tok_norms *norms, struct ash_tok_scratch *scratch, struct ash_err *err)
{
    const json_t *array = NULL;
    int32_t next = (int32_t)vocab->token_count;
    size_t index;
    json_t *item;
    int rc = ash_json_array(root, "added_tokens", &array, err);

    if (rc >= 0) rc = make_room(added, json_array_size(array), err);
    if (rc < 0) return rc;
    json_array_foreach(array, index, item) {
        struct ash_tok_added_token token = {0};
        rc = load_token(&token, item, err);
        if (rc >= 0 && token.content.size_bytes > 0) rc = check_id(added, vocab, &next, &token, err);
        if (rc >= 0 && token.content.size_bytes > 0) rc = set_shape(&token, norms, scratch, err);
        if (rc >= 0 && token.content.size_bytes > 0)
            keep(added, token);
        else
            token_fini(&token); /* the library passes empty ones over */
        if (rc < 0) return rc;
    }
    rc = build_tries(added, err);
    return rc < 0 ? rc : enter_ids(added, vocab, err);
}

void ash_tok_added_fini(struct ash_tok_added *added)
{
    for (size_t i = 0; i < added->count; i++)
        token_fini(&added->tokens[i]);
    free(added->tokens);
    free(added->slots);
    trie_close(added->raw);
    trie_close(added->normalized);
    *added = (struct ash_tok_added){0};
}

int32_t ash_tok_added_find(const struct ash_tok_added *added, const char *content)
{
    int32_t index = *content_slot(added, content);

    return index >= 0 ? added->tokens[index].id : -1;
}

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

/* The character that ends before at. */
static uint32_t point_before(struct ash_tok_span text, size_t at)
{
    size_t start = at - 1;
    uint32_t point = 0;

    while (start > 0 && ((uint8_t)text.data[start] & 0xc0) == 0x80)
        start--;
    ash_utf8_decode(text.data + start, at - start, &point);
    return point;
}

static uint32_t point_at(struct ash_tok_span text, size_t at)
{
    uint32_t point = 0;

    ash_utf8_decode(text.data + at, text.size_bytes - at, &point);
    return point;
}

static bool stands_alone(struct ash_tok_span text, size_t start, size_t end)
{
    return (start == 0 || !ash_tok_is_word(point_before(text, start))) &&
           (end == text.size_bytes || !ash_tok_is_word(point_at(text, end)));
}

/* Move start left over spaces, but not before low. */
static size_t strip_left(struct ash_tok_span text, size_t start, size_t low)
{
    while (start > 0 && ash_tok_is_space(point_before(text, start))) {
        start--;
        while (start > 0 && ((uint8_t)text.data[start] & 0xc0) == 0x80)
            start--;
    }
    return start > low ? start : low;
}

static size_t strip_right(struct ash_tok_span text, size_t end)
{
    uint32_t point = 0;

    while (end < text.size_bytes) {
        size_t size = (size_t)ash_utf8_decode(text.data + end, text.size_bytes - end, &point);
        if (!ash_tok_is_space(point)) break;
        end += size;
    }
    return end;
}

int ash_tok_added_cut(const struct ash_tok_added *added, const struct ash_tok_trie *trie, struct ash_tok_span text,
                      ash_tok_piece_fn piece, void *ctx)
{
    size_t done = 0, size = 0;
    int rc = 0;

    ash_assert(piece != NULL);
    for (size_t at = 0; rc == 0 && trie != NULL && trie->count > 1 && at < text.size_bytes;) {
        const struct ash_tok_added_token *token;
        size_t start = at, end;
        int32_t index =
            trie->first[(uint8_t)text.data[at]] ? trie_match(trie, text.data + at, text.size_bytes - at, &size) : -1;
        if (index < 0) {
            at++;
            continue;
        }
        token = &added->tokens[index];
        at = end = start + size;
        if (token->single_word && !stands_alone(text, start, end)) continue;
        if (token->lstrip) start = strip_left(text, start, done);
        if (token->rstrip) end = strip_right(text, end);
        if (done < start) rc = piece(ctx, (struct ash_tok_span){text.data + done, start - done}, NULL, done);
        if (rc == 0) rc = piece(ctx, (struct ash_tok_span){text.data + start, end - start}, token, start);
        done = end;
    }
    if (rc == 0 && done < text.size_bytes)
        rc = piece(ctx, (struct ash_tok_span){text.data + done, text.size_bytes - done}, NULL, done);
    return rc;
}

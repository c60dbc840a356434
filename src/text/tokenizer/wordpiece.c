/* Word pieces: a word is the longest token that it begins with, then the longest of the rest, whose tokens have a
 * prefix. A word that ends in no token is unknown as a whole. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

static size_t count_points(struct ash_tok_span text)
{
    size_t count = 0;

    for (size_t i = 0; i < text.size_bytes; i++)
        count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return count;
}

/* The token that text begins with, of prefix_bytes and at least a character more; *size_out its bytes. */
static int32_t find_longest(const struct ash_tok_model *model, const struct ash_str *text, size_t prefix_bytes,
                            size_t *size_out)
{
    for (size_t size = text->size_bytes; size > prefix_bytes; size--) {
        bool is_whole = size == text->size_bytes || ((unsigned char)text->data[size] & 0xc0) != 0x80;
        int32_t id = is_whole ? ash_tok_vocab_find(&model->vocab, text->data, size) : -1;

        if (id < 0) continue;
        *size_out = size;
        return id;
    }
    return -1;
}

int ash_tok_word_piece_encode(const struct ash_tok_model *model, struct ash_tok_scratch *scratch,
                              struct ash_tok_span word, struct ash_ids *ids, struct ash_err *err)
{
    struct ash_str *text = &scratch->word;
    size_t before = ids->count, prefix_bytes = 0, size;

    (void)err;
    ash_assert(model->is_word_piece && model->unknown_id >= 0);
    for (size_t at = 0; at < word.size_bytes; at += size - prefix_bytes) {
        int32_t id = -1;

        prefix_bytes = at > 0 ? model->subword_prefix.size_bytes : 0;
        ash_str_clear(text);
        if (ash_str_add(text, model->subword_prefix.data, prefix_bytes) < 0 ||
            ash_str_add(text, word.data + at, word.size_bytes - at) < 0)
            return -ENOMEM;
        if (at > 0 || count_points(word) <= model->word_chars_max) id = find_longest(model, text, prefix_bytes, &size);
        if (id < 0) {
            ids->count = before;
            return ash_ids_add(ids, model->unknown_id);
        }
        if (ash_ids_add(ids, id) < 0) return -ENOMEM;
    }
    return 0;
}

int ash_tok_word_piece_clean(struct ash_str *token)
{
    static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    struct ash_str out = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ASH_COUNT(pairs); i++) {
        const char *found =
            token->data != NULL ? memmem(token->data, token->size_bytes, pairs[i][0], strlen(pairs[i][0])) : NULL;
        size_t done = 0;

        if (found == NULL) continue;
        ash_str_clear(&out);
        while (rc == 0 && found != NULL) {
            size_t at = (size_t)(found - token->data);

            rc = ash_str_add(&out, token->data + done, at - done);
            if (rc == 0) rc = ash_str_adds(&out, pairs[i][1]);
            done = at + strlen(pairs[i][0]);
            found = memmem(token->data + done, token->size_bytes - done, pairs[i][0], strlen(pairs[i][0]));
        }
        if (rc == 0) rc = ash_str_add(&out, token->data + done, token->size_bytes - done);
        ash_str_clear(token);
        if (rc == 0) rc = ash_str_add(token, out.data, out.size_bytes);
    }
    ash_str_fini(&out);
    return rc;
}

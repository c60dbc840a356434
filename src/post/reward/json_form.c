/* json_form: a vocabulary of single bytes over the grammar of a schema. */
#include "post/reward/json_form.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/grammar/grammar.h"

#define BYTES 256
#define END BYTES /* the id that ends a text */

struct ash_json_form {
    struct ash_grammar *grammar;
    struct ash_vocab_trie *trie;
};

static int open_trie(struct ash_json_form *form, struct ash_err *err)
{
    static const int32_t end = END;
    struct ash_vocab_token tokens[BYTES + 1];
    char bytes[BYTES];

    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct ash_vocab_token){.bytes = &bytes[i], .size_bytes = 1};
    }
    tokens[END] = (struct ash_vocab_token){.bytes = "end", .size_bytes = 3, .is_special = true};
    return ash_vocab_trie_from_tokens(tokens, BYTES + 1, &end, 1, &form->trie, err);
}

int ash_json_form_open(const char *path, struct ash_json_form **form_out, struct ash_err *err)
{
    struct ash_json_form *form = calloc(1, sizeof(*form));
    struct ash_grammar_opts opts = ash_grammar_default_opts();
    json_t *schema = NULL;
    int rc = form == NULL ? ash_err_set(err, -ENOMEM, "out of memory for a schema") : ash_json_load(path, &schema, err);

    opts.space = ASH_JSON_SPACE_ANY;
    if (rc == 0) rc = ash_grammar_from_json_schema(schema, &opts, &form->grammar, err);
    if (rc == 0) rc = open_trie(form, err);
    json_decref(schema);
    if (rc < 0) {
        ash_json_form_close(form);
        return ash_err_prefix(err, rc, "schema=%s", path);
    }
    *form_out = form;
    return 0;
}

void ash_json_form_close(struct ash_json_form *form)
{
    if (form == NULL) return;
    ash_grammar_put(form->grammar);
    ash_vocab_trie_close(form->trie);
    free(form);
}

int ash_json_form_fits(const struct ash_json_form *form, const char *text, bool *is_fit_out, struct ash_err *err)
{
    struct ash_matcher *matcher = NULL;
    size_t end = strlen(text);
    int rc = ash_matcher_open(form->grammar, form->trie, &matcher, err);

    if (rc < 0) return rc;
    while (isspace((unsigned char)*text)) { /* blanks around do not count */
        text++;
        end--;
    }
    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    for (size_t i = 0; rc == 0 && i < end; i++)
        rc = ash_matcher_accept(matcher, (unsigned char)text[i]);
    *is_fit_out = rc == 0 && ash_matcher_is_complete(matcher);
    ash_matcher_close(matcher);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for a schema") : 0;
}

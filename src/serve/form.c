/* The form of an answer: one grammar, and the trie of the model's vocabulary that it is matched with. */
#include "serve/form.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"

static int compile(const struct ash_answer_opts *opts, struct ash_grammar **grammar_out, struct ash_err *err)
{
    json_t *schema = NULL;
    int rc;

    if (opts->regex != NULL) return ash_grammar_from_regex(opts->regex, strlen(opts->regex), NULL, grammar_out, err);
    if (opts->grammar != NULL)
        return ash_grammar_from_gbnf(opts->grammar, strlen(opts->grammar), NULL, grammar_out, err);
    rc = ash_json_parse(opts->json_schema, strlen(opts->json_schema), "the JSON schema", &schema, err);
    if (rc == 0) rc = ash_grammar_from_json_schema(schema, NULL, grammar_out, err);
    json_decref(schema);
    return rc;
}

int ash_answer_form_init(struct ash_answer_form *form, struct ash_engine *engine, const struct ash_answer_opts *opts,
                         struct ash_err *err)
{
    const struct ash_defaults *defaults = ash_engine_defaults(engine);
    int asked = (opts->json_schema != NULL) + (opts->regex != NULL) + (opts->grammar != NULL), rc;

    if (asked == 0) return 0;
    if (asked > 1)
        return ash_err_set(err, -EINVAL, "a JSON schema, a regular expression and a grammar exclude each other");
    if (opts->think_min > 0 || opts->think_max > 0)
        return ash_err_set(err, -EINVAL, "an answer with a form has no place for thoughts, hence no bounds on them");
    rc = compile(opts, &form->grammar, err);
    if (rc < 0) return rc;
    return ash_vocab_trie_open(ash_engine_tokenizer(engine), ash_model_get_config(ash_engine_model(engine))->vocab,
                               defaults->eos, defaults->eos_count, &form->trie, err);
}

void ash_answer_form_fini(struct ash_answer_form *form)
{
    ash_grammar_put(form->grammar);
    ash_vocab_trie_close(form->trie);
    *form = (struct ash_answer_form){0};
}

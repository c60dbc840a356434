/* The plain forms: regular expressions and lists of choices. */
#include "serve/grammar/grammar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/grammar/lang.h"
#include "serve/grammar/pda.h"

/* Finish a draft whose rule 0 is the whole, and close it. */
static int finish(struct ash_pda_draft *draft, struct ash_grammar **grammar_out, struct ash_err *err)
{
    struct ash_grammar_limits limits = *ash_pda_draft_limits(draft);
    struct ash_pda *pda = NULL;
    int rc = ash_pda_finish(draft, 0, NULL, &pda, err);

    ash_pda_draft_close(draft);
    return rc < 0 ? rc : ash_grammar_from_pda(pda, &limits, grammar_out, err);
}

int ash_grammar_from_regex(const char *pattern, size_t size_bytes, const struct ash_grammar_opts *opts,
                           struct ash_grammar **grammar_out, struct ash_err *err)
{
    struct ash_grammar_limits limits = opts != NULL ? opts->limits : ash_grammar_default_limits();
    struct ash_pda_draft *draft;
    struct ash_lang *lang = NULL;
    uint32_t rule;
    int rc;

    if (size_bytes > limits.source_bytes)
        return ash_err_set(err, -E2BIG, "an expression of %zu bytes is longer than the limit of %zu", size_bytes,
                           limits.source_bytes);
    rc = ash_lang_from_regex(pattern, size_bytes, ASH_LANG_WHOLE, &limits, &lang, err);
    if (rc < 0) return rc;
    draft = ash_pda_draft_open(&limits);
    if (draft == NULL) {
        ash_lang_close(lang);
        return ash_err_set(err, -ENOMEM, "out of memory for a grammar");
    }
    rule = ash_pda_add_rule(draft);
    ash_lang_draw(lang, ASH_LANG_RAW, draft, ash_pda_rule_start(draft, rule), ash_pda_rule_end(draft, rule));
    ash_lang_close(lang);
    return finish(draft, grammar_out, err);
}

int ash_grammar_from_choice(const char *const *choices, size_t count, const struct ash_grammar_opts *opts,
                            struct ash_grammar **grammar_out, struct ash_err *err)
{
    struct ash_grammar_limits limits = opts != NULL ? opts->limits : ash_grammar_default_limits();
    struct ash_pda_text *texts;
    struct ash_pda_draft *draft;
    size_t total = 0;
    uint32_t rule;

    if (count == 0) return ash_err_set(err, -EINVAL, "there must be at least one choice");
    for (size_t i = 0; i < count; i++)
        total += strlen(choices[i]);
    if (total > limits.source_bytes)
        return ash_err_set(err, -E2BIG, "choices of %zu bytes are longer than the limit of %zu", total,
                           limits.source_bytes);
    texts = calloc(count, sizeof(*texts));
    draft = ash_pda_draft_open(&limits);
    if (texts == NULL || draft == NULL) {
        free(texts);
        ash_pda_draft_close(draft);
        return ash_err_set(err, -ENOMEM, "out of memory for a grammar");
    }
    for (size_t i = 0; i < count; i++)
        texts[i] = (struct ash_pda_text){choices[i], strlen(choices[i])};
    rule = ash_pda_add_rule(draft);
    ash_pda_add_choice(draft, ash_pda_rule_start(draft, rule), ash_pda_rule_end(draft, rule), texts, count);
    free(texts);
    return finish(draft, grammar_out, err);
}

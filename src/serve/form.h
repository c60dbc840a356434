/* form - how an answer must look (a JSON schema, a regular expression or a grammar), compiled for one model. */
#ifndef ASH_SERVE_FORM_H
#define ASH_SERVE_FORM_H

#include "serve/engine.h"
#include "serve/grammar/grammar.h"

/* Zero-initialise; both NULL: an answer is free. */
struct ash_answer_form {
    struct ash_vocab_trie *trie;
    struct ash_grammar *grammar;
};

/* What opts ask for. -EINVAL where they ask for two forms, and the errors of compiling one. The caller owns it. */
int ash_answer_form_init(struct ash_answer_form *form, struct ash_engine *engine, const struct ash_answer_opts *opts,
                         struct ash_err *err);
/* A zeroed one is a no-op. */
void ash_answer_form_fini(struct ash_answer_form *form);

#endif

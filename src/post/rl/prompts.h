/* prompts - the policy's prompts: generated arithmetic, or JSON lines with a prompt (a text, or messages that the
 * model's template writes) and an answer. Prompt i is a pure function of the opened source. */
#ifndef ASH_POST_RL_PROMPTS_H
#define ASH_POST_RL_PROMPTS_H

#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/arithmetic.h"

struct ash_prompt_list;

/* One prompt. Zero-initialise, free with ash_prompt_fini. */
struct ash_prompt {
    struct ash_ids ids;
    char *text;   /* for people and records */
    char *answer; /* reference of rewards; "" if there is none */
};
/* Free it and leave it empty. */
void ash_prompt_fini(struct ash_prompt *prompt);

/* path "arithmetic": problems of arithmetic, which is copied; else a file of JSON lines. Borrows tokenizer and template
 * (may be NULL) until close. Errors name the line. */
int ash_prompts_open(const char *path, const struct ash_arithmetic_opts *arithmetic,
                     const struct ash_tokenizer *tokenizer, const struct ash_chat_template *template,
                     struct ash_prompt_list **prompts_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_prompts_close(struct ash_prompt_list *prompts);
/* Prompt n of a run (any n: a file is gone through in an order that seed and epoch decide), or, of held_out ones,
 * number n of those that no n of a run gives (arithmetic), or of the same file. */
int ash_prompts_get(const struct ash_prompt_list *prompts, uint64_t seed, uint64_t n, bool held_out,
                    struct ash_prompt *prompt_out, struct ash_err *err);
/* A hash of the prompts. */
uint64_t ash_prompts_hash(const struct ash_prompt_list *prompts);

#endif

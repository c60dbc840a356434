/* generate - shared by the parts of `ashlar generate`: one prompt (generate.c), conversations (generate_chat.c), many
 * prompts (generate_batch.c), and output (generate_print.c). */
#ifndef ASH_CMD_GENERATE_PRIV_H
#define ASH_CMD_GENERATE_PRIV_H

#include <stdbool.h>
#include "ashlar/ashlar.h"
#include "base/json.h"
#include "base/opts.h"
#include "base/str.h"
#include "cmd/engine_flags.h"

struct ash_generate {
    /* flags */
    const char *model, *prompt, *prompt_file, *prompts, *system;
    int64_t max_tokens, context, top_k, seed, batch, think_min, think_max, n;
    int strategy, vote_on; /* enum ash_strategy, enum ash_vote_on */
    struct ash_opt_list verifier;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    const char *json_schema, *regex, *grammar, *chat_template;
    bool logprobs;
    struct ash_engine_flags computing;
    int kv_dtype;
    struct ash_opt_list stop;
    bool chat, raw, echo, json, stats;
    /* state */
    struct ash_opts *opts;
    struct ash_engine *engine;
    struct ash_answer_opts answer_opts;
    struct ash_str form_text; /* of --json-schema or --grammar, if it came from a file */
};

/* How an answer came to its end. */
struct ash_generate_result {
    struct ash_str text; /* all of it; ash_str_fini */
    enum ash_finish finish;
    bool interrupted; /* Ctrl-C */
};

/* Pull the answer that was started to its end or until Ctrl-C, printing it as it comes when show is set (without blanks
 * at its front when trim is set). On error result has the part so far. */
int ash_generate_pull(struct ash_answer *answer, bool show, bool trim, struct ash_generate_result *result,
                      struct ash_err *err);

/* The ids to continue: text, or with --chat a conversation of one message. The caller frees *ids_out (ash_free). */
int ash_generate_encode(const struct ash_generate *generate, const char *text, int32_t **ids_out, size_t *count_out,
                        struct ash_err *err);

/* Why an answer is over, in words. */
const char *ash_generate_finish_detail(enum ash_finish finish);
/* A list of ids as JSON, or NULL without memory. */
json_t *ash_generate_ids_json(const int32_t *ids, size_t count);
/* One line of JSON on standard output. */
int ash_generate_print_json(const struct ash_generate *generate, const struct ash_answer *answer, const char *prompt,
                            const struct ash_generate_result *result, struct ash_err *err);
/* One line of speeds on standard error. */
void ash_generate_print_stats(const struct ash_answer *answer);

/* Answer a file of prompts in batches, a line of JSON for each in their order; or, with a strategy, one prompt (text;
 * else NULL). Returns the exit code. */
int ash_generate_batch(struct ash_generate *generate, const char *text);

/* ---- many prompts: generate_lines.c ------------------------------------------------------------------------------ */

struct ash_generate_line {
    json_t *id;         /* the line's id, or NULL */
    struct ash_err err; /* why it has no answer */
    int32_t *ids;       /* [count] */
    size_t count;
};
struct ash_generate_lines {
    struct ash_generate_line *items;
    size_t count, capacity;
};
/* Those of --prompts, or text alone if it is not NULL. Returns 0 or an error; fini it after one, too. */
int ash_generate_lines_read(struct ash_generate_lines *lines, const struct ash_generate *generate, const char *text,
                            size_t context_tokens, struct ash_err *err);
/* A zeroed one is a no-op. */
void ash_generate_lines_fini(struct ash_generate_lines *lines);

/* ---- one of several answers: generate_choose.c ------------------------------------------------------------------- */

/* A candidate of a choice. */
struct ash_generate_candidate {
    const char *text;
    const int32_t *prompt, *ids;
    size_t prompt_count, count;
    double logprob; /* of all its tokens together */
    bool has_ended;
};

struct ash_generate_chooser {
    const struct ash_generate *generate;
    struct ash_verifier *verifier; /* NULL: the weights are the model's probabilities */
};
/* Open what verifies. max_tokens: of prompt and answer. Errors name the flag. Close it after a failure, too. */
int ash_generate_chooser_open(struct ash_generate_chooser *chooser, const struct ash_generate *generate,
                              size_t max_tokens, struct ash_err *err);
/* A zeroed one is a no-op. */
void ash_generate_chooser_close(struct ash_generate_chooser *chooser);
/* The index of the answer that counts, of count > 0. *votes_out: what each voted for and weighed, the caller's. */
int ash_generate_choose(struct ash_generate_chooser *chooser, const struct ash_generate_candidate *candidates,
                        size_t count, size_t *chosen_out, json_t **votes_out, struct ash_err *err);

/* Answer line after line from standard input until it ends. Returns the exit code. */
int ash_generate_chat(struct ash_generate *generate);

#endif

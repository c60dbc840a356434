/* generator - token ids in, a stream of text out: prefill in chunks, decode token by token, stop where asked.
 * The caller pulls pieces, so nothing calls back and an answer can be left at any time. A generator keeps the keys and
 * values of earlier tokens: a conversation continues by starting again with a longer prompt, and only new tokens are
 * computed. One owner thread. */
#ifndef ASH_SERVE_GENERATOR_H
#define ASH_SERVE_GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/ashlar.h"
#include "model/model.h"
#include "text/tokenizer/tokenizer.h"
#include "serve/engine/ranks.h"
#include "serve/engine/sampler.h"
#include "serve/engine/think.h"
#include "serve/grammar/grammar.h"

#define ASH_GENERATOR_EOS_MAX 16
#define ASH_GENERATOR_PREFILL_ROWS 256

/* Bounds on an answer's thoughts (serve/engine/think.h). */
struct ash_think_opts {
    size_t min, max; /* tokens; 0: no bound */
    const char *end, *more;
};

struct ash_generator_opts {
    struct ash_sampler_opts sampler;
    size_t context_tokens; /* prompt and answer together; 0: the model's positions, which are also the most */
    size_t max_tokens;     /* of one answer; 0: until the context is full */
    size_t
        prefill_rows;  /* tokens of the prompt per pass; 0: ASH_GENERATOR_PREFILL_ROWS, more on a GPU. Changes no bit */
    bool keep_special; /* special tokens appear in the text */
    int32_t eos[ASH_GENERATOR_EOS_MAX]; /* ids that end an answer; they are no part of its text */
    size_t eos_count;
    const char *const *stops; /* strings that end an answer; copied */
    size_t stop_count;
    struct ash_think_opts think; /* its texts are read by open alone */
    struct ash_grammar *grammar; /* the answer's form, borrowed with vocab_trie until close; NULL: free */
    const struct ash_vocab_trie *vocab_trie;
    bool wants_logprobs;
    struct ash_ranks *ranks; /* that share the model, of which this is the first; borrowed; NULL: it is whole */
};

struct ash_generator;

/* Open a generator. Borrows model, exec and tokenizer until close. Memory for the whole context is taken here. Returns
 * 0, -EINVAL (an option out of its range) or -ENOMEM. The caller owns *generator_out. */
int ash_generator_open(struct ash_model *model, struct ash_exec *exec, const struct ash_tokenizer *tokenizer,
                       const struct ash_generator_opts *opts, struct ash_generator **generator_out,
                       struct ash_err *err);
/* Free it. NULL is a no-op. */
void ash_generator_close(struct ash_generator *generator);

/* Begin an answer to the prompt ids (copied; the whole conversation so far). What an earlier answer left unfinished is
 * dropped; the longest beginning that the cache already holds is not computed again. -EINVAL for an empty prompt,
 * -EOVERFLOW for one that leaves no room for an answer: then the generator is as it was. */
int ash_generator_start(struct ash_generator *generator, const int32_t *ids, size_t count, struct ash_err *err);

/* Do one step: a chunk of the prompt, or a token. *piece_out borrows what became certain (perhaps nothing), whole
 * characters, until the next call; the pieces joined are the text that follows the prompt's. *finish_out says whether
 * more will come. Past the end: an empty piece and the same finish. On error the answer is over. */
int ash_generator_next(struct ash_generator *generator, struct ash_text *piece_out, enum ash_finish *finish_out,
                       struct ash_err *err);

/* The ids chosen since start (borrowed until the next start or next), with one that ended the answer. */
const int32_t *ash_generator_answer(const struct ash_generator *generator, size_t *count_out);
/* With wants_logprobs: those of the ids chosen, in the same way; not of one that ended the answer. */
const float *ash_generator_logprobs(const struct ash_generator *generator, size_t *count_out);
/* What the present answer took so far. */
struct ash_answer_stats ash_generator_stats(const struct ash_generator *generator);

#endif

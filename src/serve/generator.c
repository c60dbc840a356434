/* Generation of text: a core with one sequence at a time computes, and keeps earlier tokens in its prefix cache; here
 * ids become text, and stop strings end it. */
#include "serve/generator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"
#include "model/pass/cache.h"
#include "serve/engine/core.h"
#include "serve/stops.h"

#define NS_PER_S 1e9

struct ash_generator {
    struct ash_generator_opts opts;
    struct ash_stops stops;
    size_t context_tokens, vocab;
    struct ash_core *core;
    struct ash_request request; /* the answer that is being written */
    bool is_running;            /* the core has it */
    struct ash_decoder *decoder;
    int decode_rc; /* why an id could not become text */
    struct ash_err decode_err;
    struct ash_ids tokens; /* the prompt and the answer */
    size_t prompt_count;
    float *logprobs; /* [logprob_count], of the answer, with wants_logprobs */
    size_t logprob_count, logprob_capacity;
    struct ash_str text; /* decoded; [0, given) was given out by the last next, the rest is held back */
    size_t given_bytes;
    enum ash_finish finish;
    bool started; /* an answer is being written or was ended properly */
    uint64_t start_ns, prompt_ns, first_ns, last_ns;
    size_t reused;
    struct ash_think_words words;
    struct ash_think think; /* the budget of its thoughts */
};

static int check_opts(const struct ash_generator_opts *opts, const struct ash_tokenizer *tokenizer, size_t vocab,
                      struct ash_err *err)
{
    if (opts->eos_count > ASH_GENERATOR_EOS_MAX)
        return ash_err_set(err, -EINVAL, "%zu end-of-text ids are more than %d", opts->eos_count,
                           ASH_GENERATOR_EOS_MAX);
    if (ash_tokenizer_vocab_size(tokenizer) == 0 || vocab == 0)
        return ash_err_set(err, -EINVAL, "the tokenizer has no tokens");
    return ash_sampler_check(&opts->sampler, err);
}

static size_t limit(size_t asked, size_t most)
{
    return asked == 0 || asked > most ? most : asked;
}

/* Ids that the tokenizer does not know (rows that pad an embedding) are never chosen. */
static size_t known_ids(const struct ash_tokenizer *tokenizer, size_t vocab)
{
    return limit(ash_tokenizer_vocab_size(tokenizer), vocab);
}

static size_t default_rows(const struct ash_exec *exec)
{
    return exec->memory == &ash_memory_host ? ASH_GENERATOR_PREFILL_ROWS : ash_core_batch_rows(exec);
}

/* The pool: the context, and a page for what two texts have in common inside one. */
static int open_core(struct ash_generator *generator, struct ash_model *model, struct ash_exec *exec,
                     const struct ash_tokenizer *tokenizer, struct ash_err *err)
{
    size_t pages = ash_cache_pages_for(generator->context_tokens) + 1;
    size_t rows = generator->opts.prefill_rows != 0 ? generator->opts.prefill_rows : default_rows(exec);
    struct ash_core_opts opts = {.max_seqs = 1,
                                 .max_batch_rows = limit(rows, generator->context_tokens),
                                 .max_tokens = generator->context_tokens,
                                 .kv_bytes = pages * ASH_CACHE_PAGE_TOKENS * ash_cache_whole_token_bytes(model),
                                 .vocab = known_ids(tokenizer, generator->vocab),
                                 .vocab_trie = generator->opts.vocab_trie,
                                 .ranks = generator->opts.ranks};

    return ash_core_open(model, exec, &opts, &generator->core, err);
}

int ash_generator_open(struct ash_model *model, struct ash_exec *exec, const struct ash_tokenizer *tokenizer,
                       const struct ash_generator_opts *opts, struct ash_generator **generator_out, struct ash_err *err)
{
    const struct ash_model_config *config = ash_model_get_config(model);
    struct ash_generator *generator;
    int rc = check_opts(opts, tokenizer, config->vocab, err);

    if (rc < 0) return rc;
    generator = calloc(1, sizeof(*generator));
    if (generator == NULL) return ash_err_set(err, -ENOMEM, "generator: out of memory");
    generator->opts = *opts;
    generator->vocab = config->vocab;
    generator->context_tokens = limit(opts->context_tokens, config->max_positions);
    rc = ash_stops_init(&generator->stops, opts->stops, opts->stop_count, err);
    if (rc < 0) goto fail;
    rc = ash_think_check(opts->think.min, opts->think.max, err);
    if (rc == 0 && (opts->think.min > 0 || opts->think.max > 0))
        rc = ash_think_words_init(&generator->words, opts->think.end, opts->think.more, tokenizer, err);
    if (rc < 0) goto fail;
    rc = open_core(generator, model, exec, tokenizer, err);
    if (rc < 0) goto fail;
    rc = ash_decoder_open(tokenizer, !opts->keep_special, &generator->decoder, err);
    if (rc < 0) goto fail;
    *generator_out = generator;
    return 0;

fail:
    ash_generator_close(generator);
    return rc;
}

void ash_generator_close(struct ash_generator *generator)
{
    if (generator == NULL) return;
    ash_core_close(generator->core);
    ash_stops_fini(&generator->stops);
    ash_think_words_fini(&generator->words);
    ash_decoder_close(generator->decoder);
    ash_ids_fini(&generator->tokens);
    free(generator->logprobs);
    ash_str_fini(&generator->text);
    free(generator);
}

static int check_prompt(const struct ash_generator *generator, const int32_t *ids, size_t count, struct ash_err *err)
{
    if (count == 0) return ash_err_set(err, -EINVAL, "the prompt is empty: there is nothing to continue");
    if (count >= generator->context_tokens)
        return ash_err_set(
            err, -EOVERFLOW,
            "the context is full: the prompt has %zu tokens, and prompt and answer together may have %zu", count,
            generator->context_tokens);
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= generator->vocab)
            return ash_err_set(
                err, -EINVAL,
                "the prompt has token id %d, but the model's vocabulary ends at %zu: tokenizer and model "
                "do not belong together",
                ids[i], generator->vocab - 1);
    return 0;
}

static size_t answer_count(const struct ash_generator *generator)
{
    return generator->tokens.count - generator->prompt_count;
}

/* What of the decoded text may be shown now? */
static bool scan_stops(struct ash_generator *generator)
{
    bool found = false;

    generator->given_bytes =
        ash_stops_scan(&generator->stops, generator->text.data, generator->text.size_bytes, &found);
    return found;
}

static void add_id(struct ash_generator *generator, int32_t id)
{
    generator->last_ns = ash_clock_ns();
    if (generator->first_ns == 0) generator->first_ns = generator->last_ns;
    if (ash_ids_add(&generator->tokens, id) < 0)
        generator->decode_rc = ash_err_set(&generator->decode_err, -ENOMEM, "no memory for another token");
}

static void write_id(struct ash_generator *generator, int32_t id)
{
    add_id(generator, id);
    if (generator->decode_rc == 0)
        generator->decode_rc = ash_decoder_push(generator->decoder, id, &generator->text, &generator->decode_err);
}

static int add_logprob(struct ash_generator *generator, float logprob)
{
    if (ash_array_reserve(&generator->logprobs, &generator->logprob_capacity, generator->logprob_count + 1,
                          sizeof(*generator->logprobs)) < 0)
        return ash_err_set(&generator->decode_err, -ENOMEM, "no memory for another token");
    generator->logprobs[generator->logprob_count++] = logprob;
    return 0;
}

/* The core chose a token. */
static int take(void *ctx, const struct ash_token *token)
{
    struct ash_generator *generator = ctx;

    write_id(generator, token->id);
    if (generator->decode_rc == 0 && generator->opts.wants_logprobs)
        generator->decode_rc = add_logprob(generator, token->logprob);
    return generator->decode_rc < 0 || scan_stops(generator);
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct ash_generator *generator = ctx;

    (void)end;
    generator->is_running = false;
}

static int copy_ids(const int32_t *ids, size_t count, struct ash_ids *copy_out, struct ash_err *err)
{
    struct ash_ids copy = {0};

    for (size_t i = 0; i < count; i++)
        if (ash_ids_add(&copy, ids[i]) < 0) {
            ash_ids_fini(&copy);
            return ash_err_set(err, -ENOMEM, "no memory for a prompt of %zu tokens", count);
        }
    *copy_out = copy;
    return 0;
}

/* The core reads the prompt's copy until the request is done. */
static int submit(struct ash_generator *generator, struct ash_err *err)
{
    const struct ash_generator_opts *opts = &generator->opts;
    int rc;

    generator->request = (struct ash_request){.prompt = generator->tokens.data,
                                              .prompt_count = generator->tokens.count,
                                              .sampler = opts->sampler,
                                              .max_tokens = opts->max_tokens != 0 ? opts->max_tokens : SIZE_MAX,
                                              .stop_ids = opts->eos,
                                              .stop_id_count = opts->eos_count,
                                              .think = &generator->think,
                                              .grammar = opts->grammar,
                                              .wants_logprobs = opts->wants_logprobs,
                                              .take = take,
                                              .done = take_end,
                                              .ctx = generator};
    rc = ash_core_submit(generator->core, &generator->request, err);
    generator->is_running = rc == 0;
    return rc;
}

int ash_generator_start(struct ash_generator *generator, const int32_t *ids, size_t count, struct ash_err *err)
{
    uint64_t now_ns = ash_clock_ns();
    struct ash_ids tokens = {0};
    int rc = check_prompt(generator, ids, count, err);

    if (rc == 0) rc = copy_ids(ids, count, &tokens, err);
    if (rc < 0) return rc;
    if (generator->is_running) ash_core_cancel(generator->core, &generator->request);
    ash_ids_fini(&generator->tokens);
    generator->tokens = tokens;
    generator->prompt_count = count;
    generator->logprob_count = 0;
    generator->reused = ash_core_cached_tokens(generator->core, ids, count, 0);
    generator->finish = ASH_FINISH_NOT_YET;
    generator->start_ns = now_ns;
    generator->prompt_ns = generator->first_ns = generator->last_ns = 0;
    generator->decode_rc = 0;
    ash_str_clear(&generator->text);
    generator->given_bytes = 0;
    generator->think = ash_think_start(&generator->words, generator->opts.think.min, generator->opts.think.max);
    rc = ash_decoder_start(generator->decoder, ids, count, err); /* the answer's text continues the prompt's */
    if (rc == 0) rc = submit(generator, err);
    generator->started = rc == 0;
    return rc;
}

/* The answer is over: what the decoder held comes out, and may complete a stop string. */
static int finish_answer(struct ash_generator *generator, struct ash_err *err)
{
    int rc;

    if (generator->request.end.rc < 0) *err = generator->request.end.err;
    if (generator->request.end.rc < 0) return generator->request.end.rc;
    generator->finish = generator->request.end.finish;
    if (generator->request.end.stop_id >= 0) add_id(generator, generator->request.end.stop_id);
    if (generator->finish == ASH_FINISH_STOP) return 0;
    rc = ash_decoder_finish(generator->decoder, &generator->text, err);
    if (rc < 0) return rc;
    if (scan_stops(generator))
        generator->finish = ASH_FINISH_STOP;
    else
        generator->given_bytes = generator->text.size_bytes; /* nothing will complete a stop string any more */
    return 0;
}

/* Forget what the last call gave out. */
static void drop_given(struct ash_generator *generator)
{
    struct ash_str *text = &generator->text;

    ash_assert(generator->given_bytes <= text->size_bytes);
    if (generator->given_bytes == 0) return;
    text->size_bytes -= generator->given_bytes;
    memmove(text->data, text->data + generator->given_bytes, text->size_bytes + 1);
    generator->given_bytes = 0;
}

static int step(struct ash_generator *generator, struct ash_err *err)
{
    bool in_prompt = generator->first_ns == 0;
    uint64_t begin_ns = ash_clock_ns();

    ash_core_step(generator->core);
    if (in_prompt) generator->prompt_ns += (generator->first_ns != 0 ? generator->first_ns : ash_clock_ns()) - begin_ns;
    if (generator->decode_rc < 0) *err = generator->decode_err;
    if (generator->decode_rc < 0) return generator->decode_rc;
    if (generator->is_running) return 0;
    return finish_answer(generator, err);
}

int ash_generator_next(struct ash_generator *generator, struct ash_text *piece_out, enum ash_finish *finish_out,
                       struct ash_err *err)
{
    int rc;

    if (!generator->started) return ash_err_set(err, -EINVAL, "no answer has been started");
    drop_given(generator);
    if (generator->finish == ASH_FINISH_NOT_YET) {
        struct ash_err cause = {0};

        rc = step(generator, &cause);
        if (rc < 0) {
            if (err != NULL) *err = cause;
            generator->started = false; /* the cached tokens are valid, but this answer is over */
            return rc;
        }
    }
    *piece_out = (struct ash_text){generator->text.data, generator->given_bytes};
    *finish_out = generator->finish;
    return 0;
}

const int32_t *ash_generator_answer(const struct ash_generator *generator, size_t *count_out)
{
    *count_out = answer_count(generator);
    return generator->tokens.data + generator->prompt_count;
}

const float *ash_generator_logprobs(const struct ash_generator *generator, size_t *count_out)
{
    *count_out = generator->logprob_count;
    return generator->logprobs;
}

struct ash_answer_stats ash_generator_stats(const struct ash_generator *generator)
{
    return (struct ash_answer_stats){
        .prompt_tokens = generator->prompt_count,
        .reused_tokens = generator->reused,
        .answer_tokens = answer_count(generator),
        .prompt_s = (double)generator->prompt_ns / NS_PER_S,
        .first_token_s =
            (double)(generator->first_ns - (generator->first_ns != 0 ? generator->start_ns : 0)) / NS_PER_S,
        .answer_s = (double)(generator->last_ns - generator->first_ns) / NS_PER_S,
    };
}

/* Generating: tokens holds the whole context, cached says how many of them the cache has. A step computes some of the
 * rest; when nothing is left the last row's logits choose the next token, whose text goes through the streaming decoder
 * and the stop strings. */
#include "serve/generator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "serve/stops.h"

#define NS_PER_S 1e9
#define PACK_TOKENS_MIN 16

struct ash_generator {
    struct ash_generator_opts opts; /* stops is not valid here: see the copy below */
    struct ash_stops stops;
    size_t context_tokens, prefill_rows, vocab;
    const struct ash_tokenizer *tokenizer;
    struct ash_model *model;
    struct ash_exec *exec;
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_block_table table;
    struct ash_sampler *sampler;
    struct ash_decoder *decoder;
    struct ash_ids tokens; /* the prompt and the answer */
    size_t prompt_count;
    size_t cached;       /* tokens [0, cached) are in the cache */
    struct ash_str text; /* decoded; [0, given) was given out by the last next, the rest is held back */
    size_t given_bytes;
    float *logits; /* [vocab] */
    enum ash_finish finish;
    bool started; /* an answer is being written or was ended properly */
    uint64_t start_ns, prompt_ns, first_ns, last_ns;
    size_t reused;
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

int ash_generator_open(struct ash_model *model, struct ash_exec *exec, const struct ash_tokenizer *tokenizer,
                       const struct ash_generator_opts *opts, struct ash_generator **generator_out, struct ash_err *err)
{
    const struct ash_model_config *config = ash_model_get_config(model);
    struct ash_generator *generator;
    struct ash_pass_opts pass_opts = {0};
    int rc = check_opts(opts, tokenizer, config->vocab, err);

    if (rc < 0) return rc;
    generator = calloc(1, sizeof(*generator));
    if (generator == NULL) return ash_err_set(err, -ENOMEM, "generator: out of memory");
    generator->opts = *opts;
    generator->tokenizer = tokenizer;
    generator->model = model;
    generator->exec = exec;
    generator->vocab = config->vocab;
    generator->context_tokens = limit(opts->context_tokens, config->max_positions);
    generator->prefill_rows =
        limit(opts->prefill_rows != 0 ? opts->prefill_rows : ASH_GENERATOR_PREFILL_ROWS, generator->context_tokens);
    rc = ash_stops_init(&generator->stops, opts->stops, opts->stop_count, err);
    if (rc < 0) goto fail;
    pass_opts.max_rows = generator->prefill_rows;
    rc = ash_pass_open(model, exec, &pass_opts, &generator->pass, err);
    if (rc < 0) goto fail;
    rc = ash_cache_open(model, ash_cache_pages_for(generator->context_tokens), &generator->cache, err);
    if (rc < 0) goto fail;
    rc = ash_block_table_init(&generator->table, generator->context_tokens);
    if (rc < 0) {
        rc = ash_err_set(err, rc, "generator: no memory for a block table");
        goto fail;
    }
    rc = ash_sampler_open(&opts->sampler, known_ids(tokenizer, config->vocab), &generator->sampler, err);
    if (rc < 0) goto fail;
    rc = ash_decoder_open(tokenizer, !opts->keep_special, &generator->decoder, err);
    if (rc < 0) goto fail;
    generator->logits = calloc(config->vocab, sizeof(*generator->logits));
    if (generator->logits == NULL) {
        rc = ash_err_set(err, -ENOMEM, "generator: no memory for %zu logits", config->vocab);
        goto fail;
    }
    *generator_out = generator;
    return 0;

fail:
    ash_generator_close(generator);
    return rc;
}

void ash_generator_close(struct ash_generator *generator)
{
    if (generator == NULL) return;
    ash_stops_fini(&generator->stops);
    ash_pass_close(generator->pass);
    ash_block_table_fini(&generator->table);
    ash_cache_close(generator->cache);
    ash_sampler_close(generator->sampler);
    ash_decoder_close(generator->decoder);
    ash_ids_fini(&generator->tokens);
    ash_str_fini(&generator->text);
    free(generator->logits);
    free(generator);
}

size_t ash_generator_context(const struct ash_generator *generator)
{
    return generator->context_tokens;
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

static size_t common_prefix(const int32_t *a, const int32_t *b, size_t count)
{
    size_t same = 0;

    while (same < count && a[same] == b[same])
        same++;
    return same;
}

int ash_generator_start(struct ash_generator *generator, const int32_t *ids, size_t count, struct ash_err *err)
{
    uint64_t now_ns = ash_clock_ns();
    struct ash_ids tokens = {0};
    size_t cached;
    int rc = check_prompt(generator, ids, count, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < count; i++)
        if (ash_ids_add(&tokens, ids[i]) < 0) {
            ash_ids_fini(&tokens);
            return ash_err_set(err, -ENOMEM, "no memory for a prompt of %zu tokens", count);
        }
    cached = generator->cached < count ? generator->cached
                                       : count - 1; /* the last one is computed in any case, for its logits */
    generator->cached = common_prefix(generator->tokens.data, ids, cached);
    ash_ids_fini(&generator->tokens);
    generator->tokens = tokens;
    generator->prompt_count = count;
    generator->reused = generator->cached;
    generator->finish = ASH_FINISH_NOT_YET;
    generator->start_ns = now_ns;
    generator->prompt_ns = generator->first_ns = generator->last_ns = 0;
    ash_str_clear(&generator->text);
    generator->given_bytes = 0;
    rc = ash_decoder_start(generator->decoder, ids, count, err); /* the answer's text continues the prompt's */
    generator->started = rc == 0;
    return rc;
}

/* Compute the next chunk of what the cache lacks; the last row's logits when it is the last chunk. */
static int compute(struct ash_generator *generator, struct ash_err *err)
{
    size_t missing = generator->tokens.count - generator->cached;
    size_t rows = missing < generator->prefill_rows ? missing : generator->prefill_rows, last_row = rows - 1;
    struct ash_doc doc = {.count = rows, .pos = generator->cached, .pages = generator->table.pages};
    struct ash_batch batch = {
        .rows = rows, .ids = generator->tokens.data + generator->cached, .docs = &doc, .doc_count = 1};
    int rc = ash_block_table_grow(&generator->table, generator->cache, generator->cached + rows);

    if (rc < 0) return ash_err_set(err, rc, "generator: the context is full");
    doc.page_count = generator->table.count;
    rc = ash_pass_infer(generator->pass, &batch, generator->cache, &last_row, rows == missing ? 1 : 0,
                        generator->logits, err);

    ash_assert(rows > 0 && generator->cached + rows <= generator->tokens.count);
    if (rc == 0) generator->cached += rows;
    return rc;
}

static bool is_eos(const struct ash_generator *generator, int32_t id)
{
    for (size_t i = 0; i < generator->opts.eos_count; i++)
        if (generator->opts.eos[i] == id) return true;
    return false;
}

static size_t answer_count(const struct ash_generator *generator)
{
    return generator->tokens.count - generator->prompt_count;
}

/* Choose a token and add it; sets finish where the answer ends with it. */
static int choose(struct ash_generator *generator, struct ash_err *err)
{
    int32_t id = -1;
    int rc = ash_sampler_next(generator->sampler, generator->logits, generator->tokens.data, generator->tokens.count,
                              generator->tokens.count, &id, err);

    if (rc < 0) return rc;
    if (ash_ids_add(&generator->tokens, id) < 0) return ash_err_set(err, -ENOMEM, "no memory for another token");
    generator->last_ns = ash_clock_ns();
    if (generator->first_ns == 0) generator->first_ns = generator->last_ns;
    if (is_eos(generator, id)) {
        generator->finish = ASH_FINISH_EOS;
        return 0;
    }
    if (answer_count(generator) == generator->opts.max_tokens)
        generator->finish = ASH_FINISH_MAX_TOKENS;
    else if (generator->tokens.count == generator->context_tokens)
        generator->finish = ASH_FINISH_CONTEXT;
    return ash_decoder_push(generator->decoder, id, &generator->text, err);
}

/* What of the decoded text may be shown now? */
static int release(struct ash_generator *generator, struct ash_err *err)
{
    bool found = false;
    int rc = 0;

    if (generator->finish != ASH_FINISH_NOT_YET) rc = ash_decoder_finish(generator->decoder, &generator->text, err);
    if (rc < 0) return rc;
    generator->given_bytes =
        ash_stops_scan(&generator->stops, generator->text.data, generator->text.size_bytes, &found);
    if (found)
        generator->finish = ASH_FINISH_STOP;
    else if (generator->finish != ASH_FINISH_NOT_YET)
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

/* Weights are packed once the first token is out, so that it does not wait for that, and only for an answer that is
 * long enough to win the time back. */
static int pack_weights(struct ash_generator *generator, struct ash_err *err)
{
    size_t most = generator->context_tokens - generator->prompt_count, asked = generator->opts.max_tokens;

    if (answer_count(generator) == 0 || (asked != 0 && asked < PACK_TOKENS_MIN) || most < PACK_TOKENS_MIN) return 0;
    return ash_model_pack(generator->model, generator->exec, err);
}

static int step(struct ash_generator *generator, struct ash_err *err)
{
    bool in_prompt = generator->cached < generator->prompt_count;
    uint64_t begin_ns = ash_clock_ns();
    int rc = pack_weights(generator, err);

    if (rc < 0) return rc;
    rc = compute(generator, err);
    if (rc < 0) return rc;
    if (in_prompt) generator->prompt_ns += ash_clock_ns() - begin_ns;
    if (generator->cached < generator->tokens.count) return 0;
    rc = choose(generator, err);
    return rc < 0 ? rc : release(generator, err);
}

int ash_generator_next(struct ash_generator *generator, struct ash_text *piece_out, enum ash_finish *finish_out,
                       struct ash_err *err)
{
    int rc;

    if (!generator->started) return ash_err_set(err, -EINVAL, "no answer has been started");
    drop_given(generator);
    if (generator->finish == ASH_FINISH_NOT_YET) {
        rc = step(generator, err);
        if (rc < 0) {
            generator->started = false; /* what was computed so far is good, but this answer is over */
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

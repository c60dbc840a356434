/* The public face of the generator: text, conversations or ids in, pieces of text out. */
#include "serve/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/form.h"
#include "serve/generator.h"

struct ash_answer {
    struct ash_engine *engine;
    struct ash_answer_form form;
    struct ash_generator *generator;
};

const char *ash_finish_reason(enum ash_finish finish)
{
    switch (finish) {
    case ASH_FINISH_EOS:
    case ASH_FINISH_STOP:
        return "stop";
    case ASH_FINISH_MAX_TOKENS:
    case ASH_FINISH_CONTEXT:
        return "length";
    default:
        return "";
    }
}

void ash_answer_opts_init(const struct ash_engine *engine, struct ash_answer_opts *opts)
{
    const struct ash_sampler_opts *sampler = &ash_engine_defaults(engine)->sampler;

    *opts = (struct ash_answer_opts){
        .size = sizeof(*opts),
        .temperature = sampler->temperature,
        .top_k = sampler->top_k,
        .top_p = sampler->top_p,
        .min_p = sampler->min_p,
        .repetition_penalty = sampler->repetition_penalty,
    };
}

static int take_opts(const struct ash_engine *engine, struct ash_answer_opts *opts, const struct ash_answer_opts *given,
                     struct ash_err *err)
{
    ash_answer_opts_init(engine, opts);
    if (given == NULL) return 0;
    if (given->size < sizeof(given->size) || given->size > sizeof(*opts))
        return ash_err_set(err, -EINVAL, "options of %zu bytes: initialise them with ash_answer_opts_init",
                           given->size);
    memcpy(opts, given, given->size);
    opts->size = sizeof(*opts);
    return 0;
}

/* What the generator is to do, by the options and the model's own ids of the end. */
static struct ash_generator_opts generator_opts_of(const struct ash_answer_opts *taken,
                                                   const struct ash_defaults *defaults)
{
    struct ash_generator_opts generator_opts = {
        .sampler = {.temperature = taken->temperature,
                    .top_k = taken->top_k,
                    .top_p = taken->top_p,
                    .min_p = taken->min_p,
                    .typical_p = 1.0,
                    .repetition_penalty = taken->repetition_penalty,
                    .presence_penalty = taken->presence_penalty,
                    .frequency_penalty = taken->frequency_penalty,
                    .seed = taken->seed},
        .context_tokens = taken->context_tokens,
        .max_tokens = taken->max_tokens,
        .keep_special = taken->keep_special,
        .eos_count = defaults->eos_count,
        .stops = taken->stops,
        .stop_count = taken->stop_count,
        .wants_logprobs = taken->wants_logprobs,
        .think = {.min = taken->think_min, .max = taken->think_max, .end = taken->think_end, .more = taken->think_more},
    };

    memcpy(generator_opts.eos, defaults->eos, defaults->eos_count * sizeof(defaults->eos[0]));
    return generator_opts;
}

int ash_answer_open(struct ash_engine *engine, const struct ash_answer_opts *opts, struct ash_answer **answer_out,
                    struct ash_err *err)
{
    struct ash_generator_opts generator_opts;
    struct ash_answer_opts taken;
    struct ash_answer *answer;
    int rc = take_opts(engine, &taken, opts, err);

    if (rc < 0) return rc;
    generator_opts = generator_opts_of(&taken, ash_engine_defaults(engine));
    answer = calloc(1, sizeof(*answer));
    if (answer == NULL) return ash_err_set(err, -ENOMEM, "answer: out of memory");
    answer->engine = engine;
    rc = ash_answer_form_init(&answer->form, engine, &taken, err);
    if (rc < 0) goto fail;
    generator_opts.grammar = answer->form.grammar;
    generator_opts.vocab_trie = answer->form.trie;
    generator_opts.ranks = ash_engine_ranks(engine);
    rc = ash_generator_open(ash_engine_model(engine), ash_engine_exec(engine), ash_engine_tokenizer(engine),
                            &generator_opts, &answer->generator, err);
    if (rc < 0) goto fail;
    *answer_out = answer;
    return 0;

fail:
    ash_answer_close(answer);
    return rc;
}

void ash_answer_close(struct ash_answer *answer)
{
    if (answer == NULL) return;
    ash_generator_close(answer->generator);
    ash_answer_form_fini(&answer->form);
    free(answer);
}

static int start_text(struct ash_answer *answer, const char *text, bool add_special, struct ash_err *err)
{
    int32_t *ids = NULL;
    size_t count = 0;
    int rc = ash_engine_encode(answer->engine, text, add_special, &ids, &count, err);

    if (rc < 0) return rc;
    rc = ash_generator_start(answer->generator, ids, count, err);
    ash_free(ids);
    return rc;
}

int ash_answer_start(struct ash_answer *answer, const char *prompt, struct ash_err *err)
{
    return start_text(answer, prompt, true, err);
}

int ash_answer_start_chat(struct ash_answer *answer, const struct ash_message *messages, size_t count,
                          struct ash_err *err)
{
    char *prompt = NULL;
    int rc = ash_engine_render_chat(answer->engine, messages, count, &prompt, err);

    if (rc < 0) return rc;
    rc = start_text(answer, prompt, false, err);
    ash_free(prompt);
    return rc;
}

int ash_answer_start_ids(struct ash_answer *answer, const int32_t *ids, size_t count, struct ash_err *err)
{
    return ash_generator_start(answer->generator, ids, count, err);
}

int ash_answer_next(struct ash_answer *answer, struct ash_text *piece_out, enum ash_finish *finish_out,
                    struct ash_err *err)
{
    return ash_generator_next(answer->generator, piece_out, finish_out, err);
}

const int32_t *ash_answer_ids(const struct ash_answer *answer, size_t *count_out)
{
    return ash_generator_answer(answer->generator, count_out);
}

const float *ash_answer_logprobs(const struct ash_answer *answer, size_t *count_out)
{
    return ash_generator_logprobs(answer->generator, count_out);
}

void ash_answer_get_stats(const struct ash_answer *answer, struct ash_answer_stats *stats_out)
{
    *stats_out = ash_generator_stats(answer->generator);
}

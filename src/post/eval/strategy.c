/* What more computing at test time brings: many answers to each arithmetic problem, of which one counts. A prompt is
 * computed once for all of its answers. An answer is a function of (seed, problem, sample). */
#include "post/eval/strategy.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/math.h"
#include "base/str.h"
#include "post/search/verifier.h"
#include "post/search/shares.h"
#include "serve/engine/core.h"
#include "serve/engine/think.h"

#define PROBLEMS_AT_ONCE 16
#define THOUGHT_ROOM 256 /* tokens beyond the bound: thoughts end by themselves where there is only a minimum */

struct sample {
    struct ash_request request;
    struct ash_request_end end;
    struct ash_think think;
    bool is_thinking; /* its answer has not begun yet */
    int32_t ids[ASH_ARITHMETIC_ANSWER_MAX];
    size_t count;
    size_t tokens;          /* with those of thoughts */
    double logprob, weight; /* weight: the verifier's */
    char *text;
    bool is_right;
};

struct study {
    const struct ash_strategy_eval *eval;
    struct ash_arithmetic arithmetic;
    struct ash_core *core;
    struct ash_verifier *verifier; /* NULL: none */
    struct ash_strategy_point *points;
    size_t point_count, samples; /* samples: of each problem */
    struct ash_think_words words;
    size_t thought_tokens; /* that an answer has at most; 0: it has no thoughts */
};

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static int take(void *ctx, const struct ash_token *token)
{
    struct sample *sample = ctx;

    sample->tokens++;
    if (sample->is_thinking) {
        sample->is_thinking = token->id != sample->think.words->end_id;
        return 0;
    }
    sample->ids[sample->count++] = token->id;
    sample->logprob += (double)token->logprob;
    return sample->count == ASH_ARITHMETIC_ANSWER_MAX;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct sample *sample = ctx;

    sample->end = *end;
}

static void ask(const struct study *study, const struct ash_ids *prompt, uint64_t problem, uint64_t index,
                struct sample *sample)
{
    const struct ash_defaults *defaults = ash_engine_defaults(study->eval->engine);
    struct ash_sampler_opts sampler = ash_sampler_defaults();
    uint64_t words[3] = {(uint64_t)study->eval->problems->seed, problem, index};

    sampler.temperature = study->eval->temperature;
    sampler.seed = ash_hash_bytes(words, sizeof(words), 0);
    sample->think = ash_think_start(&study->words, study->eval->think_min, study->eval->think_max);
    sample->is_thinking = sample->think.is_open;
    sample->request = (struct ash_request){
        .prompt = prompt->data,
        .prompt_count = prompt->count,
        .sampler = sampler,
        .max_tokens = ash_min(study->thought_tokens + ash_arithmetic_answer_max(study->eval->problems),
                              ash_core_max_tokens(study->core) - prompt->count),
        .think = &sample->think,
        .wants_logprobs = true,
        .stop_ids = defaults->eos,
        .stop_id_count = defaults->eos_count,
        .take = take,
        .done = take_end,
        .ctx = sample};
}

static int read_answer(const struct study *study, const struct ash_problem *problem, struct sample *sample,
                       struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = ash_str_adds(&text, "");

    if (rc == 0)
        rc = ash_tokenizer_decode(ash_engine_tokenizer(study->eval->engine), sample->ids, sample->count, true, &text,
                                  err);
    if (rc < 0) {
        ash_str_fini(&text);
        return rc;
    }
    text.data[strcspn(text.data, "\n")] = '\0';
    sample->text = text.data;
    sample->is_right = ash_arithmetic_check(problem, text.data, strlen(text.data));
    return 0;
}

/* What the verifier says of an answer, as it would to a user: it does not know which one is right, unless it compares
 * with that. */
static int weigh(const struct study *study, const struct ash_problem *problem, const struct ash_ids *prompt,
                 struct sample *sample, struct ash_err *err)
{
    struct ash_rewarded rewarded = {.prompt = problem->prompt,
                                    .text = sample->text,
                                    .answer = problem->answer,
                                    .prompt_ids = prompt->data,
                                    .prompt_tokens = prompt->count,
                                    .ids = sample->ids,
                                    .tokens = sample->count,
                                    .own_tokens = sample->count,
                                    .has_ended = sample->end.finish == ASH_FINISH_EOS,
                                    .may_have_work = study->eval->problems->work};
    int rc = study->verifier != NULL ? ash_verifier_weigh(study->verifier, &rewarded, &sample->weight, err) : 0;

    return rc < 0 ? ash_err_prefix(err, rc, "the verifier, of '%s%s'", problem->prompt, sample->text) : 0;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* Add what the answers to one problem say. */
static int count_problem(struct study *study, const struct sample *samples, struct ash_err *err)
{
    struct ash_vote *votes = calloc(study->samples, sizeof(*votes));
    size_t right = 0;

    if (votes == NULL) return ash_err_set(err, -ENOMEM, "out of memory for votes");
    for (size_t i = 0; i < study->samples; i++) {
        double mean = samples[i].logprob / (double)ash_max(1, samples[i].count);

        votes[i] = (struct ash_vote){samples[i].text, exp(mean)};
        if (study->eval->strategy == ASH_STRATEGY_BEST) votes[i].weight = samples[i].is_right; /* a perfect checker */
        if (study->verifier != NULL) votes[i].weight = samples[i].weight;
        right += samples[i].is_right;
    }
    for (size_t p = 0; p < study->point_count; p++) {
        struct ash_strategy_point *point = &study->points[p];

        point->right += samples[ash_votes_choose(votes, point->n, study->eval->strategy)].is_right;
        point->pass += ash_pass_at(study->samples, right, point->n);
        for (size_t i = 0; i < point->n; i++)
            point->tokens += (double)samples[i].tokens + 1.0; /* with its end */
    }
    free(votes);
    return 0;
}

/* Some problems, and all answers to each. */
struct batch {
    struct ash_problem problems[PROBLEMS_AT_ONCE];
    struct ash_ids prompts[PROBLEMS_AT_ONCE];
    struct sample *samples; /* [count][study->samples] */
    size_t count;
};

/* Ask problem i of a batch, which is problem `number` of all. */
static int submit_problem(struct study *study, struct batch *batch, size_t i, uint64_t number, struct ash_err *err)
{
    struct ash_problem *problem = &batch->problems[i];
    struct ash_ids *prompt = &batch->prompts[i];
    int rc;

    ash_arithmetic_problem(&study->arithmetic, number, problem);
    rc = ash_tokenizer_encode(ash_engine_tokenizer(study->eval->engine), problem->prompt, strlen(problem->prompt), true,
                              prompt, err);
    if (rc == 0 && (prompt->count == 0 || prompt->count >= ash_core_max_tokens(study->core)))
        rc = ash_err_set(err, -EINVAL, "the model cannot be asked '%s': no tokens, or too many", problem->prompt);
    for (size_t s = 0; rc == 0 && s < study->samples; s++) {
        ask(study, prompt, number, s, &batch->samples[i * study->samples + s]);
        rc = ash_core_submit(study->core, &batch->samples[i * study->samples + s].request, err);
    }
    return rc;
}

static int read_batch(struct study *study, struct batch *batch, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < batch->count * study->samples; i++) {
        struct sample *sample = &batch->samples[i];

        if (sample->end.rc < 0) *err = sample->end.err;
        rc =
            sample->end.rc < 0 ? sample->end.rc : read_answer(study, &batch->problems[i / study->samples], sample, err);
        if (rc == 0)
            rc = weigh(study, &batch->problems[i / study->samples], &batch->prompts[i / study->samples], sample, err);
    }
    for (size_t i = 0; rc == 0 && i < batch->count; i++)
        rc = count_problem(study, &batch->samples[i * study->samples], err);
    return rc;
}

/* Problems [first, first + count): all samples of each. */
static int run_problems(struct study *study, uint64_t first, size_t count, struct ash_err *err)
{
    struct batch batch = {.samples = calloc(count * study->samples, sizeof(struct sample)), .count = count};
    int rc = batch.samples == NULL ? ash_err_set(err, -ENOMEM, "out of memory for answers") : 0;

    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = submit_problem(study, &batch, i, first + i, err);
    while (ash_core_step(study->core) > 0)
        continue;
    if (rc == 0) rc = read_batch(study, &batch, err);
    for (size_t i = 0; batch.samples != NULL && i < count * study->samples; i++)
        free(batch.samples[i].text);
    for (size_t i = 0; i < count; i++)
        ash_ids_fini(&batch.prompts[i]);
    free(batch.samples);
    return rc;
}

/* ---- the study --------------------------------------------------------------------------------------------------- */

static int open_verifier(struct study *study, struct ash_err *err)
{
    const struct ash_verifier_opts opts = {.engine = study->eval->engine,
                                           .exec = ash_engine_exec(study->eval->engine),
                                           .max_tokens = ash_core_max_tokens(study->core),
                                           .knows_answers = true};

    if (study->eval->verifier->count == 0) return 0;
    return ash_verifier_open(study->eval->verifier, &opts, &study->verifier, err);
}

static int find_words(struct study *study, struct ash_err *err)
{
    const struct ash_strategy_eval *eval = study->eval;
    int rc = ash_think_check(eval->think_min, eval->think_max, err);

    if (rc < 0 || (eval->think_min == 0 && eval->think_max == 0)) return rc;
    return ash_think_words_init(&study->words, NULL, NULL, ash_engine_tokenizer(eval->engine), err);
}

static int open_study(struct study *study, struct ash_err *err)
{
    const struct ash_strategy_eval *eval = study->eval;
    size_t bound = eval->think_max > 0 ? eval->think_max : eval->think_min;
    struct ash_core_opts opts = {.max_seqs = eval->batch, .logprob_sharpness = (float)(1.0 / eval->temperature)};
    int rc = find_words(study, err);

    study->thought_tokens = bound > 0 ? bound + THOUGHT_ROOM : 0;
    opts.max_tokens = ash_min(ash_engine_context(eval->engine), study->thought_tokens + ASH_ARITHMETIC_TEXT_BYTES +
                                                                    ash_arithmetic_answer_max(eval->problems));
    if (rc == 0) rc = ash_arithmetic_init(&study->arithmetic, eval->problems, err);
    if (rc == 0)
        rc = ash_core_open(ash_engine_model(eval->engine), ash_engine_exec(eval->engine), &opts, &study->core, err);
    return rc < 0 ? rc : open_verifier(study, err);
}

int ash_strategy_measure(const struct ash_strategy_eval *eval, struct ash_strategy_point *points, size_t count,
                         struct ash_err *err)
{
    struct study study = {.eval = eval, .points = points, .point_count = count, .samples = points[count - 1].n};
    int rc = open_study(&study, err);

    for (size_t at = 0; rc == 0 && at < eval->count; at += PROBLEMS_AT_ONCE) {
        size_t chunk = ash_min(PROBLEMS_AT_ONCE, eval->count - at);

        rc = run_problems(&study, at, chunk, err);
        if (rc == 0) rc = ash_eval_progress_report(&eval->progress, at + chunk, eval->count);
    }
    ash_verifier_close(study.verifier);
    ash_core_close(study.core);
    ash_think_words_fini(&study.words);
    return rc;
}

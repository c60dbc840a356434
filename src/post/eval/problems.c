/* Problems as prompts, computed once for all of their answers; answers as text up to the end of its line. */
#include "post/eval/problems.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

#define PASS_ROWS 1024
#define THOUGHT_ROOM 256 /* tokens beyond the bound: thoughts end by themselves where there is only a minimum */

static int take(void *ctx, const struct ash_token *token)
{
    struct ash_problem_answer *answer = ctx;

    answer->tokens++;
    if (answer->is_thinking) {
        answer->is_thinking = token->id != answer->think.words->end_id;
        return 0;
    }
    answer->ids[answer->count++] = token->id;
    answer->logprob += (double)token->logprob;
    return answer->count == ASH_ARITHMETIC_ANSWER_MAX;
}

static int submit(struct ash_problems *problems, const struct ash_ids *prompt, uint64_t number, uint64_t sample,
                  struct ash_problem_answer *answer, struct ash_err *err)
{
    const struct ash_problems_opts *opts = &problems->opts;
    const struct ash_defaults *defaults = ash_engine_defaults(opts->engine);
    uint64_t words[3] = {(uint64_t)opts->problems->seed, number, sample};
    size_t most = problems->thought_tokens + ash_arithmetic_answer_max(opts->problems);

    answer->think = ash_think_start(&problems->words, opts->think_min, opts->think_max);
    answer->is_thinking = answer->think.is_open;
    answer->request =
        (struct ash_request){.prompt = prompt->data,
                             .prompt_count = prompt->count,
                             .sampler = ash_sampler_defaults(),
                             .max_tokens = ash_min(most, ash_core_max_tokens(problems->core) - prompt->count),
                             .stop_ids = defaults->eos,
                             .stop_id_count = defaults->eos_count,
                             .think = &answer->think,
                             .wants_logprobs = opts->samples > 1,
                             .take = take,
                             .ctx = answer};
    answer->request.sampler.temperature = opts->temperature;
    answer->request.sampler.seed = ash_hash_bytes(words, sizeof(words), 0);
    return ash_core_submit(problems->core, &answer->request, err);
}

/* Submit all answers to problem i, which is problem `number` of all. */
static int ask(struct ash_problems *problems, size_t i, uint64_t number, struct ash_err *err)
{
    struct ash_problem *problem = &problems->items[i];
    struct ash_ids *prompt = &problems->prompts[i];
    size_t limit = ash_core_max_tokens(problems->core);
    int rc;

    ash_assert(i < problems->count);
    ash_arithmetic_problem(&problems->arithmetic, number, problem);
    rc = ash_tokenizer_encode(ash_engine_tokenizer(problems->opts.engine), problem->prompt, strlen(problem->prompt),
                              true, prompt, err);
    if (rc == 0 && prompt->count == 0)
        rc = ash_err_set(err, -EINVAL, "the tokenizer has no tokens for '%s': this model cannot do arithmetic",
                         problem->prompt);
    if (rc == 0 && prompt->count >= limit)
        rc = ash_err_set(err, -EOVERFLOW, "'%s' has %zu tokens, and the model's context is %zu", problem->prompt,
                         prompt->count, limit);
    for (size_t s = 0; rc == 0 && s < problems->opts.samples; s++)
        rc = submit(problems, prompt, number, s, &problems->answers[i * problems->opts.samples + s], err);
    return rc;
}

static int read_answer(const struct ash_problems *problems, const struct ash_problem *problem,
                       struct ash_problem_answer *answer, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = ash_str_adds(&text, "");

    if (rc == 0)
        rc = ash_tokenizer_decode(ash_engine_tokenizer(problems->opts.engine), answer->ids, answer->count, true, &text,
                                  err);
    answer->text = text.data;
    if (rc < 0) return rc;
    text.data[strcspn(text.data, "\n")] = '\0';
    answer->is_right = ash_arithmetic_check(problem, text.data, strlen(text.data));
    return 0;
}

static void clear(struct ash_problems *problems)
{
    for (size_t i = 0; problems->prompts != NULL && i < problems->count; i++)
        ash_ids_fini(&problems->prompts[i]);
    for (size_t i = 0; problems->answers != NULL && i < problems->count * problems->opts.samples; i++)
        free(problems->answers[i].text);
    free(problems->items);
    free(problems->prompts);
    free(problems->answers);
    problems->items = NULL;
    problems->prompts = NULL;
    problems->answers = NULL;
    problems->count = 0;
}

int ash_problems_answer(struct ash_problems *problems, uint64_t first, size_t count, struct ash_err *err)
{
    size_t samples = problems->opts.samples;
    int rc = 0;

    clear(problems);
    problems->count = count;
    problems->items = calloc(count, sizeof(*problems->items));
    problems->prompts = calloc(count, sizeof(*problems->prompts));
    problems->answers = calloc(count * samples, sizeof(*problems->answers));
    if (problems->items == NULL || problems->prompts == NULL || problems->answers == NULL)
        return ash_err_set(err, -ENOMEM, "no memory for %zu problems", count);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = ask(problems, i, first + i, err);
    rc = ash_core_finish(problems->core, rc, err);
    for (size_t i = 0; rc == 0 && i < count * samples; i++)
        rc = read_answer(problems, &problems->items[i / samples], &problems->answers[i], err);
    return rc;
}

int ash_problems_init(struct ash_problems *problems, const struct ash_problems_opts *opts, struct ash_err *err)
{
    struct ash_engine *engine = opts->engine;
    size_t bound = opts->think_max > 0 ? opts->think_max : opts->think_min;
    struct ash_core_opts core = {.max_seqs = opts->batch,
                                 .max_batch_rows = ash_max(PASS_ROWS, opts->batch),
                                 .vocab = ash_tokenizer_vocab_size(ash_engine_tokenizer(engine)),
                                 .pack = ASH_CORE_PACK_AT_OPEN,
                                 .ranks = ash_engine_ranks(engine),
                                 .logprob_sharpness = opts->temperature > 0 ? (float)(1.0 / opts->temperature) : 0.0f};
    int rc;

    *problems = (struct ash_problems){.opts = *opts, .thought_tokens = bound > 0 ? bound + THOUGHT_ROOM : 0};
    core.max_tokens = ash_min(ash_engine_context(engine), problems->thought_tokens + ASH_ARITHMETIC_TEXT_BYTES +
                                                              ash_arithmetic_answer_max(opts->problems));
    rc = ash_think_check(opts->think_min, opts->think_max, err);
    if (rc == 0 && bound > 0)
        rc = ash_think_words_init(&problems->words, NULL, NULL, ash_engine_tokenizer(engine), err);
    if (rc == 0) rc = ash_arithmetic_init(&problems->arithmetic, opts->problems, err);
    return rc == 0 ? ash_core_open(ash_engine_model(engine), ash_engine_exec(engine), &core, &problems->core, err) : rc;
}

void ash_problems_fini(struct ash_problems *problems)
{
    clear(problems);
    ash_core_close(problems->core);
    ash_think_words_fini(&problems->words);
    *problems = (struct ash_problems){0};
}

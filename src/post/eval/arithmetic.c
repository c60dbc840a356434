/* Right answers to arithmetic problems: the model continues "37+58=" greedily, many problems at a time, and its text
 * up to the end of text or line must be exactly the answer. */
#include "post/eval/arithmetic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/str.h"
#include "serve/engine/core.h"

#define CHUNKS_PER_SLOT 8 /* problems of one run, per sequence: how often progress is shown */
#define PASS_ROWS 1024

static const char operators[ASH_ARITHMETIC_OPERATORS] = {'+', '-', '*'};

/* One problem's way through the core. */
struct asked {
    struct ash_request request;
    struct ash_request_end end;
    int32_t answer[ASH_ARITHMETIC_ANSWER_MAX]; /* no answer has more characters, and a token has at least one */
    size_t answer_count;
};

/* The problems of one run. */
struct chunk {
    size_t count;
    struct ash_problem *problems;
    struct ash_ids *prompts;
    struct asked *asked;
};

/* ---- problems ---------------------------------------------------------------------------------------------------- */

static void fini_chunk(struct chunk *chunk)
{
    for (size_t i = 0; chunk->prompts != NULL && i < chunk->count; i++)
        ash_ids_fini(&chunk->prompts[i]);
    free(chunk->problems);
    free(chunk->prompts);
    free(chunk->asked);
}

/* Tokens of a prompt and its answer. */
static size_t seq_tokens(const struct ash_engine *engine, size_t answer_tokens)
{
    return ash_min(ash_engine_context(engine), ASH_ARITHMETIC_TEXT_BYTES + answer_tokens);
}

/* What a prompt leaves for its answer, up to answer_tokens. */
static int plan_request(struct ash_request *request, const struct ash_problem *problem, const struct ash_engine *engine,
                        size_t answer_tokens, struct ash_err *err)
{
    size_t limit_tokens = seq_tokens(engine, answer_tokens);

    if (request->prompt_count == 0)
        return ash_err_set(err, -EINVAL, "the tokenizer has no tokens for '%s': this model cannot do arithmetic",
                           problem->prompt);
    if (request->prompt_count >= limit_tokens)
        return ash_err_set(err, -EOVERFLOW, "'%s' has %zu tokens, and the model's context is %zu", problem->prompt,
                           request->prompt_count, limit_tokens);
    request->max_tokens = ash_min(limit_tokens - request->prompt_count, answer_tokens);
    return 0;
}

static int take(void *ctx, const struct ash_token *token)
{
    struct asked *asked = ctx;

    asked->answer[asked->answer_count++] = token->id; /* max_tokens is at most ASH_ARITHMETIC_ANSWER_MAX */
    return 0;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct asked *asked = ctx;

    asked->end = *end;
}

/* Problems [first, first + count) and their prompts as ids. */
static int init_chunk(struct chunk *chunk, const struct ash_arithmetic *arithmetic, const struct ash_engine *engine,
                      size_t first, size_t count, struct ash_err *err)
{
    size_t answer_tokens = arithmetic->work ? ASH_ARITHMETIC_ANSWER_MAX : ASH_ARITHMETIC_TEXT_BYTES;
    int rc = 0;

    *chunk = (struct chunk){.count = count};
    chunk->problems = calloc(count, sizeof(*chunk->problems));
    chunk->prompts = calloc(count, sizeof(*chunk->prompts));
    chunk->asked = calloc(count, sizeof(*chunk->asked));
    if (chunk->problems == NULL || chunk->prompts == NULL || chunk->asked == NULL)
        return ash_err_set(err, -ENOMEM, "no memory for %zu problems", count);
    for (size_t i = 0; i < count && rc == 0; i++) {
        const char *prompt = chunk->problems[i].prompt;

        ash_arithmetic_problem(arithmetic, first + i, &chunk->problems[i]);
        rc = ash_tokenizer_encode(ash_engine_tokenizer(engine), prompt, strlen(prompt), true, &chunk->prompts[i], err);
        chunk->asked[i].request = (struct ash_request){.prompt = chunk->prompts[i].data,
                                                       .prompt_count = chunk->prompts[i].count,
                                                       .sampler = ash_sampler_defaults(),
                                                       .stop_ids = ash_engine_defaults(engine)->eos,
                                                       .stop_id_count = ash_engine_defaults(engine)->eos_count,
                                                       .take = take,
                                                       .done = take_end,
                                                       .ctx = &chunk->asked[i]};
        if (rc == 0) rc = plan_request(&chunk->asked[i].request, &chunk->problems[i], engine, answer_tokens, err);
    }
    return rc;
}

/* ---- marking ----------------------------------------------------------------------------------------------------- */

static size_t operator_of(const struct ash_problem *problem)
{
    for (size_t i = 0; i < ASH_COUNT(operators); i++)
        if (strchr(problem->prompt + 1, operators[i]) != NULL) return i; /* a leading '-' is a sign */
    return 0;
}

static int keep_wrong(struct ash_arithmetic_score *score, const struct ash_problem *problem, const char *text)
{
    if (score->wrong_count == score->wrong_max) return 0;
    score->wrong[score->wrong_count].problem = *problem;
    score->wrong[score->wrong_count].text = strdup(text);
    if (score->wrong[score->wrong_count].text == NULL) return -ENOMEM;
    score->wrong_count++;
    return 0;
}

/* The answer is the text up to the end of its line. */
static int mark(struct ash_arithmetic_score *score, const struct ash_tokenizer *tokenizer,
                const struct ash_problem *problem, const struct asked *asked, struct ash_err *err)
{
    struct ash_arithmetic_tally *tally = &score->by_operator[operator_of(problem)];
    struct ash_str text = {0};
    int rc = ash_str_adds(&text, "");
    bool right;

    if (rc == 0) rc = ash_tokenizer_decode(tokenizer, asked->answer, asked->answer_count, true, &text, err);
    if (rc < 0) {
        ash_str_fini(&text);
        return rc;
    }
    text.data[strcspn(text.data, "\n")] = '\0';
    right = ash_arithmetic_check(problem, text.data, strlen(text.data));
    score->all.asked++;
    tally->asked++;
    score->all.right += right;
    tally->right += right;
    if (!right && keep_wrong(score, problem, text.data) < 0)
        rc = ash_err_set(err, -ENOMEM, "no memory for a wrong answer");
    ash_str_fini(&text);
    return rc;
}

/* Answer all problems of a chunk. */
static int answer_chunk(struct chunk *chunk, struct ash_core *core, struct ash_err *err)
{
    for (size_t i = 0; i < chunk->count; i++) {
        int rc = ash_core_submit(core, &chunk->asked[i].request, err);

        while (rc < 0 && i > 0)
            ash_core_cancel(core, &chunk->asked[--i].request);
        if (rc < 0) return rc;
    }
    while (ash_core_step(core) > 0)
        continue;
    for (size_t i = 0; i < chunk->count; i++)
        if (chunk->asked[i].end.rc < 0) {
            *err = chunk->asked[i].end.err;
            return chunk->asked[i].end.rc;
        }
    return 0;
}

static int run_chunk(struct ash_arithmetic_score *score, struct ash_core *core, const struct ash_arithmetic *arithmetic,
                     const struct ash_engine *engine, size_t first, size_t count, struct ash_err *err)
{
    struct chunk chunk;
    int rc = init_chunk(&chunk, arithmetic, engine, first, count, err);

    if (rc == 0) rc = answer_chunk(&chunk, core, err);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = mark(score, ash_engine_tokenizer(engine), &chunk.problems[i], &chunk.asked[i], err);
    fini_chunk(&chunk);
    return rc;
}

/* ---- the measure ------------------------------------------------------------------------------------------------- */

static int open_core(const struct ash_arithmetic_eval *eval, struct ash_core **core_out, struct ash_err *err)
{
    struct ash_core_opts opts = {
        .max_seqs = ash_min(eval->count, eval->batch),
        .max_tokens = seq_tokens(eval->engine, ash_arithmetic_answer_max(eval->problems)),
        .vocab = ash_tokenizer_vocab_size(ash_engine_tokenizer(eval->engine)),
        .pack = ASH_CORE_PACK_AT_OPEN,
    };

    opts.max_batch_rows = ash_max(PASS_ROWS, opts.max_seqs);
    return ash_core_open(ash_engine_model(eval->engine), ash_engine_exec(eval->engine), &opts, core_out, err);
}

static int run_all(const struct ash_arithmetic_eval *eval, struct ash_core *core,
                   const struct ash_arithmetic *arithmetic, struct ash_arithmetic_score *score, struct ash_err *err)
{
    size_t step = eval->batch * CHUNKS_PER_SLOT;
    int rc = 0;

    for (size_t first = 0; first < eval->count && rc == 0; first += step) {
        rc = run_chunk(score, core, arithmetic, eval->engine, first, ash_min(eval->count - first, step), err);
        if (rc == 0) rc = ash_eval_progress_report(&eval->progress, score->all.asked, eval->count);
    }
    return rc;
}

int ash_arithmetic_measure(const struct ash_arithmetic_eval *eval, struct ash_arithmetic_score *score_out,
                           struct ash_err *err)
{
    struct ash_core *core = NULL;
    struct ash_arithmetic arithmetic;
    int rc;

    *score_out = (struct ash_arithmetic_score){.wrong_max = eval->show};
    rc = ash_arithmetic_init(&arithmetic, eval->problems, err);
    if (rc < 0) return rc;
    score_out->wrong = calloc(score_out->wrong_max + 1, sizeof(*score_out->wrong));
    if (score_out->wrong == NULL)
        return ash_err_set(err, -ENOMEM, "no memory for %zu wrong answers", score_out->wrong_max);
    rc = open_core(eval, &core, err);
    if (rc == 0) rc = run_all(eval, core, &arithmetic, score_out, err);
    ash_core_close(core);
    return rc;
}

void ash_arithmetic_score_fini(struct ash_arithmetic_score *score)
{
    for (size_t i = 0; i < score->wrong_count; i++)
        free(score->wrong[i].text);
    free(score->wrong);
    *score = (struct ash_arithmetic_score){0};
}

char ash_arithmetic_operator(size_t index)
{
    ash_assert(index < ASH_COUNT(operators));
    return operators[index];
}

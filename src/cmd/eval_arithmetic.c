/* Right answers to arithmetic problems: the model continues "37+58=" greedily, many problems at a time, and what it
 * writes before the end of text or line must be the answer to the letter. */
#include "cmd/eval_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/math.h"
#include "base/str.h"
#include "cmd/progress_bar.h"
#include "post/search/shares.h"
#include "serve/engine/core.h"

#define CHUNKS_PER_SLOT 8 /* problems of one run, per sequence: how often progress is shown */
#define PASS_ROWS 1024

static const char operators[] = {'+', '-', '*'};
#define OPERATOR_COUNT ASH_COUNT(operators)

struct tally {
    size_t asked, right;
};

struct wrong {
    struct ash_problem problem;
    char *text; /* what the model wrote */
};

struct score {
    struct tally all, by_operator[OPERATOR_COUNT];
    struct wrong *wrong; /* the first few */
    size_t wrong_count, wrong_max;
};

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

static struct ash_share_interval wilson(struct tally tally)
{
    return ash_wilson((double)tally.right, (double)tally.asked);
}

static double share(struct tally tally)
{
    return tally.asked > 0 ? (double)tally.right / (double)tally.asked : 0.0;
}

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
    for (size_t i = 0; i < OPERATOR_COUNT; i++)
        if (strchr(problem->prompt + 1, operators[i]) != NULL) return i; /* a leading '-' is a sign */
    return 0;
}

static int keep_wrong(struct score *score, const struct ash_problem *problem, const char *text)
{
    if (score->wrong_count == score->wrong_max) return 0;
    score->wrong[score->wrong_count].problem = *problem;
    score->wrong[score->wrong_count].text = strdup(text);
    if (score->wrong[score->wrong_count].text == NULL) return -ENOMEM;
    score->wrong_count++;
    return 0;
}

/* The answer is the text up to the end of its line. */
static int mark(struct score *score, const struct ash_tokenizer *tokenizer, const struct ash_problem *problem,
                const struct asked *asked, struct ash_err *err)
{
    struct tally *tally = &score->by_operator[operator_of(problem)];
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

static int run_chunk(struct score *score, struct ash_core *core, const struct ash_arithmetic *arithmetic,
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

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void print_tally(const char *name, struct tally tally)
{
    struct ash_share_interval interval = wilson(tally);

    printf("%-10s %6.2f %%  (%zu of %zu; 95 %% between %.2f and %.2f)\n", name, 100.0 * share(tally), tally.right,
           tally.asked, 100.0 * interval.low, 100.0 * interval.high);
}

static void print_score(const struct score *score)
{
    print_tally("accuracy", score->all);
    for (size_t i = 0; i < OPERATOR_COUNT; i++) {
        char name[] = {' ', ' ', operators[i], '\0'};

        if (score->by_operator[i].asked > 0) print_tally(name, score->by_operator[i]);
    }
    for (size_t i = 0; i < score->wrong_count; i++)
        printf("wrong: %s%s, should be %s\n", score->wrong[i].problem.prompt, score->wrong[i].text,
               score->wrong[i].problem.answer);
}

static json_t *tally_json(struct tally tally)
{
    struct ash_share_interval interval = wilson(tally);

    return json_pack("{s:f, s:I, s:I, s:[f, f]}", "accuracy", share(tally), "right", (json_int_t)tally.right, "asked",
                     (json_int_t)tally.asked, "interval", interval.low, interval.high);
}

static void print_score_json(const struct score *score)
{
    json_t *json = tally_json(score->all), *by_operator = json_object(), *wrong = json_array();

    for (size_t i = 0; i < OPERATOR_COUNT; i++) {
        char name[] = {operators[i], '\0'};

        if (score->by_operator[i].asked > 0) json_object_set_new(by_operator, name, tally_json(score->by_operator[i]));
    }
    for (size_t i = 0; i < score->wrong_count; i++)
        json_array_append_new(wrong, json_pack("{s:s, s:s, s:s}", "prompt", score->wrong[i].problem.prompt, "text",
                                               score->wrong[i].text, "answer", score->wrong[i].problem.answer));
    json_object_set_new(json, "by_operator", by_operator);
    json_object_set_new(json, "wrong", wrong);
    json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(json);
}

/* ---- the measure ------------------------------------------------------------------------------------------------- */

static int open_core(const struct ash_eval *eval, struct ash_core **core_out, struct ash_err *err)
{
    struct ash_core_opts opts = {
        .max_seqs = eval->count < eval->batch ? (size_t)eval->count : (size_t)eval->batch,
        .max_batch_rows = PASS_ROWS,
        .max_tokens = seq_tokens(eval->engine, ash_arithmetic_answer_max(&eval->arithmetic)),
        .vocab = ash_tokenizer_vocab_size(ash_engine_tokenizer(eval->engine)),
        .pack = ASH_CORE_PACK_AT_OPEN,
    };

    if (opts.max_batch_rows < opts.max_seqs) opts.max_batch_rows = opts.max_seqs;
    return ash_core_open(ash_engine_model(eval->engine), ash_engine_exec(eval->engine), &opts, core_out, err);
}

static int run_all(const struct ash_eval *eval, struct ash_core *core, const struct ash_arithmetic *arithmetic,
                   struct score *score, struct ash_err *err)
{
    size_t total = (size_t)eval->count, step = (size_t)eval->batch * CHUNKS_PER_SLOT;
    struct ash_progress_bar progress;
    int rc = 0;

    ash_progress_bar_init(&progress);
    for (size_t first = 0; first < total && rc == 0; first += step) {
        size_t left = total - first;

        ash_progress_bar_count(&progress, first, total, "problems");
        rc = run_chunk(score, core, arithmetic, eval->engine, first, left < step ? left : step, err);
        if (rc == 0 && ash_interrupt_requested()) rc = -ECANCELED;
    }
    ash_progress_bar_clear(&progress);
    return rc;
}

int ash_eval_arithmetic(struct ash_eval *eval, struct ash_err *err)
{
    struct score score = {.wrong_max = (size_t)eval->show};
    struct ash_core *core = NULL;
    struct ash_arithmetic arithmetic;
    int rc = ash_arithmetic_init(&arithmetic, &eval->arithmetic, err);

    if (rc < 0) return rc;
    score.wrong = calloc(score.wrong_max + 1, sizeof(*score.wrong));
    if (score.wrong == NULL) return ash_err_set(err, -ENOMEM, "no memory for %zu wrong answers", score.wrong_max);
    rc = open_core(eval, &core, err);
    if (rc == 0) rc = run_all(eval, core, &arithmetic, &score, err);
    if (rc == 0) {
        if (eval->json)
            print_score_json(&score);
        else
            print_score(&score);
    }
    ash_core_close(core);
    for (size_t i = 0; i < score.wrong_count; i++)
        free(score.wrong[i].text);
    free(score.wrong);
    return rc;
}

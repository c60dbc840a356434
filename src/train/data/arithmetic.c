/* Arithmetic problems. Numbers are written as people write them, most significant digit first. Every draw is
 * counter-based, so problem i costs the same whichever came before; a draw that falls into the other split is drawn
 * again. */
#include "train/data/arithmetic.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/rng.h"

#define VALID_ONE_IN 10
#define FACT_MAX 9      /* 7*8 cannot be worked out from other problems, only learned: such facts are never held out */
#define DRAWS_PER_TRY 8 /* counters set aside for one try; five are used */
#define PROBE_TRIES 20000
/* A split that is hit less often than one time in a thousand is called empty. */
#define PROBE_HITS_MIN (PROBE_TRIES / 1000)

static const char *const split_names[] = {"train", "valid", "all", NULL};
static const char *const size_names[] = {"digits", "values", NULL};

static const struct ash_opt opts_list[] = {
    {"seed", ASH_OPT_INT, offsetof(struct ash_arithmetic_opts, seed), "1", "names the sequence of problems", 0, 0,
     NULL},
    {"ops", ASH_OPT_LIST, offsetof(struct ash_arithmetic_opts, ops), "add,sub",
     "operators: add, sub, mul; one that is named twice comes up twice as often", 0, 0, NULL},
    {"min_digits", ASH_OPT_INT, offsetof(struct ash_arithmetic_opts, min_digits), "1",
     "digits of the shortest operand of + and -", 1, ASH_ARITHMETIC_DIGITS_MAX, NULL},
    {"max_digits", ASH_OPT_INT, offsetof(struct ash_arithmetic_opts, max_digits), "2",
     "digits of the longest operand of + and -", 1, ASH_ARITHMETIC_DIGITS_MAX, NULL},
    {"mul_digits", ASH_OPT_INT, offsetof(struct ash_arithmetic_opts, mul_digits), "1",
     "digits of the longest factor of *", 1, ASH_ARITHMETIC_DIGITS_MAX, NULL},
    {"sizes", ASH_OPT_CHOICE, offsetof(struct ash_arithmetic_opts, sizes), "digits",
     "drawn evenly: the number of digits (short operands come up often) or the values (they are rare)", 0, 0,
     size_names},
    {"negative", ASH_OPT_BOOL, offsetof(struct ash_arithmetic_opts, negative), "true",
     "let differences be below zero; otherwise the larger operand comes first", 0, 0, NULL},
    {"split", ASH_OPT_CHOICE, offsetof(struct ash_arithmetic_opts, split), "train",
     "train, or valid: a tenth of the problems with an operand above 9 is held out, whatever the seeds", 0, 0,
     split_names},
    {"work", ASH_OPT_BOOL, offsetof(struct ash_arithmetic_opts, work), "false",
     "answers show their work, digit by digit: 37+58=80+15=95", 0, 0, NULL},
};

const struct ash_opt_table ash_arithmetic_table = {"arithmetic", "arithmetic problems", opts_list,
                                                   ASH_COUNT(opts_list)};

struct draw {
    char op;
    int64_t left, right;
};

static int64_t power_of_ten(int digits)
{
    int64_t power = 1;

    ash_assert(digits >= 0 && digits <= 18); /* more do not fit 64 bits */
    while (digits-- > 0)
        power *= 10;
    return power;
}

/* An operand of min to max digits from two counters. Zero counts as one digit. */
static int64_t draw_operand(const struct ash_arithmetic *arithmetic, uint64_t index, uint64_t counter, int min, int max)
{
    int64_t first, last;

    if (arithmetic->sizes == ASH_ARITHMETIC_DIGITS)
        min = max = min + (int)ash_rng_below(arithmetic->seed, index, counter, (uint64_t)(max - min + 1));
    first = min == 1 ? 0 : power_of_ten(min - 1);
    last = power_of_ten(max);
    return first + (int64_t)ash_rng_below(arithmetic->seed, index, counter + 1, (uint64_t)(last - first));
}

static struct draw draw_try(const struct ash_arithmetic *arithmetic, uint64_t index, uint64_t number)
{
    uint64_t counter = number * DRAWS_PER_TRY;
    struct draw draw;
    int min, max;

    draw.op = arithmetic->ops[ash_rng_below(arithmetic->seed, index, counter, (uint64_t)arithmetic->op_count)];
    min = draw.op == '*' ? 1 : arithmetic->min_digits;
    max = draw.op == '*' ? arithmetic->mul_digits : arithmetic->max_digits;
    draw.left = draw_operand(arithmetic, index, counter + 1, min, max);
    draw.right = draw_operand(arithmetic, index, counter + 3, min, max);
    if (draw.op == '-' && !arithmetic->negative && draw.left < draw.right) {
        int64_t left = draw.left;

        draw.left = draw.right;
        draw.right = left;
    }
    return draw;
}

static bool in_split(const struct draw *draw, enum ash_arithmetic_split split)
{
    uint64_t low = (uint64_t)(draw->left < draw->right ? draw->left : draw->right);
    uint64_t high = (uint64_t)(draw->left < draw->right ? draw->right : draw->left);
    uint64_t op = draw->op == '+' ? 1 : draw->op == '-' ? 2 : 3;
    bool valid;

    _Static_assert(ASH_ARITHMETIC_DIGITS_MAX <= 9, "an operand must fit 30 bits");
    if (split == ASH_ARITHMETIC_ALL) return true;
    valid = high > FACT_MAX && ash_hash_mix(op << 60 | low << 30 | high) % VALID_ONE_IN == 0;
    return valid == (split == ASH_ARITHMETIC_VALID);
}

static int parse_ops(struct ash_arithmetic *arithmetic, const struct ash_opt_list *ops, struct ash_err *err)
{
    static const char *const names[] = {"add", "sub", "mul"};
    static const char signs[] = "+-*";

    if (ops->count == 0 || ops->count > ASH_ARITHMETIC_OPS_MAX)
        return ash_err_set(err, -EINVAL, "ops: give 1 to %d of add, sub, mul", ASH_ARITHMETIC_OPS_MAX);
    for (size_t i = 0; i < ops->count; i++) {
        size_t n = 0;

        while (n < ASH_COUNT(names) && strcmp(ops->items[i], names[n]) != 0)
            n++;
        if (n == ASH_COUNT(names))
            return ash_err_set(err, -EINVAL, "ops: '%s' is not one of add, sub, mul", ops->items[i]);
        arithmetic->ops[i] = signs[n];
    }
    arithmetic->op_count = (int)ops->count;
    return 0;
}

static bool digits_valid(int64_t digits)
{
    return digits >= 1 && digits <= ASH_ARITHMETIC_DIGITS_MAX;
}

int ash_arithmetic_init(struct ash_arithmetic *arithmetic, const struct ash_arithmetic_opts *opts, struct ash_err *err)
{
    struct ash_arithmetic own = {0};
    int rc = parse_ops(&own, &opts->ops, err), hits = 0;

    if (rc < 0) return rc;
    if (!digits_valid(opts->min_digits) || !digits_valid(opts->max_digits) || !digits_valid(opts->mul_digits))
        return ash_err_set(err, -EINVAL, "operands have 1 to %d digits", ASH_ARITHMETIC_DIGITS_MAX);
    if (opts->min_digits > opts->max_digits)
        return ash_err_set(err, -EINVAL, "min_digits %" PRId64 " is above max_digits %" PRId64, opts->min_digits,
                           opts->max_digits);
    own.seed = (uint64_t)opts->seed;
    own.min_digits = (int)opts->min_digits;
    own.max_digits = (int)opts->max_digits;
    own.mul_digits = (int)opts->mul_digits;
    own.sizes = (enum ash_arithmetic_sizes)opts->sizes;
    own.negative = opts->negative;
    own.split = (enum ash_arithmetic_split)opts->split;
    own.work = opts->work;
    for (uint64_t i = 0; i < PROBE_TRIES; i++) {
        struct draw draw = draw_try(&own, 0, i);

        hits += in_split(&draw, own.split);
    }
    if (hits < PROBE_HITS_MIN)
        return ash_err_set(err, -EINVAL, "these limits leave no problems for the split '%s': allow more digits",
                           split_names[own.split]);
    *arithmetic = own;
    return 0;
}

size_t ash_arithmetic_answer_max(const struct ash_arithmetic_opts *opts)
{
    return opts->work ? ASH_ARITHMETIC_ANSWER_MAX : ASH_ARITHMETIC_TEXT_BYTES;
}

/* One part of the work: digit by digit for sums and differences; for products, left times each digit of right. */
static int64_t part_of(const struct draw *draw, int64_t place)
{
    int64_t left = draw->left / place % 10 * place, right = draw->right / place % 10 * place;

    return draw->op == '+' ? left + right : draw->op == '-' ? left - right : draw->left * right;
}

/* The parts that are not zero, and "=". A single part is the answer, so nothing is written. */
static void write_work(const struct draw *draw, char *work, size_t work_bytes)
{
    size_t used = 0, parts = 0;

    work[0] = '\0';
    for (int digit = ASH_ARITHMETIC_DIGITS_MAX - 1; digit >= 0; digit--) {
        int64_t part = part_of(draw, power_of_ten(digit));

        if (part == 0) continue;
        used += (size_t)snprintf(work + used, work_bytes - used, "%s%" PRId64, parts > 0 && part > 0 ? "+" : "", part);
        parts++;
    }
    ash_assert(used < work_bytes);
    if (parts > 1)
        snprintf(work + used, work_bytes - used, "=");
    else
        work[0] = '\0';
}

void ash_arithmetic_problem(const struct ash_arithmetic *arithmetic, uint64_t index, struct ash_problem *problem_out)
{
    struct draw draw = draw_try(arithmetic, index, 0);
    int64_t answer;

    /* Ends after a few tries: init saw that draws hit the split. */
    for (uint64_t number = 1; !in_split(&draw, arithmetic->split); number++)
        draw = draw_try(arithmetic, index, number);
    answer = draw.op == '+' ? draw.left + draw.right : draw.op == '-' ? draw.left - draw.right : draw.left * draw.right;
    snprintf(problem_out->prompt, sizeof(problem_out->prompt), "%" PRId64 "%c%" PRId64 "=", draw.left, draw.op,
             draw.right);
    snprintf(problem_out->answer, sizeof(problem_out->answer), "%" PRId64, answer);
    problem_out->work[0] = '\0';
    problem_out->may_have_work = arithmetic->work;
    if (arithmetic->work) write_work(&draw, problem_out->work, sizeof(problem_out->work));
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool ash_arithmetic_check(const struct ash_problem *problem, const char *text, size_t size_bytes)
{
    const char *equals = problem->may_have_work && size_bytes > 0 ? memrchr(text, '=', size_bytes) : NULL;

    if (equals != NULL) {
        size_bytes -= (size_t)(equals + 1 - text);
        text = equals + 1;
    }
    while (size_bytes > 0 && is_blank(text[size_bytes - 1]))
        size_bytes--;
    while (size_bytes > 0 && is_blank(text[0])) {
        text++;
        size_bytes--;
    }
    return size_bytes == strlen(problem->answer) && memcmp(text, problem->answer, size_bytes) == 0;
}

/* Special tokens are in the model's vocabulary too: the Hugging Face library gives an added token that is
 * not a new id. */
const char *ash_arithmetic_tokenizer(void)
{
    return "{\n"
           "  \"version\": \"1.0\",\n"
           "  \"truncation\": null,\n"
           "  \"padding\": null,\n"
           "  \"added_tokens\": [\n"
           "    {\"id\": 0, \"content\": \"<pad>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false,"
           " \"normalized\": false, \"special\": true},\n"
           "    {\"id\": 1, \"content\": \"" ASH_ARITHMETIC_EOS
           "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false,"
           " \"normalized\": false, \"special\": true}\n"
           "  ],\n"
           "  \"normalizer\": null,\n"
           "  \"pre_tokenizer\": null,\n"
           "  \"post_processor\": null,\n"
           "  \"decoder\": {\"type\": \"Fuse\"},\n"
           "  \"model\": {\n"
           "    \"type\": \"BPE\",\n"
           "    \"dropout\": null,\n"
           "    \"unk_token\": null,\n"
           "    \"continuing_subword_prefix\": null,\n"
           "    \"end_of_word_suffix\": null,\n"
           "    \"fuse_unk\": false,\n"
           "    \"byte_fallback\": false,\n"
           "    \"ignore_merges\": false,\n"
           "    \"vocab\": {\"<pad>\": 0, \"" ASH_ARITHMETIC_EOS "\": 1,"
           " \"0\": 2, \"1\": 3, \"2\": 4, \"3\": 5, \"4\": 6, \"5\": 7, \"6\": 8, \"7\": 9, \"8\": 10, \"9\": 11,"
           " \"+\": 12, \"-\": 13, \"*\": 14, \"=\": 15},\n"
           "    \"merges\": []\n"
           "  }\n"
           "}\n";
}

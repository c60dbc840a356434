/* arithmetic - problems with checkable answers, each a pure function of (options, index): the quick-start corpus, a
 * held-out test set and a task for reinforcement learning. Plain structs and no state: any thread may call. */
#ifndef ASH_TRAIN_ARITHMETIC_H
#define ASH_TRAIN_ARITHMETIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/opts.h"

#define ASH_ARITHMETIC_OPS_MAX 16
#define ASH_ARITHMETIC_DIGITS_MAX 9
#define ASH_ARITHMETIC_TEXT_BYTES 32
#define ASH_ARITHMETIC_WORK_BYTES 192 /* nine parts of up to 18 digits, with signs */
/* Characters that an answer has at most: with its work, and without. */
#define ASH_ARITHMETIC_ANSWER_MAX (ASH_ARITHMETIC_TEXT_BYTES + ASH_ARITHMETIC_WORK_BYTES)

enum ash_arithmetic_split { ASH_ARITHMETIC_TRAIN, ASH_ARITHMETIC_VALID, ASH_ARITHMETIC_ALL };
enum ash_arithmetic_sizes { ASH_ARITHMETIC_DIGITS, ASH_ARITHMETIC_VALUES };

/* The settings of ash_arithmetic_table. */
struct ash_arithmetic_opts {
    int64_t seed;
    struct ash_opt_list ops;        /* "add", "sub", "mul"; one that is named twice is drawn twice as often */
    int64_t min_digits, max_digits; /* of the operands of + and - */
    int64_t mul_digits;             /* of the factors, at most */
    int sizes;                      /* enum ash_arithmetic_sizes */
    bool negative;                  /* may a difference be below zero? */
    int split;                      /* enum ash_arithmetic_split */
    bool work;                      /* do answers show how they were found? */
};

/* Section "arithmetic" over struct ash_arithmetic_opts. A command with plain flags builds its table from these opts. */
extern const struct ash_opt_table ash_arithmetic_table;

/* The checked form of the options; a copy. */
struct ash_arithmetic {
    uint64_t seed;
    char ops[ASH_ARITHMETIC_OPS_MAX]; /* '+', '-', '*' */
    int op_count;
    int min_digits, max_digits, mul_digits;
    enum ash_arithmetic_sizes sizes;
    bool negative;
    enum ash_arithmetic_split split;
    bool work;
    double mistakes; /* share of the problems that ash_arithmetic_write writes with a wrong answer; init sets 0 */
};

struct ash_problem {
    char prompt[ASH_ARITHMETIC_TEXT_BYTES]; /* "37+58=" */
    char work[ASH_ARITHMETIC_WORK_BYTES];   /* "80+15=": comes before the answer; empty: nothing does */
    char answer[ASH_ARITHMETIC_TEXT_BYTES]; /* "95" */
    bool may_have_work;                     /* only the text after the last "=" of an answer is checked */
};

/* Check opts. -EINVAL for an unknown operator, limits that contradict each other, or limits so narrow that the split is
 * empty. */
int ash_arithmetic_init(struct ash_arithmetic *arithmetic, const struct ash_arithmetic_opts *opts, struct ash_err *err);

/* Problem number index. A problem belongs to the held-out split for good, by a hash of itself (and of its mirror image:
 * 13+5 goes where 5+13 goes) that no option changes, about one in ten: problems of `train` and `valid` never meet,
 * whatever their seeds. Those of two single digits are facts to be learned and are always in `train`. */
void ash_arithmetic_problem(const struct ash_arithmetic *arithmetic, uint64_t index, struct ash_problem *problem_out);

/* Characters of an answer at most. */
size_t ash_arithmetic_answer_max(const struct ash_arithmetic_opts *opts);

/* Is text (not NUL-terminated) the answer? Blanks around it do not count; everything else does, but for work, where
 * the problem may have some. */
bool ash_arithmetic_check(const struct ash_problem *problem, const char *text, size_t size_bytes);

#define ASH_ARITHMETIC_EOS "<eos>"

/* The character-level tokenizer of these texts, as a tokenizer.json that the Hugging Face library reads: <pad>, <eos>,
 * the ten digits, "+-*=". Characters outside are dropped, so "37 + 58 =" works as a prompt. */
const char *ash_arithmetic_tokenizer(void);

/* Write count problems as a data folder (token shards, tokenizer, manifest last), each problem one document that ends
 * in <eos>. A folder that already holds exactly this is left as it is (returns 1); other data in it is -EEXIST unless
 * overwrite. */
int ash_arithmetic_write(const struct ash_arithmetic *arithmetic, const char *dir, uint64_t count, size_t shard_tokens,
                         bool overwrite, struct ash_err *err);

#endif

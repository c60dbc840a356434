/* examples - whole examples for post-training: token ids with a mark on those that are learned, one after the other or
 * in pairs (chosen, rejected), in a folder:
 *
 *     examples.safetensors   ids I32 [tokens], targets U8 [tokens] (1: learned), starts I64 [examples + 1],
 *                            margins F32 [pairs] (optional)
 *     tokenizer.json         and what else the tokenizer has
 *     manifest.json          written last
 *
 * As a source they are packed: sequence n of an epoch holds the examples (or pairs) that a plan puts together. The plan
 * is a pure function of (seed, epoch, lengths): best fit, longest first, so that every epoch has equally many sequences
 * and any step can be entered at once. Thread-safe after open. */
#ifndef ASH_TRAIN_EXAMPLES_H
#define ASH_TRAIN_EXAMPLES_H

#include "train/data/source.h"

#define ASH_EXAMPLES_FILE "examples.safetensors" /* in their folder */

struct ash_examples;

enum ash_examples_kind { ASH_EXAMPLES_SINGLE, ASH_EXAMPLES_PAIRS };

/* Does dir hold examples (and not token shards)? */
bool ash_examples_exist(const char *dir);
/* Open a folder. Every id, start and mark is checked. Returns 0, -ENOENT, -EINVAL or -ENOMEM. */
int ash_examples_open(const char *dir, struct ash_examples **examples_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_examples_close(struct ash_examples *examples);

/* One example, borrowed. */
struct ash_example {
    const int32_t *ids;
    const uint8_t *targets; /* 1: this token is learned; its row is the one before */
    size_t count;
};
/* Examples, or pairs? */
enum ash_examples_kind ash_examples_get_kind(const struct ash_examples *examples);
/* Examples; two for each pair, chosen first. */
size_t ash_examples_count(const struct ash_examples *examples);
/* Example index (< count). */
struct ash_example ash_examples_at(const struct ash_examples *examples, size_t index);
/* What a pair's reward should differ by at least; 0 if the data has none. */
float ash_examples_margin(const struct ash_examples *examples, size_t pair);
/* A hash of ids, marks, starts and margins. */
uint64_t ash_examples_hash(const struct ash_examples *examples);
/* Of the tokenizer that made the ids. */
uint64_t ash_examples_tokenizer_hash(const struct ash_examples *examples);
/* One more than the largest id of the tokenizer. */
size_t ash_examples_vocab_size(const struct ash_examples *examples);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct ash_examples_writer; /* gathers examples in memory; one owner thread */

/* A writer of examples of a kind. Returns 0 or -ENOMEM. */
int ash_examples_writer_open(enum ash_examples_kind kind, struct ash_examples_writer **writer_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_examples_writer_close(struct ash_examples_writer *writer);
/* Add one (of a pair first the chosen one). Copies. Returns 0 or -ENOMEM. */
int ash_examples_writer_add(struct ash_examples_writer *writer, const struct ash_example *example, struct ash_err *err);
/* The margin of the pair that was added last. Returns 0 or -ENOMEM. */
int ash_examples_writer_set_margin(struct ash_examples_writer *writer, float margin, struct ash_err *err);
/* How many were added. */
size_t ash_examples_writer_count(const struct ash_examples_writer *writer);
/* The tokenizer that examples were made with. */
struct ash_examples_tokenizer {
    const char *dir; /* its folder */
    uint64_t hash;
    size_t vocab_size;
};
/* Write the folder, whole or not at all, with a copy of the tokenizer and its chat template. source (borrowed) records
 * the examples' origin. Returns 0 or an error with a sentence. */
int ash_examples_writer_save(struct ash_examples_writer *writer, const char *dir,
                             const struct ash_examples_tokenizer *tokenizer, json_t *source, struct ash_err *err);

/* ---- as a source ------------------------------------------------------------------------------------------------- */

enum ash_truncate { ASH_TRUNCATE_NEVER, ASH_TRUNCATE_END, ASH_TRUNCATE_START, ASH_TRUNCATE_SKIP };

/* Which tokens are learned: those that are marked, those of the last run of marks, or all. As enum ash_train_on. */
enum ash_learn { ASH_LEARN_MARKED, ASH_LEARN_LAST, ASH_LEARN_ALL };

struct ash_packed_opts {
    size_t seq_tokens;
    uint64_t seed;
    bool packing;               /* several in a sequence; else one each */
    enum ash_truncate truncate; /* handling of examples longer than seq_tokens */
    enum ash_learn learn;       /* which tokens of an example */
};

struct ash_packed; /* examples, and the plan of the epoch that was read last */

/* A plan over examples, which are borrowed until close. -EINVAL if an example is longer than seq_tokens and truncate is
 * unset (err names it), if a target is lost by cutting, or if nothing is left. */
int ash_packed_open(const struct ash_examples *examples, const struct ash_packed_opts *opts,
                    struct ash_packed **packed_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_packed_close(struct ash_packed *packed);
/* As a source; borrowed. One thread reads. */
struct ash_train_source ash_packed_source(struct ash_packed *packed);
/* Examples that were cut, and those that were left out as too long. */
size_t ash_packed_cut(const struct ash_packed *packed);
/* Examples (or pairs) that were left out as too long. */
size_t ash_packed_skipped(const struct ash_packed *packed);
/* Share of rows that hold tokens. */
double ash_packed_fill(const struct ash_packed *packed);

/* The units of a sequence: examples, or pairs (units count pairs then). */
struct ash_packed_unit {
    size_t unit;     /* example or pair */
    size_t row;      /* its first, counted from the sequence's */
    size_t count[2]; /* rows of the example; of a pair, of chosen and then rejected */
};
/* Units of slot of step, ascending by row, into units [max]; returns how many there are. */
size_t ash_packed_units(struct ash_packed *packed, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                        struct ash_packed_unit *units, size_t max);
/* The most units that any sequence has. */
size_t ash_packed_units_max(const struct ash_packed *packed);

/* Sequences of a plan: lengths [count] are put into bins of at most `size` rows. bin_of [count] gets each one's bin,
 * bins ascending in order of their first (longest) member; returns how many bins. A pure function: best fit, longest
 * first, ties in the order of rank [count] (a permutation), fullest bin first and of those the oldest. Returns a
 * negative errno for lack of memory. */
ssize_t ash_pack_plan(const size_t *lengths, const uint64_t *rank, size_t count, size_t size, size_t *bin_of);

#endif

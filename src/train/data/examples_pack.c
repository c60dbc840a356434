/* examples as a source of sequences. Which of them share one: pack_plan.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/rng.h"
#include "train/data/examples.h"

#define STREAM_TIES 0x65786d31u  /* of the order of examples of one length */
#define STREAM_ORDER 0x65786d32u /* of the order of sequences in an epoch */

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* The plan of one epoch: members of bin b are members[starts[b]] ... in the order of their rows. */
struct plan {
    uint64_t epoch;
    bool is_made;
    size_t *members, *starts;
};

struct ash_packed {
    const struct ash_examples *examples;
    struct ash_packed_opts opts;
    size_t *units;   /* [unit_count]: the examples (or pairs) that are used */
    size_t *lengths; /* [unit_count]: rows of each */
    size_t unit_count, bin_count, units_max, cut, skipped, rows;
    struct plan plans[2]; /* of an even and of an odd epoch: a step may begin in one and end in the next */
};

/* Examples of a unit. */
static size_t unit_size(const struct ash_packed *packed)
{
    return ash_examples_get_kind(packed->examples) == ASH_EXAMPLES_PAIRS ? 2 : 1;
}

/* The part of an example that is used: room is what its unit leaves for it. */
static struct ash_example cut_example(const struct ash_packed *packed, struct ash_example example, size_t room)
{
    size_t count = ash_min(example.count, room);

    if (packed->opts.truncate == ASH_TRUNCATE_START) {
        example.ids += example.count - count;
        example.targets += example.count - count;
    }
    example.count = count;
    return example;
}

/* Example k of a unit, cut as it is used. A pair has half of a sequence for each. */
static struct ash_example example_of(const struct ash_packed *packed, size_t unit, size_t k)
{
    size_t size = unit_size(packed);

    return cut_example(packed, ash_examples_at(packed->examples, size * unit + k), packed->opts.seq_tokens / size);
}

static bool has_target(struct ash_example example)
{
    for (size_t i = 1; i < example.count; i++)
        if (example.targets[i] != 0) return true;
    return false;
}

/* Does a unit fit? What does not is cut, left out or refused. Returns 1, 0 (left out) or -EINVAL. */
static int judge(struct ash_packed *packed, size_t unit, struct ash_err *err)
{
    size_t size = unit_size(packed), room = packed->opts.seq_tokens / size;

    for (size_t k = 0; k < size; k++) {
        struct ash_example example = ash_examples_at(packed->examples, size * unit + k);

        if (example.count <= room) continue;
        if (packed->opts.truncate == ASH_TRUNCATE_SKIP) {
            packed->skipped++;
            return 0;
        }
        if (packed->opts.truncate == ASH_TRUNCATE_NEVER)
            return ash_err_set(err, -EINVAL,
                               "%s %zu has %zu tokens, but data.seq=%zu leaves room for %zu: raise data.seq, or set "
                               "truncate to end, start or skip",
                               size == 2 ? "an answer of pair" : "example", unit, example.count,
                               packed->opts.seq_tokens, room);
        if (has_target(example) && !has_target(cut_example(packed, example, room)))
            return ash_err_set(err, -EINVAL,
                               "%s %zu has no target left when it is cut to %zu of its %zu tokens: raise data.seq, or "
                               "set truncate to skip",
                               size == 2 ? "an answer of pair" : "example", unit, room, example.count);
        packed->cut++;
    }
    return 1;
}

static int choose_units(struct ash_packed *packed, struct ash_err *err)
{
    size_t size = unit_size(packed), count = ash_examples_count(packed->examples) / size;

    packed->units = calloc(count, sizeof(*packed->units));
    packed->lengths = calloc(count, sizeof(*packed->lengths));
    if (packed->units == NULL || packed->lengths == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for a plan of %zu examples", count);
    for (size_t unit = 0; unit < count; unit++) {
        int rc = judge(packed, unit, err);

        if (rc < 0) return rc;
        if (rc == 0) continue;
        for (size_t k = 0; k < size; k++)
            packed->lengths[packed->unit_count] += example_of(packed, unit, k).count;
        packed->rows += packed->lengths[packed->unit_count];
        packed->units[packed->unit_count++] = unit;
    }
    if (packed->unit_count > 0) return 0;
    return ash_err_set(err, -EINVAL, "all %zu examples are longer than data.seq=%zu: raise it", count,
                       packed->opts.seq_tokens);
}

/* ---- epochs ------------------------------------------------------------------------------------------------------ */

/* Sort members by bin; inside a bin longest first, as they were placed. */
static void list_members(const struct ash_packed *packed, struct plan *plan, const size_t *bin_of, const uint64_t *rank)
{
    memset(plan->starts, 0, (packed->bin_count + 1) * sizeof(*plan->starts));
    for (size_t i = 0; i < packed->unit_count; i++)
        plan->starts[bin_of[i] + 1]++;
    for (size_t b = 0; b < packed->bin_count; b++)
        plan->starts[b + 1] += plan->starts[b];
    for (size_t i = 0; i < packed->unit_count; i++) {
        size_t first = plan->starts[bin_of[i]], at = first;

        /* starts[b] goes up to starts[b + 1] as members come, and is put back below */
        plan->members[at] = i;
        plan->starts[bin_of[i]]++;
    }
    for (size_t b = packed->bin_count; b > 0; b--)
        plan->starts[b] = plan->starts[b - 1];
    ash_assert(plan->starts[packed->bin_count] == packed->unit_count); /* each unit is in one bin */
    plan->starts[0] = 0;
    for (size_t b = 0; b < packed->bin_count; b++)
        for (size_t i = plan->starts[b] + 1; i < plan->starts[b + 1]; i++)
            for (size_t j = i; j > plan->starts[b]; j--) {
                size_t a = plan->members[j - 1], c = plan->members[j];

                if (packed->lengths[a] > packed->lengths[c] ||
                    (packed->lengths[a] == packed->lengths[c] && rank[a] < rank[c]))
                    break;
                plan->members[j - 1] = c;
                plan->members[j] = a;
            }
}

static int make_plan(struct ash_packed *packed, struct plan *plan, uint64_t epoch)
{
    size_t count = packed->unit_count, *bin_of = calloc(count, sizeof(*bin_of));
    uint64_t *rank = calloc(count, sizeof(*rank));
    ssize_t bins = -ENOMEM;

    if (bin_of != NULL && rank != NULL) {
        for (size_t i = 0; i < count; i++) {
            rank[i] = ash_rng_permute(packed->opts.seed, ash_hash_mix(STREAM_TIES + (epoch << 32)), i, count);
            bin_of[i] = i;
        }
        bins = packed->opts.packing ? ash_pack_plan(packed->lengths, rank, count, packed->opts.seq_tokens, bin_of)
                                    : (ssize_t)count;
    }
    if (bins > 0) {
        packed->bin_count = (size_t)bins; /* the same in every epoch: lengths decide it */
        if (plan->members == NULL) plan->members = calloc(count, sizeof(*plan->members));
        if (plan->starts == NULL) plan->starts = calloc((size_t)bins + 1, sizeof(*plan->starts));
        if (plan->members == NULL || plan->starts == NULL) bins = -ENOMEM;
    }
    if (bins > 0) list_members(packed, plan, bin_of, rank);
    plan->epoch = epoch;
    plan->is_made = bins > 0;
    free(bin_of);
    free(rank);
    return bins > 0 ? 0 : (int)bins;
}

/* The members of a sequence; count 0: no memory for its plan. */
static struct ash_range bin_of_slot(struct ash_packed *packed, uint64_t n, const size_t **members_out)
{
    uint64_t epoch = n / packed->bin_count, bin;
    struct plan *plan = &packed->plans[epoch % 2];

    if ((!plan->is_made || plan->epoch != epoch) && make_plan(packed, plan, epoch) < 0) return (struct ash_range){0};
    bin = ash_rng_permute(packed->opts.seed, ash_hash_mix(STREAM_ORDER + (epoch << 32)), n % packed->bin_count,
                          packed->bin_count);
    ash_assert(bin < packed->bin_count && plan->starts[bin] < plan->starts[bin + 1]);
    *members_out = plan->members + plan->starts[bin];
    return (struct ash_range){plan->starts[bin], plan->starts[bin + 1] - plan->starts[bin]};
}

int ash_packed_open(const struct ash_examples *examples, const struct ash_packed_opts *opts,
                    struct ash_packed **packed_out, struct ash_err *err)
{
    struct ash_packed *packed = calloc(1, sizeof(*packed));
    int rc;

    if (packed == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a plan of examples");
    packed->examples = examples;
    packed->opts = *opts;
    rc = choose_units(packed, err);
    if (rc == 0 && make_plan(packed, &packed->plans[0], 0) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory for a plan of %zu examples", packed->unit_count);
    if (rc < 0) {
        ash_packed_close(packed);
        return rc;
    }
    for (size_t b = 0; b < packed->bin_count; b++)
        packed->units_max = ash_max(packed->units_max, packed->plans[0].starts[b + 1] - packed->plans[0].starts[b]);
    *packed_out = packed;
    return 0;
}

void ash_packed_close(struct ash_packed *packed)
{
    if (packed == NULL) return;
    for (size_t i = 0; i < ASH_COUNT(packed->plans); i++) {
        free(packed->plans[i].members);
        free(packed->plans[i].starts);
    }
    free(packed->units);
    free(packed->lengths);
    free(packed);
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

static void add_doc(struct ash_sample *sample, size_t row, size_t count)
{
    sample->docs[sample->doc_count++] = (struct ash_doc){.row = row, .count = count};
}

/* The first token that may be learned. */
static size_t first_learned(struct ash_example example, enum ash_learn learn)
{
    size_t first = example.count;

    if (learn != ASH_LEARN_LAST) return 0;
    while (first > 0 && example.targets[first - 1] == 0)
        first--;
    while (first > 0 && example.targets[first - 1] != 0)
        first--;
    return first;
}

/* Is the token after row i learned? first as first_learned gives it. */
static bool is_learned(struct ash_example example, size_t i, size_t first, enum ash_learn learn)
{
    return i + 1 < example.count && i + 1 >= first && (example.targets[i + 1] != 0 || learn == ASH_LEARN_ALL);
}

static void add_example(struct ash_sample *sample, size_t row, struct ash_example example, enum ash_learn learn)
{
    size_t first = first_learned(example, learn);

    ash_assert(first <= example.count);
    memcpy(sample->ids + row, example.ids, example.count * sizeof(*example.ids));
    for (size_t i = 0; i < example.count; i++)
        sample->targets[row + i] = is_learned(example, i, first, learn) ? example.ids[i + 1] : -1;
    add_doc(sample, row, example.count);
}

static int read_packed(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                       struct ash_sample *sample, struct ash_err *err)
{
    struct ash_packed *packed = (struct ash_packed *)(uintptr_t)ctx;
    const size_t *members = NULL;
    struct ash_range bin = bin_of_slot(packed, step * slots_per_step + slot, &members);
    size_t row = 0;

    if (bin.count == 0) return ash_err_set(err, -ENOMEM, "out of memory for the plan of an epoch");
    sample->doc_count = 0;
    for (size_t i = 0; i < bin.count; i++)
        for (size_t k = 0; k < unit_size(packed); k++) {
            struct ash_example example = example_of(packed, packed->units[members[i]], k);

            add_example(sample, row, example, packed->opts.learn);
            row += example.count;
        }
    for (size_t r = row; r < packed->opts.seq_tokens; r++) {
        sample->ids[r] = 0;
        sample->targets[r] = -1;
    }
    if (row < packed->opts.seq_tokens) add_doc(sample, row, packed->opts.seq_tokens - row);
    return 0;
}

static uint64_t count_packed(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    struct ash_packed *packed = (struct ash_packed *)(uintptr_t)ctx;
    const size_t *members = NULL;
    struct ash_range bin = bin_of_slot(packed, step * slots_per_step + slot, &members);
    uint64_t targets = 0;

    for (size_t i = 0; i < bin.count; i++)
        for (size_t k = 0; k < unit_size(packed); k++) {
            struct ash_example example = example_of(packed, packed->units[members[i]], k);
            size_t first = first_learned(example, packed->opts.learn);

            for (size_t t = 0; t < example.count; t++)
                targets += is_learned(example, t, first, packed->opts.learn);
        }
    return targets;
}

static const struct ash_source_ops packed_ops = {.read = read_packed, .count = count_packed};

struct ash_train_source ash_packed_source(struct ash_packed *packed)
{
    uint64_t settings[] = {packed->opts.packing, packed->opts.truncate, packed->opts.seq_tokens, packed->opts.learn};

    return (struct ash_train_source){
        .ops = &packed_ops,
        .ctx = packed,
        .tokens = packed->rows,
        .windows = packed->bin_count,
        .vocab_size = ash_examples_vocab_size(packed->examples),
        .hash = ash_hash_bytes(settings, sizeof(settings), ash_examples_hash(packed->examples)),
        .tokenizer_hash = ash_examples_tokenizer_hash(packed->examples),
        .eos_id = -1};
}

size_t ash_packed_cut(const struct ash_packed *packed)
{
    return packed->cut;
}

size_t ash_packed_skipped(const struct ash_packed *packed)
{
    return packed->skipped;
}

double ash_packed_fill(const struct ash_packed *packed)
{
    return (double)packed->rows / ((double)packed->bin_count * (double)packed->opts.seq_tokens);
}

size_t ash_packed_units(struct ash_packed *packed, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                        struct ash_packed_unit *units, size_t max)
{
    const size_t *members = NULL;
    struct ash_range bin = bin_of_slot(packed, step * slots_per_step + slot, &members);
    size_t row = 0;

    ash_assert(bin.count <= max);
    for (size_t i = 0; i < bin.count; i++) {
        units[i] = (struct ash_packed_unit){.unit = packed->units[members[i]], .row = row};
        for (size_t k = 0; k < unit_size(packed); k++) {
            units[i].count[k] = example_of(packed, units[i].unit, k).count;
            row += units[i].count[k];
        }
    }
    return bin.count;
}

size_t ash_packed_units_max(const struct ash_packed *packed)
{
    return packed->units_max;
}

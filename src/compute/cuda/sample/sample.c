/* Choosing tokens: settings and edits of the rows go to the GPU in one block. What lists and masks forbid becomes one
 * mask. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/host/backend_priv.h"
#include "compute/sample.h"

#define BLOCK_ALIGN 16
#define BLOCK_BYTES (ASH_CUDA_UPLOAD_BYTES / 4)
#define WEIGHT_BYTES ((size_t)64 << 20) /* of the weights of rows that are chosen for at a time */
#define THREADS 512

static bool has_mask(const struct ash_sample_row *row)
{
    return row->allowed != NULL || row->mask != NULL || row->forbidden_count > 0;
}

static size_t mask_words(size_t vocab)
{
    return ash_div_up(vocab, 64);
}

static size_t edit_bytes(const struct ash_sample_row *row, size_t vocab)
{
    return ash_round_up(row->bias_count * sizeof(*row->bias), BLOCK_ALIGN) +
           ash_round_up(row->count_count * sizeof(*row->counts), BLOCK_ALIGN) +
           (has_mask(row) ? ash_round_up(mask_words(vocab) * sizeof(uint64_t), BLOCK_ALIGN) : 0);
}

/* Copy size_bytes to the end of the block; returns where they are in it. */
static size_t put(unsigned char *block, size_t *used, const void *data, size_t size_bytes)
{
    size_t at = *used;

    if (size_bytes > 0 && data != NULL) memcpy(block + at, data, size_bytes);
    *used += ash_round_up(size_bytes, BLOCK_ALIGN);
    return at;
}

/* What may be chosen, as one mask. */
static void fill_mask(const struct ash_sample_row *row, size_t vocab, uint64_t *mask)
{
    memset(mask, row->allowed != NULL ? 0 : 0xff, mask_words(vocab) * sizeof(*mask));
    for (size_t i = 0; row->allowed != NULL && i < row->allowed_count; i++)
        if (row->allowed[i] >= 0 && (size_t)row->allowed[i] < vocab)
            mask[row->allowed[i] / 64] |= (uint64_t)1 << row->allowed[i] % 64;
    for (size_t i = 0; row->mask != NULL && i < mask_words(vocab); i++)
        mask[i] &= row->mask[i];
    for (size_t i = 0; i < row->forbidden_count; i++)
        if (row->forbidden[i] >= 0 && (size_t)row->forbidden[i] < vocab)
            mask[row->forbidden[i] / 64] &= ~((uint64_t)1 << row->forbidden[i] % 64);
}

static struct ash_cuda_sample_row pack_row(const struct ash_sample_row *row, size_t vocab, unsigned char *block,
                                           size_t *used)
{
    struct ash_cuda_sample_row packed = {.temperature = row->temperature,
                                         .top_p = row->top_p,
                                         .min_p = row->min_p,
                                         .typical_p = row->typical_p,
                                         .random = row->random,
                                         .top_k = row->top_k,
                                         .bias_count = row->bias_count,
                                         .count_count = row->count_count,
                                         .repetition = row->repetition,
                                         .presence = row->presence,
                                         .frequency = row->frequency,
                                         .filters_first = row->filters_first,
                                         .sorts = ash_sample_sorts(row, vocab),
                                         .has_mask = has_mask(row)};

    packed.bias_at = put(block, used, row->bias, row->bias_count * sizeof(*row->bias));
    packed.counts_at = put(block, used, row->counts, row->count_count * sizeof(*row->counts));
    packed.mask_at = put(block, used, NULL, packed.has_mask ? mask_words(vocab) * sizeof(uint64_t) : 0);
    if (packed.has_mask) fill_mask(row, vocab, (uint64_t *)(void *)(block + packed.mask_at));
    return packed;
}

/* How many rows from the first on fit a block, and how many bytes they take. */
static size_t rows_of_block(const struct ash_sample_args *args, size_t first, size_t *bytes_out)
{
    size_t most = ash_max(WEIGHT_BYTES / (args->vocab * sizeof(float)), 1), count = 0, bytes = 0;

    while (first + count < args->rows && count < most) {
        size_t more = edit_bytes(&args->row[first + count], args->vocab) + sizeof(struct ash_cuda_sample_row);

        if (bytes + more > BLOCK_BYTES - BLOCK_ALIGN && count > 0) break;
        bytes += more;
        count++;
    }
    *bytes_out = bytes + BLOCK_ALIGN;
    return count;
}

static void choose(struct ash_exec *exec, const struct ash_sample_args *args)
{
    size_t count, bytes;

    ash_assert(args->vocab > 0 && args->vocab <= ASH_SAMPLE_VOCAB_MAX);
    for (size_t first = 0; first < args->rows; first += count) {
        struct ash_cuda_sample op = {.vocab = args->vocab,
                                     .stride = args->stride,
                                     .logits = args->logits + first * args->stride,
                                     .ids = args->ids + first,
                                     .next = args->next != NULL ? args->next + first : NULL};
        struct ash_cuda_sample_row *rows;
        unsigned char *block;
        size_t used;

        count = rows_of_block(args, first, &bytes);
        ash_assert(bytes <= BLOCK_BYTES);
        block = calloc(1, bytes);
        ash_assert(block != NULL);
        rows = (struct ash_cuda_sample_row *)(void *)block;
        used = ash_round_up(count * sizeof(*rows), BLOCK_ALIGN);
        for (size_t r = 0; r < count; r++)
            rows[r] = pack_row(&args->row[first + r], args->vocab, block, &used);
        op.weight = ash_cuda_scratch(exec, count * args->vocab * sizeof(float));
        op.block = ash_cuda_upload(exec->cuda->cuda, block, used);
        free(block);
        ash_cuda_run(exec, ASH_KERNEL_sample_choose, (struct ash_cuda_grid){.x = count, .y = 1, .threads = THREADS},
                     &op);
    }
}

const struct ash_sample_ops ash_cuda_sample = {.choose = choose};

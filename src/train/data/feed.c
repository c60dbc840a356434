/* feed: puts sequences one after the other as rows of one batch. A rank reads its own sequences alone; the targets of
 * the whole step are counted from the bounds of documents. */
#include "train/data/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

#define AHEAD_STEPS 8
#define AHEAD_SLICES 4

int ash_feed_init(struct ash_feed *feed, size_t seq_tokens, size_t max_sequences, struct ash_err *err)
{
    size_t rows;

    memset(feed, 0, sizeof(*feed));
    if (__builtin_mul_overflow(seq_tokens, max_sequences, &rows))
        return ash_err_set(err, -EINVAL, "a micro-batch of %zu sequences of %zu tokens is absurdly large",
                           max_sequences, seq_tokens);
    feed->ids = calloc(rows, sizeof(*feed->ids));
    feed->targets = calloc(rows, sizeof(*feed->targets));
    feed->docs = calloc(rows, sizeof(*feed->docs));
    feed->kept = calloc(rows, sizeof(*feed->kept));
    feed->losses = calloc(rows, sizeof(*feed->losses));
    feed->entropies = calloc(rows, sizeof(*feed->entropies));
    feed->scales = calloc(rows, sizeof(*feed->scales));
    feed->entropy_scales = calloc(rows, sizeof(*feed->entropy_scales));
    feed->slots = calloc(max_sequences, sizeof(*feed->slots));
    if (feed->ids == NULL || feed->targets == NULL || feed->docs == NULL || feed->kept == NULL ||
        feed->losses == NULL || feed->entropies == NULL || feed->scales == NULL || feed->entropy_scales == NULL ||
        feed->slots == NULL) {
        ash_feed_fini(feed);
        return ash_err_set(err, -ENOMEM, "out of memory for a batch of %zu tokens", rows);
    }
    feed->seq_tokens = seq_tokens;
    feed->max_sequences = max_sequences;
    return 0;
}

void ash_feed_fini(struct ash_feed *feed)
{
    free(feed->ids);
    free(feed->targets);
    free(feed->docs);
    free(feed->kept);
    free(feed->losses);
    free(feed->entropies);
    free(feed->scales);
    free(feed->entropy_scales);
    free(feed->slots);
    memset(feed, 0, sizeof(*feed));
}

/* Prefetch this slice, and the same slice of the next steps, or, after the last step, the data after it. */
static void want_ahead(const struct ash_feed_slice *slice)
{
    uint64_t steps = ash_min(slice->more_steps, AHEAD_STEPS), slots = slice->count;

    if (slice->source->ops->want == NULL) return;
    if (steps == 0) slots = ash_min(AHEAD_SLICES * slice->count, slice->slots_per_step - slice->first_slot);
    for (uint64_t t = 0; t <= steps; t++)
        for (uint64_t s = 0; s < slots; s++)
            slice->source->ops->want(slice->source->ctx, slice->step + t, slice->first_slot + s, slice->slots_per_step);
}

int ash_feed_read(struct ash_feed *feed, const struct ash_feed_slice *slice, struct ash_err *err)
{
    const struct ash_train_source *source = slice->source;
    size_t doc_count = 0, sequences = 0;

    ash_assert(slice->count <= feed->max_sequences);
    want_ahead(slice);
    if (source->has_kept) memset(feed->kept, 0, slice->count * feed->seq_tokens * sizeof(*feed->kept));
    for (size_t s = 0; s < slice->count; s++) {
        size_t row = sequences * feed->seq_tokens;
        struct ash_sample sample = {
            .ids = feed->ids + row, .targets = feed->targets + row, .docs = feed->docs + doc_count};
        if (source->has_kept) sample.kept = feed->kept + row;
        uint64_t slot = slice->first_slot + s;
        int rc = source->ops->read(source->ctx, slice->step, slot, slice->slots_per_step, &sample, err);
        if (rc < 0) return rc;
        if (sample.doc_count == 0) continue;
        feed->slots[sequences++] = slot;
        for (size_t d = 0; d < sample.doc_count; d++)
            sample.docs[d].row += row;
        doc_count += sample.doc_count;
    }
    feed->sequences = sequences;
    feed->batch = (struct ash_batch){.rows = sequences * feed->seq_tokens,
                                     .ids = feed->ids,
                                     .targets = feed->targets,
                                     .docs = feed->docs,
                                     .doc_count = doc_count,
                                     .kept = source->has_kept ? feed->kept : NULL,
                                     .seq_rows = feed->seq_tokens};
    return 0;
}

uint64_t ash_feed_count(const struct ash_feed_slice *slice)
{
    uint64_t targets = 0;

    for (uint64_t s = 0; s < slice->count; s++)
        targets +=
            slice->source->ops->count(slice->source->ctx, slice->step, slice->first_slot + s, slice->slots_per_step);
    return targets;
}

double ash_feed_loss(const struct ash_feed *feed, size_t sequence)
{
    const float *losses = feed->losses + sequence * feed->seq_tokens;
    double sum = 0.0;

    ash_assert(sequence < feed->sequences);
    for (size_t r = 0; r < feed->seq_tokens; r++)
        sum += (double)losses[r];
    return sum;
}

/* feed - sequences of a source as batches for a pass, and the losses of their rows afterwards.
 * Row losses are added in float64 in ascending order inside a sequence, whatever shares its batch. One owner thread. */
#ifndef ASH_TRAIN_DATA_FEED_H
#define ASH_TRAIN_DATA_FEED_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "model/model.h"
#include "model/pass/pass.h"
#include "train/data/source.h"

/* Caller's storage, for up to max_sequences sequences at a time. */
struct ash_feed {
    size_t seq_tokens, max_sequences;
    int32_t *ids, *targets;         /* [max_sequences * seq_tokens] */
    struct ash_doc *docs;           /* likewise: a document may be one token long */
    struct ash_kept *kept;          /* likewise, where the source has such sets */
    float *losses;                  /* likewise, filled by a pass */
    float *entropies;               /* likewise */
    float *scales, *entropy_scales; /* likewise, filled by an objective */
    uint64_t *slots;                /* [max_sequences]: of the sequences that the last read gave */
    size_t sequences;               /* how many those are: empty slots give none */
    struct ash_batch batch;         /* of the last read */
};

/* A batch of consecutive slots of one step. */
struct ash_feed_slice {
    const struct ash_train_source *source;
    uint64_t step, slots_per_step;
    uint64_t first_slot, count;
    uint64_t more_steps; /* that will want the same slots; remote data are fetched ahead for them */
};

/* Memory for batches of at most max_sequences sequences of seq_tokens. 0 or -ENOMEM. */
int ash_feed_init(struct ash_feed *feed, size_t seq_tokens, size_t max_sequences, struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void ash_feed_fini(struct ash_feed *feed);

/* Fill feed->batch with a slice of at most max_sequences. */
int ash_feed_read(struct ash_feed *feed, const struct ash_feed_slice *slice, struct ash_err *err);
/* Rows with a target in a slice of any length. Nothing is read. */
uint64_t ash_feed_count(const struct ash_feed_slice *slice);
/* The loss of one sequence of the last batch. */
double ash_feed_loss(const struct ash_feed *feed, size_t sequence);

#endif

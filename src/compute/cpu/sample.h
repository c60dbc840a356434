/* sample - choices on the host, a row at a time. */
#ifndef ASH_COMPUTE_CPU_SAMPLE_H
#define ASH_COMPUTE_CPU_SAMPLE_H

#include "compute/ops_sample.h"

/* A token that may be drawn. */
struct ash_candidate {
    float logit;
    int32_t id;
};

/* Memory of one choice, for one vocabulary. One thread at a time. */
struct ash_sample_scratch {
    struct ash_candidate *kept;  /* [vocab]: the tokens that the filters left, where they sort */
    size_t kept_count;           /* 0: all, but for min_p; or there was no draw */
    struct ash_candidate *order; /* [vocab] */
    float *weight, *edited;      /* [vocab] */
};

/* Bytes of memory that a choice needs. */
size_t ash_sample_scratch_bytes(size_t vocab);
/* Its parts in memory of that size, at a border of 8 bytes. */
struct ash_sample_scratch ash_sample_scratch_at(void *memory, size_t vocab);
/* One row's choice, as ash_sample_ops.choose: heaps instead of sorting. */
int32_t ash_sample_choose(struct ash_sample_scratch *scratch, const struct ash_sample_row *row, const float *logits,
                          size_t vocab);

#endif

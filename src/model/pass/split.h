/* split - which rows, heads, experts and parts of the vocabulary each rank of a pass has. Pure arithmetic: every rank
 * computes the parts of all others the same way. Ranges are in rank order and cover everything once. */
#ifndef ASH_MODEL_PASS_SPLIT_H
#define ASH_MODEL_PASS_SPLIT_H

#include "model/model_priv.h"
#include "model/pass/axes.h"

/* Rows of a batch that a rank of cp computes: whole groups of k if there are enough. */
struct ash_range ash_split_rows_cp(const struct ash_axes *axes, size_t batch_rows, size_t cp_rank);
/* Of the rows that the ranks of a tp group compute, sequences of seq_rows, those of the stream that one of them keeps
 * between layers. With axes->row_blocks cuts lie between blocks of rows (compute/blocks.h), and few rows leave some
 * ranks without any. */
struct ash_range ash_split_rows_tp(const struct ash_axes *axes, size_t rows, size_t seq_rows, size_t tp_rank);
/* Key-value heads (of those on this tp rank) that a rank of cp runs attention for. */
struct ash_range ash_split_heads_cp(const struct ash_model *model, const struct ash_axes *axes, size_t cp_rank);
/* Key-value heads of the whole model that a rank of tp has. */
struct ash_range ash_split_heads_tp(const struct ash_model *model, const struct ash_axes *axes, size_t tp_rank);
/* Rows of the output matrix that a rank of tp has. */
struct ash_range ash_split_vocab_tp(const struct ash_model *model, const struct ash_axes *axes, size_t tp_rank);

/* Rows of a sequence, among a rank's rows of a batch. */
size_t ash_split_seq_rows(const struct ash_batch *batch, size_t rows);
/* Rows that this rank computes of a batch of max_rows, at most; and those of the stream that it keeps. */
size_t ash_split_max_rows(const struct ash_pass_opts *opts, const struct ash_axes *axes);
/* Rows of the stream that it keeps, at most. */
size_t ash_split_max_own_rows(const struct ash_pass_opts *opts, const struct ash_axes *axes);

/* Does this pipeline stage look tokens up; does it end with the output matrix? */
bool ash_split_has_embed(const struct ash_model *model);
/* Does this pipeline stage end with the output matrix? */
bool ash_split_has_head(const struct ash_model *model);

/* How many ranks of a tp group share the experts of one rank of ep: tp.size, or 1 where each has all of them. */
size_t ash_split_expert_parts(const struct ash_model *model, const struct ash_axes *axes);
/* Experts that rank (ep, tp) has. */
struct ash_range ash_split_experts(const struct ash_model *model, const struct ash_axes *axes, size_t ep_rank,
                                   size_t tp_rank);
/* Do the rows of (token, expert) pairs lie in memory that ranks of tp share, each writing those of its experts? */
bool ash_split_shares_pairs(const struct ash_model *model, const struct ash_axes *axes);

#endif

/* ranks - one model over several processes: tensor and expert parallelism of inference (model/pass/gather.h),
 * and stages of layers. The first rank has the core: it schedules, and before each call on its pass it sends the others
 * one small message that says what to compute: tokens, positions, pages. The others follow: they own no queue, no
 * prefix tree and no text, and sleep while there is no message. A rank that is lost ends the group on all of them, with
 * a sentence that names it. One owner thread, but for ash_ranks_watch and ash_ranks_forget_adapter. */
#ifndef ASH_SERVE_ENGINE_RANKS_H
#define ASH_SERVE_ENGINE_RANKS_H

#include <stddef.h>
#include "ashlar/err.h"
#include "collective/member/launch_env.h"
#include "compute/backends/backends.h"
#include "model/axis.h"
#include "model/model.h"
#include "model/pass/pass.h"
#include "serve/engine/room.h"

/* Where NULL is accepted it is the ranks of a model that is whole in this process. */
struct ash_ranks;

/* Meet the other ranks of env's job, which are parts->tp * parts->stages, on one node or several. The sections `group`
 * and `fabric` of the environment count. per_gpu ranks of a host may share a GPU. Returns 0, -EINVAL (a wrong setting)
 * or an error of the rendezvous. The caller owns *ranks_out. */
int ash_ranks_open(const struct ash_launch_env *env, const struct ash_slice_parts *parts, size_t per_gpu,
                   struct ash_ranks **ranks_out, struct ash_err *err);
/* All ranks, before anything is computed: give each that chose a GPU its own (parallel/gpus.h), or that of as many
 * neighbours of its host as ash_ranks_open got. Returns as ash_gpus_share. */
int ash_ranks_choose_gpu(struct ash_ranks *ranks, struct ash_backend_choice *choice, struct ash_err *err);
/* All ranks, then: they compute with exec (borrowed until ash_ranks_close), each in memory of its own where the host
 * cannot touch that. */
void ash_ranks_compute_with(struct ash_ranks *ranks, const struct ash_exec *exec);
/* All ranks: rooms [ranks], of which each brings the first as its own; afterwards they are in order. */
int ash_ranks_gather_rooms(struct ash_ranks *ranks, struct ash_gpu_room *rooms, struct ash_err *err);
/* The first rank tells the others to end. After all that borrowed an axis of it was closed. NULL is a no-op. */
void ash_ranks_close(struct ash_ranks *ranks);

/* This process's number, from 0; of NULL: 0. */
size_t ash_ranks_rank(const struct ash_ranks *ranks);
/* How many there are; of NULL: 1. */
size_t ash_ranks_size(const struct ash_ranks *ranks);
/* How they share the model. */
const struct ash_slice_parts *ash_ranks_parts(const struct ash_ranks *ranks);
/* For ash_pass_opts.outs: the ranks of this one's stage. Of NULL: all zero. */
struct ash_axis ash_ranks_axis(struct ash_ranks *ranks);
/* Process `rank` on its host. */
int ash_ranks_pid(const struct ash_ranks *ranks, size_t rank);

/* Is a rank gone, or stopped (by SIGSTOP) in this call and the one before? Call it every tenth of a second or so, from
 * one thread. Returns 0, or the error that ends the group, with its rank in words. */
int ash_ranks_watch(struct ash_ranks *ranks, struct ash_err *err);
/* End the group on all ranks because of an error on this one. */
void ash_ranks_fail(struct ash_ranks *ranks, const struct ash_err *why);

/* ---- the first rank ----------------------------------------------------------------------------------------------
 * Each is followed by the same call here. Of NULL they are no-ops. They return 0 or the group's error. */

/* The others measure what they take of their GPUs with a pass of max_rows; ash_ranks_gather_rooms follows. */
int ash_ranks_send_measure(struct ash_ranks *ranks, size_t max_rows, struct ash_err *err);
/* Open a pass of max_rows and a cache of page_count pages. */
int ash_ranks_send_open(struct ash_ranks *ranks, size_t max_rows, size_t page_count, struct ash_err *err);
/* ash_model_pack; the second time a no-op. */
int ash_ranks_send_pack(struct ash_ranks *ranks, struct ash_err *err);
/* ash_cache_copy_page. */
int ash_ranks_send_copy(struct ash_ranks *ranks, int32_t from, int32_t to, struct ash_err *err);
/* Whole pages of cache (ash_cache_page_bytes) can be read and written from now on, until the pass is closed: each rank
 * copies its part. */
int ash_ranks_share_pages(struct ash_ranks *ranks, const struct ash_cache *cache, struct ash_err *err);
/* A whole page from all ranks, to data. Of NULL: ash_cache_read_page. */
int ash_ranks_read_page(struct ash_ranks *ranks, const struct ash_cache *cache, int32_t page, void *data);
/* The same the other way. Of NULL: ash_cache_write_page. */
int ash_ranks_write_page(struct ash_ranks *ranks, struct ash_cache *cache, int32_t page, const void *data);
/* The others attach the adapters in dir to their parts of the model (ash_lora_attach), as `adapters` are here.
 * Documents may name these from now on. Returns 0 or the error of a rank; then no rank has them. */
int ash_ranks_send_adapter(struct ash_ranks *ranks, const struct ash_model *adapters, const char *dir,
                           struct ash_err *err);
/* No document will name them any more: they may be freed. Any thread. */
void ash_ranks_forget_adapter(struct ash_ranks *ranks, const struct ash_model *adapters);
/* The others make their part of the logits of some rows; ash_pass_choose follows here. The ranks are one stage. */
int ash_ranks_send_choose(struct ash_ranks *ranks, const size_t *rows, size_t count, struct ash_err *err);
/* The others open the weights in path, of the same shape. Returns 0, or the error of a rank: then they keep those that
 * they have. If 0, ash_pass_open and ash_cache_open of the new ones follow here. */
int ash_ranks_send_swap(struct ash_ranks *ranks, const char *path, struct ash_err *err);
/* The pass is closed: those of all ranks are. A group that has failed needs no message. */
void ash_ranks_send_close(struct ash_ranks *ranks);

/* ---- passes -------------------------------------------------------------------------------------------------------
 * The first rank's, whose messages are in the calls. Of NULL they are those of one process. */

/* After pass and cache were opened: memory for what goes from stage to stage. Returns 0 or the group's error. */
int ash_ranks_open_stages(struct ash_ranks *ranks, const struct ash_model *model, size_t max_rows, struct ash_err *err);
/* ash_pass_infer_layers, on all ranks. */
int ash_ranks_infer_layers(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_batch *batch,
                           struct ash_cache *cache, struct ash_err *err);
/* ash_pass_infer_logits, on all ranks. */
int ash_ranks_infer_logits(struct ash_ranks *ranks, struct ash_pass *pass, const size_t *rows, size_t count,
                           float *logits_out, struct ash_err *err);
/* ash_pass_infer_states, on the ranks of the last stage. */
int ash_ranks_infer_states(struct ash_ranks *ranks, struct ash_pass *pass, const size_t *rows, size_t count,
                           float *states_out, struct ash_err *err);

/* ---- the others -------------------------------------------------------------------------------------------------- */

/* Do what the first rank says with *model (this rank's slice) until it ends; then *model may be another one, in whose
 * place the one before was closed. Returns 0, this rank's own error, which
 * then ends the group, or -ECONNRESET and such: the group's. *is_own_out says which. */
int ash_ranks_follow(struct ash_ranks *ranks, struct ash_model **model, struct ash_exec *exec, bool *is_own_out,
                     struct ash_err *err);

#endif

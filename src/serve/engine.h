/* engine - a model folder ready to run: what the public API (ashlar/ashlar.h) gives out, with its parts for the floor
 * above. */
#ifndef ASH_SERVE_ENGINE_H
#define ASH_SERVE_ENGINE_H

#include "ashlar/ashlar.h"
#include "model/model.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "serve/defaults.h"
#include "serve/engine/ranks.h"

/* ash_engine_open for one of several ranks that gather (model/slice.h); NULL: for one process. The engine closes
 * ranks, also if it cannot be opened: then the others end. Only the first rank has a tokenizer, a chat template
 * and defaults. -ENOTSUP, -EINVAL: the model cannot be cut like this. */
int ash_engine_open_rank(const char *dir, const struct ash_engine_opts *opts, struct ash_ranks *ranks,
                         struct ash_engine **engine_out, struct ash_err *err);
/* Can the model in dir be shared like this? Reads its sizes alone. */
int ash_engine_check_ranks(const char *dir, const struct ash_slice_parts *parts, struct ash_err *err);

/* The model; borrowed until the engine is closed, as all of these. */
struct ash_model *ash_engine_model(struct ash_engine *engine);
/* Have it hold another model of the same shape. Returns the one before, which is the caller's now. */
struct ash_model *ash_engine_replace_model(struct ash_engine *engine, struct ash_model *model);
/* The path that it was opened with. */
const char *ash_engine_dir(const struct ash_engine *engine);
/* The context that it computes in. */
struct ash_exec *ash_engine_exec(struct ash_engine *engine);
/* Why a GPU that is here does not compute, as a sentence; empty: there is none, or it does. */
const char *ash_engine_gpu_why(const struct ash_engine *engine);
/* Its tokenizer. */
const struct ash_tokenizer *ash_engine_tokenizer(const struct ash_engine *engine);
/* Its chat template, or NULL: then *why_out (may be NULL) is a sentence that says why. */
const struct ash_chat_template *ash_engine_chat(const struct ash_engine *engine, const char **why_out);
/* Replace it by the template in a file, which gets the same special tokens. On error it stays. */
int ash_engine_use_chat(struct ash_engine *engine, const char *file, struct ash_err *err);
/* The ranks that share the model, for ash_core_opts.ranks; NULL: it is whole. */
struct ash_ranks *ash_engine_ranks(const struct ash_engine *engine);
/* How its makers want it to be sampled. */
const struct ash_defaults *ash_engine_defaults(const struct ash_engine *engine);

#endif

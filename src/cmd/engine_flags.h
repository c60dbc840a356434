/* engine_flags - how a command computes: the flags that every command which runs a model has. */
#ifndef ASH_CMD_ENGINE_FLAGS_H
#define ASH_CMD_ENGINE_FLAGS_H

#include "base/opts.h"
#include "collective/member/launch_env.h"
#include "serve/engine.h"

/* What --model takes, in every command that runs a model. */
#define ASH_CMD_MODEL_HELP                                                                                             \
    "the model: a Hugging Face folder, or a GGUF file (or the folder of a model.gguf); a path or s3://bucket/prefix"

struct ash_engine_flags {
    const char *backend;
    int64_t threads;
    int precision;
    const char *profile;
    const char *lora;   /* of a command that has --lora; else NULL */
    int64_t tp, pp, ep; /* of a command whose model may be shared by ranks (rank_flags.h); else 0 */
    int64_t ranks_per_gpu;
    struct ash_launch_env env; /* which rank this is; size 0 or 1: none */
};

/* Bind it next to the command's own table: `{&ash_engine_table, &flags}`. */
extern const struct ash_opt_table ash_engine_table;

/* Open the model in dir (a path, or s3://bucket/prefix, which is fetched first) with the flags' options; with several
 * ranks this one's part, once all of them have met. */
int ash_cmd_engine_open(const struct ash_engine_flags *flags, const char *dir, struct ash_engine **engine_out,
                        struct ash_err *err);
/* Values of --kv-dtype, its help, and its application to a newly opened engine. */
extern const char *const ash_cmd_kv_dtypes[];
#define ASH_CMD_LORA_HELP "a PEFT folder: adapters over --model, whatever base the folder names"
#define ASH_CMD_KV_DTYPE_HELP                                                                                          \
    "what keys and values are kept as; auto: bf16 with --precision bf16 and quantised models, else fp32"
/* The choice, an index of ash_cmd_kv_dtypes. */
void ash_cmd_use_kv_dtype(struct ash_engine *engine, int choice);
/* How ranks share the model by these flags. */
struct ash_slice_parts ash_cmd_engine_parts(const struct ash_engine_flags *flags);
/* Close it (NULL is a no-op), and write the profile if flags name one. Returns 0, or an exit code after printing the
 * error. */
int ash_cmd_engine_close(const struct ash_engine_flags *flags, struct ash_engine *engine);

#endif

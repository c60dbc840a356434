/* --threads, --backend and --precision, for every command that runs a model. */
#include "cmd/engine_flags.h"

#include "base/assert.h"

#define FIELD(name) offsetof(struct ash_engine_flags, name)

static const char *const precisions[] = {"fp32", "bf16", NULL};
enum { PRECISION_FP32, PRECISION_BF16 };

static const struct ash_opt opts[] = {
    {.name = "threads",
     .type = ASH_OPT_INT,
     .offset = FIELD(threads),
     .default_text = "0",
     .help = "threads; 0: one per core. Changes the speed, never the result",
     .max = 256},
    {.name = "backend",
     .type = ASH_OPT_STRING,
     .offset = FIELD(backend),
     .help = "which kernels to use; default: the best that `ashlar version` lists"},
    {.name = "cpu",
     .type = ASH_OPT_STRING,
     .offset = FIELD(backend),
     .help = "another name of --backend: ASHLAR_CPU=NAME in the environment holds for every command"},
    {.name = "precision",
     .type = ASH_OPT_CHOICE,
     .offset = FIELD(precision),
     .default_text = "fp32",
     .help = "bf16: round what is multiplied to bfloat16, as in bf16 training",
     .choices = precisions},
};

const struct ash_opt_table ash_engine_table = {
    .section = "", .help = "computing", .opts = opts, .count = ASH_COUNT(opts)};

int ash_cmd_engine_open(const struct ash_engine_flags *flags, const char *dir, struct ash_engine **engine_out,
                        struct ash_err *err)
{
    struct ash_engine_opts engine_opts;

    ash_engine_opts_init(&engine_opts);
    engine_opts.backend = flags->backend;
    engine_opts.threads = (int)flags->threads;
    engine_opts.bf16 = flags->precision == PRECISION_BF16;
    return ash_engine_open(dir, &engine_opts, engine_out, err);
}

/* --threads, --backend, --precision and --profile, for every command that runs a model. */
#include "cmd/engine_flags.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/math.h"
#include "cmd/cmd.h"
#include "cmd/remote.h"
#include "compute/backends/backends.h"
#include "compute/profile/profile.h"
#include "model/place.h"

#define FIELD(name) offsetof(struct ash_engine_flags, name)

static const char *const precisions[] = {"auto", "fp32", "bf16", NULL};
enum { PRECISION_AUTO, PRECISION_FP32, PRECISION_BF16 };

static const struct ash_opt opts[] = {
    {"threads", ASH_OPT_INT, FIELD(threads), "0", "threads; 0: one per core. Changes the speed, never the result", 0,
     256, NULL},
    {"backend", ASH_OPT_STRING, FIELD(backend), NULL,
     "which kernels to use (cpu: the processor's best), or which GPU (cuda, cuda:1); default: the GPU if there is "
     "one that `ashlar version` can use",
     0, 0, NULL},
    {"cpu", ASH_OPT_STRING, FIELD(backend), NULL,
     "another name of --backend: ASHLAR_CPU=NAME in the environment holds for every command", 0, 0, NULL},
    {"precision", ASH_OPT_CHOICE, FIELD(precision), "auto",
     "bf16: round operands to bfloat16, as in bf16 training; auto: on a GPU if the weights are bfloat16, else fp32", 0,
     0, precisions},
    {"profile", ASH_OPT_STRING, FIELD(profile), NULL,
     "write every op with its time to this file, a Chrome trace, and print a table; slows it down", 0, 0, NULL},
};

const struct ash_opt_table ash_engine_table = {
    .section = "", .help = "computing", .opts = opts, .count = ASH_COUNT(opts)};

const char *const ash_cmd_kv_dtypes[] = {"auto", "fp32", "bf16", NULL};
enum { KV_DTYPE_AUTO, KV_DTYPE_FP32 };

void ash_cmd_use_kv_dtype(struct ash_engine *engine, int choice)
{
    if (choice == KV_DTYPE_AUTO) return;
    ash_model_use_kv_dtype(ash_engine_model(engine), choice == KV_DTYPE_FP32 ? ASH_F32 : ASH_BF16);
}

/* On a GPU: which one, how it computes, and what of its memory is whose. The cache takes its part of the rest. */
static void say_device(struct ash_engine *engine)
{
    const struct ash_exec *exec = ash_engine_exec(engine);
    double weights = (double)ash_model_unplaced_bytes(ash_engine_model(engine), exec);
    char device[160];

    if (*ash_engine_gpu_why(engine) != '\0' && ash_ranks_rank(ash_engine_ranks(engine)) == 0)
        ash_log(ASH_LOG_WARN, "%s", ash_engine_gpu_why(engine));
    if (exec->cuda == NULL) return;
    ash_log(ASH_LOG_INFO, "%s, %s; GPU memory: weights %.2f GB, of %.2f GB that are free",
            ash_backend_describe(exec, device, sizeof(device)),
            ash_model_rounds_bf16(ash_engine_model(engine)) ? "bf16" : "fp32", weights * 1e-9,
            (double)ash_backend_free_bytes(exec) * 1e-9);
}

struct ash_slice_parts ash_cmd_engine_parts(const struct ash_engine_flags *flags)
{
    return (struct ash_slice_parts){.tp = (size_t)ash_max(flags->tp, flags->ep),
                                    .stages = (size_t)ash_max(flags->pp, 1),
                                    .whole_experts = flags->ep > 1};
}

int ash_cmd_engine_open(const struct ash_engine_flags *flags, const char *dir, struct ash_engine **engine_out,
                        struct ash_err *err)
{
    struct ash_engine_opts engine_opts;
    struct ash_profile *profile = NULL;
    struct ash_slice_parts parts = ash_cmd_engine_parts(flags);
    struct ash_ranks *ranks = NULL;
    struct ash_str path = {0}, lora = {0};
    int rc;

    ash_engine_opts_init(&engine_opts);
    engine_opts.backend = flags->backend;
    engine_opts.threads = (int)flags->threads;
    engine_opts.bf16 = flags->precision == PRECISION_BF16;
    engine_opts.auto_bf16 = flags->precision == PRECISION_AUTO;
    rc = ash_cmd_attach(dir, &path, err);
    if (rc == 0 && flags->lora != NULL) rc = ash_cmd_attach(flags->lora, &lora, err);
    engine_opts.lora = lora.data;
    if (rc == 0 && flags->env.size > 1)
        rc = ash_ranks_open(&flags->env, &parts, (size_t)flags->ranks_per_gpu, &ranks, err);
    if (rc == 0) rc = ash_engine_open_rank(path.data, &engine_opts, ranks, engine_out, err);
    ash_str_fini(&path);
    ash_str_fini(&lora);
    if (rc == 0) say_device(*engine_out);
    if (rc < 0 || flags->profile == NULL) return rc;
    rc = ash_profile_start(ash_engine_exec(*engine_out), &profile, err);
    if (rc < 0) {
        ash_engine_close(*engine_out);
        *engine_out = NULL;
    }
    return rc;
}

int ash_cmd_engine_close(const struct ash_engine_flags *flags, struct ash_engine *engine)
{
    struct ash_err err = {0};
    int rc = engine == NULL || flags->profile == NULL
                 ? 0
                 : ash_profile_finish(ash_engine_exec(engine)->profile, flags->profile, stderr, &err);

    ash_engine_close(engine);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

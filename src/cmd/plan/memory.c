/* ashlar plan memory: what `ashlar train` will take on this machine, before there is a job. */
#include "cmd/plan/plan_priv.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "cmd/units.h"
#include "plan/own_memory.h"

struct flags {
    const char *model;
    int64_t seq, micro_batch, grains, threads;
    int precision, recompute;
    bool json;
};

static const char *const precisions[] = {"fp32", "bf16", NULL};
static const char *const recomputes[] = {"none", "selective", "full", NULL};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt memory_opts[] = {
    ASH_PLAN_OPT_MODEL(FIELD(model)),
    {"seq", ASH_OPT_INT, FIELD(seq), "1024", "tokens per sequence (data.seq)", 1, 1e8, NULL},
    {"micro-batch", ASH_OPT_INT, FIELD(micro_batch), "1", "sequences at once (train.micro_batch)", 1, 1e6, NULL},
    {"grains", ASH_OPT_INT, FIELD(grains), "1", "grains of a global batch (train.grains)", 1, 1048576, NULL},
    {"threads", ASH_OPT_INT, FIELD(threads), "1", "threads (runtime.threads)", 1, 4096, NULL},
    {"precision", ASH_OPT_CHOICE, FIELD(precision), "fp32", "precision of matrix products (train.precision)", 0, 0,
     precisions},
    {"recompute", ASH_OPT_CHOICE, FIELD(recompute), "none", "activations to recompute (train.recompute)", 0, 0,
     recomputes},
    ASH_PLAN_OPT_JSON(FIELD(json)),
};

static const struct ash_opt_table memory_table = {
    .section = "", .help = "flags", .opts = memory_opts, .count = ASH_COUNT(memory_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan memory --model DIR|NAME [flags]",
    .about = "Says what one process of `ashlar train` takes at its peak: the formula of docs/memory.md from sizes\n"
             "alone. Memory on GPUs is part of what plan train prints.",
    .examples = "  ashlar plan memory --model gpt2-124m --micro-batch 4 --precision bf16",
};

static void print_line(const char *name, double bytes)
{
    char text[ASH_UNITS_BYTES];

    printf("  %-14s %12s\n", name, ash_units_bytes((size_t)bytes, text, sizeof(text)));
}

static json_t *encode(const char *name, const struct ash_own_memory *memory)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "model", name, "state", memory->state, "gradients",
                     memory->gradients, "activations", memory->activations, "program", memory->program, "total",
                     memory->total);
}

static void print_table(const char *name, const struct ash_own_memory *memory)
{
    printf("%s, one process\n", name);
    print_line("state", memory->state);
    print_line("gradients", memory->gradients);
    print_line("activations", memory->activations);
    print_line("program", memory->program);
    print_line("total", memory->total);
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = ctx;
    struct ash_own_run run = {.seq_tokens = (double)flags->seq,
                              .micro_batch = (double)flags->micro_batch,
                              .grains = (double)flags->grains,
                              .threads = (double)flags->threads,
                              .bf16 = flags->precision == 1,
                              .recompute = (enum ash_own_recompute)flags->recompute};
    struct ash_own_memory memory;
    struct ash_shape shape;
    struct ash_err err = {0};

    (void)opts, (void)word;
    if (flags->model == NULL) return ash_cmd_misuse("plan memory", "--model is needed");
    if (ash_shape_find(flags->model, &shape, &err) < 0) return ash_cmd_fail(&err);
    if (!ash_own_memory_of(&shape, &run, &memory)) {
        ash_err_set(&err, -EINVAL,
                    "%s has latent attention or state-space layers, which the formula does not know; "
                    "ashlar train says it at its start",
                    shape.name);
        return ash_cmd_fail(&err);
    }
    if (flags->json) return ash_cmd_print_json(encode(shape.name, &memory), &err) < 0 ? ash_cmd_fail(&err) : 0;
    print_table(shape.name, &memory);
    return 0;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&memory_table, &flags}}, .respond = respond, .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_plan_memory = {"memory", "what one process of ashlar train takes", run};

/* job: the settings tables of a training run. Names, defaults, limits and help live here and nowhere else. */
#include "train/job.h"

#include <stddef.h>

#include "base/assert.h"

#define MAX_COUNT 1e15

const char *const ash_job_model_types[] = {"llama", "mistral", "qwen2", "qwen3", "gpt2", "mixtral", "qwen3_moe", NULL};

static const char *const precision_names[] = {"fp32", "bf16", NULL};
static const char *const recompute_names[] = {"none", "selective", "full", NULL};
static const char *const decay_names[] = {"matrices", "all", NULL};
static const char *const schedule_names[] = {"cosine", "wsd", "constant", NULL};
static const char *const nan_names[] = {"skip", "stop", NULL};
static const char *const level_names[] = {"debug", "info", "warn", "error", NULL};

#define MODEL(field) offsetof(struct ash_job_model, field)
static const struct ash_opt model_opts[] = {
    {.name = "from", .type = ASH_OPT_STRING, .offset = MODEL(from),
     .help = "hugging face folder to start from; without it a new model of the sizes below"},
    {.name = "type", .type = ASH_OPT_CHOICE, .offset = MODEL(type), .fallback = "llama", .choices = ash_job_model_types,
     .help = "architecture of a new model"},
    {.name = "vocab", .type = ASH_OPT_INT, .offset = MODEL(vocab), .fallback = "0", .max = 1e8,
     .help = "rows of the embedding; 0: exactly as many as the tokenizer has ids"},
    {.name = "hidden", .type = ASH_OPT_INT, .offset = MODEL(hidden), .fallback = "256", .min = 1, .max = 1e6,
     .help = "width of the residual stream"},
    {.name = "layers", .type = ASH_OPT_INT, .offset = MODEL(layers), .fallback = "4", .min = 1,
     .max = ASH_MODEL_LAYERS_MAX, .help = "number of blocks"},
    {.name = "heads", .type = ASH_OPT_INT, .offset = MODEL(heads), .fallback = "4", .min = 1, .max = 65536,
     .help = "query heads"},
    {.name = "kv_heads", .type = ASH_OPT_INT, .offset = MODEL(kv_heads), .fallback = "0", .max = 65536,
     .help = "key and value heads; 0: as many as query heads"},
    {.name = "head_dim", .type = ASH_OPT_INT, .offset = MODEL(head_dim), .fallback = "0", .max = ASH_ATTN_HEAD_MAX,
     .help = "width of a head; 0: hidden / heads"},
    {.name = "ffn", .type = ASH_OPT_INT, .offset = MODEL(ffn), .fallback = "0", .max = 1e7,
     .help = "width of the feed-forward layer; 0: 8/3 of hidden in multiples of 32 (gpt2: 4 times hidden)"},
    {.name = "experts", .type = ASH_OPT_INT, .offset = MODEL(experts), .fallback = "8", .min = 1,
     .max = ASH_ROUTE_EXPERTS_MAX, .help = "experts per layer (mixtral, qwen3_moe)"},
    {.name = "experts_per_token", .type = ASH_OPT_INT, .offset = MODEL(experts_per_token), .fallback = "2", .min = 1,
     .max = ASH_ROUTE_CHOICES_MAX, .help = "experts that each token visits (mixtral, qwen3_moe)"},
    {.name = "expert_ffn", .type = ASH_OPT_INT, .offset = MODEL(expert_ffn), .fallback = "0", .max = 1e7,
     .help = "width of one expert (mixtral, qwen3_moe); 0: the same as ffn"},
    {.name = "tied", .type = ASH_OPT_BOOL, .offset = MODEL(tied), .fallback = "false",
     .help = "use the embedding as the output matrix (gpt2 always does)"},
    {.name = "rope_theta", .type = ASH_OPT_DOUBLE, .offset = MODEL(rope_theta), .fallback = "10000", .min = 1, .max = 1e12,
     .help = "base of the rotary positions"},
    {.name = "max_positions", .type = ASH_OPT_INT, .offset = MODEL(max_positions), .fallback = "0", .max = 1e8,
     .help = "longest sequence the model is made for; 0: the larger of data.seq and 2048 (gpt2: data.seq)"},
    {.name = "norm_eps", .type = ASH_OPT_DOUBLE, .offset = MODEL(norm_eps), .fallback = "1e-5", .min = 1e-12, .max = 1,
     .help = "epsilon of the norms"},
    {.name = "init_std", .type = ASH_OPT_DOUBLE, .offset = MODEL(init_std), .fallback = "0.02", .min = 0, .max = 10,
     .help = "standard deviation of new weights"},
};

#define DATA(field) offsetof(struct ash_job_data, field)
static const struct ash_opt data_opts[] = {
    {.name = "train", .type = ASH_OPT_STRING, .offset = DATA(train),
     .help = "token shards to learn from: a folder that `ashlar data` wrote"},
    {.name = "valid", .type = ASH_OPT_STRING, .offset = DATA(valid), .help = "token shards to measure the validation loss on"},
    {.name = "tokenizer", .type = ASH_OPT_STRING, .offset = DATA(tokenizer),
     .help = "folder with tokenizer.json; default: beside the training data, then model.from"},
    {.name = "seq", .type = ASH_OPT_INT, .offset = DATA(seq_tokens), .fallback = "256", .min = 1, .max = 1e7,
     .help = "tokens in a sequence"},
};

#define TRAIN(field) offsetof(struct ash_job_train, field)
static const struct ash_opt train_opts[] = {
    {.name = "steps", .type = ASH_OPT_INT, .offset = TRAIN(steps), .fallback = "0", .max = MAX_COUNT,
     .help = "length of the run; 0: by train.tokens"},
    {.name = "tokens", .type = ASH_OPT_INT, .offset = TRAIN(tokens), .fallback = "0", .max = MAX_COUNT,
     .help = "length of the run in tokens, rounded up to whole steps; 0: by train.steps"},
    {.name = "global_batch", .type = ASH_OPT_INT, .offset = TRAIN(global_batch), .fallback = "32", .min = 1, .max = 1e7,
     .help = "sequences in a step"},
    {.name = "grains", .type = ASH_OPT_INT, .offset = TRAIN(grains), .fallback = "0", .max = 1e6,
     .help = "equal parts of a step whose gradients are added in a fixed tree: the most ranks that can share a step; 0: the "
             "largest of 8, 4, 2, 1 that divides global_batch"},
    {.name = "micro_batch", .type = ASH_OPT_INT, .offset = TRAIN(micro_batch), .fallback = "0", .max = 1e7,
     .help = "sequences computed at once, a divisor of global_batch / grains; changes memory and speed, never a bit; 0: choose"},
    {.name = "precision", .type = ASH_OPT_CHOICE, .offset = TRAIN(precision), .fallback = "fp32", .choices = precision_names,
     .help = "bf16: products of bf16 values summed in float32, float32 master weights"},
    {.name = "recompute", .type = ASH_OPT_CHOICE, .offset = TRAIN(recompute), .fallback = "none",
     .choices = recompute_names, .help = "activations computed again in the backward pass instead of kept; never changes a bit"},
    {.name = "seed", .type = ASH_OPT_INT, .offset = TRAIN(seed), .fallback = "1", .min = 0, .max = MAX_COUNT,
     .help = "of new weights and of the order of the data"},
    {.name = "valid_every", .type = ASH_OPT_INT, .offset = TRAIN(valid_every), .fallback = "100", .max = MAX_COUNT,
     .help = "steps between validations (and at the end); 0: never"},
    {.name = "valid_batches", .type = ASH_OPT_INT, .offset = TRAIN(valid_batches), .fallback = "4", .min = 1, .max = 1e6,
     .help = "batches of global_batch sequences in a validation, at most all of data.valid"},
    {.name = "save_every", .type = ASH_OPT_INT, .offset = TRAIN(save_every), .fallback = "500", .max = MAX_COUNT,
     .help = "steps between checkpoints (and at the end); 0: only at the end"},
    {.name = "keep", .type = ASH_OPT_INT, .offset = TRAIN(keep), .fallback = "2", .min = 0, .max = 1e6,
     .help = "newest checkpoints that are kept; 0: all"},
    {.name = "hash_every", .type = ASH_OPT_INT, .offset = TRAIN(hash_every), .fallback = "100", .max = MAX_COUNT,
     .help = "steps between state hashes in the log (and at saves and the end); 0: only there"},
};

#define OPTIM(field) offsetof(struct ash_job_optimizer, field)
static const struct ash_opt optimizer_opts[] = {
    {.name = "lr", .type = ASH_OPT_DOUBLE, .offset = OPTIM(lr), .fallback = "3e-4", .min = 0, .max = 1e30,
     .help = "peak learning rate of adamw"},
    {.name = "beta1", .type = ASH_OPT_DOUBLE, .offset = OPTIM(beta1), .fallback = "0.9", .min = 0, .max = 0.999999,
     .help = "decay of the first moment"},
    {.name = "beta2", .type = ASH_OPT_DOUBLE, .offset = OPTIM(beta2), .fallback = "0.95", .min = 0, .max = 0.9999999,
     .help = "decay of the second moment"},
    {.name = "eps", .type = ASH_OPT_DOUBLE, .offset = OPTIM(eps), .fallback = "1e-8", .min = 1e-30, .max = 1,
     .help = "added to the root of the second moment"},
    {.name = "weight_decay", .type = ASH_OPT_DOUBLE, .offset = OPTIM(weight_decay), .fallback = "0.1", .min = 0, .max = 1e3,
     .help = "decoupled decay, times the learning rate"},
    {.name = "decay", .type = ASH_OPT_CHOICE, .offset = OPTIM(decay), .fallback = "matrices", .choices = decay_names,
     .help = "what decays: matrices, or norms and biases too"},
    {.name = "clip", .type = ASH_OPT_DOUBLE, .offset = OPTIM(clip), .fallback = "1.0", .min = 0, .max = 1e30,
     .help = "largest gradient norm; 0: no clipping"},
};

#define SCHED(field) offsetof(struct ash_job_schedule, field)
static const struct ash_opt schedule_opts[] = {
    {.name = "kind", .type = ASH_OPT_CHOICE, .offset = SCHED(kind), .fallback = "cosine", .choices = schedule_names,
     .help = "cosine: down to the end; wsd: level, then down by one minus a square root; constant: level"},
    {.name = "warmup", .type = ASH_OPT_INT, .offset = SCHED(warmup), .fallback = "100", .max = MAX_COUNT,
     .help = "steps of linear warm-up"},
    {.name = "decay_steps", .type = ASH_OPT_INT, .offset = SCHED(decay_steps), .fallback = "0", .max = MAX_COUNT,
     .help = "steps of wsd's way down; 0: by decay_share"},
    {.name = "decay_share", .type = ASH_OPT_DOUBLE, .offset = SCHED(decay_share), .fallback = "0.2", .min = 0, .max = 1,
     .help = "share of all steps that wsd goes down"},
    {.name = "final_share", .type = ASH_OPT_DOUBLE, .offset = SCHED(final_share), .fallback = "0.1", .min = 0, .max = 1,
     .help = "learning rate at the end, as a share of the peak"},
};

#define GUARD(field) offsetof(struct ash_job_guard, field)
static const struct ash_opt guard_opts[] = {
    {.name = "nan", .type = ASH_OPT_CHOICE, .offset = GUARD(nan), .fallback = "skip", .choices = nan_names,
     .help = "a step whose loss or gradient is not finite: leave it out, or end the run"},
    {.name = "spike_norm", .type = ASH_OPT_DOUBLE, .offset = GUARD(spike_norm), .fallback = "20", .min = 0, .max = 1e30,
     .help = "leave a step out whose gradient norm is this many times the running mean (and above optimizer.clip); 0: never"},
    {.name = "spike_loss", .type = ASH_OPT_DOUBLE, .offset = GUARD(spike_loss), .fallback = "2", .min = 0, .max = 1e30,
     .help = "leave a step out whose loss is this many times the running mean (and 1 above it); 0: never"},
    {.name = "warmup", .type = ASH_OPT_INT, .offset = GUARD(warmup), .fallback = "100", .max = MAX_COUNT,
     .help = "steps before spikes are looked for"},
    {.name = "max_skips", .type = ASH_OPT_INT, .offset = GUARD(max_skips), .fallback = "20", .max = MAX_COUNT,
     .help = "steps left out in a row that end the run; 0: no limit"},
};

#define RUNTIME(field) offsetof(struct ash_job_runtime, field)
static const struct ash_opt runtime_opts[] = {
    {.name = "threads", .type = ASH_OPT_INT, .offset = RUNTIME(threads), .fallback = "0", .max = ASH_WORKERS_MAX,
     .help = "threads of this process; 0: one per core; never changes a bit"},
    {.name = "backend", .type = ASH_OPT_STRING, .offset = RUNTIME(backend),
     .help = "kernels to use (ref, cpu, ...); default: the best this machine can run"},
    {.name = "log_level", .type = ASH_OPT_CHOICE, .offset = RUNTIME(log_level), .fallback = "info", .choices = level_names,
     .help = "lines below this level are dropped"},
};

static const struct ash_opt_table tables[ASH_JOB_SECTIONS] = {
    {"model", "what is trained", model_opts, ASH_COUNT(model_opts)},
    {"data", "what it learns from", data_opts, ASH_COUNT(data_opts)},
    {"train", "how long, in which pieces", train_opts, ASH_COUNT(train_opts)},
    {"optimizer", "adamw", optimizer_opts, ASH_COUNT(optimizer_opts)},
    {"schedule", "the learning rate over time", schedule_opts, ASH_COUNT(schedule_opts)},
    {"guard", "steps that must not touch the weights", guard_opts, ASH_COUNT(guard_opts)},
    {"runtime", "this process; nothing here changes a bit", runtime_opts, ASH_COUNT(runtime_opts)},
};

void ash_job_bind(struct ash_job *job, struct ash_opt_binding bindings[ASH_JOB_SECTIONS])
{
    void *const objects[ASH_JOB_SECTIONS] = {&job->model,    &job->data,  &job->train,  &job->optimizer,
                                             &job->schedule, &job->guard, &job->runtime};

    for (size_t i = 0; i < ASH_JOB_SECTIONS; i++)
        bindings[i] = (struct ash_opt_binding){&tables[i], objects[i]};
}

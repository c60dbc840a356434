/* job: the settings tables of a training run. Names, defaults, limits and help live here and nowhere else. */
#include "train/job/job.h"

#include <assert.h>
#include <stddef.h>

#include "base/assert.h"

#define MAX_COUNT 1e15

const char *const ash_job_model_types[] = {"llama", "mistral", "qwen2", "qwen3", "gpt2", "mixtral", "qwen3_moe", NULL};

static const char *const precision_names[] = {"fp32", "bf16", "fp8", NULL};
static const char *const shuffle_names[] = {"full", "block", NULL};
static const char *const recompute_names[] = {"none", "selective", "full", NULL};
static const char *const quant_names[] = {"none", "q8", "q4", "q8w", NULL};
static const char *const optimizer_names[] = {"adamw", "lion", NULL};
static const char *const decay_names[] = {"matrices", "all", NULL};
static const char *const schedule_names[] = {"cosine", "wsd", "constant", NULL};
static const char *const nan_names[] = {"skip", "stop", NULL};
static const char *const level_names[] = {"debug", "info", "warn", "error", NULL};

#define MODEL(field) offsetof(struct ash_job_model, field)
static const struct ash_opt model_opts[] = {
    {"from", ASH_OPT_STRING, MODEL(from), NULL,
     "hugging face folder to start from; without it a new model of the sizes below", 0, 0, NULL},
    {"quant", ASH_OPT_CHOICE, MODEL(quant), "none",
     "with adapters: hold the matrices of the frozen model's layers quantised, in memory", 0, 0, quant_names},
    {"type", ASH_OPT_CHOICE, MODEL(type), "llama", "architecture of a new model", 0, 0, ash_job_model_types},
    {"vocab", ASH_OPT_INT, MODEL(vocab), "0", "rows of the embedding; 0: exactly as many as the tokenizer has ids", 0,
     1e8, NULL},
    {"hidden", ASH_OPT_INT, MODEL(hidden), "256", "width of the residual stream", 1, 1e6, NULL},
    {"layers", ASH_OPT_INT, MODEL(layers), "4", "number of blocks", 1, ASH_MODEL_LAYERS_MAX, NULL},
    {"heads", ASH_OPT_INT, MODEL(heads), "4", "query heads", 1, 65536, NULL},
    {"kv_heads", ASH_OPT_INT, MODEL(kv_heads), "0", "key and value heads; 0: as many as query heads", 0, 65536, NULL},
    {"head_dim", ASH_OPT_INT, MODEL(head_dim), "0", "width of a head; 0: hidden / heads", 0, ASH_ATTN_HEAD_MAX, NULL},
    {"ffn", ASH_OPT_INT, MODEL(ffn), "0",
     "width of the feed-forward layer; 0: 8/3 of hidden in multiples of 32 (gpt2: 4 times hidden)", 0, 1e7, NULL},
    {"experts", ASH_OPT_INT, MODEL(experts), "8", "experts per layer (mixtral, qwen3_moe)", 1, ASH_ROUTE_EXPERTS_MAX,
     NULL},
    {"experts_per_token", ASH_OPT_INT, MODEL(experts_per_token), "2",
     "experts that each token visits (mixtral, qwen3_moe)", 1, ASH_ROUTE_CHOICES_MAX, NULL},
    {"expert_ffn", ASH_OPT_INT, MODEL(expert_ffn), "0", "width of one expert (mixtral, qwen3_moe); 0: the same as ffn",
     0, 1e7, NULL},
    {"tied", ASH_OPT_BOOL, MODEL(tied), "false", "use the embedding as the output matrix (gpt2 always does)", 0, 0,
     NULL},
    {"rope_theta", ASH_OPT_DOUBLE, MODEL(rope_theta), "10000", "base of the rotary positions", 1, 1e12, NULL},
    {"max_positions", ASH_OPT_INT, MODEL(max_positions), "0",
     "longest sequence the model is made for; 0: the larger of data.seq and 2048 (gpt2: data.seq)", 0, 1e8, NULL},
    {"norm_eps", ASH_OPT_DOUBLE, MODEL(norm_eps), "1e-5", "epsilon of the norms", 1e-12, 1, NULL},
    {"init_std", ASH_OPT_DOUBLE, MODEL(init_std), "0.02", "standard deviation of new weights", 0, 10, NULL},
};

#define DATA(field) offsetof(struct ash_job_data, field)
static const struct ash_opt data_opts[] = {
    {"train", ASH_OPT_STRING, DATA(train), NULL,
     "token shards to learn from: a folder that `ashlar data` wrote, or s3://bucket/prefix", 0, 0, NULL},
    {"valid", ASH_OPT_STRING, DATA(valid), NULL, "token shards to measure the validation loss on, likewise", 0, 0,
     NULL},
    {"tokenizer", ASH_OPT_STRING, DATA(tokenizer), NULL,
     "folder with tokenizer.json; default: that of model.from, or the one next to the data", 0, 0, NULL},
    {"seq", ASH_OPT_INT, DATA(seq_tokens), "256", "tokens in a sequence", 1, 1e7, NULL},
    {"shuffle", ASH_OPT_CHOICE, DATA(shuffle), "full",
     "order of the data in an epoch: any window after any other, or block by block, which reads remote data in few "
     "large "
     "pieces",
     0, 0, shuffle_names},
    {"block_tokens", ASH_OPT_INT, DATA(block_tokens), "524288", "data.shuffle=block: tokens that stay together", 1,
     1e12, NULL},
    {"mixed_blocks", ASH_OPT_INT, DATA(mixed_blocks), "64",
     "data.shuffle=block: blocks whose sequences are mixed; that many are held in memory", 1, 1e6, NULL},
};

#define TRAIN(field) offsetof(struct ash_job_train, field)
static const struct ash_opt train_opts[] = {
    {"method", ASH_OPT_CHOICE, TRAIN(method), "pretrain",
     "the objective: text, examples, pairs, rewards of pairs, or rewarded answers; `ashlar sft` and the like set it", 0,
     0, ash_job_method_names},
    {"steps", ASH_OPT_INT, TRAIN(steps), "0", "length of the run; 0: by train.tokens", 0, MAX_COUNT, NULL},
    {"tokens", ASH_OPT_INT, TRAIN(tokens), "0",
     "length of the run in tokens, rounded up to whole steps; 0: by train.steps", 0, MAX_COUNT, NULL},
    {"global_batch", ASH_OPT_INT, TRAIN(global_batch), "32", "sequences in a step", 1, 1e7, NULL},
    {"grains", ASH_OPT_INT, TRAIN(grains), "0",
     "equal parts of a step whose gradients are added in a fixed tree: the most ranks that can share a step; 0: the "
     "largest of 8, 4, 2, 1 that divides global_batch",
     0, 1e6, NULL},
    {"micro_batch", ASH_OPT_INT, TRAIN(micro_batch), "0",
     "sequences computed at once, a divisor of global_batch / grains; changes memory and speed, never a bit; 0: choose",
     0, 1e7, NULL},
    {"precision", ASH_OPT_CHOICE, TRAIN(precision), "fp32",
     "bf16: products of bf16 values summed in float32, float32 master weights; fp8: the same, and "
     "e4m3 in the layers' linear products, with a scale for each 128 values",
     0, 0, precision_names},
    {"recompute", ASH_OPT_CHOICE, TRAIN(recompute), "none",
     "activations computed again in the backward pass instead of kept; never changes a bit", 0, 0, recompute_names},
    {"seed", ASH_OPT_INT, TRAIN(seed), "1", "of new weights and of the order of the data", 0, MAX_COUNT, NULL},
    {"valid_every", ASH_OPT_INT, TRAIN(valid_every), "100", "steps between validations (and at the end); 0: never", 0,
     MAX_COUNT, NULL},
    {"valid_batches", ASH_OPT_INT, TRAIN(valid_batches), "4",
     "batches of global_batch sequences in a validation, at most all of data.valid", 1, 1e6, NULL},
    {"save_every", ASH_OPT_INT, TRAIN(save_every), "500",
     "steps between checkpoints (and at the end); 0: only at the end", 0, MAX_COUNT, NULL},
    {"keep", ASH_OPT_INT, TRAIN(keep), "2", "newest checkpoints that are kept; 0: all", 0, 1e6, NULL},
    {"save_wait", ASH_OPT_INT, TRAIN(save_wait), "600",
     "seconds that the last checkpoint waits for room on a full disk; 0: it fails at once", 0, 1e6, NULL},
    {"hash_every", ASH_OPT_INT, TRAIN(hash_every), "100",
     "steps between state hashes in the log (and at saves and the end); 0: only there", 0, MAX_COUNT, NULL},
    {"trace", ASH_OPT_STRING, TRAIN(trace), NULL,
     "steps to trace, FIRST-LAST: every rank's ops, calls and parts, in trace/ of the run's folder (`ashlar trace`)", 0,
     0, NULL},
};

#define SAVE(field) offsetof(struct ash_job_save, field)
static const struct ash_opt save_opts[] = {
    {"to", ASH_OPT_LIST, SAVE(to), NULL,
     "places of checkpoints: folders and s3://bucket/prefix. All ranks write to the first folder that works; the "
     "others "
     "get copies. Default: checkpoints/ in the run's folder",
     0, 0, NULL},
    {"keep", ASH_OPT_LIST, SAVE(keep), NULL,
     "newest checkpoints that are kept in each place of save.to, in its order; 0: all. Default: train.keep", 0, 0,
     NULL},
    {"memory", ASH_OPT_INT, SAVE(memory_bytes), "512mi",
     "bytes that each process may take for copies of the state while they are written; with less, steps may wait", 16e6,
     1e15, NULL},
};

static const struct ash_opt log_opts[] = {
    {"tensorboard", ASH_OPT_STRING, offsetof(struct ash_job_log, tensorboard), NULL,
     "a folder for TensorBoard's events: loss, learning rate, gradient norm, tokens per second and times of each step, "
     "validations; of RL also rewards, in its folder rl",
     0, 0, NULL},
    {"price", ASH_OPT_DOUBLE, offsetof(struct ash_job_log, price), NULL,
     "dollars an hour of one process (a GPU, or its share of a node): the last lines of a run name its cost. ashlar "
     "submit sets it from job.price",
     0, 1e6, NULL},
};

#define MESH(field) offsetof(struct ash_job_mesh, field)
static const struct ash_opt mesh_opts[] = {
    {"dp", ASH_OPT_INT, MESH(dp), "0", "replicas of the model; 0: as many as the other sizes leave ranks for", 0, 1e6,
     NULL},
    {"fsdp", ASH_OPT_INT, MESH(fsdp), "1", "replicas that shard their state (mesh.zero says what of it)", 1, 1e6, NULL},
    {"tp", ASH_OPT_INT, MESH(tp), "1",
     "ranks that shard heads, feed-forward columns and vocabulary (and rows between them)", 1, 1e6, NULL},
    {"pp", ASH_OPT_INT, MESH(pp), "1", "pipeline stages, each with some of the layers", 1, ASH_MODEL_LAYERS_MAX, NULL},
    {"cp", ASH_OPT_INT, MESH(cp), "1", "ranks that split the tokens of a sequence", 1, 1e6, NULL},
    {"ep", ASH_OPT_INT, MESH(ep), "1", "ranks that shard experts", 1, ASH_ROUTE_EXPERTS_MAX, NULL},
    {"zero", ASH_OPT_INT, MESH(zero), "3", "what fsdp shards: 1 the optimizer's state, 2 gradients too, 3 weights too",
     1, 3, NULL},
    {"interleave", ASH_OPT_INT, MESH(interleave), "1",
     "chunks of layers on each stage: more of them leave less idle time and send more", 1, ASH_MODEL_LAYERS_MAX, NULL},
};

#define RECOVER(field) offsetof(struct ash_job_recover, field)
static const struct ash_opt recover_opts[] = {
    {"copies", ASH_OPT_INT, RECOVER(copies), "1",
     "copies of every part of the state in the memory of other ranks, on other nodes if there are any; replicas "
     "(dp, cp) count; 0: a lost part comes from the newest checkpoint",
     0, 8, NULL},
    {"check_every", ASH_OPT_INT, RECOVER(check_every), "100",
     "steps between checks of the state in memory: has a bit changed by itself, do copies differ from what they are "
     "copies of? 0: never",
     0, MAX_COUNT, NULL},
    {"audit_every", ASH_OPT_INT, RECOVER(audit_every), "0",
     "steps between audits, in which ranks compute each other's gradients too and compare bits, so that a processor "
     "that computes wrongly is found; an audited step takes twice as long; 0: never",
     0, MAX_COUNT, NULL},
    {"min_ranks", ASH_OPT_INT, RECOVER(min_ranks), "1", "if fewer ranks than this are left, they save and the run ends",
     1, 1e6, NULL},
    {"spares", ASH_OPT_INT, RECOVER(spares), "0",
     "ranks that the mesh leaves idle at first, to take the places of lost ones", 0, 1e6, NULL},
    {"replace_slow", ASH_OPT_BOOL, RECOVER(replace_slow), "false",
     "a rank that is slower than its peers for 5 steps gives its place to a spare and ends", 0, 0, NULL},
};

#define OPTIM(field) offsetof(struct ash_optimizer_opts, field)
static const struct ash_opt optimizer_opts[] = {
    {"kind", ASH_OPT_CHOICE, OPTIM(kind), "adamw",
     "adamw; or lion, whose usual beta2 is 0.99, its learning rate 3 to 10 times smaller and its decay as much larger",
     0, 0, optimizer_names},
    {"lr", ASH_OPT_DOUBLE, OPTIM(lr), "3e-4", "peak learning rate", 0, 1e30, NULL},
    {"beta1", ASH_OPT_DOUBLE, OPTIM(beta1), "0.9", "decay of the first moment; lion: of the mean whose sign counts", 0,
     0.999999, NULL},
    {"beta2", ASH_OPT_DOUBLE, OPTIM(beta2), "0.95", "decay of the second moment; lion: of the one that it has", 0,
     0.9999999, NULL},
    {"eps", ASH_OPT_DOUBLE, OPTIM(eps), "1e-8", "adamw: added to the root of the second moment", 1e-30, 1, NULL},
    {"weight_decay", ASH_OPT_DOUBLE, OPTIM(weight_decay), "0.1", "decoupled decay, times the learning rate", 0, 1e3,
     NULL},
    {"decay", ASH_OPT_CHOICE, OPTIM(decay), "matrices", "what decays: matrices, or norms and biases too", 0, 0,
     decay_names},
    {"clip", ASH_OPT_DOUBLE, OPTIM(clip), "1.0", "largest gradient norm; 0: no clipping", 0, 1e30, NULL},
};

#define SCHED(field) offsetof(struct ash_job_schedule, field)
static const struct ash_opt schedule_opts[] = {
    {"kind", ASH_OPT_CHOICE, SCHED(kind), "cosine",
     "cosine: down to the end; wsd: constant, then down by one minus a square root; constant", 0, 0, schedule_names},
    {"warmup", ASH_OPT_INT, SCHED(warmup), "-1", "steps of linear warm-up; -1: a tenth of the run, at most 100", -1,
     MAX_COUNT, NULL},
    {"decay_steps", ASH_OPT_INT, SCHED(decay_steps), "0", "steps of wsd's decay; 0: by decay_share", 0, MAX_COUNT,
     NULL},
    {"decay_share", ASH_OPT_DOUBLE, SCHED(decay_share), "0.2", "share of all steps in which wsd decays", 0, 1, NULL},
    {"final_share", ASH_OPT_DOUBLE, SCHED(final_share), "0.1", "learning rate at the end, as a share of the peak", 0, 1,
     NULL},
};

#define GUARD(field) offsetof(struct ash_job_guard, field)
static const struct ash_opt guard_opts[] = {
    {"nan", ASH_OPT_CHOICE, GUARD(nan), "skip",
     "a step whose loss or gradient is not finite: leave it out, or end the run", 0, 0, nan_names},
    {"spike_norm", ASH_OPT_DOUBLE, GUARD(spike_norm), "20",
     "leave a step out whose gradient norm is this many times the running mean (and above optimizer.clip); 0: never", 0,
     1e30, NULL},
    {"spike_loss", ASH_OPT_DOUBLE, GUARD(spike_loss), "2",
     "leave a step out whose loss is this many times the running mean (and 1 above it); 0: never", 0, 1e30, NULL},
    {"warmup", ASH_OPT_INT, GUARD(warmup), "100", "steps before spikes are looked for", 0, MAX_COUNT, NULL},
    {"max_skips", ASH_OPT_INT, GUARD(max_skips), "20", "steps left out in a row that end the run; 0: no limit", 0,
     MAX_COUNT, NULL},
};

static const char *const pin_names[] = {"auto", "on", "off", NULL}; /* as enum ash_pin */
#define RUNTIME(field) offsetof(struct ash_job_runtime, field)
static const struct ash_opt runtime_opts[] = {
    {"threads", ASH_OPT_INT, RUNTIME(threads), "0", "threads of this process; 0: one per core; never changes a bit", 0,
     ASH_WORKERS_MAX, NULL},
    {"backend", ASH_OPT_STRING, RUNTIME(backend), NULL,
     "kernels to use (ref, cpu, ...) or GPU (cuda, cuda:1); default: a GPU for each rank if there are as many, else "
     "the best of the processor",
     0, 0, NULL},
    {"ranks_per_gpu", ASH_OPT_INT, RUNTIME(ranks_per_gpu), "1", "ranks of a host that may share a GPU", 1, 64, NULL},
    {"pin", ASH_OPT_CHOICE, RUNTIME(pin), "auto",
     "tie threads to cores; auto: where this process has the whole machine", 0, 0, pin_names},
    {"log_level", ASH_OPT_CHOICE, RUNTIME(log_level), "info", "lines below this level are dropped", 0, 0, level_names},
};

static const struct ash_opt_table model_table = {"model", "the model", model_opts, ASH_COUNT(model_opts)};
static const struct ash_opt_table data_table = {"data", "training data", data_opts, ASH_COUNT(data_opts)};
static const struct ash_opt_table train_table = {"train", "how long, in which pieces", train_opts,
                                                 ASH_COUNT(train_opts)};
static const struct ash_opt_table save_table = {"save", "where checkpoints go; nothing here changes a bit", save_opts,
                                                ASH_COUNT(save_opts)};
static const struct ash_opt_table log_table = {"log", "figures for other programs; nothing here changes a bit",
                                               log_opts, ASH_COUNT(log_opts)};
static const struct ash_opt_table mesh_table = {"mesh", "how ranks share the work; nothing here changes a bit",
                                                mesh_opts, ASH_COUNT(mesh_opts)};
static const struct ash_opt_table recover_table = {"recover", "when ranks are lost; nothing here changes a bit",
                                                   recover_opts, ASH_COUNT(recover_opts)};
static const struct ash_opt_table optimizer_table = {"optimizer", "gradients to weights", optimizer_opts,
                                                     ASH_COUNT(optimizer_opts)};
static const struct ash_opt_table schedule_table = {"schedule", "the learning rate over time", schedule_opts,
                                                    ASH_COUNT(schedule_opts)};
static const struct ash_opt_table guard_table = {"guard", "steps that must not touch the weights", guard_opts,
                                                 ASH_COUNT(guard_opts)};
static const struct ash_opt_table runtime_table = {"runtime", "this process; nothing here changes a bit", runtime_opts,
                                                   ASH_COUNT(runtime_opts)};

void ash_job_bind(struct ash_job *job, struct ash_opt_binding bindings[ASH_JOB_SECTIONS])
{
    const struct ash_opt_binding sections[] = {
        {&model_table, &job->model},
        {&data_table, &job->data},
        {&train_table, &job->train},
        {&save_table, &job->save},
        {&log_table, &job->log},
        {&mesh_table, &job->mesh},
        {&recover_table, &job->recover},
        {&optimizer_table, &job->optimizer},
        {&schedule_table, &job->schedule},
        {&guard_table, &job->guard},
        {&runtime_table, &job->runtime},
        {&ash_job_sft_table, &job->sft},
        {&ash_job_lora_table, &job->lora},
        {&ash_job_dpo_table, &job->dpo},
        {&ash_job_reward_table, &job->reward},
        {&ash_job_distill_table, &job->distill},
        {&ash_job_rl_table, &job->rl},
        {&ash_job_rollout_table, &job->rollout},
        {&ash_arithmetic_table, &job->arithmetic},
    };

    static_assert(ASH_COUNT(sections) == ASH_JOB_SECTIONS, "every section is bound");
    for (size_t i = 0; i < ASH_JOB_SECTIONS; i++)
        bindings[i] = sections[i];
}

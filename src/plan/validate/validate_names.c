/* Columns as other people name them, and the form of file that they make. The first name of a line is the one that the
 * rest of validate asks for. */
#include "plan/validate/validate_priv.h"

#include <errno.h>

#include "base/assert.h"

#define OTHERS_MAX 6

struct name {
    const char *column;
    const char *others[OTHERS_MAX];
};

static const struct name names[] = {
    {"row_id", {"id", "row"}},
    {"source_id", {"source"}},
    {"source_date", {"date"}},
    {"arch_type", {"arch", "model_type"}},
    {"model", {"model_name", "network"}},
    {"params_b", {"parameters_b", "num_params_b", "total_params_b", "params"}},
    {"experts", {"num_experts", "n_experts"}},
    {"topk", {"top_k", "experts_per_token", "num_experts_per_tok"}},
    {"gpu", {"gpu_type", "gpu_name", "accelerator", "device"}},
    {"system", {"instance", "instance_type", "platform", "machine"}},
    {"interconnect", {"network_type", "fabric"}},
    {"n_gpus", {"num_gpus", "gpus", "gpu_count", "world_size", "n_gpu"}},
    {"seq_len", {"sequence_length", "seq_length", "seqlen", "context_length", "seq"}},
    {"mbs", {"micro_batch_size", "micro_batch", "microbatch_size"}},
    {"tp", {"tensor_parallel", "tensor_parallel_size", "tp_size"}},
    {"pp", {"pipeline_parallel", "pipeline_parallel_size", "pp_size"}},
    {"vpp", {"vp", "virtual_pipeline", "virtual_pipeline_size"}},
    {"cp", {"context_parallel", "context_parallel_size", "cp_size"}},
    {"ep", {"expert_parallel", "expert_parallel_size", "ep_size"}},
    {"etp", {"expert_tensor_parallel", "expert_tensor_parallel_size"}},
    {"dp", {"data_parallel", "data_parallel_size", "dp_size"}},
    {"sharding", {"zero", "zero_stage", "fsdp"}},
    {"recompute", {"activation_checkpointing", "recomputation", "activation_recompute"}},
    {"tokens_s_gpu", {"tokens_per_s_per_gpu", "tokens_per_sec_per_gpu", "tokens_per_second_per_gpu", "tok_s_gpu"}},
    {"tokens_s_total", {"tokens_s", "tokens_per_s", "tokens_per_sec", "tokens_per_second"}},
    {"step_time_s", {"step_time", "iteration_time_s", "iter_time_s", "seconds_per_step"}},
    {"isl", {"input_len", "input_length", "input_tokens", "prompt_len", "prompt_tokens"}},
    {"osl", {"output_len", "output_length", "output_tokens", "gen_len", "generated_tokens"}},
    {"qps_offered", {"qps", "request_rate"}},
    {"num_requests", {"requests", "num_prompts"}},
    {"out_tok_s_total", {"out_tok_s", "output_tok_s", "output_tokens_s", "output_throughput", "output_tokens_per_s"}},
    {"out_tok_s_gpu", {"output_tok_s_gpu", "output_tokens_s_gpu"}},
    {"total_tok_s", {"total_throughput", "total_tokens_s", "total_token_throughput"}},
    {"req_s", {"requests_s", "request_throughput", "requests_per_s"}},
    {"ttft_ms_mean", {"ttft_ms", "mean_ttft_ms", "ttft"}},
    {"tpot_ms_mean", {"tpot_ms", "mean_tpot_ms", "itl_ms", "mean_itl_ms", "tpot"}},
};

static const struct name training_names[] = {
    {"framework", {"software", "stack", "library"}},
    {"precision", {"dtype", "training_precision"}},
    {"gbs", {"global_batch_size", "global_batch", "batch_size"}},
};

static const struct name serving_names[] = {
    {"weight_precision", {"precision", "dtype", "quantization", "weights"}},
    {"kv_precision", {"kv_cache_precision", "kv_cache_dtype", "kv_dtype"}},
    {"batch_or_concurrency", {"concurrency", "max_concurrency", "batch", "batch_size"}},
};

static void name_columns(struct ash_csv *csv, const struct name *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < OTHERS_MAX && list[i].others[k] != NULL; k++)
            ash_csv_alias(csv, list[i].column, list[i].others[k]);
}

static bool has_any(const struct ash_csv *csv, const char *const *columns)
{
    for (size_t i = 0; columns[i] != NULL; i++)
        if (ash_csv_has(csv, columns[i])) return true;
    return false;
}

int ash_validate_form(struct ash_csv *csv, const char *path, bool *training_out, struct ash_err *err)
{
    static const char *const training[] = {"tokens_s_gpu", "tokens_s_total", "step_time_s", NULL};
    static const char *const serving[] = {"out_tok_s_total", "out_tok_s_gpu", "total_tok_s", "req_s",
                                          "ttft_ms_mean",    "tpot_ms_mean",  NULL};

    name_columns(csv, names, ASH_COUNT(names));
    *training_out = has_any(csv, training);
    if (!*training_out && !has_any(csv, serving))
        return ash_err_set(err, -EINVAL,
                           "%.200s has neither the column tokens_s_gpu or step_time_s (training) nor out_tok_s_total, "
                           "out_tok_s_gpu, total_tok_s, req_s, ttft_ms_mean or tpot_ms_mean (inference)",
                           path);
    if (*training_out)
        name_columns(csv, training_names, ASH_COUNT(training_names));
    else
        name_columns(csv, serving_names, ASH_COUNT(serving_names));
    return 0;
}

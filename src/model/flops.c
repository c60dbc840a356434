/* Two operations per weight that a token meets, and attention. */
#include "model/flops.h"

/* Weights of a layer's projections. */
static double attn_weights(const struct ash_model_config *config)
{
    double hidden = (double)config->hidden, heads = (double)config->heads, kv_rank = (double)config->kv_rank;
    double q = heads * (double)(config->nope_dim + config->rope_dim), q_rank = (double)config->q_rank;

    if (config->attn != ASH_ATTN_LATENT)
        return hidden * (double)config->head_dim * (2 * heads + 2 * (double)config->kv_heads);
    q = config->q_rank > 0 ? hidden * q_rank + q_rank * q : hidden * q;
    return q + hidden * (kv_rank + (double)config->rope_dim) +
           kv_rank * heads * (double)(config->nope_dim + config->v_dim) + heads * (double)config->v_dim * hidden;
}

/* Weights of a layer's MLP that a token meets. */
static double mlp_weights(const struct ash_model_config *config, bool is_sparse)
{
    const struct ash_expert_config *expert = &config->expert;
    double hidden = (double)config->hidden, matrices = ash_mlp_is_gated(config->form.mlp) ? 3 : 2;

    if (!is_sparse) return matrices * hidden * (double)config->ffn;
    return hidden * (double)expert->experts +
           matrices * hidden * (double)(expert->shared_ffn + expert->choices * expert->ffn);
}

/* Weights of a layer with recurrent states, and what a token does to those: a step, and a product. */
static double state_weights(const struct ash_model_config *config)
{
    const struct ash_state_config *s = &config->state;
    double inner = (double)(s->heads * s->head_dim), shared = (double)(2 * s->groups * s->size);

    return (double)config->hidden * (3 * inner + shared + (double)s->heads) + (inner + shared) * (double)s->taps +
           2 * inner * (double)s->size;
}

/* Keys that a token sees on average. */
static double keys_seen(double window, double seq_tokens)
{
    return window > 0 && window < seq_tokens ? window - window * window / (2 * seq_tokens) : seq_tokens / 2;
}

double ash_model_train_flops(const struct ash_model_config *config, double seq_tokens)
{
    bool is_latent = config->attn == ASH_ATTN_LATENT;
    double qk = (double)(is_latent ? config->nope_dim + config->rope_dim : config->head_dim);
    double v = (double)(is_latent ? config->v_dim : config->head_dim);
    double forward = 2 * (double)config->hidden * (double)(config->labels > 0 ? config->labels : config->vocab);

    for (size_t i = 0; i < config->layers; i++) {
        if (ash_config_has_state(config, i)) forward += 2 * state_weights(config);
        if (ash_config_attends(config, i))
            forward += 2 * attn_weights(config) +
                       2 * (double)config->heads * (qk + v) * keys_seen((double)config->window[i], seq_tokens);
        if (ash_config_has_ffn(config)) forward += 2 * mlp_weights(config, config->sparse[i] != 0);
    }
    return (config->lora != NULL ? 2 : 3) * forward;
}

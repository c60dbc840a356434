/* A config as metadata. What the keys of an architecture cannot say is found by reading them again: a file that says
 * something else of the model is not kept. */
#include "model/files/gguf_keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define KEY_BYTES 96
#define GATING_SOFTMAX 1
#define GATING_SIGMOID 2

struct keys {
    struct ash_gguf_entries *entries;
    struct ash_arena *arena;
    const struct ash_gguf_arch *arch;
    const struct ash_model_config *config;
    bool is_out_of_memory;
};

/* "llama.block_count" of "block_count", in the arena. */
static const char *key_of(struct keys *keys, const char *name)
{
    char key[KEY_BYTES];
    const char *copy;

    snprintf(key, sizeof(key), "%s.%s", keys->arch->name, name);
    copy = ash_arena_strdup(keys->arena, key);
    if (copy != NULL) return copy;
    keys->is_out_of_memory = true;
    return "";
}

static void add_number(struct keys *keys, const char *name, size_t value)
{
    ash_gguf_add_number(keys->entries, key_of(keys, name), (uint32_t)value);
}

/* The same unless it is 0. */
static void add_some(struct keys *keys, const char *name, size_t value)
{
    if (value > 0) add_number(keys, name, value);
}

static void add_real(struct keys *keys, const char *name, double value)
{
    if (value != 0) ash_gguf_add_real(keys->entries, key_of(keys, name), (float)value);
}

/* There are no heads of attention, which llama.cpp asks for. */
static void add_states(struct keys *keys)
{
    const struct ash_state_config *state = &keys->config->state;

    add_number(keys, "attention.head_count", 0);
    add_number(keys, "ssm.conv_kernel", state->taps);
    add_number(keys, "ssm.inner_size", state->heads * state->head_dim);
    add_number(keys, "ssm.state_size", state->size);
    add_number(keys, "ssm.time_step_rank", state->heads);
    add_number(keys, "ssm.group_count", state->groups);
}

static void add_heads(struct keys *keys)
{
    const struct ash_model_config *c = keys->config;

    add_number(keys, "attention.head_count", c->heads);
    add_number(keys, "attention.head_count_kv", c->kv_heads);
    add_number(keys, "attention.key_length", c->head_dim);
    add_number(keys, "attention.value_length", c->head_dim);
    if (c->rope.kind != ASH_ROPE_NONE) add_number(keys, "rope.dimension_count", c->rotary_dims);
}

/* llama.cpp caches compressed rows: to it there is one key for all heads, as wide as they are. */
static void add_latent(struct keys *keys)
{
    const struct ash_model_config *c = keys->config;

    add_number(keys, "attention.head_count", c->heads);
    add_number(keys, "attention.head_count_kv", 1);
    add_number(keys, "attention.key_length", c->kv_rank + c->rope_dim);
    add_number(keys, "attention.value_length", c->kv_rank);
    add_number(keys, "attention.key_length_mla", c->nope_dim + c->rope_dim);
    add_number(keys, "attention.value_length_mla", c->v_dim);
    add_some(keys, "attention.q_lora_rank", c->q_rank);
    add_number(keys, "attention.kv_lora_rank", c->kv_rank);
    add_number(keys, "rope.dimension_count", c->rope_dim);
    add_real(keys, "rope.scaling.yarn_log_multiplier", 0.1 * c->rope.mscale_all_dim);
}

static void add_shape(struct keys *keys)
{
    const struct ash_model_config *c = keys->config;
    bool has_wide_experts =
        c->expert.experts > 0 && c->form.expert.ffn_key == NULL && !(keys->arch->traits & ASH_GGUF_TWO_WIDTHS);

    add_number(keys, "vocab_size", c->vocab);
    add_number(keys, "context_length", c->max_positions);
    add_number(keys, "embedding_length", c->hidden);
    add_number(keys, "block_count", c->layers);
    add_number(keys, "feed_forward_length", has_wide_experts ? c->expert.ffn : c->ffn);
    if (c->family->names[ASH_ROLE_OUT] == NULL)
        add_states(keys);
    else if (c->attn == ASH_ATTN_LATENT)
        add_latent(keys);
    else
        add_heads(keys);
    add_real(keys, c->form.norm == ASH_NORM_LAYER ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
             c->norm_eps);
    if (strcmp(c->family->type, "phimoe") == 0) /* llama.cpp asks for this one */
        add_real(keys, "attention.layer_norm_rms_epsilon", c->norm_eps);
    if (strcmp(c->family->type, "gpt_neox") == 0)
        ash_gguf_add_bool(keys->entries, key_of(keys, "use_parallel_residual"), c->form.parallel);
}

static void add_factors(struct keys *keys)
{
    const struct ash_model_form *form = &keys->config->form;
    bool divides = keys->arch->traits & ASH_GGUF_LOGIT_DIVISOR;

    if (!form->embeds_by_width) add_real(keys, "embedding_scale", form->embed_scale);
    add_real(keys, "residual_scale", form->residual_scale);
    add_real(keys, "logit_scale", divides && form->logit_scale != 0 ? 1 / form->logit_scale : form->logit_scale);
    if (divides) add_real(keys, "attention.scale", keys->config->attn_scale);
    add_real(keys, "attn_logit_softcapping", form->score_cap);
    add_real(keys, "final_logit_softcapping", form->logit_cap);
}

/* The period of layers without a window; the window is that of the others. */
static void add_window(struct keys *keys)
{
    const struct ash_model_config *c = keys->config;
    size_t window = 0, every = 0;

    for (size_t i = 0; i < c->layers; i++) {
        if (c->window[i] > window) window = c->window[i];
        if (c->window[i] == 0 && every == 0) every = i + 1;
    }
    if (strcmp(c->family->type, "phi3") == 0)
        add_number(keys, "attention.sliding_window", window); /* 0, too: llama.cpp tells models apart by it */
    else
        add_some(keys, "attention.sliding_window", window);
    if (window > 0 && keys->arch->full_every > 0) add_number(keys, "attention.sliding_window_pattern", every);
}

/* Which layers have experts: from the first on, and every how many. */
static void add_sparse_layers(struct keys *keys)
{
    const uint8_t *sparse = keys->config->sparse;
    bool has_two = keys->arch->traits & ASH_GGUF_TWO_WIDTHS;
    size_t layers = keys->config->layers, first = 0, step = 1;

    while (first < layers && !sparse[first])
        first++;
    while (first + step < layers && !sparse[first + step])
        step++;
    if (first + step >= layers) step = 1;
    if (has_two) step = first + 1;
    if (has_two || strcmp(keys->arch->name, "ernie4_5-moe") == 0) add_number(keys, "interleave_moe_layer_step", step);
    if (!has_two) add_number(keys, "leading_dense_block_count", first);
}

static void add_experts(struct keys *keys)
{
    const struct ash_expert_config *x = &keys->config->expert;

    if (x->experts == 0) return;
    add_number(keys, "expert_count", x->experts);
    add_number(keys, "expert_used_count", x->choices);
    add_number(keys, "expert_feed_forward_length", x->ffn);
    add_number(keys, "expert_shared_count", x->shared_ffn / x->ffn);
    add_some(keys, "expert_shared_feed_forward_length", x->shared_ffn);
    if (x->groups > 1 || keys->config->form.expert.groups > 1) {
        add_number(keys, "expert_group_count", x->groups);
        add_number(keys, "expert_group_used_count", x->top_groups);
    }
    add_sparse_layers(keys);
    if (x->scale != 1) add_real(keys, "expert_weights_scale", x->scale);
    if (!(keys->arch->traits & (ASH_GGUF_NORMALIZES | ASH_GGUF_KEEPS_WEIGHTS)))
        ash_gguf_add_bool(keys->entries, key_of(keys, "expert_weights_norm"), x->normalize);
    add_number(keys, "expert_gating_func", x->sigmoid ? GATING_SIGMOID : GATING_SOFTMAX);
}

static void add_rope(struct keys *keys)
{
    const struct ash_rope_config *rope = &keys->config->rope;
    static const char *const kinds[] = {
        [ASH_ROPE_LINEAR] = "linear", [ASH_ROPE_YARN] = "yarn", [ASH_ROPE_LONG] = "longrope"};

    if (rope->kind == ASH_ROPE_NONE || keys->config->family->names[ASH_ROLE_OUT] == NULL) return;
    add_real(keys, "rope.freq_base", rope->theta);
    if (keys->config->form.local_theta > 0) add_real(keys, "rope.freq_base_swa", keys->config->local_rope.theta);
    if (rope->kind == ASH_ROPE_LINEAR || rope->kind == ASH_ROPE_YARN || rope->kind == ASH_ROPE_LONG)
        ash_gguf_add_text(keys->entries, key_of(keys, "rope.scaling.type"), kinds[rope->kind]);
    if (rope->kind == ASH_ROPE_LINEAR || rope->kind == ASH_ROPE_YARN)
        add_real(keys, "rope.scaling.factor", rope->factor);
    if (rope->kind == ASH_ROPE_YARN) {
        add_real(keys, "rope.scaling.yarn_beta_fast", rope->beta_fast);
        add_real(keys, "rope.scaling.yarn_beta_slow", rope->beta_slow);
    }
    if (rope->kind == ASH_ROPE_LONG) add_real(keys, "rope.scaling.attn_factor", rope->attention_factor);
    if (rope->kind == ASH_ROPE_LLAMA3 || rope->kind == ASH_ROPE_YARN || rope->kind == ASH_ROPE_LONG)
        add_number(keys, "rope.scaling.original_context_length", (size_t)rope->original_positions);
}

int ash_gguf_add_config(struct ash_gguf_entries *entries, struct ash_arena *arena, const struct ash_gguf_arch *arch,
                        const struct ash_model_config *config, struct ash_err *err)
{
    struct keys keys = {.entries = entries, .arena = arena, .arch = arch, .config = config};

    add_shape(&keys);
    add_factors(&keys);
    add_window(&keys);
    add_experts(&keys);
    add_rope(&keys);
    return keys.is_out_of_memory ? ash_err_set(err, -ENOMEM, "out of memory for metadata") : 0;
}

/* ---- the keys, read again ---------------------------------------------------------------------------------------- */

static bool is_near(double a, double b)
{
    double most = a < 0 ? -a : a, apart = a < b ? b - a : a - b;

    return apart <= most * 1e-6;
}

/* Are pairs of numbers, one after the other, near each other? */
static bool are_near(const double (*pairs)[2], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!is_near(pairs[i][0], pairs[i][1])) return false;
    return true;
}

static bool are_equal(const size_t (*pairs)[2], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (pairs[i][0] != pairs[i][1]) return false;
    return true;
}

static bool same_rope(const struct ash_rope_config *a, const struct ash_rope_config *b)
{
    const double all[][2] = {{a->theta, b->theta},
                             {a->factor, b->factor},
                             {a->mscale, b->mscale},
                             {a->mscale_all_dim, b->mscale_all_dim},
                             {a->attention_factor, b->attention_factor}};
    const double llama3[][2] = {{a->low_freq_factor, b->low_freq_factor}, {a->high_freq_factor, b->high_freq_factor}};
    const double yarn[][2] = {{a->beta_fast, b->beta_fast}, {a->beta_slow, b->beta_slow}, {a->truncate, b->truncate}};

    if (a->kind != b->kind || a->is_odd != b->is_odd) return false;
    if (a->kind == ASH_ROPE_NONE) return true;
    if (a->kind >= ASH_ROPE_LLAMA3 && !is_near(a->original_positions, b->original_positions)) return false;
    if (a->kind == ASH_ROPE_LLAMA3 && !are_near(llama3, ASH_COUNT(llama3))) return false;
    return are_near(all, ASH_COUNT(all)) && (a->kind != ASH_ROPE_YARN || are_near(yarn, ASH_COUNT(yarn)));
}

static bool same_experts(const struct ash_expert_config *a, const struct ash_expert_config *b)
{
    const size_t pairs[][2] = {{a->choices, b->choices},          {a->ffn, b->ffn},
                               {a->shared_ffn, b->shared_ffn},    {a->groups, b->groups},
                               {a->top_groups, b->top_groups},    {a->sigmoid, b->sigmoid},
                               {a->normalize, b->normalize},      {a->choice_bias, b->choice_bias},
                               {a->scales_input, b->scales_input}};

    if (a->experts != b->experts || a->experts == 0) return a->experts == b->experts;
    return are_equal(pairs, ASH_COUNT(pairs)) && is_near(a->scale, b->scale) && is_near(a->tolerance, b->tolerance);
}

static bool same_sizes(const struct ash_model_config *a, const struct ash_model_config *b)
{
    const size_t pairs[][2] = {{a->layers, b->layers},     {a->hidden, b->hidden},     {a->heads, b->heads},
                               {a->kv_heads, b->kv_heads}, {a->vocab, b->vocab},       {a->head_dim, b->head_dim},
                               {a->attn, b->attn},         {a->q_rank, b->q_rank},     {a->kv_rank, b->kv_rank},
                               {a->rope_dim, b->rope_dim}, {a->nope_dim, b->nope_dim}, {a->v_dim, b->v_dim},
                               {a->tied, b->tied},         {a->labels, b->labels}};

    return are_equal(pairs, ASH_COUNT(pairs));
}

static bool same_positions(const struct ash_model_config *a, const struct ash_model_config *b)
{
    if (!same_rope(&a->rope, &b->rope) || a->rotary_dims != b->rotary_dims) return false;
    if (memcmp(a->rope_at, b->rope_at, a->layers) != 0) return false;
    if (memchr(a->rope_at, ASH_ROPE_AT_TEMPERED, a->layers) != NULL &&
        (!is_near(a->temper_floor, b->temper_floor) || !is_near(a->temper_scale, b->temper_scale)))
        return false;
    return memchr(a->rope_at, ASH_ROPE_AT_LOCAL, a->layers) == NULL || same_rope(&a->local_rope, &b->local_rope);
}

static bool same_factors(const struct ash_model_config *a, const struct ash_model_config *b)
{
    const struct ash_model_form *f = &a->form, *g = &b->form;
    const double pairs[][2] = {{f->embed_scale, g->embed_scale}, {f->residual_scale, g->residual_scale},
                               {f->logit_scale, g->logit_scale}, {f->gate_scale, g->gate_scale},
                               {f->score_cap, g->score_cap},     {f->logit_cap, g->logit_cap},
                               {a->norm_eps, b->norm_eps}};

    return are_near(pairs, ASH_COUNT(pairs));
}

static bool same_kinds(const struct ash_model_form *a, const struct ash_model_form *b)
{
    return a->mlp == b->mlp && a->norm == b->norm && a->qk_norm == b->qk_norm && a->parallel == b->parallel;
}

static bool same_states(const struct ash_state_config *a, const struct ash_state_config *b)
{
    const size_t pairs[][2] = {
        {a->head_dim, b->head_dim}, {a->groups, b->groups},     {a->size, b->size},
        {a->taps, b->taps},         {a->in_bias, b->in_bias},   {a->conv_bias, b->conv_bias},
        {a->norm, b->norm},         {a->out_bias, b->out_bias}, {a->norm_groups, b->norm_groups}};

    if (a->heads != b->heads || a->heads == 0) return a->heads == b->heads;
    return are_equal(pairs, ASH_COUNT(pairs)) && a->step_min == b->step_min && a->step_max == b->step_max;
}

/* NULL, or what differs. */
static const char *difference(const struct ash_model_config *a, const struct ash_model_config *b)
{
    size_t layers = a->layers;

    if (!same_sizes(a, b)) return "sizes";
    if (!same_positions(a, b)) return "rotary positions";
    if (memcmp(a->window, b->window, layers * sizeof(a->window[0])) != 0) return "attention windows";
    if (!same_experts(&a->expert, &b->expert)) return "experts, or how they are chosen,";
    if (memcmp(a->sparse, b->sparse, layers) != 0) return "layers with experts";
    if (!same_states(&a->state, &b->state)) return "recurrent states";
    if (memcmp(a->mixer, b->mixer, layers) != 0) return "layers with attention";
    if (!is_near(a->attn_scale, b->attn_scale) || a->scale_by_layer != b->scale_by_layer) return "scale of attention";
    if (!same_kinds(&a->form, &b->form)) return "kinds of layers";
    return same_factors(a, b) ? NULL : "factors";
}

int ash_gguf_check_config(struct ash_gguf *file, const struct ash_model_config *config, struct ash_err *err)
{
    struct ash_model_config read;
    const char *what;
    int rc = ash_gguf_folder_config(file, &read, err);

    if (rc < 0) return rc;
    what = difference(config, &read);
    ash_model_config_fini(&read);
    if (what == NULL) return 0;
    return ash_err_set(err, -ENOTSUP, "the %s of this %s model cannot be written into a GGUF file", what,
                       config->family->type);
}

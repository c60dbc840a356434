/* config - what a model is: one normalised description that every family's config.json is read into.
 * The families differ in names and defaults (families.c); everything else sees only the description. */
#ifndef ASH_MODEL_CONFIG_H
#define ASH_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/json.h"
#include "compute/ops.h"
#include "model/form.h"

#define ASH_MODEL_LAYERS_MAX 1024
#define ASH_MODEL_CAPTURES 3 /* layers whose streams a head of EAGLE-3 reads */

enum ash_attn_kind { ASH_ATTN_GROUPED, ASH_ATTN_LATENT };
enum ash_rope_kind {
    ASH_ROPE_NONE,
    ASH_ROPE_DEFAULT,
    ASH_ROPE_LINEAR,
    ASH_ROPE_LLAMA3,
    ASH_ROPE_YARN,
    ASH_ROPE_LONG,   /* likewise, from the config (longrope) */
    ASH_ROPE_FACTORS /* each frequency has its own divisor (GGUF files) */
};

/* Which positions a layer has. */
enum ash_rope_at {
    ASH_ROPE_AT_ALL,
    ASH_ROPE_AT_LOCAL,
    ASH_ROPE_AT_NONE,
    ASH_ROPE_AT_TEMPERED /* none; queries have a factor that grows with the position */
};

struct ash_rope_config {
    enum ash_rope_kind kind; /* ASH_ROPE_NONE: learned positions (gpt2) */
    double theta;
    double factor, low_freq_factor, high_freq_factor; /* scaling */
    double original_positions;
    double beta_fast, beta_slow, mscale, mscale_all_dim, attention_factor; /* yarn; attention_factor 0: by formula */
    double share;                                                          /* of a head's dims that are rotated */
    const json_t *divisors; /* [rotary_dims / 2]; borrowed from the config's source */
    const float *factors;   /* [head_dim / 2]; borrowed from the model's file */
    bool truncate;          /* yarn: round the correction range to whole dims */
    bool interleaved;
    bool is_odd; /* the share is an odd number of dims: one more is rotated, at the frequencies of that number */
};

struct ash_expert_config {
    size_t experts;    /* 0: no sparse layers */
    size_t choices;    /* per token */
    size_t ffn;        /* of one expert */
    size_t shared_ffn; /* of the experts that every token visits, as one block; 0: none */
    size_t groups, top_groups;
    bool sigmoid, normalize, choice_bias;
    bool scales_input;
    double scale, tolerance;
};

/* What a layer has before its feed-forward. */
enum ash_mixer {
    ASH_MIXER_ATTENTION,
    ASH_MIXER_STATE, /* recurrent states */
    ASH_MIXER_BOTH   /* both read the layer's norm, and both join the stream */
};

#define ASH_STATE_ZONES 5

/* Recurrent states (mamba-2): each head has head_dim x size numbers, and the convolution before them sees `taps`
 * tokens. */
struct ash_state_config {
    size_t heads, head_dim, groups, size, taps;
    double step_min, step_max; /* limits of steps of time */
    bool is_delta;             /* the gated delta rule: groups are heads of keys, size is theirs */
    enum ash_state_norm norm;
    bool norm_shares_weight; /* all of norm_groups have one */
    size_t norm_groups;      /* parts of a row that have a norm each; with weights of their own: */
    bool in_bias, conv_bias, out_bias;
    bool scales_zones;                  /* are there factors of the projection's columns? */
    double zone_scale[ASH_STATE_ZONES]; /* those of the gate, x, B, C and the steps */
};

struct ash_lora;

struct ash_model_config {
    const struct ash_family *family;
    size_t vocab, hidden, layers, heads, kv_heads, ffn, max_positions;
    size_t first_position; /* of learned positions: rows of their table before that of the first token */
    bool pool_bias;        /* of a classifier (ASH_ROLE_POOL_BIAS) */
    bool pools_mean;       /* of a classifier: over all tokens, not the first one */
    size_t segments;       /* kinds of texts in a pair; 0: pairs are not told apart */
    size_t head_dim;       /* of q and k in attention, of v too in grouped attention */
    size_t rotary_dims;    /* of head_dim: those that are rotated, in grouped attention */
    struct ash_model_form form;
    enum ash_attn_kind attn;
    double norm_eps;
    bool tied; /* the output matrix is the embedding */
    /* It is a head for drafts (model/files/open.h): rows fuse a token's embedding and the state of the token before. */
    bool fuses_states;
    bool is_eagle;      /* a head as EAGLE-3 has it: its attention reads both, and the stream begins as the state */
    size_t captured;    /* of such a head: numbers of the model's stream, at three layers, that become a state */
    size_t embed_vocab; /* rows of the embedding, if there are more than outputs; 0: vocab */
    size_t labels;      /* outputs of a sequence classifier, whose head is score.weight; 0: a language model */
    struct ash_rope_config rope, local_rope; /* see rope_at */
    struct ash_expert_config expert;
    /* latent attention (deepseek): ranks of the compressed q (0: not compressed) and kv, split of a head */
    size_t q_rank, kv_rank, rope_dim, nope_dim, v_dim;
    double attn_scale; /* factor on q.k */
    /* of ASH_ROPE_AT_TEMPERED: 1 + temper_scale * log(1 + floor((position + 1) / temper_floor)) */
    double temper_floor, temper_scale;
    bool scale_by_layer; /* and divided by layer + 1 (a gpt2 option) */
    double init_std;
    uint8_t sparse[ASH_MODEL_LAYERS_MAX];  /* 1: layer has experts */
    uint32_t window[ASH_MODEL_LAYERS_MAX]; /* sliding window, 0: none */
    uint8_t rope_at[ASH_MODEL_LAYERS_MAX]; /* enum ash_rope_at */
    uint8_t mixer[ASH_MODEL_LAYERS_MAX];   /* enum ash_mixer */
    struct ash_state_config state;         /* of layers that have states; heads 0: there are none */
    int32_t bos, eos[8];                   /* -1: none; eos_count of them */
    size_t eos_count;
    json_t *source;              /* config.json as it was read: written back unchanged with the model */
    const struct ash_lora *lora; /* adapters, which alone are parameters then (model/lora.h); borrowed; NULL: none */
};

/* Read a config.json (already parsed; referenced, not stolen). Refuses unknown model types and absurd values with a
 * sentence. */
int ash_model_config_parse(const json_t *json, struct ash_model_config *config_out, struct ash_err *err);
/* Make it the config of a reward model on the same layers: ...ForSequenceClassification with one label. Returns 0 or
 * -ENOMEM. */
int ash_model_config_score(struct ash_model_config *config, struct ash_err *err);
/* Do blocks join the stream as they are, one after the other, and are logits what the head gives? Then activations may
 * be stored in bf16, and ranks of cp may share gradients. */
bool ash_model_form_is_plain(const struct ash_model_config *config);
/* Does a layer attend? */
static inline bool ash_config_attends(const struct ash_model_config *config, size_t layer)
{
    return config->mixer[layer] != ASH_MIXER_STATE;
}

/* Has it recurrent states? */
static inline bool ash_config_has_state(const struct ash_model_config *config, size_t layer)
{
    return config->mixer[layer] != ASH_MIXER_ATTENTION;
}

/* How many of the first `end` layers attend: caches have keys of those alone. */
size_t ash_config_count_attending(const struct ash_model_config *config, size_t end);
/* How many of them have states. */
size_t ash_config_count_states(const struct ash_model_config *config, size_t end);
/* Have layers a feed-forward? */
bool ash_config_has_ffn(const struct ash_model_config *config);
/* Drop what a config refers to. A zeroed config is fine. */
void ash_model_config_fini(struct ash_model_config *config);
/* "llama, mistral, qwen2, ...": for messages and help. */
const char *ash_model_families(void);

#endif

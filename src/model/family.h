/* family - what sets one model type apart, as data: the names of its tensors, the form of its layers, and which readers
 * its config.json needs. Adding a type means one entry in families.c. */
#ifndef ASH_MODEL_FAMILY_H
#define ASH_MODEL_FAMILY_H

#include "model/config.h"

/* What a tensor is for. The first group exists once, the second per layer, the third per expert of a layer. */
enum ash_role {
    ASH_ROLE_EMBED,
    ASH_ROLE_POSITION,
    ASH_ROLE_SEGMENT, /* of the first and the second text of a pair, added as positions are */
    ASH_ROLE_EMBED_NORM,
    ASH_ROLE_EMBED_NORM_BIAS,
    ASH_ROLE_POOL, /* of a classifier, between the first token's state and the head */
    ASH_ROLE_POOL_BIAS,
    ASH_ROLE_POOL_NORM,
    ASH_ROLE_FINAL_NORM,
    ASH_ROLE_FINAL_NORM_BIAS,
    ASH_ROLE_FUSE_CAPTURED, /* of a head as EAGLE-3 has it: from the streams of three layers to a state */
    ASH_ROLE_HEAD,
    ASH_ROLE_HEAD_BIAS,

    ASH_ROLE_FUSE, /* of a head for drafts: of token and state, each after its norm, side by side */
    ASH_ROLE_FUSE_TOKEN,
    ASH_ROLE_FUSE_STATE,
    ASH_ROLE_NORM1,
    ASH_ROLE_NORM1_BIAS,
    ASH_ROLE_QKV,
    ASH_ROLE_QKV_BIAS, /* fused (gpt2) */
    ASH_ROLE_Q,
    ASH_ROLE_Q_BIAS,
    ASH_ROLE_K,
    ASH_ROLE_K_BIAS,
    ASH_ROLE_V,
    ASH_ROLE_V_BIAS,
    ASH_ROLE_Q_NORM,
    ASH_ROLE_K_NORM,
    ASH_ROLE_Q_DOWN,
    ASH_ROLE_Q_DOWN_BIAS,
    ASH_ROLE_Q_DOWN_NORM,
    ASH_ROLE_Q_UP, /* latent attention */
    ASH_ROLE_KV_DOWN,
    ASH_ROLE_KV_DOWN_BIAS,
    ASH_ROLE_KV_DOWN_NORM,
    ASH_ROLE_KV_UP,
    ASH_ROLE_SINKS,    /* scores of attention that no key has */
    ASH_ROLE_STATE_IN, /* recurrent states */
    ASH_ROLE_STATE_IN_BIAS,
    ASH_ROLE_STATE_STEPS, /* of the delta rule: beta and steps, apart from the others */
    ASH_ROLE_STATE_CONV,
    ASH_ROLE_STATE_CONV_BIAS,
    ASH_ROLE_STATE_STEP_BIAS,
    ASH_ROLE_STATE_DECAY,
    ASH_ROLE_STATE_SKIP,
    ASH_ROLE_STATE_NORM,
    ASH_ROLE_STATE_OUT,
    ASH_ROLE_STATE_OUT_BIAS,
    ASH_ROLE_OUT,
    ASH_ROLE_OUT_BIAS,
    ASH_ROLE_NORM2,
    ASH_ROLE_NORM2_BIAS,
    ASH_ROLE_POST1, /* after attention, and after the feed-forward */
    ASH_ROLE_POST1_BIAS,
    ASH_ROLE_POST2,
    ASH_ROLE_POST2_BIAS,
    ASH_ROLE_SUM1, /* of the stream, after attention's output and that of the feed-forward joined it (bert) */
    ASH_ROLE_SUM1_BIAS,
    ASH_ROLE_SUM2,
    ASH_ROLE_SUM2_BIAS,
    ASH_ROLE_GATE_UP, /* fused (phi3) */
    ASH_ROLE_GATE,
    ASH_ROLE_GATE_BIAS,
    ASH_ROLE_UP,
    ASH_ROLE_UP_BIAS,
    ASH_ROLE_DOWN,
    ASH_ROLE_DOWN_BIAS,
    ASH_ROLE_ROUTER,
    ASH_ROLE_ROUTER_BIAS, /* added for choosing only */
    ASH_ROLE_ROUTER_ADD,  /* added to the scores */
    ASH_ROLE_SHARED_GATE,
    ASH_ROLE_SHARED_UP,
    ASH_ROLE_SHARED_DOWN,
    ASH_ROLE_SHARED_SCALE, /* a factor of them for each token */

    ASH_ROLE_EXPERT_GATE,
    ASH_ROLE_EXPERT_GATE_BIAS,
    ASH_ROLE_EXPERT_UP,
    ASH_ROLE_EXPERT_UP_BIAS,
    ASH_ROLE_EXPERT_GATE_UP, /* fused */
    ASH_ROLE_EXPERT_GATE_UP_BIAS,
    ASH_ROLE_EXPERT_DOWN,
    ASH_ROLE_EXPERT_DOWN_BIAS,
    ASH_ROLE_COUNT
};

/* Read into config what some families' files say. Common fields, and the family's form, are there before. Returns 0 or
 * a negative errno, with a sentence. */
typedef int ash_family_read_fn(const json_t *json, struct ash_model_config *config, struct ash_err *err);

#define ASH_FAMILY_READS_MAX 6

struct ash_family {
    const char *type;         /* config.json's model_type */
    const char *architecture; /* its "architectures" entry */
    const char *base_prefix;  /* before every name but the head's; some files leave it out */
    const char *layer_prefix; /* "layers.": base_prefix layer_prefix N "." name */
    /* By role; NULL: there is none. An expert's has one %zu; without it, one tensor has those of all experts, expert by
     * expert. */
    const char *const *names;
    struct ash_model_form form;
    ash_family_read_fn *reads[ASH_FAMILY_READS_MAX]; /* in this order; NULL after the last */
};

/* Heads of EAGLE-3, whose model_type is that of llama. */
extern const struct ash_family ash_family_eagle3;

/* By model_type, or NULL. */
const struct ash_family *ash_family_find(const char *type);

/* config_read.c, shared by the families' readers: the size at key, in [min, max]. An absent key keeps *value. Returns 0
 * or -EINVAL. */
int ash_config_size(const json_t *json, const char *key, size_t min, size_t max, size_t *value, struct ash_err *err);
/* The activation at key, of the family's kind of feed-forward layer; an absent key keeps it. -ENOTSUP for one that is
 * not computed. */
int ash_config_act(const json_t *json, const char *key, struct ash_model_config *config, struct ash_err *err);
/* config_rope.c: rotary positions, before the family's readers; what depends on these, after them, where config has its
 * source. */
int ash_config_rope(const json_t *json, struct ash_model_config *config, struct ash_err *err);
/* Returns 0 or -EINVAL. */
int ash_config_rope_finish(struct ash_model_config *config, struct ash_err *err);

#endif

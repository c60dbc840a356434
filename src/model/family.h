/* family - what sets one model type apart: the names of its tensors and how its config.json is read.
 * Adding a type means one entry in families.c. */
#ifndef ASH_MODEL_FAMILY_H
#define ASH_MODEL_FAMILY_H

#include "model/config.h"

/* What a tensor is for. The first group exists once, the second per layer, the third per expert of a layer. */
enum ash_role {
    ASH_ROLE_EMBED,
    ASH_ROLE_POSITION,
    ASH_ROLE_FINAL_NORM,
    ASH_ROLE_FINAL_NORM_BIAS,
    ASH_ROLE_HEAD,

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
    ASH_ROLE_OUT,
    ASH_ROLE_OUT_BIAS,
    ASH_ROLE_NORM2,
    ASH_ROLE_NORM2_BIAS,
    ASH_ROLE_GATE,
    ASH_ROLE_GATE_BIAS,
    ASH_ROLE_UP,
    ASH_ROLE_UP_BIAS,
    ASH_ROLE_DOWN,
    ASH_ROLE_DOWN_BIAS,
    ASH_ROLE_ROUTER,
    ASH_ROLE_ROUTER_BIAS,
    ASH_ROLE_SHARED_GATE,
    ASH_ROLE_SHARED_UP,
    ASH_ROLE_SHARED_DOWN,

    ASH_ROLE_EXPERT_GATE,
    ASH_ROLE_EXPERT_UP,
    ASH_ROLE_EXPERT_DOWN,
    ASH_ROLE_COUNT
};

struct ash_family {
    const char *type;         /* config.json's model_type */
    const char *architecture; /* its "architectures" entry */
    const char *base_prefix;  /* before every name but the head's; some files leave it out */
    const char *layer_prefix; /* "layers.": base_prefix layer_prefix N "." name */
    const char *const *names; /* by role; an expert's has one %zu */
    /* Fill config with the type's defaults and read what the json says. Common fields are read before. */
    int (*read)(const json_t *json, struct ash_model_config *config, struct ash_err *err);
};

/* By model_type, or NULL. */
const struct ash_family *ash_family_find(const char *type);

/* config.c, shared by the families' readers: the size at key, in [min, max]. An absent key keeps *value. Returns 0 or
 * -EINVAL. */
int ash_config_size(const json_t *json, const char *key, size_t min, size_t max, size_t *value, struct ash_err *err);
/* The activation at key (default_name if it is absent) as a kind of feed-forward layer. -ENOTSUP for one that is not
 * computed. */
int ash_config_act(const json_t *json, const char *key, const char *default_name, enum ash_mlp_kind *kind_out,
                   struct ash_err *err);

#endif

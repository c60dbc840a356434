/* gguf_arch - what GGUF files call model families and their tensors, and how they differ from folders, as data. */
#ifndef ASH_MODEL_FILES_GGUF_ARCH_H
#define ASH_MODEL_FILES_GGUF_ARCH_H

#include "model/family.h"

/* The two halves of ASH_ROLE_KV_UP, each for all heads; llama.cpp has the keys' one the other way round. */
#define ASH_GGUF_K_UP "attn_k_b.weight"
#define ASH_GGUF_V_UP "attn_v_b.weight"

/* Deviations of an architecture. */
enum ash_gguf_trait {
    ASH_GGUF_PERMUTED = 1 << 0,      /* rows of q and k are reordered: dims that rotate together are neighbours */
    ASH_GGUF_WINDOWED = 1 << 1,      /* the family of files that have a window */
    ASH_GGUF_SPARSE = 1 << 2,        /* the family of files that have experts */
    ASH_GGUF_POST_NORM2 = 1 << 3,    /* the norm before the feed-forward is called post_attention_norm */
    ASH_GGUF_LOGIT_DIVISOR = 1 << 4, /* logit_scale divides logits */
    ASH_GGUF_NORMALIZES = 1 << 5,    /* llama.cpp: weights of the chosen experts always sum to 1 */
    ASH_GGUF_KEEPS_WEIGHTS = 1 << 6, /* llama.cpp: they never do */
    ASH_GGUF_ALWAYS_TIED = 1 << 7,   /* there is no output matrix */
    ASH_GGUF_SCALE_BY_SIZE = 1 << 8, /* the scale of attention is not said (gemma) */
    ASH_GGUF_TWO_WIDTHS = 1 << 9,    /* feed_forward_length is that of layers without experts (llama4) */
    ASH_GGUF_UNTRUNCATED = 1 << 10,  /* yarn does not round its range (gpt_oss) */
    ASH_GGUF_SIGMOID = 1 << 11,      /* the family of files whose experts are scored by a sigmoid */
};

struct ash_gguf_arch {
    const char *name;
    const char *family; /* its model_type */
    unsigned traits;
    uint8_t full_every; /* of layers under a window, where the file gives no pattern; 0: a window is for all layers */
};

/* The architecture that a model of this family is written as, or NULL. */
const struct ash_gguf_arch *ash_gguf_arch_of(const struct ash_family *family);
/* The architecture of this name, for files that have these of ASH_GGUF_WINDOWED, SPARSE and SIGMOID; or NULL. */
const struct ash_gguf_arch *ash_gguf_arch_find(const char *name, unsigned has);
/* "llama, mistral, ...": the families, for messages. */
const char *ash_gguf_families(void);
/* What a tensor is called, without its layer's prefix; NULL if there is none. */
const char *ash_gguf_role_name(const struct ash_gguf_arch *arch, enum ash_role role);
/* The family as its GGUF files have it: with gate and up of experts apart, where a folder fuses them. */
const struct ash_family *ash_gguf_family_apart(const struct ash_family *family);

#endif

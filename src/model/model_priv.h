/* The inside of a model: its parameters by role. */
#ifndef ASH_MODEL_MODEL_PRIV_H
#define ASH_MODEL_MODEL_PRIV_H

#include "base/prefetcher.h"
#include "model/family.h"
#include "model/model.h"
#include "model/shards.h"
#include "storage/gguf/gguf.h"
#include "storage/safetensors/safetensors.h"

struct ash_adapter;
struct ash_load;
struct ash_quantised;

#define ASH_PARAM_ALIGN 16 /* elements; each parameter starts on a cache line of the flat buffers */
#define ASH_NO_PARAM (-1)

/* Index of a parameter by role, or ASH_NO_PARAM. Expert roles give expert 0's; see ash_layer_expert. */
struct ash_layer {
    int32_t param[ASH_ROLE_COUNT];
    int32_t expert_params; /* how many an expert has */
};

struct ash_model {
    struct ash_model_config config; /* of the slice: what passes compute with */
    struct ash_model_config whole;  /* shares config's json */
    struct ash_slice slice;
    struct ash_shards shards;
    uint32_t layer_ids[ASH_MODEL_LAYERS_MAX]; /* of the slice's layers, in the whole model */
    struct ash_range vocab, experts;          /* rows of the output matrix, experts of each sparse layer */
    struct ash_param *params;
    size_t param_count, param_capacity;
    size_t size, weight_count, dense_size, expert_size;
    size_t tied_grad_offset;         /* of a tied output matrix's own sum in a buffer of gradients */
    struct ash_layer top;            /* roles that exist once */
    struct ash_layer *layers;        /* [config.layers] */
    struct ash_safetensors *files;   /* what the weights are mapped from; NULL once owned */
    struct ash_quantised *quantised; /* those of its tensors that are quantised, or NULL */
    json_t *generation;              /* generation_config.json, or NULL */
    struct ash_buffer values;        /* owned float32 weights; empty while mapped */
    struct ash_buffer vectors;       /* float32 copies of 1-D parameters whose values are narrower */
    struct ash_exec *exec;           /* in whose memory all of them are; NULL: the host's */
    struct ash_buffer placed;        /* mapped weights, copied there: see place.c */
    size_t *vector_offset;           /* [param_count] element offset in vectors */
    size_t ones_offset; /* in vectors: of ones, as many as the widest norm whose weight has_one, or that has none */
    size_t zero_offset; /* in vectors: of a 0, as a float and as the number of a row */
    bool round_bf16;
    bool is_fp8;                             /* and linear products of layers in e4m3: ash_model_use_fp8 */
    bool is_kv_dtype_given;                  /* by ash_model_use_kv_dtype */
    enum ash_dtype kv_dtype;                 /* if so */
    struct ash_buffer packed;                /* see packed.c */
    const struct ash_matrix_ops *packed_for; /* whose pack() wrote it; NULL: not packed */
    bool packed_bf16;                        /* round_bf16 when that was */
    struct ash_prefetcher *prefetcher;       /* brings mapped weights in, or NULL */
    struct ash_load *load;                   /* packs them from the disk, or NULL */
    /* with adapters, params has those of the base behind its param_count own ones: for passes alone */
    size_t base_count;
    bool is_brought;                   /* ash_model_bring was here */
    bool lacks_score;                  /* the folder has no score.weight: the caller draws one */
    struct ash_adapter *adapters;      /* [base_count]: of the base's matrices */
    struct ash_model *base;            /* whose values they are; NULL in an outline */
    struct ash_lora *own_lora;         /* config.lora, if the model was opened with it; NULL: borrowed */
    struct ash_buffer adapter_scratch; /* see ash_lora_reserve */
    struct ash_buffer dropout_scratch; /* see ash_lora_reserve_dropout */
    void *base_quant;                  /* the base's matrices, where they are held quantised */
    void *base_parts;                  /* what this rank of tp has of matrices of the base that lie scattered */
    struct ash_buffer dense_scratch;   /* see ash_lora_reserve_dense */
    size_t dense_count;                /* on a device: elements of the largest matrix that it has room for */
    void *joined;                      /* values that a GGUF file has in another form, or in parts */
    struct ash_gguf *gguf; /* the file, where the model came from one: it can compute, but not train or be saved */
};

/* Are rows of q and k in another order than in a folder? In GGUF files of some families they are. */
static inline bool ash_model_rows_permuted(const struct ash_model *model)
{
    return model->gguf != NULL && model->config.rope.interleaved && !model->config.family->form.interleaved;
}

/* views.c: have all parameters read where the owned values are. */
void ash_model_bind_owned(struct ash_model *model);

/* views.c: room for the float32 copies of vectors in host memory. Returns 0 or -ENOMEM. */
int ash_model_open_vectors(struct ash_model *model, struct ash_err *err);
/* place.c: have mapped weights read from the file again, and what a device had of them freed. Returns 0 or -ENOMEM. */
int ash_model_unplace(struct ash_model *model, struct ash_err *err);

/* bring.c: is any weight in a file that is remote (storage/io/remote_file.h)? */
bool ash_model_is_remote(const struct ash_model *model);
/* Is parameter index (< param_count)? Of a folder with quantised weights others are in its files. */
bool ash_model_param_is_remote(const struct ash_model *model, size_t index);
/* The mapping that a mapped weight lies in, or NULL if it is a copy. */
const struct ash_map *ash_model_map(const struct ash_model *model, const void *data);
/* Have the bytes of all parameters in memory. A no-op but for remote ones, and the second time. Returns 0 or why they
 * could not be read. */
int ash_model_bring(struct ash_model *model, struct ash_err *err);
/* The same for those that are not matrices. */
int ash_model_bring_vectors(const struct ash_model *model, struct ash_err *err);
/* The same for what this slice holds (the pieces of ash_model_held) of some parameters from first on. *end_out: the
 * first that is not among them. */
int ash_model_bring_held(const struct ash_model *model, size_t first, size_t *end_out, struct ash_err *err);
/* param_pieces.c: what of piece index of a parameter this rank holds: all, or (weights that are sharded) its shard. */
struct ash_piece ash_model_held(const struct ash_model *model, const struct ash_param *param, size_t index);

/* packed.c: are weights packed in host memory for exec? */
bool ash_model_packs_on_host(const struct ash_exec *exec);
/* Bytes that a parameter takes packed; 0 if it is not packed. */
size_t ash_model_packed_bytes(const struct ash_model *model, const struct ash_exec *exec, int32_t index);
/* Memory for all that can be packed, and each parameter's place in it, still to be written. Returns 0 or -ENOMEM. */
int ash_model_place_packed(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err);
/* Forget their places; a reader that still packs (load.h) has ended. */
void ash_model_drop_packed(struct ash_model *model);
/* pack.c: pack the quantised matrices of a base beside what they are: passes that train read both. Returns 0 or
 * -ENOMEM. */
int ash_model_pack_base(struct ash_model *model, struct ash_exec *exec, struct ash_err *err);
/* Forget the packed weights, and what still packs them. */
void ash_model_unpack(struct ash_model *model);

/* grads.c: where parameters are in flat buffers, once all are listed. */
void ash_model_place_experts(struct ash_model *model);
/* grads.c: is a parameter's gradient a product over tokens alone, which can write its first terms? */
bool ash_param_overwrites(const struct ash_param *param);

/* model.c: room for owned values, of which only what this rank holds takes memory. Returns 0 or -ENOMEM. */
int ash_model_open_values(struct ash_model *model, struct ash_err *err);
/* Everything but the weights, of a slice (NULL: all). Takes over config's reference, on failure too.
 * Returns 0 or -ENOMEM; the caller closes *model_out. */
int ash_model_alloc(const struct ash_model_config *config, const struct ash_slice *slice, struct ash_model **model_out,
                    struct ash_err *err);

/* param_names.c: the name of a role's tensor; layer -1: of none. A part of a tensor that experts share is named after
 * it, with its number behind. */
void ash_param_format_name(const struct ash_family *family, enum ash_role role, int layer, size_t expert, char *buf,
                           size_t buf_bytes);
/* A head for drafts has the norm before the output matrix, which it shares with its model, in its layer. */
void ash_param_name_shared_norm(struct ash_model *model);
/* params.c: fill model's parameter list from its config. Returns 0 or -ENOMEM. */
int ash_model_list_params(struct ash_model *model, struct ash_err *err);

static inline bool ash_layer_has(const struct ash_layer *layer, enum ash_role role)
{
    return layer->param[role] != ASH_NO_PARAM;
}

/* Index of an expert's parameter, or ASH_NO_PARAM: those of an expert follow each other. */
static inline int32_t ash_layer_expert(const struct ash_layer *layer, enum ash_role role, size_t expert)
{
    return layer->param[role] == ASH_NO_PARAM ? ASH_NO_PARAM
                                              : layer->param[role] + layer->expert_params * (int32_t)expert;
}

/* A 1-D parameter as float32, or NULL for ASH_NO_PARAM. */
const float *ash_model_vector(const struct ash_model *model, int32_t param);

#endif

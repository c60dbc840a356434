/* random_llama DIR [LAYERS]: a Hugging Face folder of a Llama of 1.1e9 random bf16 weights (22 layers), with a
 * tokenizer that knows bytes and made-up words. Speed does not depend on what weights say; a folder without a download
 * makes the comparison repeatable. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bf16.h"
#include "base/json.h"
#include "base/rng.h"
#include "storage/safetensors/safetensors.h"

#define VOCAB 32000
#define HIDDEN 2048
#define LAYERS 22 /* the most there can be */
#define HEADS 32
#define KV_HEADS 4
#define FFN 5632
#define POSITIONS 8192
#define TENSORS (LAYERS * 9 + 3)
#define FIRST_WORD 259 /* the ids before it are special tokens and bytes */
#define SPREAD 0.035f  /* weights are uniform in [-SPREAD, SPREAD] */

struct folder {
    struct ash_tensor_spec specs[TENSORS];
    char names[TENSORS][64];
    size_t count;
};

static void add_tensor(struct folder *folder, const char *name, size_t rows, size_t cols)
{
    struct ash_tensor_spec *spec = &folder->specs[folder->count];

    snprintf(folder->names[folder->count], sizeof(folder->names[0]), "%s", name);
    *spec = (struct ash_tensor_spec){.name = folder->names[folder->count], .dtype = ASH_BF16, .dims = {rows, cols}};
    spec->dim_count = cols > 0 ? 2 : 1;
    folder->count++;
}

static void add_layer(struct folder *folder, int layer)
{
    static const struct {
        const char *name;
        size_t rows, cols;
    } parts[] = {
        {"input_layernorm", HIDDEN, 0},
        {"self_attn.q_proj", HIDDEN, HIDDEN},
        {"self_attn.k_proj", HIDDEN / HEADS * KV_HEADS, HIDDEN},
        {"self_attn.v_proj", HIDDEN / HEADS * KV_HEADS, HIDDEN},
        {"self_attn.o_proj", HIDDEN, HIDDEN},
        {"post_attention_layernorm", HIDDEN, 0},
        {"mlp.gate_proj", FFN, HIDDEN},
        {"mlp.up_proj", FFN, HIDDEN},
        {"mlp.down_proj", HIDDEN, FFN},
    };
    char name[64];

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(name, sizeof(name), "model.layers.%d.%s.weight", layer, parts[i].name);
        add_tensor(folder, name, parts[i].rows, parts[i].cols);
    }
}

/* Random bf16 values, four of each random number; norms are 1. The last matrix gives special tokens and bytes a logit
 * of
 * 0, so that answers are words: not every server can write bytes that are no text. */
static int fill(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    const struct folder *folder = ctx;
    uint16_t *values = buf;
    size_t first = first_byte / sizeof(*values);
    uint64_t bits = 0;

    for (size_t i = 0; i < size_bytes / sizeof(*values); i++) {
        size_t at = first + i;
        if (i == 0 || at % 4 == 0) bits = ash_rng_u64(1, index, at / 4);
        uint16_t word = (uint16_t)(bits >> at % 4 * 16);
        bool norm = folder->specs[index].dim_count == 1;
        bool silent = index + 1 == folder->count && at < FIRST_WORD * HIDDEN;
        values[i] = ash_f32_to_bf16(norm ? 1.0f : silent ? 0.0f : ((float)word / 32768.0f - 1.0f) * SPREAD);
    }
    return 0;
}

static int write_weights(const char *dir, int layers, struct ash_err *err)
{
    static struct folder folder;

    add_tensor(&folder, "model.embed_tokens.weight", VOCAB, HIDDEN);
    for (int layer = 0; layer < layers; layer++)
        add_layer(&folder, layer);
    add_tensor(&folder, "model.norm.weight", HIDDEN, 0);
    add_tensor(&folder, "lm_head.weight", VOCAB, HIDDEN);
    return ash_safetensors_write_folder(dir, folder.specs, folder.count, 0, fill, &folder, err);
}

static json_t *config_json(int layers)
{
    return json_pack("{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, s:s, s:i, s:i}", "architectures",
                     "LlamaForCausalLM", "model_type", "llama", "vocab_size", VOCAB, "hidden_size", HIDDEN,
                     "num_hidden_layers", layers, "num_attention_heads", HEADS, "num_key_value_heads", KV_HEADS,
                     "intermediate_size", FFN, "max_position_embeddings", POSITIONS, "rms_norm_eps", 1e-5, "rope_theta",
                     10000.0, "tie_word_embeddings", 0, "torch_dtype", "bfloat16", "bos_token_id", 1, "eos_token_id",
                     2);
}

/* Three special tokens, a token for each byte, and words that no text holds. */
static json_t *vocab_json(void)
{
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    json_t *vocab = json_object();
    char name[32];

    for (int id = 0; id < VOCAB; id++) {
        if (id < 3)
            snprintf(name, sizeof(name), "%s", special[id]);
        else if (id < FIRST_WORD)
            snprintf(name, sizeof(name), "<0x%02X>", (unsigned)(id - 3));
        else
            snprintf(name, sizeof(name), "\xe2\x96\x81w%d", id - FIRST_WORD);
        json_object_set_new(vocab, name, json_integer(id));
    }
    return vocab;
}

static json_t *special_json(int id, const char *text)
{
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", text, "single_word", 0, "lstrip", 0,
                     "rstrip", 0, "normalized", 0, "special", 1);
}

static json_t *tokenizer_json(void)
{
    json_t *model = json_pack("{s:s, s:s, s:b, s:b, s:o, s:[]}", "type", "BPE", "unk_token", "<unk>", "fuse_unk", 1,
                              "byte_fallback", 1, "vocab", vocab_json(), "merges");
    json_t *normalizer =
        json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ", "content", "\xe2\x96\x81");
    json_t *decoder =
        json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]}", "type", "Sequence", "decoders", "type", "Replace",
                  "pattern", "String", "\xe2\x96\x81", "content", " ", "type", "ByteFallback", "type", "Fuse");

    return json_pack("{s:s, s:n, s:n, s:[o, o, o], s:o, s:n, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", special_json(0, "<unk>"), special_json(1, "<s>"), special_json(2, "</s>"),
                     "normalizer", normalizer, "pre_tokenizer", "post_processor", "decoder", decoder, "model", model);
}

static int write_json(const char *dir, const char *name, json_t *json, struct ash_err *err)
{
    char path[4096];
    int rc;

    if (json == NULL) return ash_err_set(err, -ENOMEM, "no memory for %s", name);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    rc = ash_json_save(path, json, err);
    json_decref(json);
    return rc;
}

int main(int argc, char **argv)
{
    long layers = argc == 3 ? strtol(argv[2], NULL, 10) : LAYERS;
    struct ash_err err = {0};
    int rc;

    if (argc < 2 || argc > 3 || layers < 1 || layers > LAYERS) {
        fprintf(stderr, "usage: random_llama DIR [LAYERS]\n");
        return 2;
    }
    if (mkdir(argv[1], 0777) < 0 && errno != EEXIST) {
        fprintf(stderr, "random_llama: cannot make '%s': %s\n", argv[1], strerror(errno));
        return 1;
    }
    rc = write_json(argv[1], "config.json", config_json((int)layers), &err);
    if (rc == 0) rc = write_json(argv[1], "tokenizer.json", tokenizer_json(), &err);
    if (rc == 0) rc = write_weights(argv[1], (int)layers, &err);
    if (rc < 0) fprintf(stderr, "random_llama: %s\n", err.text);
    return rc < 0;
}

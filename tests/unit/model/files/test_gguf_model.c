/* Models from GGUF files: the same bits as the folder they were made from,
 * quantised products in their place, and a sentence for everything that cannot
 * be. The files are made here from the golden llama models, the way llama.cpp's
 * converter does it. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/bf16.h"
#include "base/file.h"
#include "base/rng.h"
#include "model/files/open.h"
#include "model/files/save.h"
#include "model/model.h"
#include "model/pass/pass.h"
#include "unit/model/golden_models.h"
#include "unit/model/infer_rows.h"
#include "unit/storage/gguf_maker.h"
#include "unit/storage/scratch.h"

#define ROWS 23

/* A difference from the good file. */
struct twist {
    const char *architecture, *extra_tensor, *leave_out, *rope_scaling;
    uint32_t experts, parts, rope_dims, scale_group;
    float extra_value, rope_factor;
};

static const struct {
    const char *ours, *theirs;
} names[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
};

static void gguf_name(const struct ash_param *param, char *buf, size_t buf_bytes)
{
    const char *local = param->name;

    if (param->layer >= 0) local = strchr(param->name + strlen("model.layers."), '.') + 1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(local, names[i].ours) != 0) continue;
        if (param->layer < 0)
            snprintf(buf, buf_bytes, "%s", names[i].theirs);
        else
            snprintf(buf, buf_bytes, "blk.%d.%s", param->layer, names[i].theirs);
        return;
    }
    fail_msg("no name for %s", param->name);
}

/* ---- making a file ----------------------------------------------------------------------------------------------- */

static void put_half(uint8_t *to, float value)
{
    uint16_t half = ash_f32_to_f16(value);

    memcpy(to, &half, sizeof(half));
}

static void quantise(const float *x, size_t count, enum ash_dtype dtype, uint8_t *out)
{
    for (size_t b = 0; b < count; b += 32, out += ash_dtype_bytes(dtype)) {
        float amax = 0, d;

        for (size_t i = 0; i < 32; i++)
            amax = fmaxf(amax, fabsf(x[b + i]));
        d = dtype == ASH_Q8_0 ? amax / 127 : amax / 7;
        put_half(out, d);
        for (size_t i = 0; i < 32; i++) {
            int q = d > 0 ? (int)lrintf(x[b + i] / d) : 0;

            if (dtype == ASH_Q8_0)
                out[2 + i] = (uint8_t)(int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
            else if (i < 16)
                out[2 + i] = (uint8_t)(q + 8);
            else
                out[2 + i - 16] |= (uint8_t)((q + 8) << 4);
        }
    }
}

/* Row r of the file's matrix is row source(r) of the folder's: neighbours in
 * the file are halves in the folder. */
static size_t source_row(const struct ash_param *param, size_t head_dim, size_t row)
{
    size_t in_head = row % head_dim;

    if (strstr(param->name, "q_proj") == NULL && strstr(param->name, "k_proj") == NULL) return row;
    return row - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
}

static void add_tensor(struct gguf_maker *maker, const struct ash_param *param, size_t head_dim, enum ash_dtype wanted)
{
    size_t cols = param->dims[param->dim_count - 1], rows = param->count / cols;
    bool quant = ash_dtype_block(wanted) > 1 && param->is_matrix && cols % 32 == 0;
    enum ash_dtype dtype = quant ? wanted : param->dtype;
    uint32_t type = dtype == ASH_Q8_0 ? 8 : dtype == ASH_Q4_0 ? 2 : dtype == ASH_BF16 ? 30 : 0;
    size_t row_bytes = ash_dtype_size(dtype, cols);
    char name[96];
    uint8_t *data;

    gguf_name(param, name, sizeof(name));
    data = maker_tensor(maker, name, type, (uint32_t)param->dim_count, (uint64_t[]){cols, rows}, rows * row_bytes);
    for (size_t r = 0; r < rows; r++) {
        const char *from =
            (const char *)param->data + source_row(param, head_dim, r) * ash_dtype_size(param->dtype, cols);

        if (!quant) {
            memcpy(data + r * row_bytes, from, row_bytes);
            continue;
        }
        float wide[1024];
        for (size_t c = 0; c < cols; c++)
            wide[c] = param->dtype == ASH_F32 ? ((const float *)(const void *)from)[c]
                                              : ash_bf16_to_f32(((const uint16_t *)(const void *)from)[c]);
        quantise(wide, cols, dtype, data + r * row_bytes);
    }
}

static void add_metadata(struct gguf_maker *maker, const struct ash_model_config *c, const struct twist *twist)
{
    maker_text(maker, "general.architecture", twist->architecture != NULL ? twist->architecture : "llama");
    maker_int(maker, "llama.context_length", (uint32_t)c->max_positions);
    maker_int(maker, "llama.embedding_length", (uint32_t)c->hidden);
    maker_int(maker, "llama.block_count", (uint32_t)c->layers);
    maker_int(maker, "llama.feed_forward_length", (uint32_t)c->ffn);
    maker_int(maker, "llama.attention.head_count", (uint32_t)c->heads);
    maker_int(maker, "llama.attention.head_count_kv", (uint32_t)c->kv_heads);
    maker_float(maker, "llama.attention.layer_norm_rms_epsilon", (float)c->norm_eps);
    maker_float(maker, "llama.rope.freq_base", (float)c->rope.theta);
    maker_int(maker, "llama.rope.dimension_count", twist->rope_dims != 0 ? twist->rope_dims : (uint32_t)c->head_dim);
    maker_int(maker, "tokenizer.ggml.eos_token_id", 2);
    if (twist->experts != 0) maker_int(maker, "llama.expert_count", twist->experts);
    if (twist->parts != 0) maker_int(maker, "split.count", twist->parts);
    if (twist->scale_group != 0) maker_int(maker, "ashlar.scale_group", twist->scale_group);
    if (c->rope.kind == ASH_ROPE_LINEAR) {
        maker_text(maker, "llama.rope.scaling.type", "linear");
        maker_float(maker, "llama.rope.scaling.factor", (float)c->rope.factor);
    } else if (twist->rope_factor != 0) {
        maker_text(maker, "llama.rope.scaling.type", "linear");
        maker_float(maker, "llama.rope.scaling.factor", twist->rope_factor);
    } else if (twist->rope_scaling != NULL) {
        maker_text(maker, "llama.rope.scaling.type", twist->rope_scaling);
    }
}

/* model as a GGUF file of matrices of dtype (those whose rows are whole blocks)
 * at path. */
static void write_gguf(const struct ash_model *model, enum ash_dtype dtype, const struct twist *twist, const char *path)
{
    static const struct twist none;
    struct gguf_maker *maker = malloc(sizeof(*maker));
    struct ash_err err = {0};

    assert_non_null(maker);
    if (twist == NULL) twist = &none;
    maker_init(maker, 3);
    add_metadata(maker, ash_model_get_config(model), twist);
    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);

        if (twist->leave_out == NULL || strstr(param->name, twist->leave_out) == NULL)
            add_tensor(maker, param, ash_model_get_config(model)->head_dim, dtype);
    }
    if (twist->extra_tensor != NULL) {
        uint8_t *data = maker_tensor(maker, twist->extra_tensor, 0, 1, (uint64_t[]){4}, 16);

        for (size_t i = 0; i < 4; i++)
            memcpy(data + 4 * i, &twist->extra_value, sizeof(float));
    }
    maker_finish(maker);
    if (ash_file_replace(path, maker->file, maker->file_bytes, &err) < 0) fail_msg("%s", err.text);
    maker_fini(maker);
    free(maker);
}

/* ---- running it -------------------------------------------------------------------------------------------------- */

/* Logits of ROWS tokens, in pieces of `piece` rows on a cache, from weights as they lie in the file or packed. */
static float *infer_from(struct ash_model *model, bool pack, const char *backend, int threads, size_t piece)
{
    struct ash_exec exec;
    struct ash_err err = {0};
    int32_t ids[ROWS];
    float *logits;

    for (size_t i = 0; i < ROWS; i++)
        ids[i] = (int32_t)ash_rng_below(3, 1, i, ash_model_get_config(model)->vocab);
    if (ash_exec_init(&exec, backend, threads, &err) < 0) fail_msg("%s", err.text);
    if (pack && ash_model_pack(model, &exec, &err) < 0) fail_msg("%s", err.text);
    logits = infer_rows(model, &exec, ids, ROWS, piece);
    ash_exec_fini(&exec);
    return logits;
}

static float *infer(struct ash_model *model, const char *backend, int threads, size_t piece)
{
    return infer_from(model, false, backend, threads, piece);
}

static void check_same_logits(struct ash_model *want_model, struct ash_model *got_model)
{
    float *want = infer(want_model, NULL, 1, ROWS), *got = infer(got_model, NULL, 1, ROWS);

    assert_memory_equal(want, got, ROWS * ash_model_get_config(want_model)->vocab * sizeof(float));
    free(want);
    free(got);
}

static const char *gguf_path(void)
{
    return scratch_path("made.gguf");
}

static struct ash_model *open_made(const struct ash_model *folder, enum ash_dtype dtype)
{
    struct ash_model *model = NULL;
    struct ash_err err = {0};

    write_gguf(folder, dtype, NULL, gguf_path());
    if (ash_model_open(gguf_path(), &model, &err) < 0) fail_msg("%s", err.text);
    return model;
}

/* The size of the difference, as a share of what is wanted. */
static double distance(const float *want, const float *got, size_t count)
{
    double size = 0, error = 0;

    for (size_t i = 0; i < count; i++) {
        size += (double)want[i] * (double)want[i];
        error += pow((double)want[i] - (double)got[i], 2);
    }
    return sqrt(error / size);
}

/* Reordered rows and interleaved rotation give the folder's bits. */
static void test_same_bits(void **state)
{
    static const char *const models[] = {"llama-gqa", "llama-linear-rope-bf16"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ash_model *folder = golden_open(models[i]), *model = open_made(folder, ASH_F32);

        check_same_logits(folder, model);
        ash_model_close(model);
        ash_model_close(folder);
    }
}

/* Quantised: near the original, and the same bits for every backend, thread
 * count and piece. */
static void test_quantised(void **state)
{
    static const struct {
        enum ash_dtype dtype;
        double tolerance; /* of the difference's size, as a share of the logits' */
    } kinds[] = {{ASH_Q8_0, 0.02}, {ASH_Q4_0, 0.3}};

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct ash_model *folder = golden_open("llama-gqa"), *model = open_made(folder, kinds[k].dtype);
        size_t count = ROWS * ash_model_get_config(folder)->vocab;
        float *exact = infer(folder, "ref", 1, ROWS), *want = infer(model, "ref", 1, ROWS);
        double error = distance(exact, want, count);

        assert_int_equal(ash_model_find(model, "model.layers.0.self_attn.q_proj.weight")->dtype, kinds[k].dtype);
        assert_int_equal(ash_model_find(model, "model.layers.0.mlp.down_proj.weight")->dtype, ASH_F32); /* rows of 56 */
        if (error > kinds[k].tolerance || error == 0) fail_msg("the error is %g", error);
        for (const char *const *name = ash_exec_backends(); *name != NULL; name++) {
            static const size_t pieces[] = {1, 2, 9, ROWS};

            for (size_t p = 0; p < 4; p++) {
                float *got = infer(model, *name, p % 2 == 0 ? 1 : 3, pieces[p]);

                assert_memory_equal(want, got, count * sizeof(float));
                free(got);
            }
        }
        free(want);
        free(exact);
        ash_model_close(model);
        ash_model_close(folder);
    }
}

/* The writer: unquantised it keeps the bits of the folder, quantised it is near; and what it cannot write, it says. */
static void test_saved(void **state)
{
    static const struct {
        enum ash_dtype dtype;
        double tolerance;
    } kinds[] = {{ASH_F32, 0}, {ASH_F16, 0.002}, {ASH_BF16, 0.02}, {ASH_Q8_0, 0.02}, {ASH_Q4_0, 0.3}};

    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct ash_model *folder = golden_open("llama-gqa"), *model = NULL;
        size_t count = ROWS * ash_model_get_config(folder)->vocab;
        const char *path = scratch_path("saved.gguf");
        struct golden_saved saved = {0};
        struct ash_save_watch watch = {golden_hear, &saved};
        struct ash_err err = {0};

        unlink(path);
        if (ash_model_save_gguf(folder, NULL, path, kinds[k].dtype, NULL, &watch, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(saved.count, ash_model_weight_count(folder));
        assert_true(saved.calls > 1 && saved.count == saved.total);
        assert_int_equal(ash_model_save_gguf(folder, NULL, path, kinds[k].dtype, NULL, NULL, &err), -EEXIST);
        if (ash_model_open(path, &model, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(ash_model_save_gguf(model, NULL, path, kinds[k].dtype, NULL, NULL, &err), -ENOTSUP);
        float *want = infer(folder, NULL, 1, ROWS), *got = infer(model, NULL, 1, ROWS);
        if (kinds[k].tolerance == 0) assert_memory_equal(want, got, count * sizeof(float));
        if (distance(want, got, count) > kinds[k].tolerance) fail_msg("the error is %g", distance(want, got, count));
        free(want);
        free(got);
        ash_model_close(model);
        ash_model_close(folder);
    }
}

/* A llama whose rows are a whole group and a part of one, drawn. */
static struct ash_model *draw_model(void)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 70, \"hidden_size\": 320, \"intermediate_size\": 608,"
        " \"num_hidden_layers\": 1, \"num_attention_heads\": 10, \"num_key_value_heads\": 2,"
        " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}";
    json_t *json = json_loads(text, 0, NULL);
    struct ash_model_config config;
    struct ash_model *model = NULL;
    struct ash_err err = {0};

    if (ash_model_config_parse(json, &config, &err) < 0) fail_msg("%s", err.text);
    if (ash_model_create(&config, 5, &model, &err) < 0) fail_msg("%s", err.text);
    json_decref(json);
    return model;
}

static struct ash_model *save_and_open(const struct ash_model *model, enum ash_dtype dtype)
{
    const char *path = scratch_path("drawn.gguf");
    struct ash_model *opened = NULL;
    struct ash_err err = {0};

    unlink(path);
    if (ash_model_save_gguf(model, NULL, path, dtype, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
    if (ash_model_open(path, &opened, &err) < 0) fail_msg("%s", err.text);
    return opened;
}

/* Wide groups: about as near to the original as blocks are. */
static void test_wide_is_near(void **state)
{
    static const enum ash_dtype kinds[] = {ASH_Q8_0, ASH_Q8_W};
    struct ash_model *original = draw_model();
    size_t count = ROWS * ash_model_get_config(original)->vocab;
    float *exact = infer(original, NULL, 1, ROWS);
    double errors[2];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ash_model *model = save_and_open(original, kinds[i]);
        float *got = infer(model, NULL, 1, ROWS);

        assert_int_equal(ash_model_find(model, "model.layers.0.mlp.down_proj.weight")->dtype, kinds[i]);
        errors[i] = distance(exact, got, count);
        free(got);
        ash_model_close(model);
    }
    if (errors[1] > 2 * errors[0]) fail_msg("the error is %g; with blocks it is %g", errors[1], errors[0]);
    free(exact);
    ash_model_close(original);
}

/* The same bits for every backend, piece and layout. */
static void test_wide(void **state)
{
    static const size_t pieces[] = {1, 2, 11, ROWS};
    struct ash_model *original = draw_model();
    size_t count = ROWS * ash_model_get_config(original)->vocab;

    (void)state;
    for (const char *const *name = ash_exec_backends(); *name != NULL; name++) {
        struct ash_model *model = save_and_open(original, ASH_Q8_W);
        float *want = infer(model, "ref", 1, ROWS);

        for (size_t i = 0; i < 8; i++) {
            float *got = infer_from(model, i >= 4, *name, i % 2 == 0 ? 1 : 3, pieces[i % 4]);

            assert_memory_equal(want, got, count * sizeof(float));
            free(got);
        }
        free(want);
        ash_model_close(model);
    }
    ash_model_close(original);
}

/* A file that promises one scale a group and has several. */
static void test_broken_promise(void **state)
{
    struct ash_model *original = draw_model(), *model = NULL;
    struct twist twist = {.scale_group = ASH_QUANT_GROUP};
    struct ash_err err = {0};

    (void)state;
    write_gguf(original, ASH_Q8_0, &twist, gguf_path());
    assert_int_equal(ash_model_open(gguf_path(), &model, &err), -EINVAL);
    assert_non_null(strstr(err.text, "several scales per 256"));
    ash_model_close(original);
}

/* Every kind of model that can be written: the bits of the folder. */
static void test_saved_kinds(void **state)
{
    static const char *const models[] = {"llama-bias-tied", "llama3-rope", "llama-linear-rope-bf16", "mistral-window",
                                         "qwen3-tied-sharded"};

    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct ash_model *folder = golden_open(models[i]), *model = NULL;
        const char *path = scratch_path("saved.gguf");
        struct ash_err err = {0};

        unlink(path);
        if (ash_model_save_gguf(folder, NULL, path, ASH_F32, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
        if (ash_model_open(path, &model, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(ash_model_get_config(model)->window[0], ash_model_get_config(folder)->window[0]);
        assert_int_equal(ash_model_get_config(model)->tied, ash_model_get_config(folder)->tied);
        check_same_logits(folder, model);
        ash_model_close(model);
        ash_model_close(folder);
    }
}

/* Factors of no known rule are taken as they are: all 2 is a linear scaling by 2. */
static void test_factors(void **state)
{
    static const struct twist kinds[] = {{.rope_factor = 2}, {.extra_tensor = "rope_freqs.weight", .extra_value = 2}};
    struct ash_model *folder = golden_open("llama-gqa");
    size_t count = ROWS * ash_model_get_config(folder)->vocab;
    float *logits[2], *unscaled = infer(folder, NULL, 1, ROWS);

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ash_model *model = NULL;
        struct ash_err err = {0};

        write_gguf(folder, ASH_F32, &kinds[i], gguf_path());
        if (ash_model_open(gguf_path(), &model, &err) < 0) fail_msg("%s", err.text);
        logits[i] = infer(model, NULL, 1, ROWS);
        ash_model_close(model);
    }
    assert_memory_equal(logits[0], logits[1], count * sizeof(float));
    assert_memory_not_equal(logits[0], unscaled, count * sizeof(float));
    free(logits[0]);
    free(logits[1]);
    free(unscaled);
    ash_model_close(folder);
}

static void test_not_saved(void **state)
{
    static const char *const models[] = {"qwen2-window", "qwen3_moe-mixed", "gpt2-scaled", "families/gpt_neox"};

    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct ash_model *folder = golden_open(models[i]);
        const char *path = scratch_path("never.gguf");
        struct ash_err err = {0};

        assert_int_equal(ash_model_save_gguf(folder, NULL, path, ASH_Q8_0, NULL, NULL, &err), -ENOTSUP);
        assert_true(err.text[0] != '\0' && !ash_path_exists(path));
        ash_model_close(folder);
    }
}

/* What a model from a GGUF file is not for. */
static void test_refused(void **state)
{
    struct ash_model *folder = golden_open("llama-gqa"), *model = open_made(folder, ASH_Q8_0);
    struct ash_pass_opts opts = {.max_rows = 4, .backward = true};
    struct ash_pass *pass = NULL;
    struct ash_exec exec;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_exec_init(&exec, NULL, 1, &err), 0);
    assert_int_equal(ash_model_own(model, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "cannot be trained"));
    assert_int_equal(ash_pass_open(model, &exec, &opts, &pass, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "cannot be trained"));
    assert_int_equal(ash_model_save(model, "/nonexistent", ASH_F32, 0, NULL, &err), -ENOTSUP);
    ash_exec_fini(&exec);
    ash_model_close(model);
    ash_model_close(folder);
}

static void test_bad_files(void **state)
{
    static const struct {
        struct twist twist;
        const char *cause;
    } cases[] = {
        {{.architecture = "rwkv7"}, "architecture 'rwkv7'"},
        {{.leave_out = "layers.1.self_attn.v_proj"}, "lacks tensor 'blk.1.attn_v.weight'"},
        {{.leave_out = "embed_tokens"}, "token_embd.weight"},
        {{.extra_tensor = "blk.0.attn_q.scale"}, "'blk.0.attn_q.scale' has no place"},
        {{.extra_tensor = "blk.0.attn_q.bias"}, "'blk.0.attn_q.bias' does not have the shape"},
        {{.extra_tensor = "rope_freqs.weight"}, "'rope_freqs.weight' has a value that is not above 0"},
        {{.rope_scaling = "ntk"}, "'ntk'"},
        {{.experts = 4}, "lacks tensor 'blk.0.ffn_gate_inp.weight'"},
        {{.parts = 2}, "one of 2 parts"},
        {{.rope_dims = 4}, "rope.dimension_count"},
        {{.scale_group = 128}, "'ashlar.scale_group'"},
    };
    struct ash_model *folder = golden_open("llama-gqa");

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ash_model *model = NULL;
        struct ash_err err = {0};

        write_gguf(folder, ASH_F32, &cases[i].twist, gguf_path());
        assert_true(ash_model_open(gguf_path(), &model, &err) < 0);
        assert_null(model);
        if (strstr(err.text, cases[i].cause) == NULL) fail_msg("'%s' does not say %s", err.text, cases[i].cause);
    }
    ash_model_close(folder);
}

static void test_home(void **state)
{
    char buf[16];

    (void)state;
    assert_int_equal(ash_model_home("a/b", buf, sizeof(buf)), 0);
    assert_string_equal(buf, "a/b");
    assert_int_equal(ash_model_home("a/b.gguf", buf, sizeof(buf)), 0);
    assert_string_equal(buf, "a");
    assert_int_equal(ash_model_home("b.gguf", buf, sizeof(buf)), 0);
    assert_string_equal(buf, ".");
    assert_int_equal(ash_model_home("/b.gguf", buf, sizeof(buf)), 0);
    assert_string_equal(buf, "/");
    assert_int_equal(ash_model_home("0123456789/0123456789", buf, sizeof(buf)), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_quantised),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_saved),     cmocka_unit_test(test_saved_kinds),  cmocka_unit_test(test_factors),
        cmocka_unit_test(test_not_saved), cmocka_unit_test(test_bad_files),    cmocka_unit_test(test_home),
        cmocka_unit_test(test_wide),      cmocka_unit_test(test_wide_is_near), cmocka_unit_test(test_broken_promise),
    };

    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}

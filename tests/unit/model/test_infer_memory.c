/* What a generation holds in memory at most: little more than its weights and its cache, although weights are laid out
 * anew meanwhile. Measured in a process of its own, on a made-up model whose file is all zeros. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/str.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "unit/sanitized.h"

#define HIDDEN 1024
#define FFN 2816
#define KV 256
#define LAYERS 8
#define VOCAB 8192
#define CONTEXT 1024
#define PREFILL_ROWS 512
#define PROMPT 200
#define ANSWER 8
#define MOST 1.15 /* times weights and cache */

static const char config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":1024,\"intermediate_size\":"
    "2816,"
    "\"num_hidden_layers\":8,\"num_attention_heads\":16,\"num_key_value_heads\":4,\"vocab_size\":8192,"
    "\"max_position_embeddings\":1024,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"tie_word_embeddings\":false,"
    "\"torch_dtype\":\"bfloat16\"}";

/* One tensor more in a header; rows 0: a vector. */
static void add_tensor(struct ash_str *header, size_t *bytes, const char *name, size_t rows, size_t cols)
{
    size_t end = *bytes + (rows > 0 ? rows : 1) * cols * sizeof(uint16_t);

    ash_str_addf(header, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[", header->size_bytes > 1 ? "," : "", name);
    if (rows > 0) ash_str_addf(header, "%zu,", rows);
    ash_str_addf(header, "%zu],\"data_offsets\":[%zu,%zu]}", cols, *bytes, end);
    *bytes = end;
}

static void add_layer(struct ash_str *header, size_t *bytes, int layer)
{
    static const struct {
        const char *name;
        size_t rows, cols;
    } tensors[] = {
        {"input_layernorm", 0, HIDDEN},          {"self_attn.q_proj", HIDDEN, HIDDEN}, {"self_attn.k_proj", KV, HIDDEN},
        {"self_attn.v_proj", KV, HIDDEN},        {"self_attn.o_proj", HIDDEN, HIDDEN}, {"mlp.gate_proj", FFN, HIDDEN},
        {"post_attention_layernorm", 0, HIDDEN}, {"mlp.up_proj", FFN, HIDDEN},         {"mlp.down_proj", HIDDEN, FFN},
    };

    for (size_t i = 0; i < sizeof(tensors) / sizeof(*tensors); i++) {
        char name[96];

        snprintf(name, sizeof(name), "model.layers.%d.%s.weight", layer, tensors[i].name);
        add_tensor(header, bytes, name, tensors[i].rows, tensors[i].cols);
    }
}

/* Write the folder; returns the bytes of its weights. */
static size_t write_model(const char *dir)
{
    struct ash_str header = {0};
    size_t bytes = 0;
    uint64_t header_bytes;
    char path[600];
    FILE *file;

    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_int_equal(ash_file_replace(path, config, strlen(config), NULL), 0);
    ash_str_adds(&header, "{");
    add_tensor(&header, &bytes, "model.embed_tokens.weight", VOCAB, HIDDEN);
    for (int layer = 0; layer < LAYERS; layer++)
        add_layer(&header, &bytes, layer);
    add_tensor(&header, &bytes, "model.norm.weight", 0, HIDDEN);
    add_tensor(&header, &bytes, "lm_head.weight", VOCAB, HIDDEN);
    ash_str_adds(&header, "}");
    while (header.size_bytes % 8 != 0)
        ash_str_adds(&header, " ");
    header_bytes = header.size_bytes;
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&header_bytes, sizeof(header_bytes), 1, file), 1);
    assert_int_equal(fwrite(header.data, header_bytes, 1, file), 1);
    fflush(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)(sizeof(header_bytes) + header_bytes + bytes)), 0);
    fclose(file);
    ash_str_fini(&header);
    return bytes;
}

static long peak_kib(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[128];
    long kib = -1;

    while (status != NULL && fgets(line, sizeof(line), status) != NULL)
        if (sscanf(line, "VmHWM: %ld kB", &kib) == 1) break;
    if (status != NULL) fclose(status);
    return kib;
}

/* A prompt and an answer; returns 0 if all went well. */
static int generate(const char *dir, bool bf16, size_t *cache_bytes_out)
{
    struct ash_pass_opts opts = {.max_rows = PREFILL_ROWS};
    struct ash_err err = {0};
    struct ash_exec exec = {0};
    struct ash_model *model = NULL;
    struct ash_pass *pass = NULL;
    struct ash_cache *cache = NULL;
    struct ash_block_table table = {0};
    static int32_t ids[PROMPT + ANSWER];
    static float logits[VOCAB];

    if (ash_exec_init(&exec, NULL, 2, &err) < 0 || ash_model_open(dir, &model, &err) < 0) return 1;
    ash_model_round_bf16(model, bf16);
    if (ash_pass_open(model, &exec, &opts, &pass, &err) < 0) return 2;
    if (ash_cache_open(model, ash_cache_pages_for(CONTEXT), &cache, &err) < 0) return 3;
    if (ash_block_table_init(&table, CONTEXT) < 0 || ash_block_table_grow(&table, cache, CONTEXT) < 0) return 3;
    for (size_t done = 0; done < PROMPT + ANSWER;) {
        size_t count = done == 0 ? PROMPT : 1, last = count - 1;
        struct ash_doc doc = {.count = count, .pos = done, .pages = table.pages, .page_count = table.count};
        struct ash_batch batch = {.rows = count, .ids = ids + done, .docs = &doc, .doc_count = 1};

        if (ash_pass_infer(pass, &batch, cache, &last, 1, logits, &err) < 0) return 4;
        if (done == 0 && ash_model_pack(model, &exec, &err) < 0) return 5;
        done += count;
    }
    *cache_bytes_out = ash_cache_token_bytes(model) * (PROMPT + ANSWER);
    ash_block_table_fini(&table);
    ash_cache_close(cache);
    ash_pass_close(pass);
    ash_model_close(model);
    ash_exec_fini(&exec);
    return 0;
}

static void check(const char *dir, size_t weight_bytes, bool bf16)
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        size_t cache_bytes = 0;
        int rc = generate(dir, bf16, &cache_bytes);
        double limit = MOST * (double)(weight_bytes + cache_bytes), peak = 1024.0 * (double)peak_kib();

        if (rc == 0 && peak > limit) fprintf(stderr, "peak %.1f MB, %.1f MB allowed\n", peak * 1e-6, limit * 1e-6);
        _exit(rc != 0 ? rc : peak > 0 && peak <= limit ? 0 : 100);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_peak(void **state)
{
    char dir[] = "/tmp/ashlar-memory-XXXXXX";
    size_t weight_bytes;

    (void)state;
    if (SANITIZED) skip();
    assert_non_null(mkdtemp(dir));
    weight_bytes = write_model(dir);
    check(dir, weight_bytes, true);
    check(dir, weight_bytes, false);
    assert_int_equal(ash_dir_remove(dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peak)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

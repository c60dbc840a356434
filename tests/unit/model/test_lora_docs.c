/* Adapters of documents: batches of documents that go through different adapters, or none, have the bits of a model
 * with one of them alone, which results of PEFT vouch for (build/tests/golden). Batches are drawn from a seed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/math.h"
#include "base/rng.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/pass/pass.h"
#include "storage/safetensors/safetensors.h"

#define POST TEST_DATA "/golden/post/"
#define MODEL POST "models/llama"
#define MAX_ROWS 96
#define MAX_DOCS 12
#define ROUNDS 12
#define KINDS 3 /* no adapters, and two folders */

static const char *const folders[KINDS] = {NULL, POST "lora/llama-qv", POST "lora/llama-all-rslora"};

/* The plain way: a model for each kind, and a pass over it. */
struct alone {
    struct ash_lora *lora;
    struct ash_model *model;
    struct ash_pass *pass;
};

static void open_alone(struct alone *alone, const char *folder, struct ash_exec *exec, bool rounds)
{
    struct ash_pass_opts opts = {.max_rows = MAX_ROWS};
    struct ash_err err = {0};
    int rc = folder != NULL ? ash_lora_open_model(folder, MODEL, &alone->lora, &alone->model, &err)
                            : ash_model_open(MODEL, &alone->model, &err);

    if (rc < 0) fail_msg("%s", err.text);
    ash_model_round_bf16(alone->model, rounds);
    if (ash_pass_open(alone->model, exec, &opts, &alone->pass, &err) < 0) fail_msg("%s", err.text);
}

static void close_alone(struct alone *alone)
{
    ash_pass_close(alone->pass);
    ash_model_close(alone->model);
    ash_lora_close(alone->lora);
}

static void infer(struct ash_pass *pass, const int32_t *ids, const struct ash_doc *docs, size_t doc_count,
                  float *logits)
{
    struct ash_batch batch = {.ids = ids, .docs = docs, .doc_count = doc_count};
    size_t wanted[MAX_ROWS];
    struct ash_err err = {0};

    for (size_t d = 0; d < doc_count; d++)
        batch.rows += docs[d].count;
    for (size_t r = 0; r < batch.rows; r++)
        wanted[r] = r;
    if (ash_pass_infer(pass, &batch, NULL, wanted, batch.rows, logits, &err) < 0) fail_msg("%s", err.text);
}

/* A batch of drawn documents, each with drawn adapters; kinds[d] says which. Returns how many documents. */
static size_t draw(uint64_t seed, size_t vocab, const struct ash_lora_set *sets, int32_t *ids, struct ash_doc *docs,
                   size_t *kinds)
{
    uint64_t at = 0;
    size_t count = 1 + ash_rng_below(seed, 1, at++, MAX_DOCS), rows = 0;

    for (size_t d = 0; d < count; d++) {
        kinds[d] = ash_rng_below(seed, 1, at++, KINDS);
        docs[d] = (struct ash_doc){.row = rows,
                                   .count = 1 + ash_rng_below(seed, 1, at++, MAX_ROWS / MAX_DOCS),
                                   .adapters = sets[kinds[d]].adapters};
        rows += docs[d].count;
    }
    for (size_t r = 0; r < rows; r++)
        ids[r] = (int32_t)ash_rng_below(seed, 2, r, vocab);
    return count;
}

static void compare(struct ash_exec *exec, bool rounds)
{
    struct alone alone[KINDS] = {{0}};
    struct ash_lora_set sets[KINDS] = {{0}};
    struct ash_err err = {0};
    size_t vocab, kinds[MAX_DOCS];
    struct ash_doc docs[MAX_DOCS];
    int32_t ids[MAX_ROWS];
    float *mixed, *single;

    for (size_t k = 0; k < KINDS; k++)
        open_alone(&alone[k], folders[k], exec, rounds);
    for (size_t k = 1; k < KINDS; k++)
        if (ash_lora_attach(folders[k], alone[0].model, exec, MAX_ROWS, &sets[k], &err) < 0) fail_msg("%s", err.text);
    vocab = ash_model_get_config(alone[0].model)->vocab;
    mixed = calloc(MAX_ROWS * vocab, sizeof(float));
    single = calloc(MAX_ROWS * vocab, sizeof(float));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t count = draw(round, vocab, sets, ids, docs, kinds);

        infer(alone[0].pass, ids, docs, count, mixed);
        for (size_t d = 0; d < count; d++) {
            infer(alone[kinds[d]].pass, ids + docs[d].row, &(struct ash_doc){.count = docs[d].count}, 1, single);
            assert_memory_equal(mixed + docs[d].row * vocab, single, docs[d].count * vocab * sizeof(float));
        }
    }
    free(mixed);
    free(single);
    for (size_t k = 0; k < KINDS; k++) {
        ash_lora_detach(&sets[k]);
        close_alone(&alone[k]);
    }
}

static void test_mixed(void **state)
{
    (void)state;
    for (size_t threads = 1; threads <= 2; threads++) {
        struct ash_exec exec;
        struct ash_err err = {0};

        if (ash_exec_init(&exec, NULL, threads, &err) < 0) fail_msg("%s", err.text);
        compare(&exec, threads == 2);
        ash_exec_fini(&exec);
    }
}

static void test_refused(void **state)
{
    struct ash_model *model = NULL;
    struct ash_lora_set set = {0};
    struct ash_exec exec;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_exec_init(&exec, NULL, 1, NULL), 0);
    assert_int_equal(ash_model_open(TEST_DATA "/golden/llama-gqa", &model, NULL), 0);
    assert_true(ash_lora_attach(folders[1], model, &exec, MAX_ROWS, &set, &err) < 0); /* of another base */
    assert_non_null(strstr(err.text, "lora_"));
    assert_int_equal(ash_lora_attach(MODEL, model, &exec, MAX_ROWS, &set, &err), -ENOENT); /* no adapters */
    assert_null(set.adapters);
    ash_model_close(model);
    ash_exec_fini(&exec);
}

static int take_tensor(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    const struct ash_tensor_spec *specs = ctx;

    memcpy(buf, (const char *)specs[index].data + first_byte, size_bytes);
    return 0;
}

/* An adapter with a tensor that no module of the base has, as one for a deeper model: refused by that name. */
static void an_adapter_of_a_deeper_model_is_refused(void **state)
{
    static const float numbers[8];
    struct ash_tensor_spec specs[256] = {{0}};
    struct ash_safetensors *file = NULL;
    struct ash_lora *lora = NULL;
    struct ash_model *model = NULL;
    struct ash_err err = {0};
    char dir[] = "/tmp/ashlar-test-XXXXXX", path[64], *config = NULL;
    size_t count, bytes = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    if (ash_safetensors_open(POST "lora/llama-qv/adapter_model.safetensors", &file, &err) < 0) fail_msg("%s", err.text);
    count = ash_safetensors_size(file);
    assert_true(count < ASH_COUNT(specs));
    for (size_t i = 0; i < count; i++) {
        const struct ash_tensor_view *view = ash_safetensors_at(file, i);

        specs[i] = (struct ash_tensor_spec){view->name, view->dtype, view->dim_count, {0}, view->data};
        memcpy(specs[i].dims, view->dims, sizeof(view->dims));
    }
    specs[count] = (struct ash_tensor_spec){
        "base_model.model.model.layers.77.self_attn.q_proj.lora_A.weight", ASH_F32, 2, {2, 4}, numbers};
    snprintf(path, sizeof(path), "%s/adapter_model.safetensors", dir);
    assert_int_equal(ash_safetensors_write(path, specs, count + 1, NULL, 0, take_tensor, specs, &err), 0);
    snprintf(path, sizeof(path), "%s/adapter_config.json", dir);
    assert_int_equal(ash_file_read(POST "lora/llama-qv/adapter_config.json", 1 << 20, &config, &bytes, &err), 0);
    assert_int_equal(ash_file_replace(path, config, bytes, &err), 0);
    assert_int_equal(ash_lora_open_model(dir, MODEL, &lora, &model, &err), -EINVAL);
    assert_non_null(strstr(err.text, "layers.77"));
    ash_safetensors_close(file);
    free(config);
    assert_int_equal(ash_dir_remove(dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixed),
                                       cmocka_unit_test(an_adapter_of_a_deeper_model_is_refused),
                                       cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

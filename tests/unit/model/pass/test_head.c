/* Heads for drafts in folders (multi-token prediction): what a plain computation from the published definition gives
 * (tests/golden/heads/make.py), in any pieces, in any memory; drafts of drafts; and folders without a head. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/rng.h"
#include "model/files/eagle.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "storage/safetensors/safetensors.h"
#include "unit/model/golden_models.h"

#define LIMIT 2e-4 /* of logits, as that of golden */
#define ROWS_MAX 64

#define EAGLE "heads/eagle3"
#define EAGLE_TARGET "families/glm4_moe"

static const char *const folders[] = {"heads/deepseek_v3", "heads/glm4_moe", EAGLE};

/* A head, its cache, and the states of its model. */
struct fixture {
    struct ash_exec exec;
    struct ash_model *model, *head;
    struct ash_eagle eagle; /* zero, or the head */
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_block_table table;
    struct ash_safetensors *reference;
    const int32_t *ids;
    size_t count, vocab, hidden;
    float *states; /* [count, hidden] */
};

static const float *reference_floats(const struct fixture *f, const char *name)
{
    const struct ash_tensor_view *view = ash_safetensors_find(f->reference, name);

    assert_non_null(view);
    return view->data;
}

/* Of EAGLE-3: what the model's pass captured, as states. */
static void fuse_captured(struct fixture *f, struct ash_pass *pass)
{
    float *captured = calloc(f->count * ASH_MODEL_CAPTURES * f->hidden, sizeof(float));
    struct ash_err err = {0};

    if (ash_pass_infer_captured(pass, 0, f->count, captured, &err) < 0 ||
        ash_pass_fuse_captured(f->pass, captured, f->count, f->states, &err) < 0)
        fail_msg("%s", err.text);
    free(captured);
}

/* The states of the text, by the model. */
static void run_model(struct fixture *f)
{
    struct ash_pass_opts opts = {.max_rows = f->count,
                                 .capture_count = f->eagle.model != NULL ? ASH_MODEL_CAPTURES : 0};
    struct ash_doc doc = {.count = f->count};
    struct ash_batch batch = {.rows = f->count, .ids = f->ids, .docs = &doc, .doc_count = 1};
    struct ash_pass *pass = NULL;
    size_t rows[ROWS_MAX];
    struct ash_err err = {0};

    for (size_t i = 0; i < f->count; i++)
        rows[i] = i;
    memcpy(opts.captures, f->eagle.layers, sizeof(opts.captures));
    if (ash_pass_open(f->model, &f->exec, &opts, &pass, &err) < 0 ||
        ash_pass_infer_layers(pass, &batch, NULL, &err) < 0 ||
        ash_pass_infer_states(pass, rows, f->count, f->states, &err) < 0)
        fail_msg("%s", err.text);
    if (opts.capture_count > 0) fuse_captured(f, pass);
    ash_pass_close(pass);
}

static void open_models(struct fixture *f, const char *folder)
{
    char path[GOLDEN_PATH_BYTES];
    struct ash_err err = {0};
    int rc;

    f->model = golden_open(strcmp(folder, EAGLE) == 0 ? EAGLE_TARGET : folder);
    assert_int_equal(ash_eagle_is(golden_path(folder, path)), strcmp(folder, EAGLE) == 0);
    rc = ash_eagle_is(path) ? ash_eagle_open(path, f->model, &f->eagle, &err)
                            : ash_model_open_head(path, &f->head, &err);
    if (rc < 0) fail_msg("%s", err.text);
    if (f->eagle.model != NULL) f->head = f->eagle.model;
}

static void open_fixture(struct fixture *f, const char *folder, const char *backend)
{
    char path[GOLDEN_PATH_BYTES], file[GOLDEN_PATH_BYTES + 32];
    struct ash_pass_opts opts = {.max_rows = ROWS_MAX};
    const struct ash_tensor_view *ids;
    struct ash_err err = {0};

    *f = (struct fixture){0};
    if (ash_exec_init(&f->exec, backend, 2, &err) < 0) fail_msg("%s", err.text);
    open_models(f, folder);
    f->vocab = ash_model_get_config(f->head)->vocab; /* its outputs */
    f->hidden = ash_model_get_config(f->head)->hidden;
    snprintf(file, sizeof(file), "%s/reference.safetensors", golden_path(folder, path));
    assert_int_equal(ash_safetensors_open(file, &f->reference, &err), 0);
    ids = ash_safetensors_find(f->reference, "input_ids");
    f->ids = ids->data;
    f->count = ids->dims[1];
    assert_in_range(f->count, 24, ROWS_MAX);
    f->states = calloc(f->count * f->hidden, sizeof(float));
    if (ash_pass_open(f->head, &f->exec, &opts, &f->pass, &err) < 0) fail_msg("%s", err.text);
    run_model(f);
    if (ash_cache_open(f->head, 2 * ash_cache_pages_for(ROWS_MAX), &f->cache, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_block_table_init(&f->table, ROWS_MAX), 0);
    assert_int_equal(ash_block_table_grow(&f->table, f->cache, ROWS_MAX), 0);
}

static void close_fixture(struct fixture *f)
{
    ash_block_table_fini(&f->table);
    ash_cache_close(f->cache);
    ash_pass_close(f->pass);
    ash_safetensors_close(f->reference);
    if (f->eagle.model == NULL) ash_model_close(f->head);
    ash_eagle_close(&f->eagle);
    ash_model_close(f->model);
    ash_exec_fini(&f->exec);
    free(f->states);
}

/* Rows [pos, pos + count) of the head: the states, and the tokens after those. logits [count, vocab]; own [hidden]: the
 * head's state after the last one. */
static void run_head(struct fixture *f, size_t pos, const int32_t *ids, const float *states, size_t count,
                     float *logits, float *own)
{
    struct ash_doc doc = {.count = count, .pos = pos, .pages = f->table.pages, .page_count = f->table.count};
    struct ash_batch batch = {.rows = count, .ids = ids, .states = states, .docs = &doc, .doc_count = 1};
    size_t rows[ROWS_MAX];
    struct ash_err err = {0};

    for (size_t i = 0; i < count; i++)
        rows[i] = i;
    if (ash_pass_infer_layers(f->pass, &batch, f->cache, &err) < 0 ||
        ash_pass_infer_logits(f->pass, rows, count, logits, &err) < 0 ||
        (f->eagle.model != NULL ? ash_pass_infer_stream(f->pass, count - 1, own, &err)
                                : ash_pass_infer_states(f->pass, rows + count - 1, 1, own, &err)) < 0)
        fail_msg("%s", err.text);
}

static double largest_difference(const float *ours, const float *theirs, size_t count)
{
    double most = 0;

    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)ours[i] - theirs[i]);

        if (!(difference <= most)) most = difference; /* NaN is the most */
    }
    return most;
}

/* Pieces of drawn sizes give the definition's logits, and one another's to the bit. */
static void check_rows(struct fixture *f, const char *what)
{
    size_t rows = f->count - 1;
    float *logits[2] = {calloc(rows * f->vocab, sizeof(float)), calloc(rows * f->vocab, sizeof(float))};
    float *own = calloc(f->hidden, sizeof(float));
    double most;

    run_head(f, 0, f->ids + 1, f->states, rows, logits[0], own);
    for (size_t done = 0, count; done < rows; done += count) {
        count = ash_min(1 + ash_rng_below(3, 1, done, 9), rows - done);
        run_head(f, done, f->ids + 1 + done, f->states + done * f->hidden, count, logits[1] + done * f->vocab, own);
    }
    assert_memory_equal(logits[0], logits[1], rows * f->vocab * sizeof(float));
    most = largest_difference(logits[0], reference_floats(f, "head.logits"), rows * f->vocab);
    print_message("%s: rows %.1e\n", what, most);
    assert_true(most <= LIMIT);
    free(logits[0]);
    free(logits[1]);
    free(own);
}

/* Drafts after the first 20 tokens: each row has the drafted token and the head's own state. */
static void check_chain(struct fixture *f, const char *what)
{
    enum { FROM = 20 };
    const struct ash_tensor_view *chain = ash_safetensors_find(f->reference, "chain.ids");
    const int32_t *ids = chain->data;
    const float *want = reference_floats(f, "chain.logits");
    float *logits = calloc((FROM - 1) * f->vocab, sizeof(float)), *own = calloc(f->hidden, sizeof(float));
    const float *last = logits + (FROM - 2) * f->vocab;
    double most = 0;

    run_head(f, 0, f->ids + 1, f->states, FROM - 1, logits, own);
    for (size_t i = 0; i < chain->dims[1]; i++) {
        float state[256];

        most = fmax(most, largest_difference(last, want + i * f->vocab, f->vocab));
        assert_true(f->hidden <= 256);
        memcpy(state, own, f->hidden * sizeof(float));
        run_head(f, FROM - 1 + i, &ids[i], state, 1, logits, own);
        last = logits;
    }
    print_message("%s: chain %.1e\n", what, most);
    assert_true(most <= LIMIT);
    free(logits);
    free(own);
}

static void heads_give_what_the_definition_gives(void **state)
{
    static const char *const backends[] = {NULL, "ref", "apart"};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(folders); i++)
        for (size_t b = 0; b < ASH_COUNT(backends) - SANITIZED_THREADS; b++) {
            struct fixture f;
            char what[64];

            snprintf(what, sizeof(what), "%s, %s", folders[i], backends[b] != NULL ? backends[b] : "default");
            open_fixture(&f, folders[i], backends[b]);
            check_rows(&f, what);
            check_chain(&f, what);
            close_fixture(&f);
        }
}

/* Its table and matrix are the model's; a model of its folder has no tensor of it. */
static void a_head_is_one_layer_more(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f, folders[0], NULL);
    assert_true(ash_model_get_config(f.head)->fuses_states && !ash_model_get_config(f.model)->fuses_states);
    assert_non_null(ash_model_find(f.head, "model.layers.3.eh_proj.weight"));
    assert_non_null(ash_model_find(f.head, "model.layers.3.shared_head.norm.weight"));
    assert_non_null(ash_model_find(f.head, "lm_head.weight"));
    assert_null(ash_model_find(f.head, "model.layers.2.input_layernorm.weight"));
    assert_null(ash_model_find(f.model, "model.layers.3.eh_proj.weight"));
    close_fixture(&f);
}

/* config.json names heads whose tensors the folder does not have, or names none. */
static void folders_without_a_head_have_none(void **state)
{
    static const char *const without[] = {"families/glm4_moe", "deepseek_v3-groups", "llama-gqa", "gpt2-default"};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(without); i++) {
        char path[GOLDEN_PATH_BYTES];
        struct ash_model *head = NULL;
        struct ash_err err = {0};

        assert_int_equal(ash_model_open_head(golden_path(without[i], path), &head, &err), -ENOENT);
        assert_non_null(strstr(err.text, "has no head for drafts"));
        assert_null(head);
    }
}

/* Two of three tokens have outputs; the embedding is the model's, not a copy. */
static void a_head_of_eagle_borrows_the_embedding(void **state)
{
    struct fixture f;
    const struct ash_param *own, *theirs;

    (void)state;
    open_fixture(&f, EAGLE, NULL);
    own = ash_model_find(f.head, "embed_tokens.weight");
    theirs = ash_model_find(f.model, "model.embed_tokens.weight");
    assert_non_null(own);
    assert_ptr_equal(own->data, theirs->data);
    assert_non_null(ash_model_find(f.head, "midlayer.hidden_norm.weight"));
    for (size_t i = 0; i < f.vocab; i++)
        assert_int_equal(f.eagle.ids[i], i / 2 * 3 + i % 2);
    close_fixture(&f);
}

/* Of another size, or no head at all. */
static void heads_of_other_models_are_refused(void **state)
{
    struct ash_model *other = golden_open("llama-gqa");
    struct ash_eagle eagle;
    char path[GOLDEN_PATH_BYTES];
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_eagle_open(golden_path(EAGLE, path), other, &eagle, &err), -EINVAL);
    assert_non_null(strstr(err.text, "reads streams of 48 numbers, the model's have 32"));
    assert_null(eagle.model);
    assert_int_equal(ash_eagle_open(golden_path("llama-gqa", path), other, &eagle, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "heads of one are read"));
    assert_false(ash_eagle_is("/nowhere"));
    ash_model_close(other);
}

/* States go with heads, and with nothing else. */
static void states_are_for_heads_alone(void **state)
{
    struct fixture f;
    struct ash_doc doc = {.count = 1};
    struct ash_batch batch = {.rows = 1, .docs = &doc, .doc_count = 1};
    struct ash_pass_opts opts = {.max_rows = 1};
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};

    (void)state;
    open_fixture(&f, folders[0], NULL);
    batch.ids = f.ids;
    assert_int_equal(ash_pass_infer_layers(f.pass, &batch, NULL, &err), -EINVAL);
    batch.states = f.states;
    assert_int_equal(ash_pass_open(f.model, &f.exec, &opts, &pass, &err), 0);
    assert_int_equal(ash_pass_infer_layers(pass, &batch, NULL, &err), -EINVAL);
    ash_pass_close(pass);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_give_what_the_definition_gives), cmocka_unit_test(a_head_is_one_layer_more),
        cmocka_unit_test(folders_without_a_head_have_none),     cmocka_unit_test(a_head_of_eagle_borrows_the_embedding),
        cmocka_unit_test(heads_of_other_models_are_refused),    cmocka_unit_test(states_are_for_heads_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

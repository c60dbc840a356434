/* Queries whose factor grows with the position (llama4_text): the tables that multiply them, and that pieces of a
 * document give the bits of one pass. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/rng.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "model/pass/rope.h"

#define ROWS 30
#define VOCAB 96
#define FLOOR 4
#define SCALE 0.5

static const char config_text[] =
    "{'model_type':'llama4_text','vocab_size':96,'hidden_size':32,'num_hidden_layers':2,'num_attention_heads':4,"
    "'num_key_value_heads':2,'intermediate_size':40,'intermediate_size_mlp':48,'num_local_experts':4,"
    "'interleave_moe_layer_step':2,'no_rope_layers':[1,0],'attention_chunk_size':8,'floor_scale':4,'attn_scale':0.5}";

struct fixture {
    struct ash_model *model;
    struct ash_exec exec;
    int32_t ids[ROWS];
};

static void fixture_open(struct fixture *f)
{
    struct ash_model_config config;
    struct ash_err err = {0};
    char text[sizeof(config_text)];
    json_t *json = NULL;

    *f = (struct fixture){0};
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = config_text[i] == '\'' ? '"' : config_text[i];
    for (size_t i = 0; i < ROWS; i++)
        f->ids[i] = (int32_t)ash_rng_below(9, 1, i, VOCAB);
    if (ash_json_parse(text, sizeof(text) - 1, "config", &json, &err) < 0 ||
        ash_model_config_parse(json, &config, &err) < 0 || ash_model_create(&config, 1, &f->model, &err) < 0 ||
        ash_exec_init(&f->exec, NULL, 2, &err) < 0)
        fail_msg("%s", err.text);
    json_decref(json);
}

static void fixture_close(struct fixture *f)
{
    ash_exec_fini(&f->exec);
    ash_model_close(f->model);
}

static void test_tables(void **state)
{
    struct ash_rope rope = {0};
    struct fixture f;
    struct ash_err err = {0};

    (void)state;
    fixture_open(&f);
    assert_int_equal(ash_model_get_config(f.model)->rope_at[0], ASH_ROPE_AT_ALL);
    assert_int_equal(ash_model_get_config(f.model)->rope_at[1], ASH_ROPE_AT_TEMPERED);
    if (ash_rope_reserve(&rope, f.model, &f.exec, ROWS, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < ROWS * (rope.dims / 2); i++) {
        double position = (double)(i / (rope.dims / 2));
        double want = 1 + SCALE * log(1 + floor((position + 1) / FLOOR));

        assert_true(fabs((double)ash_rope_cos(&rope, ASH_ROPE_AT_TEMPERED)[i] - want) < 1e-6);
        assert_true(ash_rope_sin(&rope, ASH_ROPE_AT_TEMPERED)[i] == 0.0f);
    }
    ash_rope_fini(&rope);
    fixture_close(&f);
}

/* Logits of all rows, piece rows at a time on a cache; 0: at once and without one. */
static void infer(struct fixture *f, size_t piece, float *logits)
{
    struct ash_pass_opts opts = {.max_rows = ROWS};
    struct ash_block_table table = {0};
    struct ash_cache *cache = NULL;
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};
    size_t wanted[ROWS];

    for (size_t i = 0; i < ROWS; i++)
        wanted[i] = i;
    if (ash_pass_open(f->model, &f->exec, &opts, &pass, &err) < 0 || ash_cache_open(f->model, 1, &cache, &err) < 0 ||
        ash_block_table_init(&table, ROWS) < 0 || ash_block_table_grow(&table, cache, ROWS) < 0)
        fail_msg("%s", err.text);
    for (size_t at = 0, count; at < ROWS; at += count) {
        struct ash_doc doc = {.pos = at, .pages = table.pages, .page_count = table.count};
        struct ash_batch batch = {.ids = f->ids + at, .docs = &doc, .doc_count = 1};

        count = piece == 0 || piece > ROWS - at ? ROWS - at : piece;
        doc.count = batch.rows = count;
        if (ash_pass_infer(pass, &batch, piece > 0 ? cache : NULL, wanted, count, logits + at * VOCAB, &err) < 0)
            fail_msg("%s", err.text);
    }
    ash_block_table_fini(&table);
    ash_cache_close(cache);
    ash_pass_close(pass);
}

static void test_pieces(void **state)
{
    static float whole[ROWS * VOCAB], cut[ROWS * VOCAB];
    struct fixture f;

    (void)state;
    fixture_open(&f);
    infer(&f, 0, whole);
    for (size_t piece = 1; piece <= ROWS; piece += 6) {
        infer(&f, piece, cut);
        assert_memory_equal(cut, whole, sizeof(whole));
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables), cmocka_unit_test(test_pieces)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

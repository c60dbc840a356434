/* Packed weights change no bit: every golden model and the GGUF files, on every backend that packs, few rows and many,
 * packed from the mapping or as they come from the disk; a file that becomes shorter meanwhile is an error; and a fused
 * forward gives the losses that training sees. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/rng.h"
#include "model/load.h"
#include "model/files/open.h"
#include "model/model_priv.h"
#include "model/pass/pass.h"
#include "model/place.h"
#include "unit/model/golden_models.h"
#include "unit/model/infer_rows.h"

#define ROWS 33

struct fixture {
    struct ash_exec exec;
    struct ash_model *model;
    int32_t ids[ROWS], targets[ROWS];
    size_t vocab;
};

static void fixture_open(struct fixture *f, const char *name, const char *backend, bool bf16)
{
    struct ash_err err = {0};

    if (ash_exec_init(&f->exec, backend, 2, &err) < 0) fail_msg("%s", err.text);
    f->model = golden_open(name);
    ash_model_round_bf16(f->model, bf16);
    f->vocab = ash_model_get_config(f->model)->vocab;
    for (size_t i = 0; i < ROWS; i++) {
        f->ids[i] = (int32_t)ash_rng_below(3, 1, i, f->vocab);
        f->targets[i] = (int32_t)ash_rng_below(3, 2, i, f->vocab);
    }
}

static void fixture_close(struct fixture *f)
{
    ash_model_close(f->model);
    ash_exec_fini(&f->exec);
}

static void check_pack(const char *name, const char *backend, bool bf16)
{
    static const size_t pieces[] = {1, 3, ROWS};
    struct fixture f = {0};
    struct ash_err err = {0};
    float *plain, *other;

    fixture_open(&f, name, backend, bf16);
    plain = infer_rows(f.model, &f.exec, f.ids, ROWS, ROWS);
    if (ash_model_pack(f.model, &f.exec, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        float *packed = infer_rows(f.model, &f.exec, f.ids, ROWS, pieces[i]);

        assert_memory_equal(plain, packed, ROWS * f.vocab * sizeof(float));
        free(packed);
    }
    /* the other precision reads the file again */
    ash_model_round_bf16(f.model, !bf16);
    other = infer_rows(f.model, &f.exec, f.ids, ROWS, ROWS);
    ash_model_round_bf16(f.model, bf16);
    free(plain);
    plain = infer_rows(f.model, &f.exec, f.ids, ROWS, 1);
    free(plain);
    fixture_close(&f);
    fixture_open(&f, name, backend, !bf16);
    if (ash_model_packs_on_host(&f.exec) && ash_load_open(f.model, &f.exec, &f.model->load, &err) < 0)
        fail_msg("%s", err.text);
    plain = infer_rows(f.model, &f.exec, f.ids, ROWS, ROWS); /* in the order in which matrices come */
    assert_memory_equal(plain, other, ROWS * f.vocab * sizeof(float));
    free(plain);
    free(other);
    fixture_close(&f);
}

static void test_pack(void **state)
{
    static const char *const files[] = {"gguf/llama-f16.gguf", "gguf/llama-q8_0.gguf", "gguf/llama-q4_0.gguf"};

    (void)state;
    for (const char *const *backend = ash_exec_backends(); *backend != NULL; backend++) {
        if (strncmp(*backend, "ref", 3) == 0) continue; /* they pack nothing */
        for (int bf16 = 0; bf16 < 2; bf16++) {
            for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i += GOLDEN_MODEL_STEP)
                check_pack(golden_models[i], *backend, bf16);
            for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
                check_pack(files[i], *backend, bf16);
        }
    }
}

/* A device's weights are packed as they arrive: what only products read is there once, as it was estimated. */
static void test_device(void **state)
{
    static const char *const files[] = {"gguf/llama-q8_0.gguf", "gguf/llama-q4_0.gguf"};

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        struct fixture host = {0}, device = {0};
        size_t estimate, packed = 0;
        float *wanted, *got;

        fixture_open(&host, files[i], NULL, false);
        fixture_open(&device, files[i], "apart", false);
        estimate = ash_model_unplaced_bytes(device.model, &device.exec);
        wanted = infer_rows(host.model, &host.exec, host.ids, ROWS, ROWS);
        got = infer_rows(device.model, &device.exec, device.ids, ROWS, ROWS);
        assert_memory_equal(wanted, got, ROWS * host.vocab * sizeof(float));
        for (size_t p = 0; p < device.model->param_count; p++) {
            const struct ash_param *param = &device.model->params[p];

            packed += param->packed != NULL;
            assert_true(param->packed == NULL || param->data == NULL ||
                        (int32_t)p == device.model->top.param[ASH_ROLE_EMBED]);
        }
        assert_true(packed > 0);
        assert_true(device.model->placed.size_bytes + device.model->vectors.size_bytes <= estimate);
        assert_int_equal(ash_model_unplaced_bytes(device.model, &device.exec), 0);
        free(wanted);
        free(got);
        fixture_close(&host);
        fixture_close(&device);
    }
}

static void test_shorter_file(void **state)
{
    struct fixture f = {0};
    struct ash_err err = {0};
    char from[512], path[] = "/tmp/ashlar-pack-XXXXXX.gguf", *bytes = NULL;
    size_t size_bytes = 0;

    (void)state;
    snprintf(from, sizeof(from), "%s/golden/gguf/llama-q8_0.gguf", TEST_DATA);
    assert_int_equal(ash_file_read(from, (size_t)1 << 20, &bytes, &size_bytes, NULL), 0);
    close(mkstemps(path, (int)strlen(".gguf")));
    assert_int_equal(ash_file_replace(path, bytes, size_bytes, NULL), 0);
    if (ash_exec_init(&f.exec, NULL, 2, &err) < 0) fail_msg("%s", err.text);
    if (ash_model_open(path, &f.model, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(truncate(path, (off_t)(size_bytes / 2)), 0);
    if (ash_load_open(f.model, &f.exec, &f.model->load, &err) < 0) fail_msg("%s", err.text);
    if (f.model->packed_for != NULL) { /* a processor may have no layout for it */
        assert_int_equal(ash_model_pack(f.model, &f.exec, &err), -ENODATA);
        assert_non_null(strstr(err.text, "shorter"));
        assert_int_equal(ash_load_check(f.model->load, &err), -ENODATA); /* what a pass returns */
    }
    fixture_close(&f);
    unlink(path);
    free(bytes);
}

static void losses_of(struct fixture *f, bool backward, float *losses)
{
    struct ash_pass_opts opts = {.max_rows = ROWS, .backward = backward};
    struct ash_doc doc = {.count = ROWS};
    struct ash_batch batch = {
        .rows = ROWS, .ids = f->ids, .targets = f->targets, .docs = &doc, .doc_count = 1, .seq_rows = ROWS};
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};

    if (ash_pass_open(f->model, &f->exec, &opts, &pass, &err) < 0) fail_msg("%s", err.text);
    if (ash_pass_eval(pass, &batch, losses, &err) < 0) fail_msg("%s", err.text);
    ash_pass_close(pass);
}

/* Training keeps what lies between the products; a pass without backward does not. */
static void test_fused_is_separate(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i += GOLDEN_MODEL_STEP)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct fixture f = {0};
            float fused[ROWS], separate[ROWS];

            fixture_open(&f, golden_models[i], NULL, bf16);
            losses_of(&f, false, fused);
            losses_of(&f, true, separate);
            assert_memory_equal(fused, separate, sizeof(fused));
            fixture_close(&f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pack), cmocka_unit_test(test_device),
                                       cmocka_unit_test(test_shorter_file), cmocka_unit_test(test_fused_is_separate)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

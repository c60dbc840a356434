/* The fingerprint of an engine: equal for the same files and settings, another one for all that changes answers. */
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

#include "base/assert.h"
#include "base/file.h"
#include "serve/engine.h"
#include "serve/fingerprint.h"

#define STORIES TEST_DATA "/golden/stories260K"

static char dir[] = "/tmp/ashlar-fingerprint-XXXXXX";
static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};

static void copy_file(const char *name, long flipped)
{
    char from[512], to[512];
    FILE *in, *out;

    snprintf(from, sizeof(from), "%s/%s", STORIES, name);
    snprintf(to, sizeof(to), "%s/%s", dir, name);
    in = fopen(from, "rb");
    out = fopen(to, "wb");
    assert_true(in != NULL && out != NULL);
    for (long at = 0;; at++) {
        int byte = fgetc(in);

        if (byte == EOF) break;
        fputc(at == flipped ? byte ^ 1 : byte, out);
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* A copy of the model, with one bit of its weights flipped if at is not negative. */
static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/ashlar-fingerprint-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < ASH_COUNT(files); i++)
        copy_file(files[i], -1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return ash_dir_remove(dir, NULL);
}

static uint64_t fingerprint(const char *path, bool rounds_bf16, enum ash_dtype kv_dtype)
{
    struct ash_engine *engine = NULL;
    struct ash_err err = {0};
    uint64_t hash = 0;

    if (ash_engine_open(path, NULL, &engine, &err) < 0) fail_msg("%s", err.text);
    ash_model_round_bf16(ash_engine_model(engine), rounds_bf16);
    ash_model_use_kv_dtype(ash_engine_model(engine), kv_dtype);
    if (ash_engine_fingerprint(engine, &hash, &err) < 0) fail_msg("%s", err.text);
    ash_engine_close(engine);
    return hash;
}

static void a_copy_has_the_same(void **state)
{
    (void)state;
    assert_true(fingerprint(STORIES, false, ASH_F32) == fingerprint(dir, false, ASH_F32));
}

static void settings_change_it(void **state)
{
    uint64_t plain = fingerprint(dir, false, ASH_F32);

    (void)state;
    assert_true(plain != fingerprint(dir, true, ASH_F32));
    assert_true(plain != fingerprint(dir, false, ASH_BF16));
}

static void one_bit_of_the_weights_changes_it(void **state)
{
    uint64_t plain = fingerprint(dir, false, ASH_F32);

    (void)state;
    copy_file("model.safetensors", 1044984 - 7);
    assert_true(plain != fingerprint(dir, false, ASH_F32));
}

static void other_files_of_the_folder_do_not(void **state)
{
    uint64_t plain = fingerprint(dir, false, ASH_F32);
    char path[512];
    FILE *notes;

    (void)state;
    snprintf(path, sizeof(path), "%s/notes.txt", dir);
    notes = fopen(path, "w");
    assert_non_null(notes);
    fputs("trained on stories", notes);
    fclose(notes);
    assert_true(plain == fingerprint(dir, false, ASH_F32));
}

static void weights_that_are_gone_are_an_error(void **state)
{
    struct ash_engine *engine = NULL;
    struct ash_err err = {0};
    uint64_t hash = 7;

    (void)state;
    assert_int_equal(ash_engine_open(dir, NULL, &engine, &err), 0);
    ash_dir_remove(dir, NULL);
    assert_true(ash_engine_fingerprint(engine, &hash, &err) < 0);
    assert_true(err.text[0] != '\0' && hash == 7);
    ash_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_copy_has_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(settings_change_it, setup, teardown),
        cmocka_unit_test_setup_teardown(one_bit_of_the_weights_changes_it, setup, teardown),
        cmocka_unit_test_setup_teardown(other_files_of_the_folder_do_not, setup, teardown),
        cmocka_unit_test_setup(weights_that_are_gone_are_an_error, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

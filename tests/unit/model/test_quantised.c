/* Floats of 8 and 4 bits against their definition, all of them; blocks of published formats against figures that others
 * computed; floats that are read in drawn ranges are those that are read at once. Whole folders of every format:
 * tests/e2e/quantised.sh. */
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

#include "base/assert.h"
#include "base/bf16.h"
#include "base/file.h"
#include "base/fp8.h"
#include "base/math.h"
#include "base/rng.h"
#include "model/quantised/quantised.h"
#include "storage/io/remote_file.h"

/* ---- small floats ------------------------------------------------------------------------------------------------ */

static double e4m3_by_definition(int code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);

    return code & 128 ? -size : size;
}

static void test_every_e4m3_is_its_value_and_comes_back(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        float value = ash_e4m3_to_f32((uint8_t)code);

        if ((code & 127) == 127) {
            assert_true(isnan(value));
            assert_int_equal(ash_f32_to_e4m3(value) & 127, 127);
            continue;
        }
        assert_true(value == (float)e4m3_by_definition(code));
        assert_int_equal(ash_f32_to_e4m3(value), code);
    }
    assert_int_equal(ash_f32_to_e4m3(1e9f), 0x7e);
    assert_int_equal(ash_f32_to_e4m3(-INFINITY), 0xfe);
}

/* The nearest of all values; of two that are as near, the one with an even code. */
static int nearest(float x, int codes, float (*value_of)(int code))
{
    int best = 0;

    for (int code = 1; code < codes; code++) {
        double error = fabs((double)value_of(code) - fabs((double)x)), least = fabs((double)value_of(best) - fabs(x));

        if (error < least || (error == least && code % 2 == 0)) best = code;
    }
    return best;
}

static float e4m3_value(int code)
{
    return (float)e4m3_by_definition(code);
}

static float e2m1_value(int code)
{
    return ash_e2m1_to_f32((unsigned)code);
}

static void test_drawn_floats_become_the_nearest(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        double draw = ash_rng_normal(3, 1, i);
        float x = (float)ldexp(draw, (int)(i % 20) - 12), tie = ldexpf(rintf((float)draw * 16), (int)(i % 12) - 8);

        assert_int_equal(ash_f32_to_e4m3(x) & 127, nearest(x, 127, e4m3_value));
        assert_int_equal(ash_f32_to_e4m3(tie) & 127, nearest(tie, 127, e4m3_value));
        assert_int_equal(ash_f32_to_e2m1(x) & 7, nearest(x, 8, e2m1_value));
        assert_int_equal(ash_f32_to_e2m1(tie) & 7, nearest(tie, 8, e2m1_value));
        assert_int_equal(ash_f32_to_e2m1(x) >> 3, x < 0);
    }
}

static void test_scales_of_mx_blocks_are_powers_of_two(void **state)
{
    (void)state;
    for (int code = 0; code < 255; code++)
        assert_true(ash_e8m0_to_f32((uint8_t)code) == ldexpf(1, code - 127));
    assert_true(isnan(ash_e8m0_to_f32(255)));
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static char scratch[64];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof(scratch), "/tmp/ashlar-test-quantised-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static int remove_scratch(void **state)
{
    (void)state;
    return ash_dir_remove(scratch, NULL);
}

struct folder {
    struct ash_safetensors *files;
    struct ash_quantised *quantised;
    size_t count; /* of the weights of "m.weight" */
    const void *floats;
};

/* A file of these tensors, read as config says, with a matrix of rows x cols in it. */
static void open_folder(struct folder *folder, const char *config, const struct ash_tensor_spec *specs, size_t count,
                        const size_t dims[2])
{
    char path[96];
    json_t *json = NULL;
    size_t index = 0;
    struct ash_err err = {0};

    snprintf(path, sizeof(path), "%s/model.safetensors", scratch);
    assert_int_equal(ash_safetensors_write(path, specs, count, NULL, 0, NULL, NULL, &err), 0);
    assert_int_equal(ash_safetensors_open(path, &folder->files, &err), 0);
    assert_int_equal(ash_json_parse(config, strlen(config), "config.json", &json, &err), 0);
    assert_int_equal(ash_quantised_open(json, folder->files, &folder->quantised, &err), 0);
    if (ash_quantised_find(folder->quantised, "m.weight", dims, 2, &index, &err) != 1) fail_msg("%s", err.text);
    assert_int_equal(ash_quantised_map(folder->quantised, &err), 0);
    folder->floats = ash_quantised_data(folder->quantised, index);
    folder->count = dims[0] * dims[1];
    json_decref(json);
}

static void close_folder(struct folder *folder)
{
    ash_quantised_close(folder->quantised);
    ash_safetensors_close(folder->files);
}

static void bring(const struct folder *folder, size_t first, size_t count)
{
    size_t width = ash_dtype_bytes(ash_quantised_dtype(folder->quantised));
    const char *from = (const char *)folder->floats + first * width;
    struct ash_direct_range range = {ash_quantised_holds(folder->quantised, from), from, count * width};
    struct ash_err err = {0};

    if (ash_remote_file_bring(&range, 1, &err) != 0) fail_msg("%s", err.text);
}

/* Bytes that bitsandbytes 0.49 wrote (a part of a block with a largest size of 1/32) and the bf16 values that it
 * dequantised them to on a GPU, as they were printed. */
static void test_nf4_is_what_bitsandbytes_gives(void **state)
{
    static const uint8_t codes[8] = {110, 90, 88, 44, 228, 163, 9, 25};
    static const float map[16] = {-1.0f,        -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f,
                                  -0.09105004f, 0.0f,         0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
                                  0.44070983f,  0.56261700f,  0.72295684f,  1.0f};
    static const double want[16] = {-0.002838, 0.022583, -0.005768, 0.00769,   -0.005768, 0.002487,
                                    -0.016357, 0.013794, 0.022583,  -0.008911, 0.00769,   -0.012329,
                                    -0.03125,  0.005035, -0.021729, 0.005035};
    static const float absmax = 0.03125f;
    static const char text[] =
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [1, 16]}";
    const struct ash_tensor_spec specs[] = {
        {"m.weight", ASH_U8, 2, {8, 1}, codes},
        {"m.weight.absmax", ASH_F32, 1, {1}, &absmax},
        {"m.weight.quant_map", ASH_F32, 1, {16}, map},
        {"m.weight.quant_state.bitsandbytes__nf4", ASH_U8, 1, {sizeof(text) - 1}, text}};
    struct folder folder;

    (void)state;
    open_folder(&folder, "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}", specs, ASH_COUNT(specs),
                (size_t[]){1, 16});
    bring(&folder, 0, 16);
    for (int i = 0; i < 16; i++)
        assert_true(fabs((double)ash_bf16_to_f32(((const uint16_t *)folder.floats)[i]) - want[i]) <= 5e-7);
    close_folder(&folder);
}

/* Two blocks by hand: 6 * 448 / 896 = 3, and so on. */
static void test_nvfp4_blocks_by_hand(void **state)
{
    /* 0 .5 1 1.5 2 3 4 6, then the same negative; then 1 and 0 in turn */
    static const uint8_t codes[16] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,
                                      0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02};
    static const uint8_t scales[2] = {0x7e, 0x01}; /* 448 and 2^-9 */
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6}, global = 896;
    const struct ash_tensor_spec specs[] = {{"m.weight_packed", ASH_U8, 2, {1, 16}, codes},
                                            {"m.weight_scale", ASH_F8_E4M3, 2, {1, 2}, scales},
                                            {"m.weight_global_scale", ASH_F32, 1, {1}, &global}};
    struct folder folder;
    const float *found;

    (void)state;
    open_folder(&folder,
                "{\"dtype\": \"float32\", \"quantization_config\": {\"quant_method\": \"compressed-tensors\","
                " \"format\": \"nvfp4-pack-quantized\"}}",
                specs, ASH_COUNT(specs), (size_t[]){1, 32});
    bring(&folder, 0, 32);
    found = folder.floats;
    for (int i = 0; i < 8; i++) {
        assert_true(found[i] == values[i] / 2 && found[8 + i] == -values[i] / 2);
        assert_true(found[16 + 2 * i] == (1.0f / 512) / 896 && found[17 + 2 * i] == 0);
    }
    close_folder(&folder);
}

/* Ranges that begin and end anywhere, as readers of slices and chunks ask for them. */
static void test_ranges_are_parts_of_the_whole(void **state)
{
    enum { ROWS = 96, COLS = 88, GROUP = 8 };
    static uint32_t codes[COLS * ROWS / 8], zeros[COLS / GROUP * ROWS / 8];
    static uint16_t scales[COLS / GROUP * ROWS], whole[ROWS * COLS];
    const struct ash_tensor_spec specs[] = {{"m.qweight", ASH_I32, 2, {COLS, ROWS / 8}, codes},
                                            {"m.qzeros", ASH_I32, 2, {COLS / GROUP, ROWS / 8}, zeros},
                                            {"m.scales", ASH_F16, 2, {COLS / GROUP, ROWS}, scales}};
    const char *config = "{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 8}}";
    struct folder folder;

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(codes); i++)
        codes[i] = (uint32_t)ash_rng_u64(5, 0, i);
    for (size_t i = 0; i < ASH_COUNT(zeros); i++)
        zeros[i] = (uint32_t)ash_rng_u64(5, 1, i);
    for (size_t i = 0; i < ASH_COUNT(scales); i++)
        scales[i] = ash_f32_to_f16((float)ash_rng_normal(5, 2, i));
    open_folder(&folder, config, specs, ASH_COUNT(specs), (size_t[]){ROWS, COLS});
    bring(&folder, 0, ROWS * COLS);
    memcpy(whole, folder.floats, sizeof(whole));
    for (uint64_t i = 0; i < 50; i++) {
        size_t first = ash_rng_u64(6, 0, i) % (ROWS * COLS), count = ash_rng_u64(6, 1, i) % (ROWS * COLS - first) + 1;

        memset((void *)(uintptr_t)folder.floats, 0, sizeof(whole));
        bring(&folder, first, count);
        assert_memory_equal((const uint16_t *)folder.floats + first, whole + first, count * sizeof(*whole));
    }
    close_folder(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_e4m3_is_its_value_and_comes_back),
        cmocka_unit_test(test_drawn_floats_become_the_nearest),
        cmocka_unit_test(test_scales_of_mx_blocks_are_powers_of_two),
        cmocka_unit_test(test_nf4_is_what_bitsandbytes_gives),
        cmocka_unit_test(test_nvfp4_blocks_by_hand),
        cmocka_unit_test(test_ranges_are_parts_of_the_whole),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}

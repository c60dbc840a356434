/* The error distributions over the published measurements are held where they are: a change of the model shows at once
 * whether it became worse. Limits are a little above the reached values (docs/planning.md). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "plan/validate/validate.h"

struct limit {
    const char *group;
    size_t rows; /* at least */
    double median, p90;
};

static struct ash_validate *open_file(const char *path, int expected, struct ash_err *err)
{
    struct ash_consts consts = ash_consts_default();
    struct ash_validate *validate = NULL;
    struct ash_catalog *catalog = NULL;

    assert_int_equal(ash_catalog_open(NULL, 0, &catalog, NULL), 0);
    assert_int_equal(ash_validate_open(&consts, catalog, path, &validate, err), expected);
    ash_catalog_close(catalog);
    return validate;
}

static const struct ash_validate_group *find(const struct ash_validate *validate, const char *name)
{
    for (size_t i = 0; i < ash_validate_group_count(validate); i++)
        if (strcmp(ash_validate_group_at(validate, i)->name, name) == 0) return ash_validate_group_at(validate, i);
    fail_msg("there is no group '%s'", name);
    return NULL;
}

static void hold(const char *path, const struct limit *limits, size_t count, size_t unpredicted)
{
    struct ash_err err = {0};
    struct ash_validate *validate = open_file(path, 0, &err);
    size_t missing = 0;

    for (size_t i = 0; i < count; i++) {
        const struct ash_validate_group *group = find(validate, limits[i].group);
        if (group->rows < limits[i].rows || group->median_abs_err > limits[i].median ||
            group->p90_abs_err > limits[i].p90)
            fail_msg("%s: %zu rows, median %.1f %%, p90 %.1f %%; at most %.1f and %.1f were allowed", group->name,
                     group->rows, 100 * group->median_abs_err, 100 * group->p90_abs_err, 100 * limits[i].median,
                     100 * limits[i].p90);
    }
    for (size_t i = 0; i < ash_validate_row_count(validate); i++) {
        const struct ash_validate_row *row = ash_validate_row_at(validate, i);
        missing += !row->predicted;
        if (!row->predicted) assert_true(row->reason[0] != '\0');
    }
    if (missing > unpredicted) fail_msg("%zu rows were not predicted", missing);
    ash_validate_close(validate);
}

static void training_errors_stay(void **state)
{
    static const struct limit limits[] = {
        {"primary dense", 450, 0.055, 0.19},
        {"primary moe", 120, 0.15, 0.38},
        {"primary hybrid", 7, 0.06, 0.08},
        {"source mosaic-llm-foundry", 170, 0.05, 0.13},
        {"source dgxc-benchmarking", 280, 0.05, 0.20},
        {"source aws-awsome-distributed-ai", 41, 0.18, 0.55},
        {"source narayanan-2021", 10, 0.09, 0.20},
    };

    (void)state;
    hold(TEST_DATA "/plan/training.csv", limits, sizeof(limits) / sizeof(limits[0]), 18);
}

static void inference_errors_stay(void **state)
{
    static const struct limit limits[] = {
        {"primary", 740, 0.09, 0.32}, {"primary dense", 470, 0.07, 0.25}, {"primary moe", 270, 0.16, 0.40}};

    (void)state;
    hold(TEST_DATA "/plan/inference.csv", limits, sizeof(limits) / sizeof(limits[0]), 6);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Rows with holes are named with a reason, the rest is predicted. */
static void holes_are_named(void **state)
{
    char path[64];
    struct ash_err err = {0};
    struct ash_validate *validate;
    static const char *const reasons[] = {NULL,
                                          "not well known",
                                          "not in the catalog",
                                          "no sequence length",
                                          "no global batch",
                                          "neither tokens per second",
                                          "how many GPUs"};

    (void)state;
    snprintf(path, sizeof(path), "/tmp/ashlar-validate-%d.csv", (int)getpid());
    write_file(path, "row_id,model,gpu,n_gpus,seq_len,gbs,mbs,tokens_s_gpu\n"
                     "a,llama-3-8b,H100,8,8192,128,1,9000\n"
                     "b,nobody-knows,H100,8,8192,128,1,9000\n"
                     "c,llama-3-8b,TPU,8,8192,128,1,9000\n"
                     "d,llama-3-8b,H100,8,,128,1,9000\n"
                     "e,llama-3-8b,H100,8,8192,,,9000\n"
                     "f,llama-3-8b,H100,8,8192,128,1,\n"
                     "g,llama-3-8b,H100,-8,8192,128,1,9000\n"
                     "h,gpt2-124m,H100,8,1024,128,16,90000\n");
    validate = open_file(path, 0, &err);
    assert_int_equal(ash_validate_row_count(validate), 8);
    assert_false(ash_validate_row_at(validate, 0)->fits); /* 8 B parameters and all of their state on every GPU */
    assert_true(ash_validate_row_at(validate, 7)->predicted && ash_validate_row_at(validate, 7)->fits);
    for (size_t i = 0; i < 7; i++) {
        const struct ash_validate_row *row = ash_validate_row_at(validate, i);
        assert_int_equal(row->predicted, reasons[i] == NULL);
        if (reasons[i] != NULL && strstr(row->reason, reasons[i]) == NULL)
            fail_msg("%s: '%s' does not say '%s'", row->id, row->reason, reasons[i]);
    }
    assert_true(ash_validate_row_at(validate, 0)->expected > 6000 &&
                ash_validate_row_at(validate, 0)->expected < 14000);
    ash_validate_close(validate);
    write_file(path, "a,b\n1,2\n");
    open_file(path, -EINVAL, &err);
    assert_non_null(strstr(err.text, "neither the column"));
    unlink(path);
}

/* Files of other people: names of columns, models and GPUs as they write them, units, what is left out. */
static void foreign_files_are_read(void **state)
{
    struct ash_err err = {0};
    struct ash_validate *validate;
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "/tmp/ashlar-foreign-%d.csv", (int)getpid());
    write_file(path,
               "\xEF\xBB\xBFModel;GPU;Num GPUs;Sequence Length;Global Batch Size;Tokens per sec per GPU;Framework\r\n"
               "llama-3-8b;H100;8;8192;128;9000;NeMo\r\n"
               "meta-llama/Meta-Llama-3-8B-Instruct;NVIDIA H100 80GB HBM3;8;8K;128;\"9,000\";nemo 24.07\r\n"
               "Llama3 8B;8xH100-SXM;8;8192;128;~9000;NeMo\r\n"
               "somebody/Unheard-Of-8B;H100;8;8192;128;9000;NeMo\r\n"
               "Mixtral-8x22B-v0.1;DGX H100 (H100);128;4096;256;1000;\r\n"
               "DeepSeek-V3-0324;GB200 NVL72;256;4096;2048;3000;unheard of\r\n");
    validate = open_file(path, 0, &err);
    assert_int_equal(ash_validate_row_count(validate), 6);
    for (size_t i = 0; i < 6; i++) {
        const struct ash_validate_row *row = ash_validate_row_at(validate, i);
        if (!row->predicted) fail_msg("row %zu: %s", i, row->reason);
        if (i < 3) assert_float_equal(row->expected, ash_validate_row_at(validate, 0)->expected, 1e-6);
    }
    assert_float_equal(ash_validate_row_at(validate, 3)->expected / ash_validate_row_at(validate, 0)->expected, 1, 0.2);
    assert_int_equal(find(validate, "moe")->rows, 2);
    assert_int_equal(find(validate, "dense")->rows, 4);
    ash_validate_close(validate);
    write_file(path, "model,gpu,n_gpus,precision,input_len,output_len,concurrency,output_throughput\n"
                     "nvidia/Llama-3.1-8B-Instruct-FP8,H200 SXM 141GB,1,fp8,1000,1000,64,7000\n"
                     "Llama-3.1-70B,12x H100,12,e4m3,1000,1000,64,3000\n");
    validate = open_file(path, 0, &err);
    for (size_t i = 0; i < 2; i++) {
        const struct ash_validate_row *row = ash_validate_row_at(validate, i);
        if (!row->predicted) fail_msg("row %zu: %s", i, row->reason);
        assert_true(fabs(row->error) < 0.6);
        assert_string_equal(row->id, i == 0 ? "row 1" : "row 2");
    }
    ash_validate_close(validate);
    unlink(path);
}

/* A generation of InfiniBand states the rate of a port; of two that are named, the slower one counts. */
static void networks_are_read(void **state)
{
    struct ash_err err = {0};
    struct ash_validate *validate;
    double both, xdr, stated;
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "/tmp/ashlar-networks-%d.csv", (int)getpid());
    write_file(path, "model,gpu,n_gpus,ep,seq_len,gbs,mbs,tokens_s_gpu,interconnect\n"
                     "gpt-oss-120b,B300,64,64,4096,1280,4,8000,InfiniBand (NDR/XDR)\n"
                     "gpt-oss-120b,B300,64,64,4096,1280,4,8000,InfiniBand XDR\n"
                     "gpt-oss-120b,B300,64,64,4096,1280,4,8000,IB 8x400G\n");
    validate = open_file(path, 0, &err);
    both = ash_validate_row_at(validate, 0)->expected;
    xdr = ash_validate_row_at(validate, 1)->expected;
    stated = ash_validate_row_at(validate, 2)->expected;
    assert_true(both > 0 && both == stated && xdr > 1.2 * both);
    ash_validate_close(validate);
    unlink(path);
}

/* A release that can record whole steps does not where a row says that only parts of layers are. */
static void graphs_are_read(void **state)
{
    struct ash_err err = {0};
    struct ash_validate *validate;
    double whole, parts, before;
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "/tmp/ashlar-graphs-%d.csv", (int)getpid());
    write_file(path, "model,gpu,n_gpus,ep,seq_len,gbs,mbs,precision,tokens_s_gpu,framework,extra\n"
                     "gpt-oss-120b,B300,64,8,4096,1280,4,mxfp8,18000,Megatron-Bridge 26.06,\n"
                     "gpt-oss-120b,B300,64,8,4096,1280,4,mxfp8,18000,Megatron-Bridge 26.06,cuda_graph=attn\n"
                     "gpt-oss-120b,B300,64,8,4096,1280,4,mxfp8,18000,Megatron-Bridge 26.04,cuda_graph=attn\n");
    validate = open_file(path, 0, &err);
    whole = ash_validate_row_at(validate, 0)->expected;
    parts = ash_validate_row_at(validate, 1)->expected;
    before = ash_validate_row_at(validate, 2)->expected;
    assert_true(parts > 0 && parts == before && whole > 1.2 * parts);
    ash_validate_close(validate);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_errors_stay), cmocka_unit_test(inference_errors_stay),
        cmocka_unit_test(holes_are_named),      cmocka_unit_test(foreign_files_are_read),
        cmocka_unit_test(networks_are_read),    cmocka_unit_test(graphs_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

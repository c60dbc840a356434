/* config.json: what families read, and that nonsense is refused with a sentence that names it. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/config.h"

#define LLAMA                                                                                                          \
    "\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4"

static int parse(const char *text, struct ash_model_config *config, struct ash_err *err)
{
    json_t *json = NULL;
    int rc = ash_json_parse(text, strlen(text), "config.json", &json, err);

    if (rc < 0) return rc;
    rc = ash_model_config_parse(json, config, err);
    json_decref(json);
    return rc;
}

static void test_defaults(void **state)
{
    struct ash_model_config c = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(parse("{" LLAMA "}", &c, &err), 0);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_dim, 8);
    assert_false(c.tied);
    assert_true(fabs(c.attn_scale - 1 / sqrt(8.0)) < 1e-12);
    assert_int_equal(c.rope.kind, ASH_ROPE_DEFAULT);
    assert_int_equal(c.eos_count, 0);
    ash_model_config_fini(&c);
    assert_int_equal(parse("{" LLAMA ",\"head_dim\":null,\"eos_token_id\":[3,7],\"rope_theta\":5e5}", &c, &err), 0);
    assert_int_equal(c.eos_count, 2);
    assert_int_equal(c.eos[1], 7);
    assert_true(c.rope.theta == 5e5);
    ash_model_config_fini(&c);
}

static void test_windows(void **state)
{
    struct ash_model_config c = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(parse("{\"model_type\":\"mistral\",\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":2,"
                           "\"num_attention_heads\":2}",
                           &c, &err),
                     0);
    assert_int_equal(c.window[1], 4096); /* the family's default */
    ash_model_config_fini(&c);
    assert_int_equal(parse("{\"model_type\":\"mistral\",\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":2,"
                           "\"num_attention_heads\":2,\"sliding_window\":null}",
                           &c, &err),
                     0);
    assert_int_equal(c.window[1], 0);
    ash_model_config_fini(&c);
    assert_int_equal(parse("{\"model_type\":\"qwen2\",\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":3,\"num_"
                           "attention_heads\":2,"
                           "\"use_sliding_window\":true,\"sliding_window\":5,\"max_window_layers\":2}",
                           &c, &err),
                     0);
    assert_int_equal(c.window[1], 0);
    assert_int_equal(c.window[2], 5);
    ash_model_config_fini(&c);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *says;
        int code;
    } cases[] = {
        {"[1]", "not a JSON object", -EINVAL},
        {"{}", "model_type", -EINVAL},
        {"{\"model_type\":7}", "model_type", -EINVAL},
        {"{\"model_type\":\"nosuch\"}", "llama, mistral", -ENOTSUP},
        {"{\"model_type\":\"llama\"}", "vocab_size", -EINVAL},
        {"{\"model_type\":\"llama\",\"vocab_size\":-4}", "vocab_size", -EINVAL},
        {"{\"model_type\":\"llama\",\"vocab_size\":1.5}", "vocab_size", -EINVAL},
        {"{\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":99999999999}", "hidden_size", -EINVAL},
        {"{" LLAMA ",\"num_key_value_heads\":3}", "cannot share", -EINVAL},
        {"{" LLAMA ",\"num_key_value_heads\":0}", "num_key_value_heads", -EINVAL},
        {"{" LLAMA ",\"head_dim\":7}", "even", -EINVAL},
        {"{" LLAMA ",\"head_dim\":100000}", "head_dim", -EINVAL},
        {"{" LLAMA ",\"hidden_act\":\"relu\"}", "relu", -ENOTSUP},
        {"{" LLAMA ",\"hidden_act\":\"gelu\"}", "silu", -ENOTSUP},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"nosuch\",\"factor\":2}}", "'nosuch'", -ENOTSUP},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\"}}", "factors", -EINVAL},
        {"{" LLAMA ",\"rope_scaling\":[]}", "rope_scaling", -EINVAL},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":0}}", "factor", -EINVAL},
        {"{" LLAMA ",\"rms_norm_eps\":\"x\"}", "rms_norm_eps", -EINVAL},
        {"{" LLAMA ",\"eos_token_id\":[-3]}", "eos_token_id", -EINVAL},
        {"{" LLAMA ",\"tie_word_embeddings\":3}", "tie_word_embeddings", -EINVAL},
        {"{\"model_type\":\"qwen2\",\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":3,\"num_attention_heads\":"
         "2,"
         "\"use_sliding_window\":true,\"sliding_window\":4,\"layer_types\":[\"full_attention\"]}",
         "layer_types", -EINVAL},
        {"{\"model_type\":\"mixtral\",\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_"
         "heads\":2,"
         "\"num_local_experts\":2,\"num_experts_per_tok\":3}",
         "experts", -EINVAL},
        {"{\"model_type\":\"deepseek_v3\",\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_"
         "heads\":2,"
         "\"n_routed_experts\":8,\"n_group\":3}",
         "groups", -EINVAL},
        {"{\"model_type\":\"deepseek_v3\",\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_"
         "heads\":2,"
         "\"n_routed_experts\":8,\"n_group\":4,\"topk_group\":1,\"num_experts_per_tok\":3}",
         "hold only 2", -EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ash_model_config c = {0};
        struct ash_err err = {0};
        int rc = parse(cases[i].text, &c, &err);
        if (rc != cases[i].code || strstr(err.text, cases[i].says) == NULL)
            fail_msg("%s\ngave %d '%s'", cases[i].text, rc, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

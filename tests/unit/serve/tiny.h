/* tiny - a model of a few thousand random weights over the characters of arithmetic: enough to tell equal from
 * different. */
#ifndef TESTS_SERVE_TINY_H
#define TESTS_SERVE_TINY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "model/files/open.h"
#include "model/model.h"

#define TINY_VOCAB 16
#define TINY_POSITIONS 64

struct tiny {
    struct ash_exec exec;
    struct ash_model *model;
};

static inline int tiny_open(struct tiny *tiny, struct ash_err *err)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 16, \"hidden_size\": 32, \"intermediate_size\": 48,"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
        " \"max_position_embeddings\": 64, \"initializer_range\": 0.5}";
    struct ash_model_config config;
    json_t *json = NULL;
    int rc;

    memset(tiny, 0, sizeof(*tiny));
    rc = ash_exec_init(&tiny->exec, NULL, 2, err);
    if (rc < 0) return rc;
    rc = ash_json_parse(text, strlen(text), "tiny", &json, err);
    if (rc < 0) return rc;
    rc = ash_model_config_parse(json, &config, err);
    json_decref(json);
    if (rc < 0) return rc;
    rc = ash_model_create(&config, 3, &tiny->model, err);
    if (rc < 0) ash_model_config_fini(&config);
    return rc;
}

static inline void tiny_close(struct tiny *tiny)
{
    ash_model_close(tiny->model);
    ash_exec_fini(&tiny->exec);
}

#endif

/* Fuzz target: adapter_config.json of PEFT folders over a small model. An accepted one has modules; others are refused
 * with a sentence. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "model/files/open.h"
#include "model/lora.h"
#include "model/files/lora_files_priv.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static char dir[] = "/dev/shm/ashlar-fuzz-adapter-XXXXXX", path[sizeof(dir) + 32];
static struct ash_model *model;

static void clean(void)
{
    unlink(path);
    rmdir(dir);
    ash_model_close(model);
}

static bool make(void)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 24, \"hidden_size\": 16, \"intermediate_size\": 24,"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"max_position_embeddings\": 64}";
    struct ash_model_config config;
    struct ash_err err = {0};
    json_t *json = NULL;
    bool is_made;

    if (mkdtemp(dir) == NULL) return false;
    snprintf(path, sizeof(path), "%s/adapter_config.json", dir);
    is_made = ash_json_parse(text, strlen(text), "model", &json, &err) == 0 &&
              ash_model_config_parse(json, &config, &err) == 0 && ash_model_create(&config, 1, &model, &err) == 0;
    json_decref(json);
    return atexit(clean) == 0 && is_made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_lora *lora = NULL;
    struct ash_err err = {0};
    int rc;

    if (model == NULL && !make()) return 0;
    if (ash_file_replace(path, data, size_bytes, &err) < 0) return 0;
    rc = ash_lora_load_over(dir, model, &lora, &err);
    ash_assert(rc == 0 ? lora->count > 0 : err.text[0] != '\0');
    ash_lora_close(lora);
    return 0;
}

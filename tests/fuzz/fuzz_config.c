/* Fuzz target: config.json. */
#include <stddef.h>
#include <stdint.h>

#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_model_config config = {0};
    struct ash_err err = {0};
    json_t *json = NULL;

    if (ash_json_parse((const char *)data, size, "fuzz", &json, &err) < 0) return 0;
    if (ash_model_config_parse(json, &config, &err) == 0) ash_model_config_fini(&config);
    json_decref(json);
    return 0;
}

/* defaults - how a model's makers want it to be sampled: generation_config.json, as transformers takes it. */
#ifndef ASH_SERVE_DEFAULTS_H
#define ASH_SERVE_DEFAULTS_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "model/config.h"
#include "serve/engine/sampler.h"

#define ASH_DEFAULTS_EOS_MAX 16

struct ash_defaults {
    struct ash_sampler_opts sampler; /* greedy unless do_sample is true */
    int32_t eos[ASH_DEFAULTS_EOS_MAX];
    size_t eos_count;
};

/* Read dir/generation_config.json; a folder without one gives greedy choice and config's end-of-text ids. A value
 * outside its range is -EINVAL and names file and key. */
int ash_defaults_load(const char *dir, const struct ash_model_config *config, struct ash_defaults *defaults_out,
                      struct ash_err *err);
/* The same from parsed JSON. */
int ash_defaults_parse(const json_t *json, const struct ash_model_config *config, struct ash_defaults *defaults_out,
                       struct ash_err *err);

#endif

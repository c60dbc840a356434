/* generation_config.json: a handful of keys, each checked; everything else in it is none of our business. */
#include "serve/defaults.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/file.h"

/* do_sample false (or absent, as in the library) means greedy whatever the other keys say. */
static int read_sampling(const json_t *json, struct ash_sampler_opts *sampler, struct ash_err *err)
{
    bool sample = false;
    int64_t top_k = 0;
    int rc = ash_json_bool(json, "do_sample", &sample, err);

    if (rc < 0) return rc;
    rc = ash_json_double(json, "repetition_penalty", 1e-3, ASH_SAMPLER_PENALTY_MAX, &sampler->repetition_penalty, err);
    if (rc < 0 || !sample) return rc < 0 ? rc : 0;
    sampler->temperature = 1.0;
    rc = ash_json_double(json, "temperature", 0.0, ASH_SAMPLER_TEMPERATURE_MAX, &sampler->temperature, err);
    if (rc < 0) return rc;
    rc = ash_json_int(json, "top_k", 0, INT32_MAX, &top_k, err);
    if (rc < 0) return rc;
    sampler->top_k = (size_t)top_k;
    rc = ash_json_double(json, "top_p", 1e-9, 1.0, &sampler->top_p, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "min_p", 0.0, 1.0, &sampler->min_p, err);
    return rc < 0 ? rc : 0;
}

static int add_eos(const json_t *value, size_t vocab, struct ash_defaults *defaults, struct ash_err *err)
{
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;

    if (id < 0 || (uint64_t)id >= vocab)
        return ash_err_set(err, -EINVAL, "'eos_token_id' must be a token id below %zu, or a list of them", vocab);
    if (defaults->eos_count == ASH_DEFAULTS_EOS_MAX)
        return ash_err_set(err, -EINVAL, "'eos_token_id' lists more than %d ids", ASH_DEFAULTS_EOS_MAX);
    defaults->eos[defaults->eos_count++] = (int32_t)id;
    return 0;
}

/* One id or a list; where the file has none, config.json's. */
static int read_eos(const json_t *json, const struct ash_model_config *config, struct ash_defaults *defaults,
                    struct ash_err *err)
{
    const json_t *value = json_object_get(json, "eos_token_id");
    int rc = 0;

    if (value == NULL || json_is_null(value)) {
        memcpy(defaults->eos, config->eos, config->eos_count * sizeof(config->eos[0]));
        defaults->eos_count = config->eos_count;
        return 0;
    }
    if (!json_is_array(value)) return add_eos(value, config->vocab, defaults, err);
    for (size_t i = 0; i < json_array_size(value) && rc == 0; i++)
        rc = add_eos(json_array_get(value, i), config->vocab, defaults, err);
    return rc;
}

int ash_defaults_parse(const json_t *json, const struct ash_model_config *config, struct ash_defaults *defaults_out,
                       struct ash_err *err)
{
    struct ash_defaults defaults = {.sampler = ash_sampler_defaults()};
    int rc = read_sampling(json, &defaults.sampler, err);

    if (rc < 0) return rc;
    rc = read_eos(json, config, &defaults, err);
    if (rc < 0) return rc;
    *defaults_out = defaults;
    return 0;
}

int ash_defaults_load(const char *dir, const struct ash_model_config *config, struct ash_defaults *defaults_out,
                      struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *json = NULL;
    int rc = ash_path_join(path, sizeof(path), dir, "generation_config.json");

    if (rc < 0) return ash_err_set(err, rc, "the path '%s' is too long", dir);
    if (!ash_path_exists(path)) return ash_defaults_parse(NULL, config, defaults_out, err);
    rc = ash_json_load(path, &json, err);
    if (rc < 0) return rc;
    rc = ash_defaults_parse(json, config, defaults_out, err);
    if (rc < 0) rc = ash_err_prefix(err, rc, "%s", path);
    json_decref(json);
    return rc;
}

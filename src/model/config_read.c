/* Reads single fields of a config.json. */
#include <errno.h>
#include <string.h>

#include "model/family.h"

int ash_config_size(const json_t *json, const char *key, size_t min, size_t max, size_t *value, struct ash_err *err)
{
    int64_t number = 0;
    int rc = ash_json_int(json, key, (int64_t)min, (int64_t)max, &number, err);

    if (rc == 1) *value = (size_t)number;
    return rc;
}

int ash_config_act(const json_t *json, const char *key, struct ash_model_config *config, struct ash_err *err)
{
    bool is_gated = ash_mlp_is_gated(config->family->form.mlp);
    const char *name = NULL;
    int rc = ash_json_string(json, key, &name, err);

    if (rc <= 0) return rc;
    if (config->family->form.mlp == ASH_MLP_GATED_ERF && strcmp(name, "gelu") == 0)
        config->form.mlp = ASH_MLP_GATED_ERF;
    else if (is_gated && (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0))
        config->form.mlp = config->family->form.mlp == ASH_MLP_GATED_CLAMPED ? ASH_MLP_GATED_CLAMPED : ASH_MLP_GATED;
    else if (strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0)
        config->form.mlp = is_gated ? ASH_MLP_GATED_TANH : ASH_MLP_GELU_TANH;
    else if (!is_gated && strcmp(name, "gelu") == 0)
        config->form.mlp = ASH_MLP_GELU_ERF;
    else
        return ash_err_set(err, -ENOTSUP, "%s '%s' is not supported in this family (%s are)", key, name,
                           is_gated ? "silu and gelu_pytorch_tanh" : "gelu and gelu_pytorch_tanh");
    return 0;
}

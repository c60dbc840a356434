/* sampled: the whole policy with the values of now, on each rank. */
#include "model/files/open.h"
#include "post/rl/rl_priv.h"
#include "train/layout/collect.h"

int ash_rl_find_sampled(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_model **model_out,
                        struct ash_err *err)
{
    struct ash_model *held = ash_trainer_state(trainer)->model;
    int rc = 0;

    *model_out = held;
    if (ash_trainer_get_facts(trainer).whole) return 0;
    if (rl->sampler.copy == NULL) {
        const struct ash_model_config *config = ash_model_get_config(held);

        json_incref(config->source); /* a new model takes over one reference */
        rc = ash_model_blank_slice(config, NULL, &rl->sampler.copy, err);
        if (rc < 0) json_decref(config->source);
        if (rc == 0) ash_model_round_bf16(rl->sampler.copy, rl->job->train.precision != ASH_JOB_FP32);
    }
    if (rc == 0) rc = ash_collect_model(ash_trainer_stages(trainer), rl->sampler.copy, err);
    *model_out = rl->sampler.copy;
    return rc;
}

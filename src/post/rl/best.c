/* best: DIR/best has the model of the best evaluation so far, as a folder that appears whole. */
#include <limits.h>
#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "model/files/save.h"
#include "post/rl/rl_priv.h"
#include "storage/commit/commit.h"
#include "train/data/tokenizer_files.h"

/* The best evaluation so far, from the folder of an earlier part of the run. */
static double read_best(const char *path)
{
    json_t *manifest = NULL;
    double best = -INFINITY;

    if (ash_commit_verify(path, false, &manifest, NULL) == 0)
        ash_json_double(json_object_get(manifest, "state"), "eval", -INFINITY, INFINITY, &best, NULL);
    json_decref(manifest);
    return best;
}

static int write_best(const struct ash_policy_run *rl, const struct ash_trainer *trainer, const char *path,
                      json_t *state, struct ash_err *err)
{
    struct ash_commit *commit = NULL;
    const char *dir;
    int rc = ash_commit_begin(path, &commit, err);

    if (rc < 0) return rc;
    dir = ash_commit_dir(commit);
    rc = ash_model_save(rl->sampler.model, dir, ASH_F32, 0, NULL, err);
    if (rc == 0)
        rc = ash_tokenizer_files_copy(ash_trainer_get_facts(trainer).tokenizer_dir, dir,
                                      ash_model_get_config(rl->sampler.model), err);
    if (rc == 0) return ash_commit_finish(commit, state, err);
    ash_commit_abort(commit);
    return rc;
}

void ash_rl_keep_best(struct ash_policy_run *rl, const struct ash_trainer *trainer, uint64_t step, double eval)
{
    struct ash_err why = {0};
    char path[PATH_MAX];
    json_t *state;
    int rc = ash_path_join(path, sizeof(path), rl->dir, "best");

    if (!rl->job->rollout.keep_best || rc < 0 || ash_group_rank(rl->group) != 0) return;
    if (!rl->best.is_known) rl->best.eval = read_best(path);
    rl->best.is_known = true;
    if (!(eval > rl->best.eval)) return;
    state = json_pack("{s:I, s:f}", "step", (json_int_t)step, "eval", eval);
    rc = write_best(rl, trainer, path, state, &why);
    json_decref(state);
    if (rc < 0)
        ash_log(ASH_LOG_WARN, "the best model is not kept: %s", why.text);
    else
        rl->best.eval = eval;
}

/* golden_post: losses and gradients of policies, and their advantages. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_post.h"

#include "post/objective/advantages.h"
#include "post/objective/policy.h"

#define WIDTH_MAX 1024 /* tokens of a prompt, and of an answer */

/* ---- rl ---------------------------------------------------------------------------------------------------------- */

struct rl {
    const json_t *wanted;
    const float *advantages, *old, *reference;
    const int32_t *mask;
    size_t answers, prompt, width;
    double loss, entropy, clipped_low, clipped_high; /* shares */
};

static const char *string_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

static double token_weight(const struct rl *rl, const char *type, size_t count, size_t total)
{
    if (strcmp(type, "grpo") == 0) return 1.0 / (double)(rl->answers * count);
    if (strcmp(type, "dr_grpo") == 0) return 1.0 / (double)(rl->answers * rl->width);
    return 1.0 / (double)total;
}

static void weigh_rl(struct post_docs *docs, void *ctx)
{
    struct rl *rl = ctx;
    const char *type = string_of(rl->wanted, "loss_type");
    struct ash_policy_opts opts = {.clip_low = post_number(rl->wanted, "lo"),
                                   .clip_high = post_number(rl->wanted, "hi"),
                                   .most = post_number(rl->wanted, "delta"),
                                   .is_sequence = strcmp(string_of(rl->wanted, "level"), "sequence") == 0,
                                   .is_cispo = strcmp(type, "cispo") == 0,
                                   .kl_coef = post_number(rl->wanted, "beta"),
                                   .kl_estimator = ASH_KL_K3};
    double bonus = post_number(rl->wanted, "ent");
    size_t total = 0;

    rl->loss = rl->entropy = rl->clipped_low = rl->clipped_high = 0.0;
    for (size_t i = 0; i < rl->answers * rl->width; i++)
        total += rl->mask[i] != 0;
    for (size_t a = 0; a < rl->answers; a++) {
        double logps[WIDTH_MAX], old[WIDTH_MAX], reference[WIDTH_MAX], advantages[WIDTH_MAX], slopes[WIDTH_MAX];
        struct ash_policy_value value;
        struct ash_policy_answer answer = {
            .logps = logps, .old = old, .reference = reference, .advantages = advantages};
        size_t first = docs->docs[a].row + rl->prompt - 1;

        for (size_t t = 0; t < rl->width; t++) {
            if (rl->mask[a * rl->width + t] == 0) continue;
            logps[answer.count] = -(double)docs->losses[first + t];
            old[answer.count] = json_is_true(json_object_get(rl->wanted, "off")) ? (double)rl->old[a * rl->width + t]
                                                                                 : logps[answer.count];
            reference[answer.count] = (double)rl->reference[a * rl->width + t];
            advantages[answer.count++] = (double)rl->advantages[a];
            rl->entropy += (double)docs->entropies[first + t] / (double)total;
            docs->entropy_scales[first + t] = (float)(-bonus / (double)total);
        }
        answer.weight = token_weight(rl, type, answer.count, total);
        value = ash_policy_loss(&opts, &answer, slopes);
        rl->loss += value.loss;
        /* tokens, or answers where those have one ratio */
        rl->clipped_low += (double)value.clipped_low / (double)(opts.is_sequence ? answer.count * rl->answers : total);
        rl->clipped_high +=
            (double)value.clipped_high / (double)(opts.is_sequence ? answer.count * rl->answers : total);
        for (size_t t = 0; t < answer.count; t++)
            docs->scales[first + t] = (float)-slopes[t];
    }
    rl->loss -= bonus * rl->entropy;
}

/* Shares of clipped tokens. A two-sided clip changes what they are shares of. */
static void check_clips(struct golden *g, const char *name, const struct rl *rl)
{
    const json_t *metrics = json_object_get(rl->wanted, "metrics"),
                 *low = json_object_get(metrics, "clip_ratio/low_mean");
    char what[128];
    double worst = 0.0;

    if (low == NULL || json_is_number(json_object_get(rl->wanted, "delta"))) return;
    post_note(&worst, rl->clipped_low - json_number_value(low));
    post_note(&worst, rl->clipped_high - post_number(metrics, "clip_ratio/high_mean"));
    snprintf(what, sizeof(what), "%s: clipped", name);
    golden_report(g, what, worst, LOSS_LIMIT);
}

static void check_rl_case(struct golden *g, struct post_docs *docs, const char *name, struct rl *rl)
{
    double temperature = post_number(rl->wanted, "temp");
    const float *logps;
    struct ash_err err = {0};
    char what[128];
    double worst = 0.0;

    snprintf(what, sizeof(what), "old_logps.t%.1f", temperature);
    rl->old = post_tensor(g, what)->data;
    snprintf(what, sizeof(what), "ref_logps.t%.1f", temperature);
    rl->reference = post_tensor(g, what)->data;
    snprintf(what, sizeof(what), "logps.t%.1f", temperature);
    logps = post_tensor(g, what)->data;
    rl->advantages =
        post_tensor(g, json_is_true(json_object_get(rl->wanted, "noadvstd")) ? "advantages_no_std" : "advantages")
            ->data;
    docs->sharpness = (float)(1.0 / temperature);
    docs->has_entropy = post_number(rl->wanted, "ent") > 0;
    if (post_run_docs(g, docs, weigh_rl, rl, &err) < 0) {
        golden_broken(g, name, &err);
        return;
    }
    for (size_t a = 0; a < rl->answers; a++)
        for (size_t t = 0; t < rl->width; t++)
            if (rl->mask[a * rl->width + t] != 0)
                post_note(&worst, (double)logps[a * rl->width + t] +
                                      (double)docs->losses[docs->docs[a].row + rl->prompt - 1 + t]);
    snprintf(what, sizeof(what), "%s: log-probabilities", name);
    golden_report(g, what, worst, 1e-4);
    snprintf(what, sizeof(what), "%s: loss", name);
    golden_report(g, what, fabs(rl->loss - post_number(rl->wanted, "loss")), LOSS_LIMIT);
    snprintf(what, sizeof(what), "%s: entropy", name);
    golden_report(g, what, post_off(rl->entropy, post_number(json_object_get(rl->wanted, "metrics"), "entropy")),
                  LOSS_LIMIT);
    check_clips(g, name, rl);
    snprintf(what, sizeof(what), "grad.%s.", name);
    post_check_gradients(g, what, docs->grads);
}

static void check_advantages(struct golden *g, size_t answers)
{
    const float *rewards = post_tensor(g, "rewards")->data, *scaled = post_tensor(g, "advantages")->data,
                *plain = post_tensor(g, "advantages_no_std")->data;
    double wide[DOCS_MAX], with[DOCS_MAX], without[DOCS_MAX], worst = 0.0;
    size_t samples = (size_t)post_number(g->json, "group");
    int64_t group[DOCS_MAX];

    for (size_t i = 0; i < answers; i++) {
        wide[i] = (double)rewards[i];
        group[i] = (int64_t)(i / samples);
    }
    ash_advantages_group(wide, group, answers, 1e-4, false, with);
    ash_advantages_group(wide, group, answers, 0, false, without);
    for (size_t i = 0; i < answers; i++) {
        post_note(&worst, with[i] - (double)scaled[i]);
        post_note(&worst, without[i] - (double)plain[i]);
    }
    golden_report(g, "advantages", worst, 1e-5);
}

void post_check_rl(struct golden *g)
{
    struct post_docs *docs = calloc(1, sizeof(*docs));
    const int32_t *prompts = post_tensor(g, "prompt_ids")->data, *answers = post_tensor(g, "completion_ids")->data;
    struct rl rl = {.mask = post_tensor(g, "completion_mask")->data,
                    .answers = post_tensor(g, "completion_ids")->dims[0],
                    .prompt = post_tensor(g, "prompt_ids")->dims[1],
                    .width = post_tensor(g, "completion_ids")->dims[1]};
    struct ash_err err = {0};
    const char *name;
    json_t *wanted;

    if (rl.answers > DOCS_MAX || rl.prompt > WIDTH_MAX || rl.width > WIDTH_MAX || post_number(g->json, "group") < 1) {
        golden_report_equal(g, "sizes", false, "at most 1024 answers of 1024 tokens");
        free(docs);
        return;
    }
    check_advantages(g, rl.answers);
    for (size_t a = 0; a < rl.answers; a++) {
        int32_t ids[2 * WIDTH_MAX];
        size_t count = rl.prompt, first;

        memcpy(ids, prompts + a * rl.prompt, rl.prompt * sizeof(*ids));
        for (size_t t = 0; t < rl.width && rl.mask[a * rl.width + t] != 0; t++)
            ids[count++] = answers[a * rl.width + t];
        first = post_add_doc(docs, ids, count);
        for (size_t t = rl.prompt; t < count; t++)
            docs->targets[first + t - 1] = ids[t];
    }
    if (post_open_base(g, &err) < 0) golden_broken(g, "rl", &err);
    json_object_foreach(json_object_get(g->json, "cases"), name, wanted) {
        rl.wanted = wanted;
        if (g->model != NULL) check_rl_case(g, docs, name, &rl);
    }
    free(docs->grads);
    free(docs);
}

/* golden_post: losses and gradients of examples and pairs: sft, dpo, reward. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_post.h"

#include "model/files/open.h"
#include "post/objective/pairs.h"

/* ---- sft --------------------------------------------------------------------------------------------------------- */

static void weigh_mean(struct post_docs *docs, void *ctx)
{
    float scale = post_mean_scale(docs);

    (void)ctx;
    for (size_t r = 0; r < docs->rows; r++)
        docs->scales[r] = docs->targets[r] >= 0 ? scale : 0.0f;
}

void post_check_sft(struct golden *g)
{
    struct post_docs *docs = calloc(1, sizeof(*docs));
    struct ash_err err = {0};
    double sum = 0.0, targets = json_number_value(json_object_get(g->json, "targets"));
    int rc = post_open_base(g, &err);

    for (int i = 0;; i++) {
        char name[32];
        const struct ash_tensor_view *ids, *mask;
        size_t first;

        snprintf(name, sizeof(name), "ids.%d", i);
        ids = ash_safetensors_find(g->tensors, name);
        if (ids == NULL) break;
        snprintf(name, sizeof(name), "mask.%d", i);
        mask = post_tensor(g, name);
        first = post_add_doc(docs, ids->data, ash_tensor_count(ids));
        for (size_t t = 1; t < ash_tensor_count(ids); t++)
            if (((const int32_t *)mask->data)[t] != 0) docs->targets[first + t - 1] = docs->ids[first + t];
    }
    if (rc == 0) rc = post_run_docs(g, docs, weigh_mean, NULL, &err);
    if (rc < 0) {
        golden_broken(g, "sft", &err);
    } else {
        for (size_t r = 0; r < docs->rows; r++)
            sum += (double)docs->losses[r];
        golden_report(g, "loss", post_off(sum / targets, json_number_value(json_object_get(g->json, "loss"))),
                      LOSS_LIMIT);
        post_check_gradients(g, "grad.", docs->grads);
    }
    free(docs->grads);
    free(docs);
}

/* ---- dpo --------------------------------------------------------------------------------------------------------- */

struct dpo {
    struct ash_job_dpo opts;
    struct ash_pair_side sides[DOCS_MAX];
    size_t pairs;
    double loss, chosen, rejected, margin;
};

static void weigh_dpo(struct post_docs *docs, void *ctx)
{
    struct dpo *dpo = ctx;
    double chosen_targets = 0.0, pairs = (double)dpo->pairs;

    dpo->loss = dpo->chosen = dpo->rejected = dpo->margin = 0.0;
    for (size_t d = 0; d < 2 * dpo->pairs; d++) {
        dpo->sides[d].logp = dpo->sides[d].count = 0.0;
        for (size_t r = docs->docs[d].row; r < docs->docs[d].row + docs->docs[d].count; r++) {
            dpo->sides[d].logp -= (double)docs->losses[r];
            dpo->sides[d].count += docs->targets[r] >= 0;
        }
        if (d < dpo->pairs) chosen_targets += dpo->sides[d].count;
    }
    for (size_t p = 0; p < dpo->pairs; p++) {
        struct ash_pair_value value = ash_pair_loss(&dpo->opts, &dpo->sides[p], &dpo->sides[dpo->pairs + p]);
        double slopes[2] = {value.chosen / pairs - dpo->opts.sft_weight / chosen_targets, value.rejected / pairs};

        dpo->loss += value.loss / pairs - dpo->opts.sft_weight * dpo->sides[p].logp / chosen_targets;
        dpo->chosen += dpo->sides[p].logp / pairs;
        dpo->rejected += dpo->sides[dpo->pairs + p].logp / pairs;
        dpo->margin += value.margin / pairs;
        for (int side = 0; side < 2; side++) {
            const struct ash_doc *doc = &docs->docs[dpo->pairs * (size_t)side + p];

            for (size_t r = doc->row; r < doc->row + doc->count; r++)
                if (docs->targets[r] >= 0) docs->scales[r] = (float)-slopes[side];
        }
    }
}

static const char *const dpo_names[] = {"sigmoid", "robust",       "hinge",    "ipo",     "orpo",
                                        "simpo",   "sigmoid_norm", "apo_zero", "nca_pair"};

static void check_dpo_case(struct golden *g, struct post_docs *docs, const char *name, const json_t *wanted)
{
    struct dpo dpo = {.pairs = docs->count / 2,
                      .opts = {.beta = json_number_value(json_object_get(wanted, "beta")),
                               .label_smoothing = json_number_value(json_object_get(wanted, "label_smoothing"))}};
    const char *type = json_string_value(json_array_get(json_object_get(wanted, "loss_types"), 0));
    const float *reference = post_tensor(g, "ref_logps")->data;
    struct ash_err err = {0};
    char what[128];

    for (size_t i = 0; i < sizeof(dpo_names) / sizeof(dpo_names[0]); i++)
        if (strcmp(dpo_names[i], type) == 0) dpo.opts.loss = (int)i;
    dpo.opts.sft_weight = json_number_value(json_array_get(json_object_get(wanted, "weights"), 1));
    for (size_t d = 0; d < docs->count; d++)
        dpo.sides[d].reference = (double)reference[d];
    if (post_run_docs(g, docs, weigh_dpo, &dpo, &err) < 0) {
        golden_broken(g, name, &err);
        return;
    }
    snprintf(what, sizeof(what), "%s: loss", name);
    golden_report(g, what, post_off(dpo.loss, json_number_value(json_object_get(wanted, "loss"))), LOSS_LIMIT);
    snprintf(what, sizeof(what), "%s: chosen log-probabilities", name);
    golden_report(g, what, post_off(dpo.chosen, json_number_value(json_object_get(wanted, "chosen_logps"))),
                  LOSS_LIMIT);
    snprintf(what, sizeof(what), "%s: rejected log-probabilities", name);
    golden_report(g, what, post_off(dpo.rejected, json_number_value(json_object_get(wanted, "rejected_logps"))),
                  LOSS_LIMIT);
    snprintf(what, sizeof(what), "%s: margin", name);
    golden_report(g, what, post_off(dpo.margin, json_number_value(json_object_get(wanted, "margin"))), 1e-4);
    snprintf(what, sizeof(what), "grad.%s.", name);
    post_check_gradients(g, what, docs->grads);
}

void post_check_dpo(struct golden *g)
{
    struct post_docs *docs = calloc(1, sizeof(*docs));
    const int32_t *ids = post_tensor(g, "input_ids")->data, *attention = post_tensor(g, "attention_mask")->data,
                  *completion = post_tensor(g, "completion_mask")->data;
    size_t width = post_tensor(g, "input_ids")->dims[1];
    struct ash_err err = {0};
    const char *name;
    json_t *wanted;

    for (size_t d = 0; d < post_tensor(g, "input_ids")->dims[0]; d++) {
        size_t count = 0, first;

        while (count < width && attention[d * width + count] != 0)
            count++;
        first = post_add_doc(docs, ids + d * width, count);
        for (size_t t = 1; t < count; t++)
            if (completion[d * width + t] != 0) docs->targets[first + t - 1] = docs->ids[first + t];
    }
    if (post_open_base(g, &err) < 0)
        golden_broken(g, "dpo", &err);
    else
        json_object_foreach(json_object_get(g->json, "cases"), name, wanted)
            check_dpo_case(g, docs, name, wanted);
    free(docs->grads);
    free(docs);
}

/* ---- reward ------------------------------------------------------------------------------------------------------ */

struct reward {
    const float *margins;
    double center, loss;
};

static size_t last_row(const struct post_docs *docs, size_t doc)
{
    return docs->docs[doc].row + docs->docs[doc].count - 1;
}

static void weigh_reward(struct post_docs *docs, void *ctx)
{
    struct reward *reward = ctx;
    size_t pairs = docs->count / 2;

    reward->loss = 0.0;
    for (size_t p = 0; p < pairs; p++) {
        size_t chosen = last_row(docs, p), rejected = last_row(docs, pairs + p);
        struct ash_pair_value value = ash_pair_reward_loss((double)docs->losses[chosen], (double)docs->losses[rejected],
                                                           (double)reward->margins[p], reward->center);

        reward->loss += value.loss / (double)pairs;
        docs->scales[chosen] = (float)(value.chosen / (double)pairs);
        docs->scales[rejected] = (float)(value.rejected / (double)pairs);
    }
}

void post_check_reward(struct golden *g)
{
    struct post_docs *docs = calloc(1, sizeof(*docs));
    const int32_t *ids = post_tensor(g, "input_ids")->data, *lengths = post_tensor(g, "lengths")->data;
    const float *wanted = post_tensor(g, "rewards")->data;
    struct reward reward = {.margins = post_tensor(g, "margin")->data,
                            .center = json_number_value(json_object_get(g->json, "center"))};
    size_t width = post_tensor(g, "input_ids")->dims[1];
    struct ash_err err = {0};
    char path[4096];
    double worst = 0.0;
    int rc;

    for (size_t d = 0; d < post_tensor(g, "input_ids")->dims[0]; d++) {
        post_add_doc(docs, ids + d * width, (size_t)lengths[d]);
        docs->targets[last_row(docs, d)] = 0;
    }
    rc = ash_model_open_scorer(post_find_model(g, post_text(g, "base"), path), NULL, 1, &g->model, &err);
    if (rc == 0) {
        const struct ash_param *score = ash_model_find(g->model, "score.weight");

        memcpy(ash_model_values(g->model) + score->offset, post_tensor(g, "score.weight")->data,
               score->count * sizeof(float));
        rc = post_run_docs(g, docs, weigh_reward, &reward, &err);
    }
    if (rc < 0) {
        golden_broken(g, "reward", &err);
    } else {
        for (size_t d = 0; d < docs->count; d++)
            post_note(&worst, (double)docs->losses[last_row(docs, d)] - (double)wanted[d]);
        golden_report(g, "rewards", worst, 1e-4);
        golden_report(g, "loss", post_off(reward.loss, json_number_value(json_object_get(g->json, "loss"))),
                      LOSS_LIMIT);
        post_check_gradients(g, "grad.", docs->grads);
    }
    free(docs->grads);
    free(docs);
}

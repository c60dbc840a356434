/* golden_post: results of PEFT, TRL and veRL, in folders PART/CASE with a reference.json. The part says what they are.
 * Base models are looked for in ../../models/NAME and ../../../golden/NAME, tokenizers in tokenizers/NAME of the latter
 * and of ../../../tokenizers. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

#include "base/file.h"
#include "model/lora.h"
#include "model/pass/pass.h"
#include "post/chat/rows.h"
#include "post/objective/advantages.h"
#include "post/objective/pairs.h"
#include "post/objective/policy.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

#define SEQ_MAX 512

/* ---- where things are -------------------------------------------------------------------------------------------- */

static const char *find_model(const struct golden *g, const char *name, char path[4096])
{
    static const char *const places[] = {"../../models", "../../../golden"};

    for (size_t i = 0; i < 2; i++) {
        snprintf(path, 4096, "%s/%s/%s", g->dir, places[i], name);
        if (ash_path_exists(path)) return path;
    }
    return path;
}

static const char *text_of(const struct golden *g, const char *key)
{
    const char *text = json_string_value(json_object_get(g->json, key));

    return text != NULL ? text : "";
}

static const struct ash_tensor_view *tensor(const struct golden *g, const char *name)
{
    const struct ash_tensor_view *view = ash_safetensors_find(g->tensors, name);

    if (view == NULL) {
        printf("%s: no tensor '%s'\n", g->dir, name);
        exit(1);
    }
    return view;
}

static int open_base(struct golden *g, struct ash_err *err)
{
    char path[4096];
    int rc = ash_model_open(find_model(g, text_of(g, "base"), path), &g->model, err);

    return rc < 0 ? rc : ash_model_own(g->model, err);
}

/* ---- passes over documents --------------------------------------------------------------------------------------- */

/* Documents as one batch, packed one after the other. */
struct docs {
    int32_t ids[SEQ_MAX], targets[SEQ_MAX];
    float losses[SEQ_MAX], entropies[SEQ_MAX], scales[SEQ_MAX], entropy_scales[SEQ_MAX];
    struct ash_doc docs[64];
    size_t rows, count;
    float sharpness;
    bool has_entropy;
    float *grads;
};

static size_t add_doc(struct docs *docs, const int32_t *ids, size_t count)
{
    size_t first = docs->rows;

    docs->docs[docs->count++] = (struct ash_doc){.row = first, .count = count};
    for (size_t i = 0; i < count; i++) {
        docs->ids[first + i] = ids[i];
        docs->targets[first + i] = -1;
    }
    docs->rows += count;
    return first;
}

static struct ash_batch batch_of(const struct docs *docs)
{
    return (struct ash_batch){.rows = docs->rows,
                              .ids = docs->ids,
                              .targets = docs->targets,
                              .docs = docs->docs,
                              .doc_count = docs->count,
                              .sharpness = docs->sharpness,
                              .scales = docs->scales,
                              .entropy_scales = docs->has_entropy ? docs->entropy_scales : NULL};
}

/* Losses of the rows; weigh then writes scales, and gradients follow. */
static int run_docs(struct golden *g, struct docs *docs, void (*weigh)(struct docs *docs, void *ctx), void *ctx,
                    struct ash_err *err)
{
    struct ash_pass_opts opts = {.max_rows = docs->rows, .backward = true};
    struct ash_batch batch = batch_of(docs);
    struct ash_pass *pass = NULL;
    int rc = ash_pass_open(g->model, &g->exec, &opts, &pass, err);

    memset(docs->scales, 0, sizeof(docs->scales));
    memset(docs->entropy_scales, 0, sizeof(docs->entropy_scales));
    free(docs->grads);
    docs->grads = calloc(ash_model_grad_size(g->model), sizeof(float));
    if (rc == 0) rc = ash_pass_forward(pass, &batch, err);
    if (rc == 0) rc = ash_pass_losses(pass, docs->losses, docs->entropies, err);
    if (rc == 0) {
        weigh(docs, ctx);
        rc = ash_pass_backward(pass, 0.0f, &(struct ash_pass_grads){.sums = docs->grads}, docs->losses, err);
    }
    if (rc == 0) ash_model_grad_fold(g->model, &g->exec, docs->grads);
    ash_pass_close(pass);
    return rc;
}

static void check_gradients(struct golden *g, const char *prefix, const float *grads)
{
    for (size_t i = 0; i < ash_safetensors_size(g->tensors); i++) {
        const struct ash_tensor_view *want = ash_safetensors_at(g->tensors, i);

        if (strncmp(want->name, prefix, strlen(prefix)) == 0)
            golden_report(g, want->name, golden_grad_difference(g, want, prefix, grads), GRAD_LIMIT);
    }
}

static double off(double value, double wanted)
{
    return fabs(value - wanted) / fmax(fabs(wanted), 1e-2);
}

/* The larger of *worst and |difference|. */
static void note(double *worst, double difference)
{
    if (!(fabs(difference) <= *worst)) *worst = fabs(difference);
}

/* ---- sft --------------------------------------------------------------------------------------------------------- */

static void weigh_mean(struct docs *docs, void *ctx)
{
    size_t count = 0;

    (void)ctx;
    for (size_t r = 0; r < docs->rows; r++)
        count += docs->targets[r] >= 0;
    for (size_t r = 0; r < docs->rows; r++)
        docs->scales[r] = docs->targets[r] >= 0 ? 1.0f / (float)count : 0.0f;
}

static void check_sft(struct golden *g)
{
    struct docs *docs = calloc(1, sizeof(*docs));
    struct ash_err err = {0};
    double sum = 0.0, targets = json_number_value(json_object_get(g->json, "targets"));
    int rc = open_base(g, &err);

    for (int i = 0; i < 6; i++) {
        char name[32];
        const struct ash_tensor_view *ids, *mask;
        size_t first;

        snprintf(name, sizeof(name), "ids.%d", i);
        ids = tensor(g, name);
        snprintf(name, sizeof(name), "mask.%d", i);
        mask = tensor(g, name);
        first = add_doc(docs, ids->data, ash_tensor_count(ids));
        for (size_t t = 1; t < ash_tensor_count(ids); t++)
            if (((const int32_t *)mask->data)[t] != 0) docs->targets[first + t - 1] = docs->ids[first + t];
    }
    if (rc == 0) rc = run_docs(g, docs, weigh_mean, NULL, &err);
    if (rc < 0) {
        golden_broken(g, "sft", &err);
    } else {
        for (size_t r = 0; r < docs->rows; r++)
            sum += (double)docs->losses[r];
        golden_report(g, "loss", off(sum / targets, json_number_value(json_object_get(g->json, "loss"))), LOSS_LIMIT);
        check_gradients(g, "grad.", docs->grads);
    }
    free(docs->grads);
    free(docs);
}

/* ---- dpo --------------------------------------------------------------------------------------------------------- */

struct dpo {
    struct ash_job_dpo opts;
    struct ash_pair_side sides[8];
    double loss, chosen, rejected, margin;
};

static void weigh_dpo(struct docs *docs, void *ctx)
{
    struct dpo *dpo = ctx;
    double chosen_targets = 0.0;

    dpo->loss = dpo->chosen = dpo->rejected = dpo->margin = 0.0;
    for (size_t d = 0; d < 8; d++) {
        dpo->sides[d].logp = dpo->sides[d].count = 0.0;
        for (size_t r = docs->docs[d].row; r < docs->docs[d].row + docs->docs[d].count; r++) {
            dpo->sides[d].logp -= (double)docs->losses[r];
            dpo->sides[d].count += docs->targets[r] >= 0;
        }
        if (d < 4) chosen_targets += dpo->sides[d].count;
    }
    for (size_t p = 0; p < 4; p++) {
        struct ash_pair_value value = ash_pair_loss(&dpo->opts, &dpo->sides[p], &dpo->sides[4 + p]);
        double slopes[2] = {value.chosen / 4 - dpo->opts.sft_weight / chosen_targets, value.rejected / 4};

        dpo->loss += value.loss / 4 - dpo->opts.sft_weight * dpo->sides[p].logp / chosen_targets;
        dpo->chosen += dpo->sides[p].logp / 4;
        dpo->rejected += dpo->sides[4 + p].logp / 4;
        dpo->margin += value.margin / 4;
        for (int side = 0; side < 2; side++) {
            const struct ash_doc *doc = &docs->docs[4 * (size_t)side + p];

            for (size_t r = doc->row; r < doc->row + doc->count; r++)
                if (docs->targets[r] >= 0) docs->scales[r] = (float)-slopes[side];
        }
    }
}

static const char *const dpo_names[] = {"sigmoid", "robust",       "hinge",    "ipo",     "orpo",
                                        "simpo",   "sigmoid_norm", "apo_zero", "nca_pair"};

static void check_dpo_case(struct golden *g, struct docs *docs, const char *name, const json_t *wanted)
{
    struct dpo dpo = {.opts = {.beta = json_number_value(json_object_get(wanted, "beta")),
                               .label_smoothing = json_number_value(json_object_get(wanted, "label_smoothing"))}};
    const char *type = json_string_value(json_array_get(json_object_get(wanted, "loss_types"), 0));
    const float *reference = tensor(g, "ref_logps")->data;
    struct ash_err err = {0};
    char what[128];

    for (size_t i = 0; i < sizeof(dpo_names) / sizeof(dpo_names[0]); i++)
        if (strcmp(dpo_names[i], type) == 0) dpo.opts.loss = (int)i;
    dpo.opts.sft_weight = json_number_value(json_array_get(json_object_get(wanted, "weights"), 1));
    for (size_t d = 0; d < 8; d++)
        dpo.sides[d].reference = (double)reference[d];
    if (run_docs(g, docs, weigh_dpo, &dpo, &err) < 0) {
        golden_broken(g, name, &err);
        return;
    }
    snprintf(what, sizeof(what), "%s: loss", name);
    golden_report(g, what, off(dpo.loss, json_number_value(json_object_get(wanted, "loss"))), LOSS_LIMIT);
    snprintf(what, sizeof(what), "%s: chosen log-probabilities", name);
    golden_report(g, what, off(dpo.chosen, json_number_value(json_object_get(wanted, "chosen_logps"))), LOSS_LIMIT);
    snprintf(what, sizeof(what), "%s: margin", name);
    golden_report(g, what, off(dpo.margin, json_number_value(json_object_get(wanted, "margin"))), 1e-4);
    snprintf(what, sizeof(what), "grad.%s.", name);
    check_gradients(g, what, docs->grads);
}

static void check_dpo(struct golden *g)
{
    struct docs *docs = calloc(1, sizeof(*docs));
    const int32_t *ids = tensor(g, "input_ids")->data, *attention = tensor(g, "attention_mask")->data,
                  *completion = tensor(g, "completion_mask")->data;
    size_t width = tensor(g, "input_ids")->dims[1];
    struct ash_err err = {0};
    const char *name;
    json_t *wanted;

    for (size_t d = 0; d < 8; d++) {
        size_t count = 0, first;

        while (count < width && attention[d * width + count] != 0)
            count++;
        first = add_doc(docs, ids + d * width, count);
        for (size_t t = 1; t < count; t++)
            if (completion[d * width + t] != 0) docs->targets[first + t - 1] = docs->ids[first + t];
    }
    if (open_base(g, &err) < 0)
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

static size_t last_row(const struct docs *docs, size_t doc)
{
    return docs->docs[doc].row + docs->docs[doc].count - 1;
}

static void weigh_reward(struct docs *docs, void *ctx)
{
    struct reward *reward = ctx;

    reward->loss = 0.0;
    for (size_t p = 0; p < 3; p++) {
        size_t chosen = last_row(docs, p), rejected = last_row(docs, 3 + p);
        struct ash_pair_value value = ash_pair_reward_loss((double)docs->losses[chosen], (double)docs->losses[rejected],
                                                           (double)reward->margins[p], reward->center);

        reward->loss += value.loss / 3;
        docs->scales[chosen] = (float)(value.chosen / 3);
        docs->scales[rejected] = (float)(value.rejected / 3);
    }
}

static void check_reward(struct golden *g)
{
    struct docs *docs = calloc(1, sizeof(*docs));
    const int32_t *ids = tensor(g, "input_ids")->data, *lengths = tensor(g, "lengths")->data;
    const float *wanted = tensor(g, "rewards")->data;
    struct reward reward = {.margins = tensor(g, "margin")->data,
                            .center = json_number_value(json_object_get(g->json, "center"))};
    size_t width = tensor(g, "input_ids")->dims[1];
    struct ash_err err = {0};
    char path[4096];
    double worst = 0.0;
    int rc;

    for (size_t d = 0; d < 6; d++) {
        add_doc(docs, ids + d * width, (size_t)lengths[d]);
        docs->targets[last_row(docs, d)] = 0;
    }
    rc = ash_model_open_scorer(find_model(g, text_of(g, "base"), path), NULL, 1, &g->model, &err);
    if (rc == 0) {
        const struct ash_param *score = ash_model_find(g->model, "score.weight");

        memcpy(ash_model_values(g->model) + score->offset, tensor(g, "score.weight")->data,
               score->count * sizeof(float));
        rc = run_docs(g, docs, weigh_reward, &reward, &err);
    }
    if (rc < 0) {
        golden_broken(g, "reward", &err);
    } else {
        for (size_t d = 0; d < 6; d++)
            note(&worst, (double)docs->losses[last_row(docs, d)] - (double)wanted[d]);
        golden_report(g, "rewards", worst, 1e-4);
        golden_report(g, "loss", off(reward.loss, json_number_value(json_object_get(g->json, "loss"))), LOSS_LIMIT);
        check_gradients(g, "grad.", docs->grads);
    }
    free(docs->grads);
    free(docs);
}

/* ---- rl ---------------------------------------------------------------------------------------------------------- */

struct rl {
    const json_t *wanted;
    const float *advantages, *old, *reference;
    const int32_t *mask;
    size_t prompt, width;
    double loss, entropy;
};

static const char *string_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static double token_weight(const struct rl *rl, const char *type, size_t count, size_t total)
{
    if (strcmp(type, "grpo") == 0) return 1.0 / (8.0 * (double)count);
    if (strcmp(type, "dr_grpo") == 0) return 1.0 / (8.0 * (double)rl->width);
    return 1.0 / (double)total;
}

static void weigh_rl(struct docs *docs, void *ctx)
{
    struct rl *rl = ctx;
    const char *type = string_of(rl->wanted, "loss_type");
    struct ash_policy_opts opts = {.clip_low = number_of(rl->wanted, "lo"),
                                   .clip_high = number_of(rl->wanted, "hi"),
                                   .most = number_of(rl->wanted, "delta"),
                                   .is_sequence = strcmp(string_of(rl->wanted, "level"), "sequence") == 0,
                                   .is_cispo = strcmp(type, "cispo") == 0,
                                   .kl_coef = number_of(rl->wanted, "beta"),
                                   .kl_estimator = ASH_KL_K3};
    double bonus = number_of(rl->wanted, "ent");
    size_t total = 0;

    rl->loss = rl->entropy = 0.0;
    for (size_t i = 0; i < 8 * rl->width; i++)
        total += rl->mask[i] != 0;
    for (size_t a = 0; a < 8; a++) {
        double logps[64], old[64], reference[64], advantages[64], slopes[64];
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
        rl->loss += ash_policy_loss(&opts, &answer, slopes).loss;
        for (size_t t = 0; t < answer.count; t++)
            docs->scales[first + t] = (float)-slopes[t];
    }
    rl->loss -= bonus * rl->entropy;
}

static void check_rl_case(struct golden *g, struct docs *docs, const char *name, struct rl *rl)
{
    double temperature = number_of(rl->wanted, "temp");
    const float *logps;
    struct ash_err err = {0};
    char what[128];
    double worst = 0.0;

    snprintf(what, sizeof(what), "old_logps.t%.1f", temperature);
    rl->old = tensor(g, what)->data;
    snprintf(what, sizeof(what), "ref_logps.t%.1f", temperature);
    rl->reference = tensor(g, what)->data;
    snprintf(what, sizeof(what), "logps.t%.1f", temperature);
    logps = tensor(g, what)->data;
    rl->advantages =
        tensor(g, json_is_true(json_object_get(rl->wanted, "noadvstd")) ? "advantages_no_std" : "advantages")->data;
    docs->sharpness = (float)(1.0 / temperature);
    docs->has_entropy = number_of(rl->wanted, "ent") > 0;
    if (run_docs(g, docs, weigh_rl, rl, &err) < 0) {
        golden_broken(g, name, &err);
        return;
    }
    for (size_t a = 0; a < 8; a++)
        for (size_t t = 0; t < rl->width; t++)
            if (rl->mask[a * rl->width + t] != 0)
                note(&worst,
                     (double)logps[a * rl->width + t] + (double)docs->losses[docs->docs[a].row + rl->prompt - 1 + t]);
    snprintf(what, sizeof(what), "%s: log-probabilities", name);
    golden_report(g, what, worst, 1e-4);
    snprintf(what, sizeof(what), "%s: loss", name);
    golden_report(g, what, fabs(rl->loss - number_of(rl->wanted, "loss")), LOSS_LIMIT);
    snprintf(what, sizeof(what), "%s: entropy", name);
    golden_report(g, what, off(rl->entropy, number_of(json_object_get(rl->wanted, "metrics"), "entropy")), LOSS_LIMIT);
    snprintf(what, sizeof(what), "grad.%s.", name);
    check_gradients(g, what, docs->grads);
}

static void check_advantages(struct golden *g)
{
    const float *rewards = tensor(g, "rewards")->data, *scaled = tensor(g, "advantages")->data,
                *plain = tensor(g, "advantages_no_std")->data;
    double wide[8], with[8], without[8], worst = 0.0;
    int64_t group[8];

    for (size_t i = 0; i < 8; i++) {
        wide[i] = (double)rewards[i];
        group[i] = (int64_t)(i / 4);
    }
    ash_advantages_group(wide, group, 8, 1e-4, false, with);
    ash_advantages_group(wide, group, 8, 0, false, without);
    for (size_t i = 0; i < 8; i++)
        note(&worst, with[i] - (double)scaled[i]);
    for (size_t i = 0; i < 8; i++)
        note(&worst, without[i] - (double)plain[i]);
    golden_report(g, "advantages", worst, 1e-5);
}

static void check_rl(struct golden *g)
{
    struct docs *docs = calloc(1, sizeof(*docs));
    const int32_t *prompts = tensor(g, "prompt_ids")->data, *answers = tensor(g, "completion_ids")->data;
    struct rl rl = {.mask = tensor(g, "completion_mask")->data,
                    .prompt = tensor(g, "prompt_ids")->dims[1],
                    .width = tensor(g, "completion_ids")->dims[1]};
    struct ash_err err = {0};
    const char *name;
    json_t *wanted;

    check_advantages(g);
    for (size_t a = 0; a < 8; a++) {
        int32_t ids[128];
        size_t count = rl.prompt, first;

        memcpy(ids, prompts + a * rl.prompt, rl.prompt * sizeof(*ids));
        for (size_t t = 0; t < rl.width && rl.mask[a * rl.width + t] != 0; t++)
            ids[count++] = answers[a * rl.width + t];
        first = add_doc(docs, ids, count);
        for (size_t t = rl.prompt; t < count; t++)
            docs->targets[first + t - 1] = ids[t];
    }
    if (open_base(g, &err) < 0) golden_broken(g, "rl", &err);
    json_object_foreach(json_object_get(g->json, "cases"), name, wanted) {
        rl.wanted = wanted;
        if (g->model != NULL) check_rl_case(g, docs, name, &rl);
    }
    free(docs->grads);
    free(docs);
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

#define ANSWERS 8
#define WIDTH 12
#define CELLS (ANSWERS * WIDTH)

static const double *cells(const struct golden *g, const char *name)
{
    return tensor(g, name)->data;
}

static void compare_cells(struct golden *g, const char *name, const double *ours)
{
    const double *wanted = cells(g, name), *mask = cells(g, "mask");
    double worst = 0.0;

    for (size_t i = 0; i < CELLS; i++)
        if (mask[i] != 0) note(&worst, ours[i] - wanted[i]);
    golden_report(g, name, worst, 1e-12);
}

/* One value an answer, on all its tokens. */
static void compare_answers(struct golden *g, const char *name, const double *ours)
{
    const double *mask = cells(g, "mask");
    double spread[CELLS];

    for (size_t i = 0; i < CELLS; i++)
        spread[i] = ours[i / WIDTH] * mask[i];
    compare_cells(g, name, spread);
}

static void check_array_advantages(struct golden *g)
{
    const double *mask = cells(g, "mask"), *scores = cells(g, "scores");
    const int64_t *index = tensor(g, "index")->data;
    double rewards[ANSWERS] = {0}, advantages[ANSWERS], table[CELLS], returns[CELLS], spread[CELLS];

    for (size_t i = 0; i < CELLS; i++)
        rewards[i / WIDTH] += scores[i];
    ash_advantages_group(rewards, index, ANSWERS, 1e-6, true, advantages);
    compare_answers(g, "grpo.advantages", advantages);
    ash_advantages_group(rewards, index, ANSWERS, 0, true, advantages);
    compare_answers(g, "dr_grpo.advantages", advantages);
    ash_advantages_rloo(rewards, index, ANSWERS, advantages);
    compare_answers(g, "rloo.advantages", advantages);
    ash_advantages_reinforce(&(struct ash_advantages_table){scores, NULL, mask, ANSWERS, WIDTH}, 0.98, returns, table);
    compare_cells(g, "reinforce_pp.returns", returns);
    compare_cells(g, "reinforce_pp.advantages", table);
    ash_advantages_group(rewards, index, ANSWERS, 0, true, advantages);
    for (size_t i = 0; i < CELLS; i++)
        spread[i] = advantages[i / WIDTH] * mask[i];
    ash_advantages_whiten(spread, mask, CELLS, table);
    compare_cells(g, "reinforce_pp_baseline.advantages", table);
    ash_advantages_gae(&(struct ash_advantages_table){scores, cells(g, "values"), mask, ANSWERS, WIDTH}, 0.99, 0.95,
                       returns, table);
    compare_cells(g, "gae.returns", returns);
    compare_cells(g, "gae.advantages", table);
}

static void check_array_kl(struct golden *g)
{
    static const char *const names[] = {"k1", "k2", "k3", "abs"};
    const double *logps = cells(g, "logps"), *reference = cells(g, "ref_logps");
    double values[CELLS], slopes[CELLS];
    char name[32];

    for (int kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < CELLS; i++)
            values[i] = ash_policy_kl((enum ash_kl_estimator)kind, logps[i] - reference[i], &slopes[i]);
        snprintf(name, sizeof(name), "kl.%s", names[kind]);
        compare_cells(g, name, values);
    }
}

static double cell_weight(const char *kind, double total, double length)
{
    if (strcmp(kind, "token-mean") == 0) return 1 / total;
    if (strcmp(kind, "seq-mean-token-sum") == 0) return 1.0 / ANSWERS;
    if (strcmp(kind, "seq-mean-token-mean") == 0) return 1 / (ANSWERS * (length + 1e-8)); /* as veRL divides */
    return 1.0 / WIDTH;
}

static void check_array_ppo(struct golden *g)
{
    static const char *const kinds[] = {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
                                        "seq-mean-token-sum-norm"};
    const double *mask = cells(g, "mask"), *logps = cells(g, "logps"), *old = cells(g, "old_logps"),
                 *advantages = cells(g, "gae.advantages");
    const json_t *ppo = json_object_get(g->json, "ppo");
    struct ash_policy_opts opts = {
        .clip_low = number_of(ppo, "lo"), .clip_high = number_of(ppo, "hi"), .dual = number_of(ppo, "c")};
    double total = 0.0, slopes[CELLS] = {0};
    char name[64];

    for (size_t i = 0; i < CELLS; i++)
        total += mask[i];
    for (size_t k = 0; k < 4; k++) {
        double loss = 0.0;

        for (size_t a = 0; a < ANSWERS; a++) {
            struct ash_policy_answer answer = {
                .logps = logps + a * WIDTH, .old = old + a * WIDTH, .advantages = advantages + a * WIDTH};

            while (answer.count < WIDTH && mask[a * WIDTH + answer.count] != 0)
                answer.count++;
            answer.weight = cell_weight(kinds[k], total, (double)answer.count);
            loss += ash_policy_loss(&opts, &answer, slopes + a * WIDTH).loss;
        }
        snprintf(name, sizeof(name), "ppo.%s", kinds[k]);
        golden_report(g, name,
                      fabs(loss - number_of(json_object_get(json_object_get(g->json, "results"), name), "loss")), 1e-9);
        snprintf(name, sizeof(name), "ppo_grad.%s", kinds[k]);
        compare_cells(g, name, slopes);
    }
}

static void check_array_values(struct golden *g)
{
    const double *mask = cells(g, "mask"), *predicted = cells(g, "value_predictions"), *before = cells(g, "values"),
                 *returns = cells(g, "gae.returns");
    const json_t *value = json_object_get(json_object_get(g->json, "results"), "value");
    double loss = 0.0, total = 0.0, slopes[CELLS] = {0};

    for (size_t i = 0; i < CELLS; i++)
        total += mask[i];
    for (size_t i = 0; i < CELLS; i++) {
        double one =
            ash_policy_value_loss(predicted[i], before[i], returns[i], number_of(value, "cliprange"), &slopes[i]);

        loss += mask[i] * one / total;
        slopes[i] *= mask[i] / total;
    }
    golden_report(g, "value loss", fabs(loss - number_of(value, "loss")), 1e-9);
    compare_cells(g, "value_grad", slopes);
}

static void check_arrays(struct golden *g)
{
    check_array_advantages(g);
    check_array_kl(g);
    check_array_ppo(g);
    check_array_values(g);
}

/* ---- lora -------------------------------------------------------------------------------------------------------- */

/* The base with the adapters added to its weights. */
static int merge(struct golden *g, const char *base_dir, struct ash_model **merged_out, struct ash_err *err)
{
    struct ash_model *merged = NULL;
    int rc = ash_model_open(base_dir, &merged, err);

    if (rc == 0) rc = ash_model_own(merged, err);
    for (size_t i = 0; rc == 0 && i < ash_model_param_count(merged); i++) {
        const struct ash_param *param = ash_model_param(merged, i);

        ash_lora_merge(g->model, param->name, ash_model_values(merged) + param->offset);
    }
    if (rc == 0) ash_model_refresh(merged);
    *merged_out = merged;
    return rc;
}

static void check_lora(struct golden *g)
{
    struct ash_lora *lora = NULL;
    struct ash_model *merged = NULL, *adapted;
    struct ash_err err = {0};
    char base[4096];
    int rc;

    find_model(g, text_of(g, "base"), base);
    rc = ash_lora_open_model(g->dir, base, &lora, &g->model, &err);
    if (rc == 0) {
        golden_report_equal(
            g, "trainable parameters",
            (double)ash_model_weight_count(g->model) == json_number_value(json_object_get(g->json, "trainable")), "");
        golden_check_logits(g, "logits");
        golden_check_grads(g);
        rc = merge(g, base, &merged, &err);
    }
    if (rc < 0) {
        golden_broken(g, "lora", &err);
    } else {
        adapted = g->model;
        g->model = merged;
        golden_check_logits(g, "merged_logits");
        g->model = adapted;
        golden_check_adamw(g); /* changes the adapters */
    }
    ash_model_close(merged);
    ash_model_close(g->model);
    g->model = NULL;
    ash_lora_close(lora);
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static bool check_mask_row(const struct ash_tokenizer *tokenizer, const struct ash_chat_template *template,
                           const json_t *row)
{
    json_t *variables =
        json_pack("{s:O, s:b}", "messages", json_object_get(row, "messages"), "add_generation_prompt", 0);
    const json_t *ids = json_object_get(row, "ids"), *mask = json_object_get(row, "mask");
    struct ash_chat_spans spans = {0};
    struct ash_chat_row marked = {0};
    struct ash_str text = {0};
    struct ash_err err = {0};
    bool is_equal = ash_chat_template_render_spans(template, variables, &text, &spans, &err) == 0 &&
                    ash_chat_mark(&(struct ash_chat_text){tokenizer, text.data, text.size_bytes, false}, &spans,
                                  &marked, &err) == 0 &&
                    strcmp(text.data, json_string_value(json_object_get(row, "text"))) == 0 &&
                    marked.ids.count == json_array_size(ids);

    for (size_t i = 0; is_equal && i < marked.ids.count; i++)
        is_equal = marked.ids.data[i] == json_integer_value(json_array_get(ids, i)) &&
                   marked.marks[i] == json_integer_value(json_array_get(mask, i));
    ash_chat_row_fini(&marked);
    ash_chat_spans_fini(&spans);
    ash_str_fini(&text);
    json_decref(variables);
    return is_equal;
}

static void check_masks(struct golden *g)
{
    static const char *const places[] = {"../../../tokenizers", "../../../golden/tokenizers"};
    const char *source = text_of(g, "template");
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_chat_template *template = NULL;
    struct ash_err err = {0};
    char path[4096], what[64];
    int rc = -ENOENT;
    size_t i;
    json_t *row;

    for (size_t p = 0; p < 2 && rc < 0; p++) {
        snprintf(path, sizeof(path), "%s/%s/%s", g->dir, places[p], text_of(g, "tokenizer"));
        rc = ash_tokenizer_open(path, &tokenizer, &err);
    }
    if (rc == 0)
        rc = ash_chat_template_parse(source, strlen(source), "template", text_of(g, "bos_token"),
                                     text_of(g, "eos_token"), &template, &err);
    if (rc < 0) golden_broken(g, "masks", &err);
    json_array_foreach(json_object_get(g->json, "rows"), i, row) {
        snprintf(what, sizeof(what), "conversation %zu", i);
        if (rc == 0) golden_report_equal(g, what, check_mask_row(tokenizer, template, row), "text, ids, marks");
    }
    ash_chat_template_close(template);
    ash_tokenizer_close(tokenizer);
}

/* ---- which ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *part;
    void (*check)(struct golden *g);
} parts[] = {{"/sft/", check_sft},      {"/dpo/", check_dpo},         {"/reward/", check_reward},
             {"/rl/", check_rl},        {"/lora/", check_lora},       {"/masks/", check_masks},
             {"/arrays", check_arrays}, {"/eval", golden_check_eval}, {"/scaling", golden_check_scaling}};

int golden_post(struct golden *g, const char *dir)
{
    struct ash_err err = {0};
    char path[4096];

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strstr(dir, parts[i].part) == NULL) continue;
        snprintf(path, sizeof(path), "%s/reference.json", dir);
        if (ash_json_load(path, &g->json, &err) < 0) return 0;
        snprintf(path, sizeof(path), "%s/reference.safetensors", dir);
        if (ash_path_exists(path) && ash_safetensors_open(path, &g->tensors, &err) < 0) golden_broken(g, "open", &err);
        parts[i].check(g);
        ash_model_close(g->model);
        ash_safetensors_close(g->tensors);
        json_decref(g->json);
        return 1;
    }
    return 0;
}

/* Encoders: states after the last layer against those of the transformers library, of whole texts and of texts that it
 * pads; and each text alone, whose bits are the same. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

#include "model/pass/pass.h"

/* Texts of B rows of T ids, of which lengths count. */
struct texts {
    const int32_t *ids; /* [B, T] */
    size_t B, T, hidden;
    size_t lengths[8];
};

static int read_texts(const struct golden *g, const char *mask_name, struct texts *texts, struct ash_err *err)
{
    const struct ash_tensor_view *ids = ash_safetensors_find(g->tensors, "input_ids"),
                                 *mask = ash_safetensors_find(g->tensors, mask_name != NULL ? mask_name : "input_ids");

    if (ids == NULL || mask == NULL || ids->dim_count != 2 || ids->dtype != ASH_I32 || ids->dims[0] > 8)
        return ash_err_set(err, -EINVAL, "no 'input_ids' and 'mask'");
    *texts = (struct texts){.ids = ids->data, .B = ids->dims[0], .T = ids->dims[1]};
    texts->hidden = ash_model_get_config(g->model)->hidden;
    for (size_t b = 0; b < texts->B; b++)
        for (size_t t = 0; t < texts->T; t++)
            texts->lengths[b] += mask_name == NULL || ((const int32_t *)mask->data)[b * texts->T + t] != 0;
    return 0;
}

/* The states of texts first ... first + count in one batch, into out [rows, hidden]. */
static int infer(struct golden *g, const struct texts *texts, size_t first, size_t count, float *out,
                 struct ash_err *err)
{
    int32_t *ids = malloc(count * texts->T * sizeof(*ids));
    size_t *rows = malloc(count * texts->T * sizeof(*rows));
    struct ash_doc docs[8] = {0};
    struct ash_batch batch = {.ids = ids, .docs = docs, .doc_count = count};
    struct ash_pass *pass = NULL;
    int rc = -ENOMEM;

    for (size_t d = 0; d < count && ids != NULL; d++) {
        docs[d] = (struct ash_doc){.row = batch.rows, .count = texts->lengths[first + d]};
        memcpy(ids + batch.rows, texts->ids + (first + d) * texts->T, docs[d].count * sizeof(*ids));
        batch.rows += docs[d].count;
    }
    for (size_t i = 0; i < batch.rows && rows != NULL; i++)
        rows[i] = i;
    if (ids != NULL && rows != NULL)
        rc = ash_pass_open(g->model, &g->exec, &(struct ash_pass_opts){.max_rows = batch.rows}, &pass, err);
    if (rc == 0) rc = ash_pass_infer_layers(pass, &batch, NULL, err);
    for (size_t i = 0; rc == 0 && i < batch.rows; i++)
        rc = ash_pass_infer_states(pass, rows + i, 1, out + i * texts->hidden, err);
    ash_pass_close(pass);
    free(rows);
    free(ids);
    return rc;
}

static void compare(struct golden *g, const struct texts *texts, const char *name, const float *ours)
{
    const struct ash_tensor_view *want = ash_safetensors_find(g->tensors, name);
    double worst = 0;

    if (want == NULL || ash_tensor_count(want) != texts->B * texts->T * texts->hidden) {
        golden_report(g, name, NAN, LOGITS_LIMIT);
        return;
    }
    for (size_t b = 0; b < texts->B; b++) {
        const float *reference = (const float *)want->data + b * texts->T * texts->hidden;

        for (size_t i = 0; i < texts->lengths[b] * texts->hidden; i++) {
            double diff = fabs((double)*ours++ - reference[i]);
            worst = diff > worst || isnan(diff) ? diff : worst;
        }
    }
    golden_report(g, name, worst, LOGITS_LIMIT);
}

static void check_states(struct golden *g, const char *name, const char *mask_name)
{
    struct ash_err err = {0};
    struct texts texts = {0};
    int rc = read_texts(g, mask_name, &texts, &err);
    size_t floats = texts.B * texts.T * texts.hidden, at = 0;
    float *all = calloc(floats + 1, sizeof(*all)), *alone = calloc(floats + 1, sizeof(*alone));

    if (rc == 0) rc = infer(g, &texts, 0, texts.B, all, &err);
    for (size_t b = 0; rc == 0 && b < texts.B; b++) {
        rc = infer(g, &texts, b, 1, alone + at, &err);
        at += texts.lengths[b] * texts.hidden;
    }
    if (rc < 0) {
        golden_broken(g, name, &err);
    } else {
        compare(g, &texts, name, all);
        golden_report_equal(g, "each text alone", memcmp(all, alone, at * sizeof(*all)) == 0, "the same bits");
    }
    free(alone);
    free(all);
}

bool golden_encoder(struct golden *g)
{
    if (!ash_model_get_config(g->model)->form.both_ways) return false;
    check_states(g, "hidden", NULL);
    check_states(g, "hidden_masked", "mask");
    return true;
}

/* golden_post: results of PEFT, TRL and veRL, in folders PART/CASE with a reference.json. The part says what they are.
 * Base models are looked for in ../../models/NAME and ../../../golden/NAME, tokenizers in tokenizers/NAME of the latter
 * and of ../../../tokenizers. Here: what the parts share, and which there are. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_post.h"

#include "base/file.h"
#include "model/files/open.h"

/* ---- where things are -------------------------------------------------------------------------------------------- */

const char *post_find_model(const struct golden *g, const char *name, char path[4096])
{
    static const char *const places[] = {"../../models", "../../../golden"};

    for (size_t i = 0; i < 2; i++) {
        snprintf(path, 4096, "%s/%s/%s", g->dir, places[i], name);
        if (ash_path_exists(path)) return path;
    }
    return path;
}

const char *post_text(const struct golden *g, const char *key)
{
    const char *text = json_string_value(json_object_get(g->json, key));

    return text != NULL ? text : "";
}

const struct ash_tensor_view *post_tensor(const struct golden *g, const char *name)
{
    const struct ash_tensor_view *view = ash_safetensors_find(g->tensors, name);

    if (view == NULL) {
        printf("%s: no tensor '%s'\n", g->dir, name);
        exit(1);
    }
    return view;
}

int post_open_base(struct golden *g, struct ash_err *err)
{
    char path[4096];
    int rc = ash_model_open(post_find_model(g, post_text(g, "base"), path), &g->model, err);

    return rc < 0 ? rc : ash_model_own(g->model, err);
}

double post_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* ---- passes over documents --------------------------------------------------------------------------------------- */

size_t post_add_doc(struct post_docs *docs, const int32_t *ids, size_t count)
{
    size_t first = docs->rows;

    if (first + count > SEQ_MAX || docs->count == DOCS_MAX) {
        printf("golden: more than %d documents or %d tokens\n", DOCS_MAX, SEQ_MAX);
        exit(1);
    }
    docs->docs[docs->count++] = (struct ash_doc){.row = first, .count = count};
    for (size_t i = 0; i < count; i++) {
        docs->ids[first + i] = ids[i];
        docs->targets[first + i] = -1;
    }
    docs->rows += count;
    return first;
}

static struct ash_batch batch_of(const struct post_docs *docs)
{
    return (struct ash_batch){.rows = docs->rows,
                              .ids = docs->ids,
                              .targets = docs->targets,
                              .docs = docs->docs,
                              .doc_count = docs->count,
                              .sharpness = docs->sharpness,
                              .scales = docs->teacher == NULL ? docs->scales : NULL,
                              .entropy_scales = docs->has_entropy ? docs->entropy_scales : NULL,
                              .teacher = docs->teacher};
}

float post_mean_scale(const struct post_docs *docs)
{
    size_t count = 0;

    for (size_t r = 0; r < docs->rows; r++)
        count += docs->targets[r] >= 0;
    return 1.0f / (float)count;
}

int post_run_docs(struct golden *g, struct post_docs *docs, void (*weigh)(struct post_docs *docs, void *ctx), void *ctx,
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
    if (rc == 0 && docs->teacher != NULL) rc = docs->teacher->run(docs->teacher->ctx, &g->exec, &batch, err);
    if (rc == 0) {
        if (docs->teacher == NULL) weigh(docs, ctx);
        rc = ash_pass_backward(pass, post_mean_scale(docs), &(struct ash_pass_grads){.sums = docs->grads}, docs->losses,
                               err);
    }
    if (rc == 0) ash_model_grad_fold(g->model, &g->exec, docs->grads);
    ash_pass_close(pass);
    return rc;
}

void post_check_gradients(struct golden *g, const char *prefix, const float *grads)
{
    for (size_t i = 0; i < ash_safetensors_size(g->tensors); i++) {
        const struct ash_tensor_view *want = ash_safetensors_at(g->tensors, i);

        if (strncmp(want->name, prefix, strlen(prefix)) == 0)
            golden_report(g, want->name, golden_grad_difference(g, want, prefix, grads), GRAD_LIMIT);
    }
}

double post_off(double value, double wanted)
{
    return fabs(value - wanted) / fmax(fabs(wanted), 1e-2);
}

void post_note(double *worst, double difference)
{
    if (!(fabs(difference) <= *worst)) *worst = fabs(difference);
}

/* ---- which ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *part;
    void (*check)(struct golden *g);
} parts[] = {{"/sft/", post_check_sft},         {"/dpo/", post_check_dpo},      {"/reward/", post_check_reward},
             {"/rl/", post_check_rl},           {"/lora/", post_check_lora},    {"/masks/", post_check_masks},
             {"/distill/", post_check_distill}, {"/arrays", post_check_arrays}, {"/eval", golden_check_eval},
             {"/scaling", golden_check_scaling}};

/* Does a folder's path, without links, end in PART/CASE, or in a part that has no cases? */
static bool is_part(const char *path, const char *part)
{
    const char *name = strrchr(path, '/'), *before = name;
    size_t length = strlen(part);

    if (part[length - 1] != '/') return name != NULL && strncmp(name, part, length) == 0;
    while (before != NULL && before > path && *--before != '/')
        continue;
    return before != NULL && strncmp(before, part, length) == 0;
}

int golden_post(struct golden *g, const char *dir)
{
    struct ash_err err = {0};
    char whole[PATH_MAX], path[PATH_MAX + 32];

    if (realpath(dir, whole) == NULL) return 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!is_part(whole, parts[i].part)) continue;
        snprintf(path, sizeof(path), "%s/reference.json", whole);
        if (ash_json_load(path, &g->json, &err) < 0) return 0;
        snprintf(path, sizeof(path), "%s/reference.safetensors", whole);
        if (ash_path_exists(path) && ash_safetensors_open(path, &g->tensors, &err) < 0) golden_broken(g, "open", &err);
        parts[i].check(g);
        ash_model_close(g->model);
        ash_safetensors_close(g->tensors);
        json_decref(g->json);
        return 1;
    }
    return 0;
}

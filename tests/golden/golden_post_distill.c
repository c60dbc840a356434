/* golden_post: divergences from a teacher, and their gradients. */
#include <stdio.h>
#include <stdlib.h>

#include "golden_post.h"
#include "model/files/open.h"

/* A teacher that runs beside the pass under test. */
struct lesson {
    struct ash_model *model;
    struct ash_pass *pass;
    struct ash_teacher teacher;
};

static int run_teacher(void *ctx, struct ash_exec *exec, const struct ash_batch *batch, struct ash_err *err)
{
    struct lesson *lesson = ctx;
    struct ash_pass_opts opts = {.max_rows = batch->rows};
    int rc = lesson->pass != NULL ? 0 : ash_pass_open(lesson->model, exec, &opts, &lesson->pass, err);

    return rc < 0 ? rc : ash_pass_infer_layers(lesson->pass, batch, NULL, err);
}

static int ask_teacher(void *ctx, const size_t *rows, size_t count, struct ash_err *err)
{
    struct lesson *lesson = ctx;

    return ash_pass_infer_logits(lesson->pass, rows, count, lesson->teacher.logits, err);
}

static int open_teacher(struct golden *g, struct lesson *lesson, struct ash_err *err)
{
    char path[4096];
    size_t vocab, most = 7; /* fewer than the rows, so that they are asked for in parts */
    int rc = ash_model_open(post_find_model(g, post_text(g, "teacher"), path), &lesson->model, err);

    if (rc < 0) return rc;
    vocab = ash_model_get_config(lesson->model)->vocab;
    lesson->teacher = (struct ash_teacher){.most_rows = most,
                                           .logits = calloc(most * vocab, sizeof(float)),
                                           .gathered = calloc(2 * most * vocab, sizeof(float)),
                                           .run = run_teacher,
                                           .ask = ask_teacher,
                                           .ctx = lesson};
    return 0;
}

static void check_case(struct golden *g, struct post_docs *docs, struct lesson *lesson, const char *name,
                       const json_t *wanted)
{
    struct ash_err err = {0};
    char what[128];
    double sum = 0.0;

    lesson->teacher.beta = (float)post_number(wanted, "beta");
    lesson->teacher.sharpness = (float)(1.0 / post_number(wanted, "temperature"));
    docs->teacher = &lesson->teacher;
    if (post_run_docs(g, docs, NULL, NULL, &err) < 0) {
        golden_broken(g, name, &err);
        return;
    }
    for (size_t r = 0; r < docs->rows; r++)
        sum += (double)docs->losses[r];
    snprintf(what, sizeof(what), "%s: loss", name);
    golden_report(g, what, post_off(sum * (double)post_mean_scale(docs), post_number(wanted, "loss")), LOSS_LIMIT);
    snprintf(what, sizeof(what), "grad.%s.", name);
    post_check_gradients(g, what, docs->grads);
}

void post_check_distill(struct golden *g)
{
    struct post_docs *docs = calloc(1, sizeof(*docs));
    const int32_t *ids = post_tensor(g, "input_ids")->data, *labels = post_tensor(g, "labels")->data;
    size_t width = post_tensor(g, "input_ids")->dims[1];
    struct lesson lesson = {0};
    struct ash_err err = {0};
    const char *name;
    json_t *wanted;
    int rc = post_open_base(g, &err);

    for (size_t d = 0; d < post_tensor(g, "input_ids")->dims[0]; d++) {
        size_t first = post_add_doc(docs, ids + d * width, width);

        for (size_t t = 1; t < width; t++)
            if (labels[d * width + t] >= 0) docs->targets[first + t - 1] = labels[d * width + t];
    }
    if (rc == 0) rc = open_teacher(g, &lesson, &err);
    if (rc < 0)
        golden_broken(g, "distill", &err);
    else
        json_object_foreach(json_object_get(g->json, "cases"), name, wanted)
            check_case(g, docs, &lesson, name, wanted);
    ash_pass_close(lesson.pass);
    ash_model_close(lesson.model);
    free(lesson.teacher.logits);
    free(lesson.teacher.gathered);
    free(docs->grads);
    free(docs);
}

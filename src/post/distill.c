/* post: a teacher, whose distributions over the rows of examples or of plain text are learned. It is whole on every
 * rank that ends with the loss, its weights mapped from their files or in the memory of a GPU. A micro-batch runs
 * through it before its backward pass, which learns them. */
#include <errno.h>
#include <stdlib.h>

#include "model/files/open.h"
#include "model/pass/pass.h"
#include "post/post_priv.h"

#define TEACHER_ROWS 128 /* whose logits exist at once */

struct ash_distill {
    const struct ash_job *job;
    struct ash_model *model;
    struct ash_pass *pass;              /* NULL until the first micro-batch, and between two meshes */
    struct ash_buffer logits, gathered; /* of the teacher, in the exec's memory */
    struct ash_teacher teacher;
};

static void close_pass(struct ash_distill *distill)
{
    ash_pass_close(distill->pass);
    distill->pass = NULL;
    ash_buffer_fini(&distill->logits);
    ash_buffer_fini(&distill->gathered);
}

/* Once per mesh, because its exec is the trainer's. */
static int open_pass(struct ash_distill *distill, struct ash_exec *exec, struct ash_err *err)
{
    const struct ash_job *job = distill->job;
    struct ash_pass_opts opts = {.max_rows = (size_t)(job->data.seq_tokens * job->train.micro_batch)};
    size_t bytes = TEACHER_ROWS * ash_model_get_config(distill->model)->vocab * sizeof(float);
    int rc = ash_buffer_init(&distill->logits, exec->memory, bytes, "the teacher's logits", err);

    if (rc == 0) rc = ash_buffer_init(&distill->gathered, exec->memory, 2 * bytes, "the teacher's logits", err);
    if (rc == 0) rc = ash_pass_open(distill->model, exec, &opts, &distill->pass, err);
    if (rc < 0) {
        close_pass(distill);
        return rc;
    }
    distill->teacher.logits = distill->logits.data;
    distill->teacher.gathered = distill->gathered.data;
    return 0;
}

static int run(void *ctx, struct ash_exec *exec, const struct ash_batch *batch, struct ash_err *err)
{
    struct ash_distill *distill = ctx;
    int rc = distill->pass != NULL ? 0 : open_pass(distill, exec, err);

    if (rc == 0) rc = ash_pass_infer_layers(distill->pass, batch, NULL, err);
    return rc < 0 ? ash_err_prefix(err, rc, "the teacher") : 0;
}

static int ask(void *ctx, const size_t *rows, size_t count, struct ash_err *err)
{
    struct ash_distill *distill = ctx;
    int rc = ash_pass_infer_logits(distill->pass, rows, count, distill->teacher.logits, err);

    return rc < 0 ? ash_err_prefix(err, rc, "the teacher") : 0;
}

/* Before the first step: row by row both need a probability for the same ids. */
static int prepare(void *ctx, struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    struct ash_distill *distill = ctx;
    size_t vocab = ash_model_get_config(ash_trainer_outline(trainer))->vocab,
           theirs = ash_model_get_config(distill->model)->vocab;

    (void)step;
    if (vocab == theirs) return 0;
    return ash_err_set(err, -EINVAL, "the teacher %s has %zu ids and the model %zu: both must have one vocabulary",
                       distill->job->distill.teacher, theirs, vocab);
}

static void end(void *ctx)
{
    close_pass(ctx);
}

static int open_teacher(struct ash_distill *distill, struct ash_err *err)
{
    const struct ash_job *job = distill->job;
    int rc = ash_model_open(job->distill.teacher, &distill->model, err);

    if (rc < 0) return ash_err_prefix(err, rc, "the teacher");
    ash_model_round_bf16(distill->model, job->train.precision != ASH_JOB_FP32);
    ash_model_use_fp8(distill->model, job->train.precision == ASH_JOB_FP8);
    distill->teacher = (struct ash_teacher){.sharpness = (float)(1.0 / job->distill.temperature),
                                            .beta = (float)job->distill.beta,
                                            .target_weight = (float)job->distill.sft_weight,
                                            .most_rows = TEACHER_ROWS,
                                            .run = run,
                                            .ask = ask,
                                            .ctx = distill};
    return 0;
}

int ash_post_open_distill(struct ash_post *post, struct ash_err *err)
{
    const struct ash_job_distill *opts = &post->job->distill;
    int rc;

    post->distill = calloc(1, sizeof(*post->distill));
    if (post->distill == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    post->distill->job = post->job;
    /* token shards need no source: they are the trainer's own */
    rc = ash_examples_exist(post->job->data.train) ? ash_post_open_examples(post, ASH_EXAMPLES_SINGLE, err) : 0;
    if (rc == 0) rc = open_teacher(post->distill, err);
    if (rc < 0) return rc;
    post->parts.teacher = &post->distill->teacher;
    post->parts.prepare = prepare;
    post->parts.end = end;
    post->parts.ctx = post->distill;
    if (post->screen != NULL)
        fprintf(post->screen, "teacher   %s, beta %g, temperature %g\n", opts->teacher, opts->beta, opts->temperature);
    return 0;
}

void ash_distill_close(struct ash_distill *distill)
{
    if (distill == NULL) return;
    close_pass(distill);
    ash_model_close(distill->model);
    free(distill);
}

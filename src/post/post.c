/* post: the parts of a job, by its method. */
#include "post/post_priv.h"

#include <errno.h>
#include <stdlib.h>

static int open_sft(struct ash_post *post, struct ash_err *err)
{
    return ash_post_open_examples(post, ASH_EXAMPLES_SINGLE, err);
}

int ash_post_open(const struct ash_job *job, struct ash_group *group, const char *dir, FILE *screen,
                  struct ash_post **post_out, struct ash_err *err)
{
    struct ash_post *post = calloc(1, sizeof(*post));
    int rc = 0;

    if (post == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    post->job = job;
    post->group = group;
    post->dir = dir;
    post->screen = group == NULL || ash_group_rank(group) == 0 ? screen : NULL;
    post->weighed_step = UINT64_MAX;
    switch ((enum ash_job_method)job->train.method) {
    case ASH_METHOD_PRETRAIN:
        break;
    case ASH_METHOD_SFT:
        rc = open_sft(post, err);
        break;
    case ASH_METHOD_DPO:
        rc = ash_post_open_dpo(post, err);
        break;
    default:
        rc = ash_err_set(err, -ENOTSUP, "train.method=%s is not there yet", ash_job_method_names[job->train.method]);
    }
    if (rc < 0) {
        ash_post_close(post);
        return rc;
    }
    *post_out = post;
    return 0;
}

void ash_post_close(struct ash_post *post)
{
    if (post == NULL) return;
    ash_packed_close(post->packed);
    ash_packed_close(post->valid_packed);
    ash_examples_close(post->train);
    ash_examples_close(post->valid);
    free(post->reference);
    free(post->targets);
    free(post->units);
    free(post);
}

const struct ash_trainer_parts *ash_post_parts(const struct ash_post *post)
{
    return post->parts.train != NULL ? &post->parts : NULL;
}

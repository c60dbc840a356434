/* shape: all smaller layouts are tried; there are few. */
#include "train/recover/shape.h"

#include <errno.h>

#include "train/layout/mesh.h"
#include "train/layout/stages.h"

size_t ash_shape_ranks(const struct ash_job_mesh *mesh)
{
    return (size_t)(mesh->dp * mesh->fsdp * mesh->tp * mesh->pp * mesh->cp * mesh->ep);
}

int ash_shape_check(const struct ash_job *job, const struct ash_model_config *config, const struct ash_job_mesh *sizes,
                    struct ash_err *err)
{
    struct ash_job smaller = *job;
    struct ash_mesh mesh = {.size = {(size_t)sizes->tp, (size_t)sizes->cp, (size_t)sizes->ep, (size_t)sizes->fsdp,
                                     (size_t)sizes->dp, (size_t)sizes->pp},
                            .zero = sizes->fsdp > 1 ? (int)sizes->zero : 0};

    int rc;

    smaller.mesh = *sizes;
    rc = ash_mesh_check(&mesh, config, &smaller, err);
    /* ranks that take part in other grains have other numbers of micro-batches */
    for (size_t i = 0; rc == 0 && i < ash_mesh_data_size(&mesh); i++) {
        mesh.at[ASH_MESH_EP] = i % mesh.size[ASH_MESH_EP];
        mesh.at[ASH_MESH_FSDP] = i / mesh.size[ASH_MESH_EP] % mesh.size[ASH_MESH_FSDP];
        mesh.at[ASH_MESH_DP] = i / mesh.size[ASH_MESH_EP] / mesh.size[ASH_MESH_FSDP];
        rc = ash_stages_check(&smaller, &mesh, err);
    }
    return rc;
}

struct choice {
    const struct ash_job *job;
    const struct ash_model_config *config;
    int64_t ranks;
    struct ash_job_mesh best;
    int64_t best_split, best_ranks; /* 0: none yet */
};

/* Ranks that share one replica of model and sequence. */
static int64_t split_of(const struct ash_job_mesh *mesh)
{
    return mesh->tp * mesh->pp * mesh->cp * mesh->ep * mesh->fsdp;
}

/* Candidates come with the wanted sizes of the model's axes first, so of equally good ones the first stays. */
static void consider(struct choice *choice, const struct ash_job_mesh *mesh)
{
    int64_t split = split_of(mesh), ranks = split * mesh->dp;

    if (ranks > choice->ranks) return;
    if (split < choice->best_split || (split == choice->best_split && ranks <= choice->best_ranks)) return;
    if (ash_shape_check(choice->job, choice->config, mesh, NULL) < 0) return;
    choice->best = *mesh;
    choice->best_split = split;
    choice->best_ranks = ranks;
}

/* Replicas and their shards for given model axes. Shards may be more than wanted if that leaves fewer replicas. */
static void consider_data(struct choice *choice, struct ash_job_mesh mesh)
{
    const struct ash_job_mesh *wanted = &choice->job->mesh;
    int64_t data = choice->ranks / (mesh.tp * mesh.pp * mesh.cp * mesh.ep);
    int64_t shards = wanted->fsdp > 1 ? wanted->fsdp * wanted->dp : 1;

    if (mesh.pp == 1) mesh.interleave = 1;
    for (mesh.fsdp = shards < data ? shards : data; mesh.fsdp >= 1; mesh.fsdp--) {
        mesh.dp = data / mesh.fsdp;
        if (wanted->fsdp == 1 && mesh.dp > wanted->dp) mesh.dp = wanted->dp;
        for (; mesh.dp >= 1; mesh.dp--)
            consider(choice, &mesh);
    }
}

/* The largest divisor of `of` below `below`; 0: there is none. */
static int64_t next_divisor(int64_t of, int64_t below)
{
    do
        below--;
    while (below > 0 && of % below != 0);
    return below;
}

int ash_shape_choose(const struct ash_job *job, const struct ash_model_config *config, size_t ranks,
                     struct ash_job_mesh *mesh_out, struct ash_err *err)
{
    struct choice choice = {.job = job, .config = config, .ranks = (int64_t)ranks};
    struct ash_job_mesh mesh = job->mesh;

    if (ash_shape_ranks(&job->mesh) <= ranks) {
        *mesh_out = job->mesh;
        return 0;
    }
    for (mesh.tp = job->mesh.tp; mesh.tp >= 1; mesh.tp = next_divisor(job->mesh.tp, mesh.tp))
        for (mesh.pp = job->mesh.pp; mesh.pp >= 1; mesh.pp--)
            for (mesh.ep = job->mesh.ep; mesh.ep >= 1; mesh.ep = next_divisor(job->mesh.ep, mesh.ep))
                for (mesh.cp = job->mesh.cp; mesh.cp >= 1; mesh.cp = next_divisor(job->mesh.cp, mesh.cp)) {
                    mesh.interleave = mesh.pp == job->mesh.pp ? job->mesh.interleave : 1;
                    if (mesh.tp * mesh.pp * mesh.ep * mesh.cp <= (int64_t)ranks) consider_data(&choice, mesh);
                }
    if (choice.best_ranks == 0)
        return ash_err_set(err, -EINVAL, "no layout of this model fits %zu rank%s", ranks, ranks == 1 ? "" : "s");
    *mesh_out = choice.best;
    return 0;
}

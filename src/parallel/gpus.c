/* gpus: ranks tell each other which GPU each would take, and come to the same verdict. */
#include "parallel/gpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "infra/device/cuda.h"

/* A rank's GPU. Plain data. */
struct offer {
    uint32_t has_gpu;
    struct ash_cuda_facts gpu;
};

static bool is_gpu(const struct ash_backend_choice *choice)
{
    return strncmp(choice->name, "cuda", strlen("cuda")) == 0;
}

void ash_gpus_take(size_t per_gpu, size_t local, struct ash_backend_choice *choice)
{
    int count = strcmp(choice->name, "cuda") == 0 ? ash_cuda_count() : 0;

    ash_assert(per_gpu > 0);
    if (count == 0) return;
    snprintf(choice->gpu, sizeof(choice->gpu), "cuda:%d", (int)(local / per_gpu % (size_t)count));
}

static int find_own(const struct ash_backend_choice *choice, struct offer *own, struct ash_err *err)
{
    const char *name = choice->gpu[0] != '\0' ? choice->gpu : choice->name, *colon = strchr(name, ':');

    own->has_gpu = is_gpu(choice);
    return own->has_gpu != 0 ? ash_cuda_look(colon != NULL ? (int)strtol(colon + 1, NULL, 10) : 0, &own->gpu, err) : 0;
}

/* The ranks that have rank r's GPU. */
static size_t count_sharers(const struct offer *offers, size_t ranks, size_t r)
{
    size_t count = 0;

    for (size_t i = 0; i < ranks; i++)
        count += memcmp(offers[i].gpu.uuid, offers[r].gpu.uuid, sizeof(offers[r].gpu.uuid)) == 0;
    return count;
}

static bool is_same_kind(const struct ash_cuda_facts *a, const struct ash_cuda_facts *b)
{
    return a->major == b->major && a->minor == b->minor && strcmp(a->name, b->name) == 0;
}

/* What speaks against these GPUs, the same on all ranks. Returns 0 or -EBADE. */
static int judge(const struct ash_gpus_sharing *sharing, const struct ash_group *group, const struct offer *offers,
                 struct ash_err *err)
{
    size_t ranks = ash_group_size(group);

    for (size_t r = 0; r < ranks; r++) {
        const struct ash_cuda_facts *gpu = &offers[r].gpu;
        const char *host = ash_group_get_member(group, r).host;
        size_t sharers;

        if (offers[r].has_gpu == 0)
            return ash_err_set(err, -EBADE, "rank %zu (host %s) has no GPU that this build can use", r, host);
        if (!is_same_kind(&offers[0].gpu, gpu))
            return ash_err_set(err, -EBADE,
                               "rank 0 has an %s and rank %zu (host %s) an %s: ranks of a job need GPUs of one kind",
                               offers[0].gpu.name, r, host, gpu->name);
        sharers = count_sharers(offers, ranks, r);
        if (sharers > sharing->per_gpu)
            return ash_err_set(err, -EBADE,
                               "%zu ranks would share one GPU (%s, number %d of host %s): start fewer, or let ranks "
                               "share with %s%zu",
                               sharers, gpu->name, gpu->index, host, sharing->per_gpu_word, sharers);
    }
    return 0;
}

/* All ranks compute on the CPU: `why` says why not on GPUs. */
static void take_cpu(struct ash_backend_choice *choice, const struct offer *own, const struct ash_err *why)
{
    choice->name = "cpu";
    choice->gpu[0] = '\0';
    if (own->has_gpu != 0)
        snprintf(choice->why, sizeof(choice->why), "%.90s is not used: %.200s", own->gpu.name, why->text);
}

static int agree(const struct ash_gpus_sharing *sharing, struct ash_group *group, const struct offer *own,
                 struct ash_backend_choice *choice, struct ash_err *err)
{
    size_t ranks = ash_group_size(group);
    struct offer *offers = calloc(ranks, sizeof(*offers));
    struct ash_err why = {0};
    bool some = false;
    int rc;

    if (offers == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", ranks);
    rc = ash_group_all_gather(group, own, offers, sizeof(*own), err);
    for (size_t r = 0; rc == 0 && r < ranks; r++)
        some = some || offers[r].has_gpu != 0;
    if (rc == 0 && some && judge(sharing, group, offers, &why) < 0) {
        if (choice->is_own)
            take_cpu(choice, own, &why);
        else
            rc = ash_err_set(err, -EBADE, "%s%s: %s", sharing->backend_word, choice->name, why.text);
    }
    free(offers);
    return rc;
}

int ash_gpus_share(const struct ash_gpus_sharing *sharing, struct ash_group *group, struct ash_backend_choice *choice,
                   struct ash_err *err)
{
    struct offer own = {0};
    int rc;

    if (is_gpu(choice)) ash_gpus_take(sharing->per_gpu, ash_group_local_rank(group), choice);
    rc = find_own(choice, &own, err);
    return rc < 0 ? rc : agree(sharing, group, &own, choice, err);
}

/* The list of back ends, and lists of jobs. */
#include "orchestrate/job/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"

/* In the order in which one is chosen. */
static const struct ash_jobs_ops *const all[] = {&ash_jobs_slurm, &ash_jobs_kubernetes, &ash_jobs_local};

const char *ash_jobs_phase_name(enum ash_jobs_phase phase)
{
    static const char *const names[] = {"waiting", "held", "running", "done", "failed", "stopped"};

    ash_assert((size_t)phase < ASH_COUNT(names));
    return names[phase];
}

bool ash_jobs_has_ended(enum ash_jobs_phase phase)
{
    return phase == ASH_JOBS_DONE || phase == ASH_JOBS_FAILED || phase == ASH_JOBS_STOPPED;
}

int ash_jobs_choose(const char *name, const struct ash_jobs_ops **ops_out, struct ash_err *err)
{
    for (size_t i = 0; i < ASH_COUNT(all); i++) {
        bool is_it = name != NULL ? strcmp(name, all[i]->name) == 0 : all[i]->is_here();

        if (!is_it) continue;
        *ops_out = all[i];
        return 0;
    }
    return ash_err_set(err, -EINVAL, "--to %.60s: jobs go to local, slurm or kubernetes", name != NULL ? name : "?");
}

int ash_jobs_use_namespace(const struct ash_jobs_ops *ops, const char *space, struct ash_err *err)
{
    if (space == NULL) return 0;
    if (ops->use_namespace == NULL)
        return ash_err_set(err, -EINVAL, "a namespace is for Kubernetes, and this is %s", ops->name);
    return ops->use_namespace(space, err);
}

int ash_jobs_add(struct ash_jobs_list *list, const struct ash_jobs_entry *entry)
{
    if (ash_array_reserve(&list->entries, &list->capacity, list->count + 1, sizeof(*list->entries)) < 0) return -ENOMEM;
    list->entries[list->count++] = *entry;
    return 0;
}

void ash_jobs_free(struct ash_jobs_list *list)
{
    free(list->entries);
    *list = (struct ash_jobs_list){0};
}

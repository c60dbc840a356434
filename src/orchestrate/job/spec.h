/* spec - the `job:` section of a job file: a job's requests to a cluster, with one meaning on this machine, under Slurm
 * and on Kubernetes. `ashlar submit` reads it; every other command accepts and ignores it. */
#ifndef ASH_ORCHESTRATE_JOB_SPEC_H
#define ASH_ORCHESTRATE_JOB_SPEC_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/opts.h"

#define ASH_SPEC_NAME_MAX 52 /* bytes: Kubernetes adds an index to it, and a label has at most 63 */

enum ash_spec_check { ASH_SPEC_CHECK_NONE, ASH_SPEC_CHECK_QUICK, ASH_SPEC_CHECK_DEEP };

struct ash_spec_topology {
    const char *required;  /* every node in one domain of this level; NULL: anywhere */
    const char *preferred; /* as few domains of this level as can be */
    int64_t group;         /* each run of this many nodes in rank order shares a preferred domain; 0: no groups */
};

/* A job that may have fewer nodes than it asks for while others need them; 0, 0: it may not. */
struct ash_spec_elastic {
    int64_t min, max;
};

struct ash_spec {
    const char *name, *command, *out;
    int64_t nodes, min_nodes, spares;
    int64_t min_ranks;              /* resolved: fewest that continue after losses; 0: any number */
    int64_t procs, gpus, efa, cpus; /* of a node; procs 0: one per GPU, or one */
    int64_t asked_procs;            /* resolved: procs as the user has it; 0: not given */
    const char *memory;             /* of a node, as Kubernetes and Slurm write it: "64G" */
    const char *time, *notice;      /* as written */
    double time_s, notice_s;        /* resolved; time_s 0: no limit */
    double price;                   /* dollars an hour of a node; 0: not known */
    const char *queue, *account, *priority;
    int64_t restarts;
    int check; /* enum ash_spec_check */
    const char *image, *kube_namespace, *service_account;
    struct ash_opt_list mounts, env, exclude, slurm; /* env: NAME=VALUE; slurm: words for sbatch, passed through */
    struct ash_spec_topology topology;
    struct ash_spec_elastic elastic;
};

#define ASH_SPEC_SECTIONS 3

/* One binding per table (job, job.topology, job.elastic), bound to spec: for ash_opts_open. */
void ash_spec_bind(struct ash_spec *spec, struct ash_opt_binding bindings[ASH_SPEC_SECTIONS]);
/* Checks between table rows, and numbers for settings of "choose". job_file names the job if job.name is not set.
 * Returns 0 or -EINVAL with the setting and valid values. Strings that it makes live in buf. */
int ash_spec_resolve(struct ash_spec *spec, const char *job_file, char buf[ASH_SPEC_NAME_MAX + 1], struct ash_err *err);

/* Requested nodes: those that compute, and spares. */
size_t ash_spec_all_nodes(const struct ash_spec *spec);

#endif

/* launch_env - which rank of which job this process is, by the environment of its launcher: `ashlar launch` or
 * torchrun (RANK, WORLD_SIZE, ...), Slurm (SLURM_PROCID, ...; with srun --mpi too), Open MPI or another PMIx or PMI
 * launcher (OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, ...). The ranks of a Slurm step meet on the first of its
 * nodes, or at MASTER_ADDR if its name is not known to all. A process without a launcher is alone. */
#ifndef ASH_COLLECTIVE_MEMBER_LAUNCH_ENV_H
#define ASH_COLLECTIVE_MEMBER_LAUNCH_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_LAUNCH_ENV_HOST_BYTES 256

struct ash_launch_env {
    const char *launcher; /* "torchrun", "slurm", "mpi", or "none" */
    size_t rank, size;
    bool joins;                           /* it has no rank yet, and asks a running job for one (ASHLAR_JOIN) */
    size_t place, places;                 /* rank and size as the process was started, of one that joins too */
    size_t local_rank, local_size;        /* among the processes of this host, where the launcher tells; else 0 of 0 */
    char node[ASH_LAUNCH_ENV_HOST_BYTES]; /* the launcher's name of this node; empty: it has none */
    char host[ASH_LAUNCH_ENV_HOST_BYTES]; /* where the first rank listens */
    int port;
    uint64_t job; /* the same for all ranks of a job, and no others */
};

/* Read the environment. -EINVAL where its variables contradict each other or one is missing; the sentence names it. */
int ash_launch_env_read(struct ash_launch_env *env_out, struct ash_err *err);
/* The first host of a Slurm node list ("gpu[03-07,9],login1" -> "gpu03"). Returns 0 or -EINVAL. */
int ash_launch_env_first_host(const char *node_list, char *buf, size_t buf_bytes);

#endif

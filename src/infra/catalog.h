/* catalog - facts about GPUs, machines, NVLink domains, storage tiers and measured collectives, with the source of
 * every value and the values that disagree. The product's own catalog is built in; users add files of the same form
 * (src/infra/catalog/catalog.yaml shows it). Read-only after open: any thread may read. */
#ifndef ASH_INFRA_CATALOG_H
#define ASH_INFRA_CATALOG_H

#include <jansson.h>
#include <stddef.h>
#include "ashlar/err.h"

enum ash_gpu_precision { ASH_GPU_BF16, ASH_GPU_FP8, ASH_GPU_FP4, ASH_GPU_PRECISIONS };

/* Which kernels a GPU runs; OTHER: another make, or unknown. */
enum ash_generation {
    ASH_GENERATION_OTHER,
    ASH_GENERATION_AMPERE, /* and Volta */
    ASH_GENERATION_HOPPER, /* and Ada */
    ASH_GENERATION_BLACKWELL,
    ASH_GENERATION_ULTRA, /* Blackwell Ultra */
};

/* One GPU. Rates are per second and dense, bandwidths count one direction. 0: unknown. */
struct ash_gpu {
    const char *name, *arch;
    enum ash_generation generation; /* by arch */
    double sms;
    double flops[ASH_GPU_PRECISIONS];      /* datasheet peak, FLOP/s */
    double gemm_flops[ASH_GPU_PRECISIONS]; /* best measured matrix product, FLOP/s; 0: not measured */
    double memory_bytes;                   /* what the device reports, or the marketed value */
    double memory_bandwidth;               /* bytes/s */
    double nvlink_bandwidth;               /* bytes/s, one direction; 0: no NVLink */
    double host_bandwidth;                 /* bytes/s to host memory, one direction */
    double watts;                          /* the highest published figure where sources disagree */
};

/* One machine as it is rented or bought: an instance, a node, an UltraServer. */
struct ash_machine {
    const char *name, *network; /* "EFA v2", "InfiniBand NDR" */
    const struct ash_gpu *gpu;
    int gpus;
    int domain_gpus;      /* GPUs that NVLink joins: more than gpus where a domain spans machines, 1: none */
    int adapters;         /* network cards for RDMA; 0: unknown, or there are none */
    double net_bandwidth; /* bytes/s of the whole machine, one direction */
    double net_latency_s; /* of one message between machines, as collectives see it */
    double host_bytes;    /* 0: unknown, as all below */
    double nvme_bytes;
    double usd_hour;          /* on demand */
    double usd_hour_reserved; /* capacity blocks */
};

struct ash_catalog; /* owns every string and struct that it returns */

/* The built-in catalog, then each of files in turn: things of a new name are added, facts of a known name replaced.
 * Returns 0 or a negative errno with file, thing and field in err. */
int ash_catalog_open(const char *const *files, size_t file_count, struct ash_catalog **catalog_out,
                     struct ash_err *err);
/* The same from one text instead of files, for tests; NULL text gives the built-in catalog alone. */
int ash_catalog_parse(const char *text, size_t size_bytes, const char *name, struct ash_catalog **catalog_out,
                      struct ash_err *err);
/* Free it and all that was found in it. NULL is a no-op. */
void ash_catalog_close(struct ash_catalog *catalog);

/* By name or alias, whatever the case, spaces and dashes, with or without "NVIDIA". -ENOENT lists what there is. */
int ash_catalog_gpu(const struct ash_catalog *catalog, const char *name, const struct ash_gpu **gpu_out,
                    struct ash_err *err);
/* The same for a machine. */
int ash_catalog_machine(const struct ash_catalog *catalog, const char *name, const struct ash_machine **machine_out,
                        struct ash_err *err);
/* The GPU whose name (or alias) is in a text as people write it: "8x NVIDIA H100 80GB HBM3". The longest wins.
 * NULL: none does. */
const struct ash_gpu *ash_catalog_gpu_in(const struct ash_catalog *catalog, const char *text);
/* The same for a machine: "AWS p5.48xlarge". */
const struct ash_machine *ash_catalog_machine_in(const struct ash_catalog *catalog, const char *text);
/* How many GPUs there are. */
size_t ash_catalog_gpu_count(const struct ash_catalog *catalog);
/* GPU index, below the count, in the order of the files. Borrowed. */
const struct ash_gpu *ash_catalog_gpu_at(const struct ash_catalog *catalog, size_t index);
/* How many machines there are. */
size_t ash_catalog_machine_count(const struct ash_catalog *catalog);
/* Machine index, below the count, in the order of the files. Borrowed. */
const struct ash_machine *ash_catalog_machine_at(const struct ash_catalog *catalog, size_t index);
/* Everything as it was read, with sources: {"sources","gpus","machines","storage","collectives","contradictions"}.
 * Borrowed. */
const json_t *ash_catalog_json(const struct ash_catalog *catalog);

/* Does thing (an object with "name" and perhaps "aliases") go by this name? */
int ash_catalog_is_named(const json_t *thing, const char *name);
/* A fact is a plain value or {"value", "source", ...}: the value either way; NULL where it is absent or unknown. */
const json_t *ash_fact_value(const json_t *fact);
/* The number in field of thing (a GPU, a machine, a storage tier), or default_value. */
double ash_fact_number(const json_t *thing, const char *field, double default_value);

/* Machines of one kind, joined by their network. */
struct ash_cluster {
    struct ash_machine machine; /* a copy: its strings and gpu belong to the catalog */
    int machines;
    int gpus;        /* in all */
    int domain_gpus; /* of the cluster: at most gpus */
};

#define ASH_CLUSTER_GPUS_MAX 1048576

/* "64xp5.48xlarge", "512xH100" (GPUs: the machine whose GPU it is, DGX first), "p5.48xlarge" (one). Zero machines, an
 * unknown name or more than ASH_CLUSTER_GPUS_MAX GPUs are errors that say what would be possible. */
int ash_cluster_parse(const struct ash_catalog *catalog, const char *text, struct ash_cluster *cluster_out,
                      struct ash_err *err);

#endif

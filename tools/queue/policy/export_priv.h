/* Shared by the files of export. */
#ifndef ASH_QUEUE_POLICY_EXPORT_PRIV_H
#define ASH_QUEUE_POLICY_EXPORT_PRIV_H

#include "queue/policy/export.h"

/* Text that grows; the first error is kept. */
struct ash_export {
    const struct ash_policy_conf *conf;
    const struct ash_topology *topology;
    struct ash_str *text;
    struct ash_str missing; /* settings that the scheduler lacks */
    int rc;
};

/* Append as printf, at most a kilobyte. */
void ash_export_add(struct ash_export *writer, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* List this as not expressed at the end. */
void ash_export_miss(struct ash_export *writer, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A name of lower-case letters, digits and '-', as Kubernetes wants it, in buf of ASH_POLICY_NAME_BYTES. */
const char *ash_export_name(const char *name, char *buf);
/* GPUs of thousandths. */
double ash_export_gpus(int64_t milli);
/* slurm.conf and sacctmgr. */
void ash_export_slurm(struct ash_export *writer);

#endif

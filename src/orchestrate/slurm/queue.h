/* queue - what Slurm's programs print about its queue, read and put into words. No program is run here. */
#ifndef ASH_ORCHESTRATE_SLURM_QUEUE_H
#define ASH_ORCHESTRATE_SLURM_QUEUE_H

#include "ashlar/err.h"
#include "base/str.h"
#include "orchestrate/job/jobs.h"

/* id, name, user, state, reason, nodes, when submitted: one line per job. */
#define ASH_SLURM_QUEUE_FORMAT "%i|%j|%u|%T|%r|%D|%V"

/* Append the jobs of squeue's lines. now is the time since 1970, in seconds. Returns 0, -ENOMEM, or -EINVAL for a line
 * that is no job. */
int ash_slurm_read_queue(const char *text, double now, struct ash_jobs_list *list_out, struct ash_err *err);

/* Nodes of the partition called name (NULL: the default one) in sinfo's lines PARTITION|COUNT; its name comes back in
 * buf, empty if there is none. */
size_t ash_slurm_partition_nodes(const char *text, const char *name, char *buf, size_t buf_bytes);

/* The meaning of Slurm's reason word ("Resources"); NULL: unknown. */
const char *ash_slurm_reason(const char *word);
/* The value of KEY=VALUE in a line of `scontrol --oneliner show`, up to the next space, in buf; "" if there is none.
 * Returns buf. */
const char *ash_slurm_value(const char *line, const char *key, char *buf, size_t buf_bytes);

/* Seconds of a time limit as Slurm prints it: [days-]hours:minutes:seconds. Returns 0, or -EINVAL for another text
 * (UNLIMITED). */
int ash_slurm_duration(const char *text, double *seconds_out);

struct ash_slurm_evidence {
    const struct ash_jobs_entry *job;
    const char *facts;   /* scontrol --oneliner show job */
    const char *running; /* squeue: id|name|user|nodes|time left|partition */
    const char *nodes;   /* sinfo: partition|state|count|reason */
    const char *factors; /* sprio, as below; NULL: this Slurm has none */
};

/* Priority, and its terms: age, association, fair share, size, partition, QOS, site; less nice. */
#define ASH_SLURM_FACTORS_FORMAT "%Y|%A|%B|%F|%J|%P|%Q|%S|%N"

/* Append, in sentences: the resources that the job waits for, their holders, the expected start, changes for a sooner
 * one. Returns 0 or -ENOMEM. */
int ash_slurm_explain(const struct ash_slurm_evidence *evidence, struct ash_str *text_out, struct ash_err *err);

#endif

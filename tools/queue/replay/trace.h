/* trace - jobs that came to a cluster: when, how large, how long. Read from what others publish, or drawn. */
#ifndef ASH_QUEUE_TRACE_H
#define ASH_QUEUE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_TRACE_JOBS_MAX 20000000
#define ASH_TRACE_BYTES_MAX ((size_t)4 << 30)
#define ASH_TRACE_NAMES_MAX 65536 /* queues; users are numbers */

struct ash_trace_job {
    double submit_s; /* from the first job on */
    float run_s, limit_s;
    int32_t gpus; /* in all */
    int32_t queue, user;
    int16_t class;      /* index; 0 where the trace has none */
    uint16_t gpu_milli; /* of its GPU where gpus is 1 */
    int32_t cpu_milli, memory_mib;
    int32_t nodes;   /* requested; 0: as many as its GPUs need */
    uint64_t models; /* of GPUs that will do, by bit; 0: any */
};

/* Jobs in the order of submission. */
struct ash_trace {
    struct ash_trace_job *jobs;
    size_t count;
    char **queues; /* names */
    int queue_count;
    char **classes;
    int class_count;
    int user_count;
    size_t skipped;     /* rows without GPUs, without an end, or steps of jobs */
    const char *format; /* "Philly", "SWF", ... */
};

/* Read a trace: Philly (JSON, or submit_s,duration_s,gpus,queue), Helios, Acme, openb, SWF, or `sacct -P` with a
 * header. name is for messages. -EINVAL names the wrong line, or the known formats. On 0 the caller owns
 * *trace_out. */
int ash_trace_parse(const char *text, size_t size_bytes, const char *name, struct ash_trace **trace_out,
                    struct ash_err *err);
/* The same from a file, plain or gzip. */
int ash_trace_open(const char *path, struct ash_trace **trace_out, struct ash_err *err);
/* NULL and half-built traces are fine. */
void ash_trace_close(struct ash_trace *trace);

/* The number of a GPU model, by which a trace's models are bits; 63 for all that are not in the list. */
int ash_trace_model_number(const char *name);

/* What jobs of a cluster look like, for drawing. */
struct ash_trace_model {
    const char *name;
    double run_mean_s, run_median_s;
    double gpus_mean, one_gpu_share;
    int gpus_max;
};

/* acme, helios or philly; NULL: none of that name. */
const struct ash_trace_model *ash_trace_model_find(const char *name);
/* Draw count jobs that keep busy_gpus GPUs busy on average: sizes in powers of two, log-normal run times, exponential
 * times between them, time limits as people set them. Teams, users and classes are drawn too. The same seed gives the
 * same jobs. */
int ash_trace_draw(const struct ash_trace_model *model, size_t count, double busy_gpus, uint64_t seed,
                   struct ash_trace **trace_out, struct ash_err *err);

#endif

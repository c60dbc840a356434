/* Fuzz target: traces of jobs and tables of nodes. An accepted one is in order and can be queried. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "queue/replay/site.h"
#include "queue/replay/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_trace *trace = NULL;
    struct ash_site site = {0};

    if (ash_trace_parse((const char *)data, size, "fuzz", &trace, NULL) == 0) {
        for (size_t i = 0; i < trace->count; i++) {
            const struct ash_trace_job *job = &trace->jobs[i];

            if (i > 0 && job->submit_s < trace->jobs[i - 1].submit_s) abort();
            if (!(job->run_s > 0) || job->gpus < 0 || job->queue >= trace->queue_count ||
                job->class >= trace->class_count)
                abort();
        }
        ash_trace_close(trace);
    }
    if (ash_site_parse((const char *)data, size, "fuzz", &site, NULL) == 0) {
        if (site.host_count < 1 || site.topology->nodes[0].hosts != site.host_count) abort();
        ash_site_fini(&site);
    }
    return 0;
}

/* Fuzz target: mapped pages of metrics, which other users of a machine write. Everything that is read lies in the page. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "record/metrics_page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_metrics_page_metric metric;
    struct ash_metrics_page page;
    uint64_t *copy = malloc(size + 8); /* aligned, as a page is */
    size_t cursor = 0, before = 0;

    if (copy == NULL) return 0;
    memcpy(copy, data, size);
    if (ash_metrics_page_view(copy, size, &page, NULL) == 0)
        while (ash_metrics_page_next(&page, &cursor, &metric) == 1) {
            const char *end = (const char *)copy + size;

            if (cursor <= before || metric.name < (const char *)copy || metric.help + metric.help_bytes > end) abort();
            if (metric.bound_count > ASH_METRIC_BUCKETS_MAX) abort();
            before = cursor;
        }
    free(copy);
    return 0;
}

/* Fuzz target: rings of records that processes leave. Records are whole, and there are no more than the ring holds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "record/ring_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_ring_view view = {0};
    volatile uint8_t sum = 0;
    char label[16];

    if (ash_ring_parse(data, size, &view, NULL) < 0) return 0;
    if (view.count * view.record_bytes > size) abort();
    for (size_t i = 0; i < view.count * view.record_bytes; i++)
        sum = (uint8_t)(sum + view.records[i]);
    ash_ring_label(&view, "rank", label, sizeof(label));
    ash_ring_view_fini(&view);
    return 0;
}

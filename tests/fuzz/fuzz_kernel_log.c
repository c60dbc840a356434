/* Fuzz target: records and lines of a kernel log. Events are in bounds and keep a node's state consistent. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/health/node_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ash_node_state state;
    struct ash_kernel_record record;
    struct ash_kernel_event event;
    char *line;

    ash_kernel_record_parse((const char *)data, size, &record);
    if (record.text < (const char *)data || record.text + record.text_bytes > (const char *)data + size) abort();
    line = strndup(size > 0 ? record.text : "", record.text_bytes);
    if (line == NULL) return 0;
    if (ash_kernel_log_judge(line, &event)) {
        if (event.kind >= ASH_KERNEL_KINDS || event.means == NULL ||
            memchr(event.part, '\0', sizeof(event.part)) == NULL)
            abort();
        ash_node_state_event(&state, &event, line, 1);
        if (state.count > ASH_NODE_FINDINGS_MAX) abort();
    }
    free(line);
    return 0;
}

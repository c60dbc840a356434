/* Fuzz target: records and lines of a kernel log. Events are in bounds and keep a node's state consistent. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/health/diagnose.h"
#include "observe/health/node_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* All of it as a log, of a node and of anything. */
static void diagnose(const uint8_t *data, size_t size)
{
    struct ash_diagnose *diagnose = NULL;

    if (ash_diagnose_open(&diagnose, NULL) < 0) return;
    ash_diagnose_kernel(diagnose, size > 0 ? (const char *)data : "", size, "node", false);
    ash_diagnose_kernel(diagnose, size > 0 ? (const char *)data : "", size, "log", true);
    for (size_t i = 0; i < ash_diagnose_finding_count(diagnose); i++)
        if (ash_diagnose_finding(diagnose, i)->layer >= ASH_HEALTH_COUNT) abort();
    ash_diagnose_close(diagnose);
}

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
    diagnose(data, size);
    return 0;
}

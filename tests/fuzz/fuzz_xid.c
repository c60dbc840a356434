/* Fuzz target: kernel logs with XIDs. Codes must be in bounds, and every GPU that is read can be judged. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/health/xid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_codes(const uint8_t *data, size_t size)
{
    struct ash_xid_gpu gpu;
    char *text = size > 0 ? strndup((const char *)data, size) : NULL;

    if (text != NULL && ash_xid_codes_parse(text, &gpu, NULL) == 0 && gpu.count == 0) abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ash_xid_setting setting = {.kind = ASH_XID_A100, .strict = true};
    static struct ash_xid_log log;
    struct ash_xid_answer answer;

    read_codes(data, size);
    if (ash_xid_log_parse((const char *)data, size, &log, NULL) < 0) return 0;
    for (size_t i = 0; i < log.gpu_count; i++) {
        if (log.gpus[i].count == 0 || memchr(log.gpus[i].address, '\0', sizeof(log.gpus[i].address)) == NULL) abort();
        ash_xid_judge(&setting, &log.gpus[i], &answer);
        if (answer.count != log.gpus[i].count || answer.decided >= answer.count) abort();
    }
    return 0;
}

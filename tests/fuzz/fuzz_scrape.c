/* Fuzz target: scrapes of exporters. Every scrape can be judged; the first half is taken as the earlier scrape, and the
 * whole as a log too. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "observe/health/diagnose.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(struct ash_diagnose *diagnose, const uint8_t *data, size_t size, bool before)
{
    struct ash_scrape *scrape = NULL;

    if (ash_scrape_parse((const char *)data, size, "fuzz", &scrape, NULL) < 0) return;
    if (ash_scrape_count(scrape) == 0) abort();
    (void)ash_diagnose_add(diagnose, scrape, "node", before, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_diagnose *diagnose = NULL;

    if (ash_diagnose_open(&diagnose, NULL) < 0) return 0;
    add(diagnose, data, size, false);
    add(diagnose, data, size / 2, true);
    (void)ash_diagnose_log(diagnose, (const char *)data, size, "fuzz", NULL);
    if (ash_diagnose_run(diagnose, 15, NULL) == 0) {
        size_t count = ash_diagnose_finding_count(diagnose);

        for (size_t i = 0; i < count; i++)
            if (ash_diagnose_finding(diagnose, i)->means == NULL) abort();
    }
    ash_diagnose_close(diagnose);
    return 0;
}

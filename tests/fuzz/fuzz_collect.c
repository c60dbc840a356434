/* Fuzz target: files of /proc and /sys as the collectors parse them. The first byte picks the parser. What comes out must be text
 * that a scrape can be read from, or nothing. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/collect/lustre.h"
#include "observe/collect/mounts.h"
#include "observe/collect/parse.h"
#include "observe/collect/queue.h"
#include "observe/health/scrape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(unsigned which, char *text, struct ash_str *out)
{
    struct ash_lustre_out lustre = {0};
    struct ash_mount mount;

    if (which < ash_parsers_host_count) ash_parsers_host[which].parse(text, out);
    which -= (unsigned)ash_parsers_host_count;
    if (which < ash_parsers_net_count) ash_parsers_net[which].parse(text, out);
    which -= (unsigned)ash_parsers_net_count;
    if (which == 0) ash_parsers_disk[0].parse(text, out);
    if (which == 1)
        while (ash_mounts_next(&text, &mount) == 1)
            if (mount.path[0] != '/' || mount.device == NULL || mount.type == NULL) abort();
    if (which == 2) {
        ash_lustre_evictions(text);
        ash_lustre_stats(text, "fs", &lustre);
        if (lustre.calls.size_bytes > 0) ash_str_add(out, lustre.calls.data, lustre.calls.size_bytes);
    }
    if (which == 3) ash_queue_jobs(text, out);
    if (which == 4) ash_queue_nodes(text, out);
    ash_str_fini(&lustre.bytes), ash_str_fini(&lustre.calls), ash_str_fini(&lustre.seconds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_scrape *scrape = NULL;
    struct ash_str out = {0};
    char *text;

    if (size == 0) return 0;
    text = strndup((const char *)data + 1, size - 1);
    if (text == NULL) return 0;
    parse(data[0] % 17, text, &out);
    if (out.data != NULL && ash_scrape_parse(out.data, out.size_bytes, "fuzz", &scrape, NULL) == 0 &&
        ash_scrape_skipped(scrape) > 0)
        abort();
    ash_scrape_close(scrape);
    ash_str_fini(&out);
    free(text);
    return 0;
}

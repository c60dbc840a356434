/* recent: days of ended ranks and servers lie in a folder of pages, and would bury those that run. */
#include "observe/page/recent.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "observe/ranks/run_id.h"

#define SHOWN_S 600.0

void ash_recent_keep(json_t *processes, double now_s)
{
    for (size_t i = json_array_size(processes); i-- > 0;) {
        const json_t *process = json_array_get(processes, i), *seen = json_object_get(process, "seen");

        if (json_is_false(json_object_get(process, "alive")) && now_s - json_number_value(seen) > SHOWN_S)
            json_array_remove(processes, i);
    }
}

void ash_recent_keep_runs(json_t *ranks, const char *const *run_ids, size_t run_count)
{
    for (size_t i = json_array_size(ranks); run_count > 0 && i-- > 0;) {
        const char *id = json_string_value(json_object_get(json_array_get(ranks, i), ASH_RUN_ID_LABEL));
        bool is_named = false;

        for (size_t r = 0; r < run_count && id != NULL; r++)
            is_named |= strcmp(id, run_ids[r]) == 0;
        if (!is_named) json_array_remove(ranks, i);
    }
}

const char *ash_folder_id(const char *dir, char buf[ASH_FOLDER_ID_BYTES])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    char boot[64] = "";
    struct stat facts;

    buf[0] = '\0';
    if (file != NULL && fgets(boot, sizeof(boot), file) != NULL && stat(dir, &facts) == 0)
        snprintf(buf, ASH_FOLDER_ID_BYTES, "%.*s/%jx/%jx", (int)strcspn(boot, "\n"), boot, (uintmax_t)facts.st_dev,
                 (uintmax_t)facts.st_ino);
    if (file != NULL) fclose(file);
    return buf;
}

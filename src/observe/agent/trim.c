/* What starting up left in memory is given back: a daemon is there all year, and libraries that it hardly uses begin
 * with tables and code for everything. Pages of files that were only read come back from the page cache where they are
 * needed, so this costs a page fault each and nothing else. */
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "observe/agent/agent_priv.h"

/* A mapping of /proc/self/smaps. */
struct mapping {
    unsigned long begin, end;
    bool is_file, is_written; /* may be written, or was: relocated tables */
};

static void give_back(const struct mapping *mapping)
{
    if (mapping->end > mapping->begin && mapping->is_file && !mapping->is_written)
        (void)madvise((void *)mapping->begin, mapping->end - mapping->begin, MADV_DONTNEED); /* only advice */
}

void ash_agent_trim(void)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    struct mapping mapping = {0}, found = {0};
    char line[512], rights[5], path[256];
    unsigned long kib;

    malloc_trim(0);
    if (file == NULL) return;
    while (fgets(line, sizeof(line), file) != NULL) {
        path[0] = '\0';
        if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %255s", &found.begin, &found.end, rights, path) >= 3) {
            give_back(&mapping);
            mapping = found;
            mapping.is_file = path[0] == '/' && strncmp(path, "/dev/", 5) != 0;
            mapping.is_written = strchr(rights, 'w') != NULL || rights[3] != 'p';
        } else if (sscanf(line, "Anonymous: %lu", &kib) == 1 && kib > 0) {
            mapping.is_written = true;
        }
    }
    fclose(file); /* the last one is the kernel's own */
}

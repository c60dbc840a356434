/* NVIDIA's fabric manager is a process; it manages NVSwitches, which their driver lists below /proc. */
#include "observe/collect/fabric_manager.h"

#include <stdio.h>
#include <string.h>

struct search {
    const struct ash_host_files *source;
    bool has_process, has_kernel, is_found;
};

static void visit_process(void *ctx, const char *name)
{
    struct search *search = ctx;
    char path[300], comm[64];

    if (name[strspn(name, "0123456789")] != '\0' || search->is_found) return;
    snprintf(path, sizeof(path), "/proc/%.200s/comm", name);
    if (ash_host_line(search->source, path, comm, sizeof(comm)) < 0) return;
    search->has_process = true;
    search->has_kernel = search->has_kernel || strcmp(comm, "kthreadd") == 0;
    search->is_found = strncmp(comm, "nv-fabricmanage", 15) == 0; /* names of processes are cut there */
}

static void visit_switch(void *ctx, const char *name)
{
    (void)name;
    *(size_t *)ctx += 1;
}

enum ash_fabric_manager ash_fabric_manager_look(const struct ash_host_files *source)
{
    struct search search = {.source = source};
    size_t switches = 0;

    ash_host_list(source, "/proc/driver/nvidia-nvswitch/devices", visit_switch, &switches);
    if (switches == 0) return ASH_FABRIC_MANAGER_NOT_NEEDED;
    ash_host_list(source, "/proc", visit_process, &search);
    if (search.is_found) return ASH_FABRIC_MANAGER_UP;
    /* In a container's PID namespace the host's processes are invisible. A recorded tree is complete. */
    if (source->root[0] == '\0' ? !search.has_kernel : !search.has_process) return ASH_FABRIC_MANAGER_UNSEEN;
    return ASH_FABRIC_MANAGER_DOWN;
}

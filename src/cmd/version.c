/* ashlar version: what this build is and what it found to build with. */
#include "cmd/cmd.h"

#include <stdio.h>

#include "build_info.h"

static void print_feature(const char *name, const char *found)
{
    printf("  %-10s %s\n", name, found[0] != '\0' ? found : "no");
}

static int run(int argc, char **argv)
{
    (void)argc, (void)argv;
    printf("ashlar %s (%s, %s%s%s)\n", ASH_BUILD_VERSION, ASH_BUILD_COMPILER, ASH_BUILD_TYPE,
           ASH_BUILD_SANITIZE[0] != '\0' ? ", sanitizers: " : "", ASH_BUILD_SANITIZE);
    print_feature("cuda", "");
    print_feature("libfabric", ASH_BUILD_FABRIC);
    print_feature("hwloc", ASH_BUILD_HWLOC);
    return 0;
}

const struct ash_cmd ash_cmd_version = {"version", "what this build is and what it can use", run};

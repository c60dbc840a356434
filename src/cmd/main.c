/* ashlar - the one program: finds the subcommand and runs it. */
#include "cmd/cmd.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

static const struct ash_cmd *const commands[] = {
    &ash_cmd_version,
};

static void print_usage(FILE *out)
{
    fprintf(out, "usage: ashlar COMMAND [arguments]\n\n");
    for (size_t i = 0; i < ASH_COUNT(commands); i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n`ashlar COMMAND --help` explains each.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return 0;
    }
    const char *name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    for (size_t i = 0; i < ASH_COUNT(commands); i++)
        if (strcmp(name, commands[i]->name) == 0) return commands[i]->run(argc - 1, argv + 1);
    fprintf(stderr, "ashlar: error: there is no command '%s'\n\n", argv[1]);
    print_usage(stderr);
    return 2;
}

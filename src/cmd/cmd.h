/* cmd - the subcommands. Each is one file that composes the floors below and decides nothing. */
#ifndef ASH_CMD_CMD_H
#define ASH_CMD_CMD_H

struct ash_cmd {
    const char *name;
    const char *summary; /* one line for `ashlar --help` */
    /* argv[0] is the command's name. Returns the exit code: 0, 1 for a failure that was reported, 2 for wrong usage. */
    int (*run)(int argc, char **argv);
};

extern const struct ash_cmd ash_cmd_version;

#endif

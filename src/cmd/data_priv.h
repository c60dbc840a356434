/* data_priv - the subcommands of `ashlar data`, one file each. */
#ifndef ASH_CMD_DATA_PRIV_H
#define ASH_CMD_DATA_PRIV_H

#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_data_tokenize;
extern const struct ash_cmd ash_cmd_data_arithmetic;
extern const struct ash_cmd ash_cmd_data_info;

/* What a finished data folder holds, in a few lines on standard output. A failure is reported; returns the exit code.
 */
int ash_cmd_data_describe(const char *dir);

#endif

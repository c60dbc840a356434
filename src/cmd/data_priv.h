/* data_priv - the subcommands of `ashlar data`, one file each. */
#ifndef ASH_CMD_DATA_PRIV_H
#define ASH_CMD_DATA_PRIV_H

#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_data_tokenize;
extern const struct ash_cmd ash_cmd_data_arithmetic;
extern const struct ash_cmd ash_cmd_data_info;
extern const struct ash_cmd ash_cmd_data_chat;
extern const struct ash_cmd ash_cmd_data_show;
extern const struct ash_cmd ash_cmd_data_dedup;
extern const struct ash_cmd ash_cmd_data_mix;
extern const struct ash_cmd ash_cmd_data_train_tokenizer;

struct ash_data_manifest;

/* Facts of the data folder dir, which manifest describes, as an object: the caller owns it. */
json_t *ash_cmd_data_facts(const char *dir, const struct ash_data_manifest *manifest);
/* One line of facts on standard output. */
void ash_cmd_data_print_summary(const json_t *facts);
/* More lines: end token, sizes, tokenizer, sources. */
void ash_cmd_data_print_details(const json_t *facts);

/* Print a finished data folder's contents in one line on standard output. A failure is reported; returns the exit
 * code. */
int ash_cmd_data_describe(const char *dir);

#endif

/* The subcommands of `ashlar run`. */
#ifndef ASH_CMD_RUN_PRIV_H
#define ASH_CMD_RUN_PRIV_H

#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_run_cost;

/* Ask the server at url for its metrics and print the cost of its tokens since it was started, at a price of the whole
 * server. Returns 0, -EINVAL (it has no such metrics) or an error of ash_fetch. */
int ash_cmd_show_server_cost(const char *url, double usd_hour, bool as_json, struct ash_err *err);

#endif

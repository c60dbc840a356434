/* The subcommands of `ashlar catalog`, and the flag that every command with a catalog has. */
#ifndef ASH_CMD_CATALOG_PRIV_H
#define ASH_CMD_CATALOG_PRIV_H

#include "base/opts.h"
#include "cmd/cmd.h"
#include "infra/catalog.h"

extern const struct ash_cmd ash_cmd_catalog_ls;
extern const struct ash_cmd ash_cmd_catalog_show;

/* `plan.catalog`: files of one's own, from --catalog, a job file or ASHLAR_PLAN_CATALOG. Bind it next to the command's
 * own table: `{&ash_catalog_table, &files}`. */
struct ash_catalog_flags {
    struct ash_opt_list catalog;
};

extern const struct ash_opt_table ash_catalog_table;

/* The built-in catalog and the files of flags. */
int ash_cmd_catalog_open(const struct ash_catalog_flags *flags, struct ash_catalog **catalog_out, struct ash_err *err);

#endif

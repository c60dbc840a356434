/* plan_priv - the subcommands of `ashlar plan`, and what they have in common. */
#ifndef ASH_CMD_PLAN_PRIV_H
#define ASH_CMD_PLAN_PRIV_H

#include "cmd/catalog_priv.h"
#include "cmd/cmd.h"
#include "plan/consts.h"

extern const struct ash_cmd ash_cmd_plan_audit;
extern const struct ash_cmd ash_cmd_plan_diagnose;
extern const struct ash_cmd ash_cmd_plan_goodput;
extern const struct ash_cmd ash_cmd_plan_serve;
extern const struct ash_cmd ash_cmd_plan_constants;
extern const struct ash_cmd ash_cmd_plan_machines;
extern const struct ash_cmd ash_cmd_plan_memory;
extern const struct ash_cmd ash_cmd_plan_models;
extern const struct ash_cmd ash_cmd_plan_place;
extern const struct ash_cmd ash_cmd_plan_rl;
extern const struct ash_cmd ash_cmd_plan_train;
extern const struct ash_cmd ash_cmd_plan_validate;
extern const struct ash_cmd ash_cmd_plan_xid;

/* --catalog and --set. Bind it beside the command's own table: `{&ash_plan_table, &flags.plan}`. */
struct ash_plan_flags {
    struct ash_catalog_flags machines;
    struct ash_opt_list set;
};

extern const struct ash_opt_table ash_plan_table;

/* Run a command with its own flags and those of ash_plan_table; own.object is what respond gets. Returns the exit code.
 */
int ash_plan_run(const struct ash_cmd_usage *usage, struct ash_opt_binding own, struct ash_plan_flags *plan,
                 ash_cmd_respond_fn respond, int argc, char **argv);

/* What a prediction rests on. */
struct ash_plan_facts {
    struct ash_consts consts;
    struct ash_catalog *catalog;
};

/* The built-in constants and machines, changed as flags say. */
int ash_plan_facts_open(const struct ash_plan_flags *flags, struct ash_plan_facts *facts_out, struct ash_err *err);
/* A zeroed struct is fine. */
void ash_plan_facts_close(struct ash_plan_facts *facts);

#endif

/* plan_audit_priv - what `ashlar plan audit` found, on its way to table, JSON and picture. */
#ifndef ASH_CMD_PLAN_AUDIT_PRIV_H
#define ASH_CMD_PLAN_AUDIT_PRIV_H

#include "plan/audit/audit.h"

struct ash_audit_answer {
    struct ash_consts consts;
    struct ash_audit_job job;
    struct ash_audit audit;
};

/* Print the tables for people. */
void ash_audit_print_table(const struct ash_audit_answer *answer);
/* Print one JSON object. Returns 0 or a negative errno with the reason in err. */
int ash_audit_print_json(const struct ash_audit_answer *answer, struct ash_err *err);
/* Exposed share of the step over EP, plain and two-level. */
int ash_audit_draw(const struct ash_audit_answer *answer, const char *path, struct ash_err *err);
/* Predictions compared with published measurements of expert traffic, as a table or as JSON. */
int ash_audit_print_check(const struct ash_consts *consts, const struct ash_catalog *catalog, bool as_json,
                          struct ash_err *err);

#endif

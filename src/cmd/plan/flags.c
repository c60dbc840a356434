/* What every command that predicts is told besides its question: machines of one's own, other constants. */
#include "cmd/plan/plan_priv.h"

#include "base/assert.h"

#define FIELD(name) offsetof(struct ash_plan_flags, name)

static const struct ash_opt opts[] = {
    {"catalog", ASH_OPT_LIST, FIELD(machines.catalog), NULL, "YAML files with machines of your own", 0, 0, NULL},
    {"set", ASH_OPT_LIST, FIELD(set), NULL, "name=value of a constant of the cost model (ashlar plan constants)", 0, 0,
     NULL},
};

const struct ash_opt_table ash_plan_table = {
    .section = "", .help = "machines and constants", .opts = opts, .count = ASH_COUNT(opts)};

int ash_plan_run(const struct ash_cmd_usage *usage, struct ash_opt_binding own, struct ash_plan_flags *plan,
                 ash_cmd_respond_fn respond, int argc, char **argv)
{
    const struct ash_opt_binding bindings[] = {own, {&ash_plan_table, plan}};
    const struct ash_cmd_form form = {.usage = usage,
                                      .bindings = bindings,
                                      .binding_count = ASH_COUNT(bindings),
                                      .respond = respond,
                                      .flags = own.object};

    return ash_cmd_run(&form, argc, argv);
}

int ash_plan_facts_open(const struct ash_plan_flags *flags, struct ash_plan_facts *facts_out, struct ash_err *err)
{
    struct ash_plan_facts facts = {.consts = ash_consts_default()};
    int rc = ash_consts_set_all(&facts.consts, flags->set.items, flags->set.count, err);

    if (rc == 0) rc = ash_cmd_catalog_open(&flags->machines, &facts.catalog, err);
    if (rc == 0) *facts_out = facts;
    return rc;
}

void ash_plan_facts_close(struct ash_plan_facts *facts)
{
    ash_catalog_close(facts->catalog);
}

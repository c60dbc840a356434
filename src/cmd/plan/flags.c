/* The flags that all predicting commands share: machines of one's own, other constants. */
#include "cmd/plan/plan_priv.h"

#include "base/assert.h"

#define FIELD(name) offsetof(struct ash_plan_flags, name)

const char *const ash_plan_precisions[] = {"any", "bf16", "fp8", "fp4", NULL};

static const struct ash_opt plan_opts[] = {
    {"catalog", ASH_OPT_LIST, FIELD(machines.catalog), NULL, "YAML files with machines of your own", 0, 0, NULL},
    {"set", ASH_OPT_LIST, FIELD(set), NULL, "name=value of a constant of the cost model (ashlar plan constants)", 0, 0,
     NULL},
};

const struct ash_opt_table ash_plan_table = {
    .section = "", .help = "machines and constants", .opts = plan_opts, .count = ASH_COUNT(plan_opts)};

int ash_plan_answer(const struct ash_plan_flags *plan, ash_plan_answer_fn answer, const void *flags, const char *word)
{
    struct ash_plan_facts facts = {.consts = ash_consts_default()};
    struct ash_err err = {0};
    int rc = ash_consts_set_all(&facts.consts, plan->set.items, plan->set.count, &err);

    if (rc == 0) rc = ash_cmd_catalog_open(&plan->machines, &facts.catalog, &err);
    if (rc == 0) rc = answer(flags, &facts, word, &err);
    ash_catalog_close(facts.catalog);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct ash_plan_question *question = ctx;
    int code = question->misused(question->flags, opts);

    return code != 0 ? code : ash_plan_answer(question->plan, question->answer, question->flags, word);
}

int ash_plan_run(const struct ash_plan_question *question, int argc, char **argv)
{
    const struct ash_cmd_form form = {
        .usage = question->usage,
        .bindings = {{question->table, question->flags}, {&ash_plan_table, question->plan}},
        .respond = respond,
        .flags = question};

    return ash_cmd_run(&form, argc, argv);
}

/* ashlar plan machines: the same training job on every kind of machine, cheapest first. */
#include "base/assert.h"
#include "cmd/plan/offers.h"

struct flags {
    const char *model;
    double tokens;
    bool json;
    struct ash_plan_offers_flags offers;
    struct ash_plan_flags plan;
};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt machines_opts[] = {
    ASH_PLAN_OPT_MODEL(FIELD(model)),
    {"tokens", ASH_OPT_DOUBLE, FIELD(tokens), NULL, "tokens to train on (15T, 15e12)", 1, 1e18, NULL},
    ASH_PLAN_OPT_JSON(FIELD(json)),
};

static const struct ash_opt_table machines_table = {
    .section = "", .help = "the job", .opts = machines_opts, .count = ASH_COUNT(machines_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan machines --model DIR|NAME --tokens N (--gpus N | --days X) [flags]",
    .about = "Searches the best layout of a training job on every kind of machine, with as many GPUs each, or with as\n"
             "many machines as finish in time, and prints what each would take: layout, days, dollars, kilowatts, and\n"
             "what holds it back. Cheapest first. `ashlar plan train` says more about one of them.",
    .examples = "  ashlar plan machines --model llama-3.1-70b --tokens 2e12 --days 30\n"
                "  ashlar plan machines --model deepseek-v3 --tokens 1e12 --gpus 1024 --seq 4096 --global-batch 4096\n"
                "  ashlar plan machines --model mine --tokens 1e11 --days 7 --machines p5.48xlarge,rack --catalog "
                "mine.yaml",
};

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *word, struct ash_err *err)
{
    static struct ash_plan_offers offers; /* large; one command per process */
    const struct flags *flags = ctx;
    struct ash_shape shape;
    int rc = ash_shape_find(flags->model, &shape, err);

    (void)word;
    if (rc == 0) rc = ash_plan_offers_find(&flags->offers, facts, &shape, flags->tokens, &offers, err);
    if (rc < 0) return rc;
    if (flags->json)
        return ash_cmd_print_json(json_pack("{s:s, s:f, s:o}", "model", shape.name, "tokens", flags->tokens, "machines",
                                            ash_plan_offers_encode(&offers)),
                                  err);
    ash_plan_offers_print(&offers);
    return 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = ctx;
    int code;

    (void)opts;
    if (flags->model == NULL || flags->tokens <= 0)
        return ash_cmd_misuse("plan machines", "say which model (--model llama-3.1-70b) and how many tokens (--tokens "
                                               "2e12)");
    code = ash_plan_offers_misused("plan machines", &flags->offers);
    return code != 0 ? code : ash_plan_answer(&flags->plan, answer_it, flags, word);
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&machines_table, &flags},
                                                   {&ash_plan_offers_table, &flags.offers},
                                                   {&ash_plan_table, &flags.plan}},
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_plan_machines = {"machines", "which machines for a training job: days and dollars of each",
                                              run};

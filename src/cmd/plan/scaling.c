/* ashlar plan scaling: which model to train on how many tokens, by the law of a table of runs, and its cost: the
 * machines, days and dollars of `ashlar plan machines`. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "cmd/plan/offers.h"
#include "cmd/plan/text.h"
#include "post/scaling/study.h"

#define FLOPS_LOW 1e15 /* of runs that a price is looked for */
#define FLOPS_HIGH 1e30
#define USD_ROUNDS 20      /* of halving: operations are found to a hundred-thousandth */
#define PARAMS_MIDDLE 1e11 /* sizes that no model has are far below or above */
#define SMALLER_COUNT 3    /* models of a half, a quarter, an eighth of the size, with the same loss */
#define FAR_AWAY 100.0     /* operations beyond the largest run of the table that are worth a warning */

struct flags {
    double loss, flops, usd, params, tokens, vocab;
    bool json;
    struct ash_scaling_study_opts fit;
    struct ash_plan_offers_flags offers;
    struct ash_plan_flags plan;
};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt run_opts[] = {
    {"loss", ASH_OPT_DOUBLE, FIELD(loss), "0", "reach this loss with the fewest operations", 0, 1e6, NULL},
    {"flops", ASH_OPT_DOUBLE, FIELD(flops), "0", "or: the lowest loss with this number of operations", 0, 1e30, NULL},
    {"usd", ASH_OPT_DOUBLE, FIELD(usd), "0", "or: the lowest loss for these dollars, on the cheapest machine", 0, 1e15,
     NULL},
    {"params", ASH_OPT_DOUBLE, FIELD(params), "0", "or: a run of this number of parameters ...", 0, 1e15, NULL},
    {"tokens", ASH_OPT_DOUBLE, FIELD(tokens), "0", "... on this number of tokens", 0, 1e18, NULL},
    {"vocab", ASH_OPT_DOUBLE, FIELD(vocab), "128256", "vocabulary of the model", 1, 1e9, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
};
static const struct ash_opt_table run_table = {
    .section = "", .help = "the run", .opts = run_opts, .count = ASH_COUNT(run_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan scaling RUNS.csv (--loss L | --flops C | --usd X | --params N --tokens D)\n"
                "(--gpus N | --days X) [flags]",
    .about =
        "Fits a law to a table of runs (see `ashlar scaling fit`) and plans the run that it recommends: parameters\n"
        "and tokens, a dense model of that size, its loss with an interval, smaller models that reach the same\n"
        "loss with more tokens, and the machines, days and dollars of each offer, cheapest first.",
    .examples = "  ashlar plan scaling runs.csv --loss 2.0 --days 30\n"
                "  ashlar plan scaling runs.csv --tied --usd 250000 --gpus 256 --machines p5.48xlarge\n"
                "  ashlar plan scaling runs.csv --params 7e9 --tokens 140e9 --days 7",
};

/* The run, and the results. */
struct answer {
    const struct flags *flags;
    const struct ash_plan_facts *facts;
    struct ash_scaling_study study;
    struct ash_shape shape;
    double params, tokens, loss; /* of the shape */
    struct ash_scaling_interval interval;
    struct ash_plan_offers *offers;
};

static double flops_of(const struct answer *answer)
{
    return 6 * answer->params * answer->tokens;
}

/* ---- which run --------------------------------------------------------------------------------------------------- */

/* A model of about this number of parameters; the tokens make up for the difference. */
static int take_run(struct answer *answer, double params, double tokens, struct ash_err *err)
{
    int rc = ash_shape_sized(params, answer->flags->vocab, &answer->shape, err);

    if (rc < 0) return rc;
    answer->params = ash_shape_params(&answer->shape);
    answer->tokens = answer->flags->params > 0 ? tokens : params * tokens / answer->params;
    answer->loss = ash_scaling_loss(&answer->study.fit.law, answer->params, answer->tokens);
    return 0;
}

static int find_offers(struct answer *answer, struct ash_err *err)
{
    return ash_plan_offers_find(&answer->flags->offers, answer->facts, &answer->shape, answer->tokens, answer->offers,
                                err);
}

static int take_flops(struct answer *answer, double flops, struct ash_err *err)
{
    double params, tokens;
    int rc;

    ash_scaling_optimum(&answer->study.fit.law, flops, &params, &tokens);
    rc = take_run(answer, params, tokens, err);
    return rc < 0 ? rc : find_offers(answer, err);
}

/* Dollars of the cheapest offer; 0 if there is none, or none has a price. */
static double cheapest_usd(const struct answer *answer)
{
    const struct ash_compare_row *row = &answer->offers->rows[0];

    return answer->offers->count > 0 && row->found ? row->usd : 0;
}

/* Does the best run of these operations cost more than the budget? Where no model has its size (the vocabulary alone
 * has more parameters, or no dense model as many), it costs too little or too much. */
static bool is_too_dear(struct answer *answer, double flops)
{
    double params, tokens, usd;

    ash_scaling_optimum(&answer->study.fit.law, flops, &params, &tokens);
    if (take_flops(answer, flops, NULL) < 0) return params > PARAMS_MIDDLE;
    usd = cheapest_usd(answer);
    return usd == 0 || usd > answer->flags->usd;
}

/* More operations cost more: halve between some that are within the budget and some that are not. */
static int take_usd(struct answer *answer, struct ash_err *err)
{
    double low = log(FLOPS_LOW), high = log(FLOPS_HIGH);
    int rc;

    for (int i = 0; i < USD_ROUNDS; i++) {
        double middle = 0.5 * (low + high);

        if (is_too_dear(answer, exp(middle)))
            high = middle;
        else
            low = middle;
    }
    rc = take_flops(answer, exp(low), err);
    if (rc < 0 || cheapest_usd(answer) == 0 || cheapest_usd(answer) > answer->flags->usd)
        return ash_err_set(err, -EINVAL, "nothing can be trained for %.6g dollars on these machines: raise --usd",
                           answer->flags->usd);
    return 0;
}

static int take_loss(struct answer *answer, struct ash_err *err)
{
    const struct ash_scaling_law *law = &answer->study.fit.law;
    double flops = ash_scaling_flops(law, answer->flags->loss);

    if (!(flops <= FLOPS_HIGH))
        return ash_err_set(err, -ERANGE,
                           "no run of %g operations reaches a loss of %g: by this law it stays above %.4f", FLOPS_HIGH,
                           answer->flags->loss, exp(law->e));
    return take_flops(answer, flops, err);
}

static int choose_run(struct answer *answer, struct ash_err *err)
{
    const struct flags *flags = answer->flags;
    int rc;

    if (flags->loss > 0) return take_loss(answer, err);
    if (flags->flops > 0) return take_flops(answer, flags->flops, err);
    if (flags->usd > 0) return take_usd(answer, err);
    rc = take_run(answer, flags->params, flags->tokens, err);
    return rc < 0 ? rc : find_offers(answer, err);
}

/* ---- people ------------------------------------------------------------------------------------------------------ */

static double largest_flops(const struct ash_scaling_study *study)
{
    double largest = 0;

    for (size_t i = 0; i < study->count; i++)
        largest = fmax(largest, 6 * study->runs[i].params * study->runs[i].tokens);
    return largest;
}

static void print_smaller(const struct answer *answer)
{
    char params[ASH_PLAN_TEXT_BYTES], tokens[ASH_PLAN_TEXT_BYTES];
    bool has_any = false;

    for (int i = 1; i <= SMALLER_COUNT; i++) {
        double size = ldexp(answer->params, -i), more = ash_scaling_tokens(&answer->study.fit.law, size, answer->loss);

        if (isinf(more)) break;
        if (!has_any) printf("smaller   models with the same loss, cheaper to serve:\n");
        has_any = true;
        printf("          %s parameters, %s tokens, %.2f x the operations\n", ash_plan_text_count(size, params),
               ash_plan_text_count(more, tokens), 6 * size * more / flops_of(answer));
    }
}

static void print_answer(const struct answer *answer, const char *path)
{
    const struct ash_scaling_law *law = &answer->study.fit.law;
    const struct ash_shape *shape = &answer->shape;
    double largest = largest_flops(&answer->study);
    char params[ASH_PLAN_TEXT_BYTES], tokens[ASH_PLAN_TEXT_BYTES];

    printf("law       loss = %.4g + %.4g / params^%.4g + %.4g / tokens^%.4g, of %zu runs in %s\n", exp(law->e),
           exp(law->a), law->alpha, exp(law->b), law->beta, answer->study.count, path);
    printf("run       %s parameters, %s tokens, %.3g operations\n", ash_plan_text_count(answer->params, params),
           ash_plan_text_count(answer->tokens, tokens), flops_of(answer));
    printf("loss      %.4f (%g %% between %.4f and %.4f)\n", answer->loss, 100 * answer->flags->fit.share,
           answer->interval.low, answer->interval.high);
    printf("model     llama: %.0f layers, hidden %.0f, %.0f heads (%.0f of keys and values), ffn %.0f, vocab %.0f%s\n",
           shape->layers, shape->hidden, shape->heads, shape->kv_heads, shape->ffn, shape->vocab,
           shape->tied ? ", tied" : "");
    print_smaller(answer);
    if (flops_of(answer) > FAR_AWAY * largest)
        printf("reach     %.0f times the operations of the largest run in the table: train one in between first\n",
               flops_of(answer) / largest);
    printf("\n");
    ash_plan_offers_print(answer->offers);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static json_t *encode(const struct answer *answer)
{
    const struct ash_shape *shape = &answer->shape;
    json_t *model = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "layers", shape->layers, "hidden", shape->hidden,
                              "heads", shape->heads, "kv_heads", shape->kv_heads, "ffn", shape->ffn, "vocab",
                              shape->vocab, "tied", (int)shape->tied);

    return json_pack("{s:f, s:f, s:f, s:f, s:[f, f], s:o, s:o}", "params", answer->params, "tokens", answer->tokens,
                     "flops", flops_of(answer), "loss", answer->loss, "interval", answer->interval.low,
                     answer->interval.high, "model", model, "machines", ash_plan_offers_encode(answer->offers));
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *word, struct ash_err *err)
{
    static struct ash_plan_offers offers; /* large; one command per process */
    const struct flags *flags = ctx;
    struct answer answer = {.flags = flags, .facts = facts, .offers = &offers};
    int rc = ash_scaling_study_init(&answer.study, &flags->fit, word, err);

    if (rc == 0) rc = choose_run(&answer, err);
    if (rc == 0 &&
        ash_scaling_study_interval(&answer.study, &flags->fit, answer.params, answer.tokens, &answer.interval) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory for an interval");
    if (rc == 0 && flags->json)
        rc = ash_cmd_print_json(encode(&answer), err);
    else if (rc == 0)
        print_answer(&answer, word);
    ash_scaling_study_fini(&answer.study);
    return rc;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = ctx;
    int runs = (flags->loss > 0) + (flags->flops > 0) + (flags->usd > 0) + (flags->params > 0 && flags->tokens > 0);
    int code;

    (void)opts;
    if (runs != 1 || (flags->params > 0) != (flags->tokens > 0))
        return ash_cmd_misuse("plan scaling", "which run? give --loss, --flops, --usd, or --params and --tokens");
    code = ash_plan_offers_misused("plan scaling", &flags->offers);
    return code != 0 ? code : ash_plan_answer(&flags->plan, answer_it, flags, word);
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table fit_table = {"", "the fit", ash_scaling_study_settings, ash_scaling_study_setting_count};
    struct flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&run_table, &flags},
                                                   {&fit_table, &flags.fit},
                                                   {&ash_plan_offers_table, &flags.offers},
                                                   {&ash_plan_table, &flags.plan}},
                                      .takes_word = true,
                                      .missing_word = "which table of runs?",
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_plan_scaling = {"scaling", "which model and how many tokens for a loss or a budget", run};

/* ashlar run cost: what a run has used, what that costs, and what was foreseen. */
#include "cmd/run_priv.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "cmd/catalog_priv.h"
#include "infra/catalog.h"
#include "plan/price.h"
#include "train/run/control.h"
#include "train/run/bill.h"

#define LEDGER_FILE "ledger.json"
#define PLAN_FILE "plan.json"

struct cost_flags {
    double price, watts, co2;
    const char *machine, *plan;
    bool json;
    struct ash_catalog_flags machines;
};

#define FIELD(name) offsetof(struct cost_flags, name)
static const struct ash_opt cost_opts[] = {
    {"price", ASH_OPT_DOUBLE, FIELD(price), NULL,
     "dollars an hour of one process, or of a whole server; default: --machine's, else log.price of the run", 0, 1e6,
     NULL},
    {"machine", ASH_OPT_STRING, FIELD(machine), NULL,
     "machine of the catalog (p5.48xlarge): price and watts of one of its GPUs, for each process", 0, 0, NULL},
    {"watts", ASH_OPT_DOUBLE, FIELD(watts), NULL,
     "of one process; default: the limit of --machine's GPU, which is more than it takes", 0, 1e6, NULL},
    {"co2", ASH_OPT_DOUBLE, FIELD(co2), NULL, "kilograms of CO2 a kilowatt-hour; without it none is told", 0, 100,
     NULL},
    {"plan", ASH_OPT_STRING, FIELD(plan), NULL,
     "what ashlar plan train --json has foreseen; default: plan.json of the folder, if there is one", 0, 0, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
};
static const struct ash_opt_table cost_table = {"", "flags", cost_opts, ASH_COUNT(cost_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar run cost DIR|http://SERVER [--price X | --machine NAME]",
    .about = "Hours of a run's processes by what they went into, from its ledger: steps that count, work that was "
             "lost, saves,\nand waiting. Dollars, energy and CO2 if their rates are known; parts add up to the cent.\n"
             "Of a server: a million tokens, since it was started.",
    .examples =
        "  ashlar run cost runs/big --machine p5.48xlarge\n"
        "  ashlar plan train --model llama-3.1-8b --cluster 8xp5.48xlarge --tokens 1e11 --json > runs/big/plan.json\n"
        "  ashlar run cost runs/big --price 6.88 --watts 550 --co2 0.35",
};

/* What a plan has foreseen; 0: it does not say. */
struct foreseen {
    double hours, usd;
};

static int read_plan(const char *dir, const char *given, struct foreseen *foreseen_out, struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *json = NULL;
    const json_t *plan;
    int rc;

    if (given == NULL && (ash_path_join(path, sizeof(path), dir, PLAN_FILE) < 0 || !ash_path_exists(path))) return 0;
    rc = ash_json_load(given != NULL ? given : path, &json, err);
    if (rc < 0) return rc;
    plan = json_array_get(json_object_get(json, "plans"), 0);
    foreseen_out->hours = json_number_value(json_object_get(plan, "gpu_hours"));
    foreseen_out->usd = json_number_value(json_object_get(plan, "usd"));
    json_decref(json);
    if (foreseen_out->hours > 0.0) return 0;
    return ash_err_set(err, -EINVAL, "%s is not what `ashlar plan train --json` prints: it has no plans with gpu_hours",
                       given != NULL ? given : path);
}

/* Rates by the flags, then the catalog, then the run. */
static int find_rates(const struct cost_flags *flags, const struct ash_ledger *ledger, struct ash_bill_rates *rates_out,
                      struct ash_err *err)
{
    struct ash_bill_rates rates = {.usd_hour = flags->price, .watts = flags->watts, .kg_kwh = flags->co2};
    struct ash_catalog *catalog = NULL;
    const struct ash_machine *machine = NULL;
    int rc = 0;

    if (flags->machine != NULL) {
        rc = ash_cmd_catalog_open(&flags->machines, &catalog, err);
        if (rc == 0) rc = ash_catalog_machine(catalog, flags->machine, &machine, err);
        if (rc == 0 && rates.usd_hour == 0.0) rates.usd_hour = ash_price_gpu_hour(machine);
        if (rc == 0 && rates.watts == 0.0) rates.watts = machine->gpu->watts;
        ash_catalog_close(catalog);
    }
    if (rc < 0) return rc;
    if (rates.usd_hour == 0.0) rates.usd_hour = ledger->usd_hour;
    if (rates.kg_kwh > 0.0 && rates.watts == 0.0)
        return ash_err_set(err, -EINVAL, "--co2 needs the energy: give --watts, or --machine");
    *rates_out = rates;
    return 0;
}

static void print_text(const struct ash_bill *bill, const struct ash_bill_rates *rates, const struct foreseen *foreseen)
{
    bool is_priced = rates->usd_hour > 0.0;

    printf("%-11s %10s %8s%s\n", "", "rank hours", "share", is_priced ? "      dollars" : "");
    for (int kind = 0; kind <= ASH_BILL_KINDS; kind++) {
        bool is_total = kind == ASH_BILL_KINDS;
        double hours = is_total ? bill->total_hours : bill->hours[kind];

        printf("%-11s %10.4g %7.1f%%", is_total ? "total" : ash_bill_kind_name((enum ash_bill_kind)kind), hours,
               bill->total_hours > 0.0 ? hours / bill->total_hours * 100.0 : 0.0);
        if (is_priced) printf(" %12.2f", (double)(is_total ? bill->total_cents : bill->cents[kind]) / 100.0);
        printf("\n");
    }
    if (foreseen->hours > 0.0) {
        printf("%-11s %10.4g %7.1f%%", "foreseen", foreseen->hours,
               bill->total_hours > 0.0 ? foreseen->hours / bill->total_hours * 100.0 : 0.0);
        if (is_priced && foreseen->usd > 0.0) printf(" %12.2f", foreseen->usd);
        printf("\n");
    }
    if (is_priced) printf("price       $%.4g an hour of a process\n", rates->usd_hour);
    if (rates->watts > 0.0) printf("energy      %.4g kWh at %.4g W a process\n", bill->kwh, rates->watts);
    if (rates->kg_kwh > 0.0) printf("CO2         %.4g kg at %.4g kg/kWh\n", bill->co2_kg, rates->kg_kwh);
}

static int print_json(const struct ash_bill *bill, const struct ash_bill_rates *rates, const struct foreseen *foreseen)
{
    json_t *json = json_object(), *kinds = json_object();
    int rc;

    for (int kind = 0; kind < ASH_BILL_KINDS; kind++) {
        json_t *part = json_pack("{sf}", "rank_hours", bill->hours[kind]);

        if (rates->usd_hour > 0.0) json_object_set_new(part, "cents", json_integer(bill->cents[kind]));
        json_object_set_new(kinds, ash_bill_kind_name((enum ash_bill_kind)kind), part);
    }
    json_object_set_new(json, "kinds", kinds);
    json_object_set_new(json, "rank_hours", json_real(bill->total_hours));
    if (rates->usd_hour > 0.0) json_object_set_new(json, "cents", json_integer(bill->total_cents));
    if (rates->watts > 0.0) json_object_set_new(json, "kwh", json_real(bill->kwh));
    if (rates->kg_kwh > 0.0) json_object_set_new(json, "co2_kg", json_real(bill->co2_kg));
    if (foreseen->hours > 0.0) json_object_set_new(json, "foreseen_hours", json_real(foreseen->hours));
    if (foreseen->usd > 0.0) json_object_set_new(json, "foreseen_usd", json_real(foreseen->usd));
    rc = json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(json);
    return rc < 0 ? 1 : 0;
}

static int show_server(const char *url, const struct cost_flags *flags, struct ash_err *err)
{
    const struct ash_ledger none = {0};
    struct ash_bill_rates rates = {0};
    int rc = find_rates(flags, &none, &rates, err);

    if (rc < 0) return rc;
    if (rates.usd_hour <= 0.0)
        return ash_err_set(err, -EINVAL, "the cost of a server needs --price: dollars an hour of all its processes");
    return ash_cmd_show_server_cost(url, rates.usd_hour, flags->json, err);
}

static int show(const char *dir, const struct cost_flags *flags, struct ash_err *err)
{
    struct ash_run_status status = {.ranks = 1};
    struct ash_bill_rates rates;
    struct ash_ledger ledger;
    struct foreseen foreseen = {0};
    struct ash_bill bill;
    char path[PATH_MAX];
    int rc = ash_path_join(path, sizeof(path), dir, LEDGER_FILE);

    if (strncmp(dir, "http://", 7) == 0 || strncmp(dir, "https://", 8) == 0) return show_server(dir, flags, err);
    if (rc < 0) return ash_err_set(err, rc, "'%.60s...' is too long a path", dir);
    if (!ash_path_exists(path)) return ash_err_set(err, -ENOENT, "%s holds no run: it has no " LEDGER_FILE, dir);
    (void)ash_run_status_read(dir, &status, NULL);
    rc = ash_ledger_read(&ledger, path, (double)status.ranks, err);
    if (rc == 0) rc = find_rates(flags, &ledger, &rates, err);
    if (rc == 0) rc = read_plan(dir, flags->plan, &foreseen, err);
    if (rc < 0) return rc;
    bill = ash_bill_of(&ledger, &rates);
    if (flags->json) return print_json(&bill, &rates, &foreseen);
    print_text(&bill, &rates, &foreseen);
    return 0;
}

static int run_cost(int argc, char **argv)
{
    struct cost_flags flags = {0};
    struct ash_opt_binding bindings[] = {{&cost_table, &flags}, {&ash_catalog_table, &flags.machines}};
    const char *dir = NULL;
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, &dir, 1, &count);
    if (code == ASH_CMD_GO && count == 0)
        code = ash_cmd_misuse("run cost", "it takes the folder of a run, or the address of a server");
    if (code == ASH_CMD_GO) {
        code = show(dir, &flags, &err);
        if (code < 0) code = ash_cmd_fail(&err);
    }
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_run_cost = {"cost", "what a run has used and what that costs", run_cost};

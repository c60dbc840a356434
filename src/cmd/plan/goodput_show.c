/* What `ashlar plan goodput` found, as a table, as JSON and as a picture. */
#include "cmd/plan/goodput_priv.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/table.h"
#include "cmd/cmd.h"
#include "cmd/units.h"
#include "plan/chart.h"

#define CHART_POINTS 45 /* 64 to 131,072 in quarters of an octave */
#define CELL_BYTES 48

/* "47 s", "14.2 min", "3.10 h", "2.5 days". */
static const char *duration(double seconds, char *buf)
{
    if (seconds < 120)
        snprintf(buf, CELL_BYTES, "%.3g s", seconds);
    else if (seconds < 7200)
        snprintf(buf, CELL_BYTES, "%.1f min", seconds / 60);
    else if (seconds < 172800)
        snprintf(buf, CELL_BYTES, "%.2f h", seconds / 3600);
    else
        snprintf(buf, CELL_BYTES, "%.1f days", seconds / 86400);
    return buf;
}

static const char *bytes(double value, char *buf)
{
    return value > 0 ? ash_units_bytes((size_t)value, buf, ASH_UNITS_BYTES) : "-";
}

/* ---- storage ----------------------------------------------------------------------------------------------------- */

static double write_s(const struct ash_goodput_answer *answer)
{
    return answer->memory[0].state_bytes / answer->job.write_bytes_s;
}

/* From the level that answers most failures. */
static double restore_s(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind)
{
    const struct ash_goodput_way *way = &answer->way[kind];

    return way->has_fast ? way->fast.load_s : way->slow.load_s;
}

/* How old the newest state on shared storage can be: the maximal cost of a crash of everything. */
static double durable_age_s(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind)
{
    const struct ash_goodput_level *slow = &answer->way[kind].slow;

    return slow->work_s + slow->stall_s + slow->lag_s;
}

/* ---- table ------------------------------------------------------------------------------------------------------- */

typedef void (*cell_fn)(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf);

static void percent(double share, char *buf)
{
    snprintf(buf, CELL_BYTES, "%.2f %%", 100 * share);
}

static void cell_goodput(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    percent(answer->result[kind].shares.useful, buf);
}

static void cell_sim(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    snprintf(buf, CELL_BYTES, "%.2f +- %.2f", 100 * answer->sim[kind].shares.useful, 100 * answer->sim[kind].error);
}

static void cell_range(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    snprintf(buf, CELL_BYTES, "%.1f to %.1f", 100 * answer->sim[kind].low, 100 * answer->sim[kind].high);
}

static void cell_paper(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    percent(answer->result[kind].first_order, buf);
}

static void cell_interval(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    duration(answer->way[kind].slow.work_s, buf);
}

static void cell_young(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    if (answer->result[kind].young_s > 0)
        duration(answer->result[kind].young_s, buf);
    else
        snprintf(buf, CELL_BYTES, "-");
}

static void cell_fast(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    if (kind == ASH_GOODPUT_TIERED)
        duration(answer->way[kind].fast.work_s, buf);
    else
        snprintf(buf, CELL_BYTES, "%s", kind == ASH_GOODPUT_PEERS ? "every step" : "-");
}

static void cell_stall(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    percent(answer->result[kind].shares.stall + answer->result[kind].shares.overhead, buf);
}

static void cell_detect(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    percent(answer->result[kind].shares.detect, buf);
}

static void cell_restart(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    percent(answer->result[kind].shares.restart, buf);
}

static void cell_load(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    percent(answer->result[kind].shares.load, buf);
}

static void cell_redone(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    percent(answer->result[kind].shares.redone, buf);
}

static void cell_waiting(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    percent(answer->result[kind].shares.waiting, buf);
}

static void cell_write(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    (void)kind;
    duration(write_s(answer), buf);
}

static void cell_restore(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    duration(restore_s(answer, kind), buf);
}

static void cell_age(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    duration(durable_age_s(answer, kind), buf);
}

static void cell_host(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    char text[ASH_UNITS_BYTES];

    snprintf(buf, CELL_BYTES, "%s", bytes(answer->memory[kind].host_bytes_per_node, text));
}

static void cell_nvme(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    char text[ASH_UNITS_BYTES];

    snprintf(buf, CELL_BYTES, "%s", bytes(answer->memory[kind].nvme_bytes_per_node, text));
}

static void cell_hbm(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    char text[ASH_UNITS_BYTES];

    snprintf(buf, CELL_BYTES, "%s%s", bytes(answer->memory[kind].hbm_bytes_per_gpu, text),
             answer->memory[kind].fits ? "" : " !");
}

static double dollars_a_day(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind)
{
    return (1 - answer->result[kind].shares.useful) * answer->job.gpus * 24 * answer->job.dollars_per_gpu_hour;
}

static void cell_dollars(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind, char *buf)
{
    snprintf(buf, CELL_BYTES, "$%.0f", dollars_a_day(answer, kind));
}

static const struct {
    const char *label;
    cell_fn cell;
    bool with_spares, with_price;
} rows[] = {
    {"goodput", cell_goodput, false, false},
    {"  simulated", cell_sim, false, false},
    {"  runs, 5th to 95th of 100", cell_range, false, false},
    {"  first order, on paper", cell_paper, false, false},
    {"checkpoint every", cell_interval, false, false},
    {"  Young's interval", cell_young, false, false},
    {"copy to peers every", cell_fast, false, false},
    {"lost: checkpoints, copies", cell_stall, false, false},
    {"lost: detection", cell_detect, false, false},
    {"lost: restart", cell_restart, false, false},
    {"lost: loading state", cell_load, false, false},
    {"lost: steps done again", cell_redone, false, false},
    {"lost: waiting for nodes", cell_waiting, true, false},
    {"to write to storage", cell_write, false, false},
    {"to load after a failure", cell_restore, false, false},
    {"on storage, age at most", cell_age, false, false},
    {"host memory per node", cell_host, false, false},
    {"NVMe per node", cell_nvme, false, false},
    {"GPU memory per GPU", cell_hbm, false, false},
    {"lost per day", cell_dollars, false, true},
};

static void print_rows(const struct ash_goodput_answer *answer)
{
    struct ash_table table = {0};
    struct ash_str heads = {0};

    for (enum ash_goodput_kind k = 0; k < ASH_GOODPUT_KINDS; k++)
        ash_str_addf(&heads, "|>%s", ash_goodput_name(k));
    table.heads = heads.rc == 0 ? heads.data : "";
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        if ((rows[i].with_spares && answer->job.spares < 0) ||
            (rows[i].with_price && answer->job.dollars_per_gpu_hour <= 0))
            continue;
        ash_table_row(&table, "%s", rows[i].label);
        for (enum ash_goodput_kind k = 0; k < ASH_GOODPUT_KINDS; k++) {
            char cell[CELL_BYTES];

            rows[i].cell(answer, k, cell);
            ash_table_cell(&table, "%s", cell);
        }
    }
    ash_table_print(&table, stdout);
    ash_str_fini(&heads);
}

static void print_even(const struct ash_goodput_answer *answer, enum ash_goodput_kind a, enum ash_goodput_kind b,
                       const struct ash_goodput_break_even *even)
{
    char text[CELL_BYTES];

    if (!even->exists) {
        printf("%s and %s: %s is better at every failure rate up to one a minute\n", ash_goodput_name(a),
               ash_goodput_name(b),
               ash_goodput_name(answer->result[b].shares.useful > answer->result[a].shares.useful ? b : a));
        return;
    }
    printf("%s overtakes %s from a failure every %s (%.2g per GPU-hour)", ash_goodput_name(b), ash_goodput_name(a),
           duration(even->mtbf_s, text), even->failures_per_gpu_hour);
    if (even->gpus > 0) printf("; at today's rate from %.0f GPUs", ceil(even->gpus));
    printf("\n");
}

static void print_storage(const struct ash_goodput_answer *answer)
{
    char write[ASH_UNITS_BYTES], read[ASH_UNITS_BYTES];

    printf("shared storage%s%s takes %s/s and gives %s/s\n\n", answer->storage != NULL ? " " : "",
           answer->storage != NULL ? answer->storage : "", bytes(answer->job.write_bytes_s, write),
           bytes(answer->job.read_bytes_s, read));
}

void ash_goodput_print_table(const struct ash_goodput_answer *answer)
{
    const struct ash_goodput_job *job = &answer->job;
    char state[ASH_UNITS_BYTES], share[ASH_UNITS_BYTES], gap[CELL_BYTES], interval[CELL_BYTES];

    printf("%.4g billion parameters, %s of state (%s per GPU), %.0f GPUs: a failure every %s (%.3g per GPU-hour, %s)\n",
           job->params * 1e-9, bytes(answer->memory[0].state_bytes, state),
           bytes(answer->memory[0].state_bytes / job->gpus, share), job->gpus, duration(answer->way[0].mtbf_s, gap),
           job->failures_per_gpu_hour, answer->rate_source);
    print_storage(answer);
    print_rows(answer);
    printf("\n");
    for (enum ash_goodput_kind k = 1; k < ASH_GOODPUT_KINDS; k++)
        print_even(answer, k - 1, k, &answer->even[k]);
    print_even(answer, ASH_GOODPUT_SYNC, ASH_GOODPUT_PEERS, &answer->even[0]);
    printf(
        "copies with peers do not answer %.3g %% of failures (a node and its copy, power, a bad step already copied):\n"
        "  for these the checkpoint of every %s stays\n",
        100 * job->uncovered, duration(answer->way[ASH_GOODPUT_PEERS].slow.work_s, interval));
    for (enum ash_goodput_kind k = 0; k < ASH_GOODPUT_KINDS; k++)
        if (!answer->memory[k].fits) printf("%s does not fit into the memory given\n", ash_goodput_name(k));
    printf("verdict: %s, %.1f %% of the time is useful\n", ash_goodput_name(answer->best),
           100 * answer->result[answer->best].shares.useful);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *encode_shares(const struct ash_goodput_shares *shares)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "useful", shares->useful, "overhead", shares->overhead,
                     "checkpoint", shares->stall, "detect", shares->detect, "restart", shares->restart, "load",
                     shares->load, "redone", shares->redone, "waiting", shares->waiting);
}

static json_t *encode_sim(const struct ash_goodput_sim *sim)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:o}", "goodput", sim->shares.useful, "error", sim->error,
                     "low", sim->low, "high", sim->high, "window_s", sim->window_s, "failures",
                     (json_int_t)sim->failures, "runs", (json_int_t)sim->runs, "shares", encode_shares(&sim->shares));
}

static json_t *encode_memory(const struct ash_goodput_memory *memory)
{
    return json_pack("{s:f, s:f, s:f, s:b}", "host_bytes_per_node", memory->host_bytes_per_node, "nvme_bytes_per_node",
                     memory->nvme_bytes_per_node, "hbm_bytes_per_gpu", memory->hbm_bytes_per_gpu, "fits",
                     (int)memory->fits);
}

static json_t *encode_way(const struct ash_goodput_answer *answer, enum ash_goodput_kind kind)
{
    const struct ash_goodput_way *way = &answer->way[kind];
    const struct ash_goodput_result *result = &answer->result[kind];
    json_t *object =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "name", ash_goodput_name(kind), "goodput",
                  result->shares.useful, "first_order", result->first_order, "interval_s", way->slow.work_s, "young_s",
                  result->young_s, "daly_s", result->daly_s, "shares", encode_shares(&result->shares), "simulated",
                  encode_sim(&answer->sim[kind]), "memory", encode_memory(&answer->memory[kind]));

    if (object != NULL) {
        json_object_set_new(object, "restore_s", json_real(restore_s(answer, kind)));
        json_object_set_new(object, "durable_age_s", json_real(durable_age_s(answer, kind)));
    }
    if (object != NULL && way->has_fast) json_object_set_new(object, "copy_interval_s", json_real(way->fast.work_s));
    if (object != NULL && answer->job.dollars_per_gpu_hour > 0)
        json_object_set_new(object, "lost_usd_day", json_real(dollars_a_day(answer, kind)));
    return object;
}

static json_t *encode_even(enum ash_goodput_kind a, enum ash_goodput_kind b, const struct ash_goodput_break_even *even)
{
    json_t *gpus = even->gpus > 0 ? json_real(ceil(even->gpus)) : json_null();

    if (!even->exists)
        return json_pack("{s:s, s:s, s:n, s:n, s:o}", "from", ash_goodput_name(a), "to", ash_goodput_name(b),
                         "failures_per_gpu_hour", "mtbf_s", "gpus", gpus);
    return json_pack("{s:s, s:s, s:f, s:f, s:o}", "from", ash_goodput_name(a), "to", ash_goodput_name(b),
                     "failures_per_gpu_hour", even->failures_per_gpu_hour, "mtbf_s", even->mtbf_s, "gpus", gpus);
}

int ash_goodput_print_json(const struct ash_goodput_answer *answer, struct ash_err *err)
{
    json_t *ways = json_array(), *evens = json_array();

    for (enum ash_goodput_kind k = 0; k < ASH_GOODPUT_KINDS; k++) {
        json_array_append_new(ways, encode_way(answer, k));
        if (k > 0) json_array_append_new(evens, encode_even(k - 1, k, &answer->even[k]));
    }
    json_array_append_new(evens, encode_even(ASH_GOODPUT_SYNC, ASH_GOODPUT_PEERS, &answer->even[0]));
    return ash_cmd_print_json(
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:s, s:s?, s:f, s:f, s:f, s:s, s:o, s:o}", "params", answer->job.params,
                  "gpus", answer->job.gpus, "state_bytes", answer->memory[0].state_bytes, "failures_per_gpu_hour",
                  answer->job.failures_per_gpu_hour, "mtbf_s", answer->way[0].mtbf_s, "failure_source",
                  answer->rate_source, "storage", answer->storage, "write_bytes_s", answer->job.write_bytes_s,
                  "read_bytes_s", answer->job.read_bytes_s, "write_s", write_s(answer), "verdict",
                  ash_goodput_name(answer->best), "strategies", ways, "break_even", evens),
        err);
}

/* ---- picture ----------------------------------------------------------------------------------------------------- */

/* arXiv 2407.21783; 2509.16293; 2602.00277 before and after. */
static const struct ash_chart_mark published[] = {
    {16384, 0.90, "Llama 3, above 90 %"},
    {9600, 0.97, "ByteRobust"},
    {100000, 0.44, "FT-HSDP before"},
    {100000, 0.80, "FT-HSDP after"},
};

int ash_goodput_draw(const struct ash_goodput_answer *answer, const char *path, struct ash_err *err)
{
    double x[CHART_POINTS], y[ASH_GOODPUT_KINDS][CHART_POINTS];
    struct ash_chart_line lines[ASH_GOODPUT_KINDS];
    struct ash_goodput_job job = answer->job;
    struct ash_chart chart = {
        .title =
            "share of time that is useful, by number of GPUs at the same failure rate per GPU (circles: published)",
        .x_label = "GPUs",
        .y_label = "goodput, %",
        .x = x,
        .count = CHART_POINTS,
        .lines = lines,
        .line_count = ASH_GOODPUT_KINDS,
        .marks = published,
        .mark_count = ASH_COUNT(published),
        .here = answer->job.gpus,
        .y_max = 1,
        .y_scale = 100,
    };

    for (size_t i = 0; i < CHART_POINTS; i++)
        x[i] = 64 * pow(2, (double)i / 4);
    for (enum ash_goodput_kind k = 0; k < ASH_GOODPUT_KINDS; k++) {
        for (size_t i = 0; i < CHART_POINTS; i++) {
            struct ash_goodput_way way;
            struct ash_goodput_result result;

            job.gpus = x[i];
            ash_goodput_plan(&job, k, &way);
            ash_goodput_solve(&way, &result);
            y[k][i] = result.shares.useful;
        }
        lines[k] = (struct ash_chart_line){ash_goodput_name(k), y[k]};
    }
    return ash_chart_write(path, &chart, err);
}

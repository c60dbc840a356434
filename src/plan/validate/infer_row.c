/* Rows of published inference measurements, read as a replica under a load. */
#include "plan/validate/infer_row.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "plan/validate/row_cluster.h"
#include "plan/validate/row_shape.h"

#define TP_UNSTATED_MAX 8

struct reader {
    const struct ash_csv *csv;
    size_t row;
};

static const char *text(const struct reader *reader, const char *column)
{
    return ash_csv_field(reader->csv, reader->row, column);
}

static double number(const struct reader *reader, const char *column, double fallback)
{
    return ash_csv_number(reader->csv, reader->row, column, fallback);
}

static bool says(const struct reader *reader, const char *column, const char *word)
{
    return strcasestr(text(reader, column), word) != NULL;
}

/* ---- replica ----------------------------------------------------------------------------------------------------- */

static int degree(const struct reader *reader, const char *column)
{
    return (int)fmin(fmax(1, number(reader, column, 1)), 65536);
}

static bool says_degrees(const struct reader *reader)
{
    static const char *const columns[] = {"tp", "pp", "ep", "attn_dp"};

    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        if (number(reader, columns[i], 0) >= 1) return true;
    return false;
}

/* Degrees as columns and notes give them. A source that says that attention ran data-parallel means all its ranks. */
static void read_degrees(const struct reader *reader, struct ash_infer *infer)
{
    infer->tp = degree(reader, "tp");
    infer->pp = degree(reader, "pp");
    infer->ep = degree(reader, "ep");
    infer->attn_dp = degree(reader, "attn_dp");
    if (!says_degrees(reader)) { /* one replica over all of them: inside machines by tp, across by pp */
        double gpus = fmin(fmax(1, number(reader, "n_gpus", 1)), ASH_CLUSTER_GPUS_MAX);

        infer->tp = (int)fmin(gpus, TP_UNSTATED_MAX);
        infer->pp = (int)fmax(1, floor(gpus / infer->tp));
    }
    if (infer->attn_dp == 1 && infer->tp > 1 && says(reader, "note", "attention DP enabled")) {
        infer->attn_dp = infer->ep = infer->tp;
        infer->tp = 1;
    }
}

/* GPUs in all: one replica's where the row does not say. */
static double gpus_of(const struct reader *reader, const struct ash_infer *infer)
{
    return fmax(number(reader, "n_gpus", 0), ash_infer_gpus(infer));
}

static int read_replica(const struct ash_catalog *catalog, const struct reader *reader, struct ash_infer *infer,
                        struct ash_err *err)
{
    int rc = ash_row_shape(reader->csv, reader->row, &infer->shape, err);

    if (rc < 0) return rc;
    read_degrees(reader, infer);
    rc = ash_row_cluster(catalog, reader->csv, reader->row, gpus_of(reader, infer), &infer->cluster, err);
    if (rc < 0) return rc;
    infer->weights = ash_row_precision(reader->csv, reader->row, "weight_precision");
    infer->cache = ash_row_precision(reader->csv, reader->row, "kv_precision");
    infer->compute = infer->weights;
    if (infer->weights == ASH_GPU_FP4 && infer->cluster.machine.gpu->flops[ASH_GPU_FP4] <= 0)
        infer->compute = ASH_GPU_BF16;
    return 0;
}

/* ---- load and measurement ---------------------------------------------------------------------------------------- */

/* The load of one of these replicas. */
static void read_load(const struct reader *reader, double replicas, struct ash_infer_load *load)
{
    bool online = says(reader, "scenario", "online") || says(reader, "scenario", "latency");

    load->in_tokens = number(reader, "isl", 0);
    load->out_tokens = number(reader, "osl", 0);
    load->concurrency = number(reader, "batch_or_concurrency", 0);
    load->continuous = !says(reader, "scenario", "static");
    load->arrivals_s = number(reader, "qps_offered", 0); /* "inf" is no number */
    if (!online || load->concurrency <= 0) load->requests = number(reader, "num_requests", 0);
    load->concurrency /= replicas;
    load->arrivals_s /= replicas;
    load->requests /= replicas;
}

/* Output tokens/s of all replicas, however the row says it. */
static double total_rate(const struct reader *reader, const struct ash_infer_row *row)
{
    double out = row->load.out_tokens, rate = number(reader, "out_tok_s_total", 0);

    if (rate <= 0) rate = number(reader, "out_tok_s_gpu", 0) * gpus_of(reader, &row->infer);
    if (rate <= 0) rate = number(reader, "total_tok_s", 0) * out / (row->load.in_tokens + out);
    return rate > 0 ? rate : number(reader, "req_s", 0) * out;
}

/* Tokens/s if the row has them and they count, else the latencies. If prefill had its own machines, tokens/s
 * of the whole say little of one replica: time between tokens. */
static int read_measured(const struct reader *reader, double replicas, struct ash_infer_row *row, struct ash_err *err)
{
    double tokens_s = total_rate(reader, row) / replicas, ttft_s = number(reader, "ttft_ms_mean", 0) * 1e-3;
    double tpot_s = number(reader, "tpot_ms_mean", 0) * 1e-3;
    bool latency = says(reader, "trust", "use ITL only") || says(reader, "scenario", "disaggregated");

    if (latency && tpot_s > 0) {
        row->metric = ASH_INFER_TPOT_S;
        row->measured = tpot_s;
    } else if (tokens_s > 0) {
        row->metric = ASH_INFER_TOKENS_S;
        row->measured = tokens_s;
    } else {
        row->metric = ttft_s > 0 ? ASH_INFER_TTFT_S : ASH_INFER_TPOT_S;
        row->measured = ttft_s > 0 ? ttft_s : tpot_s;
    }
    if (row->measured > 0) return 0;
    return ash_err_set(
        err, -EINVAL,
        "no measurement (out_tok_s_total, out_tok_s_gpu, total_tok_s, req_s, ttft_ms_mean, tpot_ms_mean)");
}

int ash_infer_row_read(const struct ash_catalog *catalog, const struct ash_csv *csv, size_t row,
                       struct ash_infer_row *row_out, struct ash_err *err)
{
    const struct reader reader = {csv, row};
    struct ash_infer_row result = {0};
    double replicas;
    int rc = read_replica(catalog, &reader, &result.infer, err);

    if (rc < 0) return rc;
    replicas = fmax(1, floor(gpus_of(&reader, &result.infer) / ash_infer_gpus(&result.infer)));
    read_load(&reader, replicas, &result.load);
    if (!(result.load.in_tokens >= 1 && result.load.out_tokens >= 1))
        return ash_err_set(err, -EINVAL, "no lengths of prompt and answer (isl, osl)");
    rc = read_measured(&reader, replicas, &result, err);
    if (rc < 0) return rc;
    *row_out = result;
    return 0;
}

double ash_infer_row_predict(const struct ash_consts *consts, const struct ash_infer_row *row)
{
    struct ash_infer_rate rate;

    ash_infer_predict(consts, &row->infer, &row->load, &rate);
    if (!rate.fits) return 0;
    if (row->metric == ASH_INFER_TOKENS_S) return rate.out_tokens_s;
    return row->metric == ASH_INFER_TTFT_S ? rate.ttft_s : rate.tpot_s;
}

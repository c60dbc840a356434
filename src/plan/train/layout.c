/* Layouts as text, and whether a job can be cut that way. */
#include "plan/train/layout.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define DEGREE_MAX ASH_CLUSTER_GPUS_MAX
#define WORD_BYTES 64
#define EDGES 2 /* the embedding and the output may be a pipeline's first and last piece */

static const char *const recompute_names[] = {"none", "selective", "full", "fit", NULL};
static const char *const precision_names[] = {"bf16", "fp8", "fp4", NULL};
static const char *const schedule_names[] = {"1f1b", "zb-h1", "dualpipe", NULL};

const char *ash_plan_recompute_name(enum ash_plan_recompute recompute)
{
    ash_assert((size_t)recompute < ASH_COUNT(recompute_names) - 1);
    return recompute_names[recompute];
}

const char *ash_plan_precision_name(enum ash_gpu_precision precision)
{
    ash_assert((size_t)precision < ASH_COUNT(precision_names) - 1);
    return precision_names[precision];
}

const char *ash_plan_schedule_name(enum ash_plan_schedule schedule)
{
    ash_assert((size_t)schedule < ASH_COUNT(schedule_names) - 1);
    return schedule_names[schedule];
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static int index_of(const char *const *names, const char *word)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], word) == 0) return i;
    return -1;
}

struct degree {
    const char *name;
    size_t offset;
    int min, max;
};

#define AT(field) offsetof(struct ash_layout, field)

static const struct degree degrees[] = {
    {"dp", AT(dp), 1, DEGREE_MAX},      {"tp", AT(tp), 1, DEGREE_MAX}, {"pp", AT(pp), 1, DEGREE_MAX},
    {"cp", AT(cp), 1, DEGREE_MAX},      {"ep", AT(ep), 1, DEGREE_MAX}, {"etp", AT(etp), 1, DEGREE_MAX},
    {"vpp", AT(chunks), 1, 1024},       {"zero", AT(zero), 0, 3},      {"shard", AT(shard), 1, DEGREE_MAX},
    {"mbs", AT(micro_batch), 1, 65536},
};

static int set_degree(struct ash_layout *layout, const char *name, const char *value, struct ash_err *err)
{
    char *end = NULL;
    long number = strtol(value, &end, 10);

    for (size_t i = 0; i < sizeof(degrees) / sizeof(degrees[0]); i++) {
        if (strcmp(degrees[i].name, name) != 0) continue;
        if (end == value || *end != '\0' || number < degrees[i].min || number > degrees[i].max)
            return ash_err_set(err, -EINVAL, "layout: %s must be a whole number from %d to %d, not '%.40s'", name,
                               degrees[i].min, degrees[i].max, value);
        *(int *)((char *)layout + degrees[i].offset) = (int)number;
        return 0;
    }
    return ash_err_set(err, -EINVAL,
                       "layout: there is no '%.40s'; known are dp, tp, pp, vpp, cp, ep, etp, zero, shard, mbs, "
                       "recompute, precision, schedule and offload",
                       name);
}

/* "offload", "offload=1", "offload=no". */
static int set_offload(struct ash_layout *layout, const char *value, struct ash_err *err)
{
    static const char *const no[] = {"0", "no", "false", "off", NULL}, *const yes[] = {"1", "yes", "true", "on", NULL};

    if (index_of(no, value) < 0 && index_of(yes, value) < 0)
        return ash_err_set(err, -EINVAL, "layout: offload is 0 or 1, not '%.40s'", value);
    layout->offload = index_of(yes, value) >= 0;
    return 0;
}

/* The name of one of names. Returns its index or -EINVAL. */
static int read_choice(const char *name, const char *const *names, const char *value, struct ash_err *err)
{
    int found = index_of(names, value);
    char known[WORD_BYTES] = "";

    if (found >= 0) return found;
    for (size_t i = 0; names[i] != NULL; i++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s",
                 i == 0 ? "" : (names[i + 1] != NULL ? ", " : " or "), names[i]);
    return ash_err_set(err, -EINVAL, "layout: %s is %s, not '%.40s'", name, known, value);
}

/* A pipeline as tables print it: "16", "16x4" (stages x chunks), "16-dualpipe" (stages and schedule). */
static int set_pipeline(struct ash_layout *layout, const char *value, struct ash_err *err)
{
    char stages[WORD_BYTES];
    size_t length = strcspn(value, "x-");
    int rc;

    snprintf(stages, sizeof(stages), "%.*s", (int)length, value);
    rc = set_degree(layout, "pp", stages, err);
    if (rc < 0 || value[length] == '\0') return rc;
    if (value[length] == 'x') return set_degree(layout, "vpp", value + length + 1, err);
    rc = read_choice("schedule", schedule_names, value + length + 1, err);
    if (rc < 0) return rc;
    layout->schedule = (enum ash_plan_schedule)rc;
    return 0;
}

/* "3", or "3/64" as tables print it: the stage, and over how many ranks it shards. */
static int set_zero(struct ash_layout *layout, const char *value, struct ash_err *err)
{
    char stage[WORD_BYTES];
    size_t length = strcspn(value, "/");
    int rc;

    snprintf(stage, sizeof(stage), "%.*s", (int)length, value);
    rc = set_degree(layout, "zero", stage, err);
    return rc < 0 || value[length] == '\0' ? rc : set_degree(layout, "shard", value + length + 1, err);
}

static int set_word(struct ash_layout *layout, const char *name, const char *value, struct ash_err *err)
{
    int rc;

    if (strcmp(name, "offload") == 0) return set_offload(layout, value, err);
    if (strcmp(name, "pp") == 0) return set_pipeline(layout, value, err);
    if (strcmp(name, "zero") == 0) return set_zero(layout, value, err);
    if (strcmp(name, "recompute") == 0) {
        rc = read_choice(name, recompute_names, value, err);
        if (rc >= 0) layout->recompute = (enum ash_plan_recompute)rc;
    } else if (strcmp(name, "precision") == 0) {
        rc = read_choice(name, precision_names, value, err);
        if (rc >= 0) layout->precision = (enum ash_gpu_precision)rc;
    } else if (strcmp(name, "schedule") == 0) {
        rc = read_choice(name, schedule_names, value, err);
        if (rc >= 0) layout->schedule = (enum ash_plan_schedule)rc;
    } else {
        rc = set_degree(layout, name, value, err);
    }
    return rc < 0 ? rc : 0;
}

/* A word without "=", as tables print it: "tp8", "pp16x4", "zero3/64", "fp8", "offload". */
static int set_printed(struct ash_layout *layout, const char *word, struct ash_err *err)
{
    char name[WORD_BYTES];
    size_t length = strcspn(word, "0123456789");

    if (strcmp(word, "offload") == 0) return set_offload(layout, "yes", err);
    if (index_of(precision_names, word) >= 0) return set_word(layout, "precision", word, err);
    if (length == 0 || word[length] == '\0')
        return ash_err_set(err, -EINVAL, "layout: '%s' needs a value, like tp=8", word);
    snprintf(name, sizeof(name), "%.*s", (int)length, word);
    return set_word(layout, name, word + length, err);
}

int ash_layout_parse(const char *text, struct ash_layout *layout, struct ash_err *err)
{
    struct ash_layout result = *layout;

    while (*text != '\0') {
        char word[WORD_BYTES], *equals;
        size_t length = strcspn(text, ", ");
        int rc;

        if (length == 0 || length >= sizeof(word))
            return ash_err_set(err, -EINVAL, "layout: '%.60s' is not name=value,name=value,...", text);
        memcpy(word, text, length);
        word[length] = '\0';
        equals = strchr(word, '=');
        if (equals != NULL) *equals = '\0';
        rc = equals != NULL ? set_word(&result, word, equals + 1, err) : set_printed(&result, word, err);
        if (rc < 0) return rc;
        text += length + (text[length] != '\0' ? 1 : 0);
    }
    *layout = result;
    return 0;
}

const char *ash_layout_text(const struct ash_layout *l, char *buf, size_t buf_bytes)
{
    char pipeline[48] = "", experts[48] = "", shard[32] = "";

    if (l->pp > 1 && l->chunks > 1)
        snprintf(pipeline, sizeof(pipeline), " pp%dx%d", l->pp, l->chunks);
    else if (l->pp > 1)
        snprintf(pipeline, sizeof(pipeline), " pp%d%s%s", l->pp, l->schedule != ASH_PLAN_1F1B ? "-" : "",
                 l->schedule != ASH_PLAN_1F1B ? ash_plan_schedule_name(l->schedule) : "");
    if (l->ep > 1 && l->etp > 1)
        snprintf(experts, sizeof(experts), " ep%d etp%d", l->ep, l->etp);
    else if (l->ep > 1)
        snprintf(experts, sizeof(experts), " ep%d", l->ep);
    if (l->shard > 0) snprintf(shard, sizeof(shard), "/%d", l->shard);
    snprintf(buf, buf_bytes, "tp%d%s%s%.0d%s dp%d zero%d%s mbs%d %s%s", l->tp, pipeline, l->cp > 1 ? " cp" : "",
             l->cp > 1 ? l->cp : 0, experts, l->dp, l->zero, shard, l->micro_batch,
             ash_plan_precision_name(l->precision), l->offload ? " offload" : "");
    return buf;
}

bool ash_plan_flash(const struct ash_plan_job *job)
{
    return !job->no_flash && (job->stack == NULL || job->stack->flash);
}

int ash_layout_micro_batches(const struct ash_plan_job *job, const struct ash_layout *layout)
{
    double exact = job->global_batch / ((double)layout->dp * layout->micro_batch);
    int whole;

    if (!(exact > 1)) return 1;
    if (exact >= INT_MAX) return INT_MAX;
    whole = (int)exact;
    return whole < exact ? whole + 1 : whole;
}

/* ---- can it be? -------------------------------------------------------------------------------------------------- */

/* By division: fmod takes its time, and whole numbers this small leave no doubt. */
bool ash_divides(double parts, double whole)
{
    double each = whole / parts;

    return parts >= 1 && each == (double)(int64_t)each;
}

/* The largest divisor of whole that is at most limit. */
static int nearest_divisor(double whole, int limit)
{
    int best = 1;

    for (int i = 2; i <= limit && i <= whole; i++)
        if (ash_divides(i, whole)) best = i;
    return best;
}

static double next_multiple(double value, double step)
{
    return ceil(value / step) * step;
}

static int check_ranks(const struct ash_plan_job *job, struct ash_layout *l, struct ash_err *err)
{
    double model = (double)l->tp * l->pp * l->cp, gpus = job->cluster.gpus;

    if (!ash_divides(model, gpus))
        return ash_err_set(err, -EINVAL,
                           "tp %d * pp %d * cp %d = %.0f does not divide %.0f GPUs; a product of %d would", l->tp,
                           l->pp, l->cp, model, gpus, nearest_divisor(gpus, (int)fmin(model, gpus)));
    if (l->dp == 0) l->dp = (int)(gpus / model);
    if (l->dp * model != gpus)
        return ash_err_set(err, -EINVAL,
                           "dp %d * tp %d * pp %d * cp %d = %.0f, but there are %.0f GPUs: dp would be %.0f", l->dp,
                           l->tp, l->pp, l->cp, l->dp * model, gpus, gpus / model);
    if (l->shard > 0 && !ash_divides(l->shard, (double)l->dp * l->cp))
        return ash_err_set(err, -EINVAL, "shard %d does not divide the %d ranks that hold copies; %d would", l->shard,
                           l->dp * l->cp, nearest_divisor((double)l->dp * l->cp, l->shard));
    return 0;
}

static int check_model(const struct ash_plan_job *job, const struct ash_layout *l, struct ash_err *err)
{
    const struct ash_shape *s = &job->shape;
    double stages = (double)l->pp * l->chunks;

    if (!ash_divides(l->tp, s->heads) || (!ash_divides(l->tp, s->kv_heads) && !ash_divides(s->kv_heads, l->tp)))
        return ash_err_set(err, -EINVAL, "tp %d does not divide %.0f heads (%.0f for keys); %d would", l->tp, s->heads,
                           s->kv_heads, nearest_divisor(s->heads, l->tp));
    if (stages > s->layers && stages != s->layers + EDGES)
        return ash_err_set(err, -EINVAL,
                           "%s has %.0f layers: %d pipeline stages of %d chunks have none for some; pp * vpp of up to "
                           "%.0f would do",
                           s->name, s->layers, l->pp, l->chunks, s->layers);
    if (l->pp == 1 && l->chunks > 1)
        return ash_err_set(err, -EINVAL, "chunks (vpp=%d) interleave a pipeline: they need pp of 2 or more", l->chunks);
    if (!ash_divides(l->cp, job->seq_tokens))
        return ash_err_set(err, -EINVAL, "cp %d does not divide sequences of %.0f tokens; %d would", l->cp,
                           job->seq_tokens, nearest_divisor(job->seq_tokens, l->cp));
    if (job->cluster.machine.gpu->flops[l->precision] <= 0)
        return ash_err_set(err, -EINVAL, "%s has no %s arithmetic; bf16 works", job->cluster.machine.gpu->name,
                           ash_plan_precision_name(l->precision));
    return 0;
}

static int check_experts(const struct ash_plan_job *job, struct ash_layout *l, struct ash_err *err)
{
    double ranks = (double)l->tp * l->cp * l->dp;

    if (l->etp == 0) l->etp = l->ep > 1 ? 1 : l->tp;
    if (l->ep > 1 && job->shape.sparse_layers == 0)
        return ash_err_set(err, -EINVAL, "%s has no experts: ep must be 1", job->shape.name);
    if (l->ep > 1 && !ash_divides(l->ep, job->shape.experts))
        return ash_err_set(err, -EINVAL, "ep %d does not divide %.0f experts; %d would", l->ep, job->shape.experts,
                           nearest_divisor(job->shape.experts, l->ep));
    if (!ash_divides((double)l->ep * l->etp, ranks))
        return ash_err_set(err, -EINVAL,
                           "ep %d * etp %d does not divide the %.0f ranks of a stage (tp * cp * dp); a product of %d "
                           "would",
                           l->ep, l->etp, ranks, nearest_divisor(ranks, (int)fmin((double)l->ep * l->etp, ranks)));
    return 0;
}

int ash_layout_check_batch(const struct ash_plan_job *job, const struct ash_layout *l, struct ash_err *err)
{
    double step = (double)l->dp * l->micro_batch, passes = job->global_batch / step;
    const char *refused;

    if (!ash_divides(step, job->global_batch))
        return ash_err_set(err, -EINVAL,
                           "a global batch of %.0f sequences is not whole micro-batches of %d on %d ranks; %.0f would "
                           "be",
                           job->global_batch, l->micro_batch, l->dp, next_multiple(job->global_batch, step));
    if (l->chunks > 1 && !ash_divides(l->pp, passes))
        return ash_err_set(err, -EINVAL,
                           "an interleaved pipeline of %d stages needs micro-batches in multiples of it, not %.0f: a "
                           "global batch of %.0f would do",
                           l->pp, passes, next_multiple(job->global_batch, step * l->pp));
    refused = ash_plan_pipeline_refuses(l->schedule, l->pp, l->chunks, ash_layout_micro_batches(job, l));
    return refused != NULL ? ash_err_set(err, -EINVAL, "%s (pp %d, %.0f micro-batches)", refused, l->pp, passes) : 0;
}

int ash_layout_check(const struct ash_plan_job *job, struct ash_layout *layout, struct ash_err *err)
{
    struct ash_layout l = *layout;
    int rc = check_ranks(job, &l, err);

    if (rc == 0) rc = check_model(job, &l, err);
    if (rc == 0) rc = check_experts(job, &l, err);
    if (rc == 0) rc = ash_layout_check_batch(job, &l, err);
    if (rc == 0) *layout = l;
    return rc;
}

/* ledger: a clock that is read at every change of the run's activity. */
#include "train/run/ledger.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/math.h"
#include "record/metrics.h"

#define FILE_BYTES_MAX ((size_t)64 << 10)

#define KEY_BYTES 16

static const char *const names[ASH_LEDGER_KINDS] = {"productive", "detect", "reform", "transfer",
                                                    "redone",     "save",   "idle"};

#define LEDGER_HELP "Wall time of the run so far, over all its parts, by what it went into."
#define LEDGER(kind)                                                                                                   \
    {                                                                                                                  \
        .name = "ashlar_train_ledger_seconds", .help = LEDGER_HELP, .type = ASH_METRIC_GAUGE,                          \
        .labels = "kind=\"" kind "\""                                                                                  \
    }
static struct ash_metric ledger_metrics[ASH_LEDGER_KINDS] = {LEDGER("productive"), LEDGER("detect"), LEDGER("reform"),
                                                             LEDGER("transfer"),   LEDGER("redone"), LEDGER("save"),
                                                             LEDGER("idle")};

const char *ash_ledger_kind_name(enum ash_ledger_kind kind)
{
    ash_assert(kind < ASH_LEDGER_KINDS);
    return names[kind];
}

/* Its member in the file, in key [KEY_BYTES]. */
static const char *key_of(size_t kind, char *key)
{
    ash_assert(kind < ASH_LEDGER_KINDS);
    snprintf(key, KEY_BYTES, "%s_s", names[kind]);
    return key;
}

/* A member that is a number, or 0. */
static double number(const json_t *json, const char *name)
{
    double value = json_number_value(json_object_get(json, name));

    return isfinite(value) && value > 0.0 ? value : 0.0;
}

static void read_seconds(struct ash_ledger *ledger, const json_t *json, double ranks)
{
    const json_t *parts = json_object_get(json, "rank_s");
    char key[KEY_BYTES];

    for (size_t kind = 0; kind < ASH_LEDGER_KINDS; kind++) {
        ledger->seconds[kind] = number(json, key_of(kind, key));
        ledger->rank_seconds[kind] =
            parts != NULL ? number(parts, names[kind]) : ash_max(ranks, 1.0) * ledger->seconds[kind];
    }
}

static void read_counts(struct ash_ledger *ledger, const json_t *json)
{
    ledger->steps = (uint64_t)number(json, "steps");
    ledger->recoveries = (uint64_t)number(json, "recoveries");
    ledger->redone_steps = (uint64_t)number(json, "redone_steps");
    ledger->lost_steps = (uint64_t)number(json, "lost_steps");
    ledger->kept_grains = (uint64_t)number(json, "kept_grains");
    ledger->redone_grains = (uint64_t)number(json, "redone_grains");
}

int ash_ledger_read(struct ash_ledger *ledger_out, const char *path, double ranks, struct ash_err *err)
{
    struct ash_ledger ledger = {.ranks = ranks};
    char *text = NULL;
    size_t size = 0;
    json_t *json;
    int rc = ash_file_read(path, FILE_BYTES_MAX, &text, &size, err);

    if (rc < 0) return rc;
    json = json_loadb(text, size, 0, NULL);
    free(text);
    rc = json_is_number(json_object_get(json, "productive_s"))
             ? 0
             : ash_err_set(err, -EINVAL, "%s is no ledger of a run: it has no productive_s", path);
    if (rc == 0) {
        read_seconds(&ledger, json, ranks);
        read_counts(&ledger, json);
        ledger.usd_hour = number(json, "usd_rank_hour");
        *ledger_out = ledger;
    }
    json_decref(json);
    return rc;
}

void ash_ledger_start(struct ash_ledger *ledger, const char *path, uint64_t now_ns)
{
    struct ash_ledger begun = {.ranks = ledger->ranks, .usd_hour = ledger->usd_hour};

    if (ash_ledger_read(&begun, path, ledger->ranks, NULL) == 0 && ledger->usd_hour > 0.0)
        begun.usd_hour = ledger->usd_hour;
    begun.last_ns = now_ns;
    *ledger = begun;
}

static void add(struct ash_ledger *ledger, enum ash_ledger_kind kind, double seconds)
{
    ledger->seconds[kind] += seconds;
    ledger->rank_seconds[kind] += ash_max(ledger->ranks, 1.0) * seconds;
}

/* Seconds that turn out to be of another kind; those of ranks in proportion. */
static void move(struct ash_ledger *ledger, enum ash_ledger_kind from, enum ash_ledger_kind to, double seconds)
{
    double ranks = ledger->seconds[from] > 0.0 ? ledger->rank_seconds[from] / ledger->seconds[from] : 1.0;

    ledger->seconds[from] -= seconds;
    ledger->seconds[to] += seconds;
    ledger->rank_seconds[from] -= ranks * seconds;
    ledger->rank_seconds[to] += ranks * seconds;
}

void ash_ledger_charge(struct ash_ledger *ledger, enum ash_ledger_kind kind, uint64_t now_ns)
{
    ash_assert(kind < ASH_LEDGER_KINDS);
    if (now_ns > ledger->last_ns) add(ledger, kind, (double)(now_ns - ledger->last_ns) * 1e-9);
    ledger->last_ns = now_ns;
}

/* Seconds of a step. */
static double step_s(const struct ash_ledger *ledger)
{
    return ledger->steps > 0 ? ledger->seconds[ASH_LEDGER_PRODUCTIVE] / (double)ledger->steps : INFINITY;
}

void ash_ledger_charge_failed(struct ash_ledger *ledger, uint64_t now_ns)
{
    double spent = now_ns > ledger->last_ns ? (double)(now_ns - ledger->last_ns) * 1e-9 : 0.0,
           work = fmin(spent, step_s(ledger));

    add(ledger, ASH_LEDGER_REDONE, work);
    add(ledger, ASH_LEDGER_DETECT, spent - work);
    ledger->failed_s = work;
    ledger->last_ns = now_ns;
}

void ash_ledger_keep(struct ash_ledger *ledger, uint64_t kept, uint64_t grains, double share)
{
    double seconds = share > 0.0 ? fmin(ledger->failed_s, share * step_s(ledger)) : 0.0;

    ash_assert(kept <= grains && share <= 1.0);
    move(ledger, ASH_LEDGER_REDONE, ASH_LEDGER_PRODUCTIVE, seconds);
    ledger->failed_s = 0.0;
    ledger->kept_grains += kept;
    ledger->redone_grains += grains - kept;
}

void ash_ledger_lose(struct ash_ledger *ledger, uint64_t steps)
{
    uint64_t lost = steps < ledger->steps ? steps : ledger->steps;
    double seconds = lost > 0 ? (double)lost * step_s(ledger) : 0.0;

    move(ledger, ASH_LEDGER_PRODUCTIVE, ASH_LEDGER_REDONE, seconds);
    ledger->steps -= lost;
    ledger->lost_steps += steps;
}

double ash_ledger_wall_s(const struct ash_ledger *ledger)
{
    double sum = 0.0;

    for (size_t kind = 0; kind < ASH_LEDGER_KINDS; kind++)
        sum += ledger->seconds[kind];
    return sum;
}

int ash_ledger_write(const struct ash_ledger *ledger, const char *path, struct ash_err *err)
{
    json_t *json =
        json_pack("{s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "wall_s", ash_ledger_wall_s(ledger), "steps",
                  (json_int_t)ledger->steps, "recoveries", (json_int_t)ledger->recoveries, "redone_steps",
                  (json_int_t)ledger->redone_steps, "lost_steps", (json_int_t)ledger->lost_steps, "kept_grains",
                  (json_int_t)ledger->kept_grains, "redone_grains", (json_int_t)ledger->redone_grains);
    json_t *parts = json_object();
    char *text = NULL, key[KEY_BYTES];
    int rc;

    for (size_t kind = 0; json != NULL && kind < ASH_LEDGER_KINDS; kind++) {
        json_object_set_new(json, key_of(kind, key), json_real(ledger->seconds[kind]));
        json_object_set_new(parts, names[kind], json_real(ledger->rank_seconds[kind]));
    }
    json_object_set_new(json, "rank_s", parts);
    if (ledger->usd_hour > 0.0) json_object_set_new(json, "usd_rank_hour", json_real(ledger->usd_hour));
    for (size_t kind = 0; kind < ASH_LEDGER_KINDS; kind++)
        ash_metric_set(&ledger_metrics[kind], ledger->seconds[kind]);
    if (json != NULL) text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(json);
    if (text == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %s", path);
    rc = ash_file_replace(path, text, strlen(text), err);
    free(text);
    return rc;
}

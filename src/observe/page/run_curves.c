/* Curves of bounded size: when one is full, every second point goes and the next ones come half as often. */
#include "observe/page/run_curves.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "observe/ranks/run_log.h"

#define BLOCK_BYTES 262144
#define LINE_BYTES_MAX 65536
#define READ_BYTES_MAX ((size_t)64 << 20) /* at one time: the page must not wait for a long log */

static const char *const keys[ASH_CURVES] = {"loss", "valid_loss", "tokens_per_s", "grad_norm", "lr"};
static const char *const names[ASH_CURVES] = {"loss", "valid", "tokens_s", "norm", "lr"};

void ash_run_curves_init(struct ash_run_curves *run, const char *dir)
{
    snprintf(run->dir, sizeof(run->dir), "%s", dir);
    for (size_t i = 0; i < ASH_CURVES; i++)
        run->curves[i].stride = 1;
}

void ash_run_curves_fini(struct ash_run_curves *run)
{
    ash_str_fini(&run->rest);
    json_decref(run->ledger);
    run->ledger = NULL;
}

static void add_point(struct ash_curve *curve, double x, double y)
{
    ash_assert(curve->stride > 0 && curve->count <= ASH_CURVE_POINTS);
    curve->last_x = x;
    curve->last_y = y;
    if (curve->seen++ % curve->stride != 0) return;
    if (curve->count == ASH_CURVE_POINTS) {
        for (size_t i = 0; i < ASH_CURVE_POINTS / 2; i++) {
            curve->x[i] = curve->x[2 * i];
            curve->y[i] = curve->y[2 * i];
        }
        curve->count /= 2;
        curve->stride *= 2;
    }
    curve->x[curve->count] = x;
    curve->y[curve->count++] = y;
}

static double positive(double value)
{
    return value > 0 ? value : 0;
}

static void take_line(struct ash_run_curves *run, const char *line)
{
    static const char *const parts[] = {"compute_s", "data_s", "comm_s", "idle_s"};
    double step = ash_run_log_number(line, "step");

    if (!(step >= 0 && step < 1e15)) return;
    run->step = (uint64_t)step;
    for (size_t i = 0; i < ASH_CURVES; i++) {
        double value = ash_run_log_number(line, keys[i]);

        if (isfinite(value)) add_point(&run->curves[i], step, value);
    }
    for (size_t i = 0; i < 4; i++)
        run->parts[i] += positive(ash_run_log_number(line, parts[i]));
    run->time_s = fmax(run->time_s, positive(ash_run_log_number(line, "time_s")));
    run->skipped += strstr(line, "\"skipped\":true") != NULL;
}

void ash_run_curves_take(struct ash_run_curves *run, const char *text, size_t size_bytes)
{
    const char *end = text + size_bytes;

    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t bytes = (size_t)((newline != NULL ? newline : end) - text);

        if (run->rest.size_bytes + bytes <= LINE_BYTES_MAX) ash_str_add(&run->rest, text, bytes);
        if (newline == NULL) return;
        if (run->rest.data != NULL) take_line(run, run->rest.data);
        ash_str_clear(&run->rest);
        text = newline + 1;
    }
}

/* Where the wall time went; a ledger that cannot be read is none. */
static void read_ledger(struct ash_run_curves *run)
{
    char path[4200];
    json_t *ledger = NULL;

    snprintf(path, sizeof(path), "%s/ledger.json", run->dir);
    if (ash_json_load(path, &ledger, NULL) < 0) ledger = NULL;
    json_decref(run->ledger);
    run->ledger = ledger;
}

/* [["productive", 97.2], ...]: kinds with time in them. */
static json_t *ledger_json(const json_t *ledger)
{
    static const char *const kinds[] = {"productive", "save", "redone", "detect", "reform", "transfer", "idle"};
    json_t *list = json_array();
    char key[32];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        double seconds;

        snprintf(key, sizeof(key), "%s_s", kinds[i]);
        seconds = json_number_value(json_object_get(ledger, key));
        if (seconds > 0 && seconds < 1e15) json_array_append_new(list, json_pack("[s,f]", kinds[i], seconds));
    }
    return list;
}

int ash_run_curves_read(struct ash_run_curves *run, struct ash_err *err)
{
    char path[4200], *block;
    size_t done = 0;
    struct stat facts;
    ssize_t got = 0;
    int fd;

    snprintf(path, sizeof(path), "%s/log.jsonl", run->dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return ash_err_set(err, -errno, "cannot read '%s': %s", path, strerror(errno));
    block = malloc(BLOCK_BYTES);
    if (fstat(fd, &facts) == 0 && (uint64_t)facts.st_size < run->offset) {
        struct ash_run_curves fresh = {0};

        ash_run_curves_init(&fresh, run->dir);
        ash_run_curves_fini(run);
        *run = fresh;
    }
    while (block != NULL && done < READ_BYTES_MAX && (got = pread(fd, block, BLOCK_BYTES, (off_t)run->offset)) > 0) {
        ash_run_curves_take(run, block, (size_t)got);
        run->offset += (uint64_t)got;
        done += (size_t)got;
    }
    free(block);
    close(fd);
    read_ledger(run);
    return got < 0 ? ash_err_set(err, -EIO, "cannot read '%s'", path) : 0;
}

static json_t *curve_json(const struct ash_curve *curve)
{
    json_t *points = json_array();

    for (size_t i = 0; i < curve->count; i++)
        json_array_append_new(points, json_pack("[f,f]", curve->x[i], curve->y[i]));
    if (curve->count > 0 && curve->x[curve->count - 1] != curve->last_x)
        json_array_append_new(points, json_pack("[f,f]", curve->last_x, curve->last_y));
    return points;
}

json_t *ash_run_curves_json(const struct ash_run_curves *run)
{
    const char *slash = strrchr(run->dir, '/');
    double known = run->parts[0] + run->parts[1] + run->parts[2] + run->parts[3];
    char summary[160];
    json_t *json;

    snprintf(summary, sizeof(summary), "step %llu, %.0f s%s", (unsigned long long)run->step, run->time_s,
             run->skipped > 0 ? ", steps were skipped" : "");
    json = json_pack("{s:s, s:s, s:[f,f,f,f,f]}", "name", slash != NULL && slash[1] != '\0' ? slash + 1 : run->dir,
                     "summary", summary, "parts", run->parts[0], run->parts[1], run->parts[2], run->parts[3],
                     positive(run->time_s - known));
    for (size_t i = 0; json != NULL && i < ASH_CURVES; i++)
        json_object_set_new(json, names[i], curve_json(&run->curves[i]));
    if (json != NULL) json_object_set_new(json, "ledger", ledger_json(run->ledger));
    return json;
}

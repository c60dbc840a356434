/* runlog: lines of JSON, each written in one piece, and read back by a run that continues. */
#include "train/run/runlog.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/append_file.h"
#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_put.h"
#include "base/str.h"

#define PENDING_MAX_BYTES ((size_t)64 << 20) /* of lines that wait for disk space */

struct ash_runlog {
    struct ash_append_file file;
    struct ash_log_record *records;
    size_t count, capacity;
};

/* ---- records in memory ------------------------------------------------------------------------------------------- */

static int remember(struct ash_runlog *log, const struct ash_log_record *record)
{
    if (ash_array_reserve(&log->records, &log->capacity, log->count + 1, sizeof(*log->records)) < 0) return -ENOMEM;
    log->records[log->count++] = *record;
    return 0;
}

/* A number that may be null because it was not finite. */
static float read_number(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);

    return json_is_number(value) ? (float)json_number_value(value) : NAN;
}

/* Read one line back. Returns false for lines of other programs. */
static bool read_line(const char *line, size_t size_bytes, struct ash_log_record *record_out)
{
    struct ash_log_record record = {0};
    int64_t step = 0, tokens = 0;
    const char *hash = NULL;
    json_t *json = NULL;
    bool good = ash_json_parse(line, size_bytes, "log.jsonl", &json, NULL) == 0 && json_is_object(json) &&
                ash_json_int(json, "step", 1, INT64_MAX, &step, NULL) == 1 &&
                ash_json_int(json, "tokens", 0, INT64_MAX, &tokens, NULL) == 1 &&
                ash_json_double(json, "time_s", 0.0, 1e18, &record.time_s, NULL) == 1 &&
                ash_json_bool(json, "skipped", &record.skipped, NULL) >= 0 &&
                ash_json_string(json, "state_hash", &hash, NULL) >= 0;

    if (good) {
        record.step = (uint64_t)step;
        record.tokens = (uint64_t)tokens;
        record.loss = read_number(json, "loss");
        record.grad_norm = read_number(json, "grad_norm");
        record.lr = read_number(json, "lr");
        record.tokens_per_s = read_number(json, "tokens_per_s");
        record.compute_s = read_number(json, "compute_s");
        record.comm_s = read_number(json, "comm_s");
        record.data_s = read_number(json, "data_s");
        record.idle_s = read_number(json, "idle_s");
        record.valid_loss = read_number(json, "valid_loss");
        record.pairs = (struct ash_pair_figures){(double)read_number(json, "valid_accuracy"),
                                                 (double)read_number(json, "chosen_reward"),
                                                 (double)read_number(json, "rejected_reward")};
        record.hashed = hash != NULL;
        record.state_hash = hash != NULL ? strtoull(hash, NULL, 16) : 0;
        *record_out = record;
    }
    json_decref(json);
    return good;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Remember the lines of text up to step; *kept_out is the bytes they take. */
static int read_back(struct ash_runlog *log, const char *text, size_t size_bytes, uint64_t step, size_t *kept_out)
{
    size_t begin = 0;

    while (begin < size_bytes) {
        const char *end = memchr(text + begin, '\n', size_bytes - begin);
        struct ash_log_record record;
        if (end == NULL || !read_line(text + begin, (size_t)(end - text) - begin, &record)) break;
        if (record.step > step || (log->count > 0 && record.step <= log->records[log->count - 1].step)) break;
        if (remember(log, &record) < 0) return -ENOMEM;
        begin = (size_t)(end - text) + 1;
    }
    *kept_out = begin;
    return 0;
}

int ash_runlog_open(const char *path, uint64_t step, struct ash_runlog **log_out, struct ash_err *err)
{
    struct ash_runlog *log = calloc(1, sizeof(*log));
    struct ash_map map = {0};
    size_t kept = 0;
    int rc = 0;

    if (log == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    if (step > 0 && ash_path_exists(path)) {
        rc = ash_map_open(path, &map, err);
        if (rc == 0 && read_back(log, (const char *)map.base, map.size_bytes, step, &kept) < 0)
            rc = ash_err_set(err, -ENOMEM, "out of memory");
        ash_map_close(&map);
    }
    if (rc == 0) rc = ash_append_file_open(&log->file, path, kept, err);
    if (rc < 0) {
        ash_runlog_close(log);
        return rc;
    }
    *log_out = log;
    return 0;
}

void ash_runlog_close(struct ash_runlog *log)
{
    if (log == NULL) return;
    ash_append_file_close(&log->file);
    free(log->records);
    free(log);
}

static int add_line(struct ash_str *line, const struct ash_log_record *record)
{
    uint32_t loss_bits;

    memcpy(&loss_bits, &record->loss, sizeof(loss_bits));
    ash_json_put_begin(line, NULL, '{');
    ash_json_put_int(line, "step", (int64_t)record->step);
    ash_json_put_number(line, "loss", (double)record->loss, 9);
    ash_str_addf(line, ",\"loss_bits\":\"%08x\"", loss_bits);
    ash_json_put_number(line, "grad_norm", (double)record->grad_norm, 9);
    ash_json_put_number(line, "lr", (double)record->lr, 9);
    ash_json_put_int(line, "tokens", (int64_t)record->tokens);
    ash_json_put_number(line, "tokens_per_s", (double)record->tokens_per_s, 6);
    ash_json_put_number(line, "compute_s", (double)record->compute_s, 6);
    ash_json_put_number(line, "comm_s", (double)record->comm_s, 6);
    ash_json_put_number(line, "data_s", (double)record->data_s, 6);
    ash_json_put_number(line, "idle_s", (double)record->idle_s, 6);
    ash_json_put_number(line, "time_s", record->time_s, 9);
    ash_json_put_bool(line, "skipped", record->skipped);
    if (!isnan(record->valid_loss)) ash_json_put_number(line, "valid_loss", (double)record->valid_loss, 9);
    if (!isnan(record->pairs.accuracy)) {
        ash_json_put_number(line, "valid_accuracy", record->pairs.accuracy, 9);
        ash_json_put_number(line, "chosen_reward", record->pairs.chosen, 9);
        ash_json_put_number(line, "rejected_reward", record->pairs.rejected, 9);
    }
    if (record->hashed) ash_str_addf(line, ",\"state_hash\":\"%016llx\"", (unsigned long long)record->state_hash);
    return ash_str_adds(line, "}\n");
}

int ash_runlog_add(struct ash_runlog *log, const struct ash_log_record *record, struct ash_err *err)
{
    struct ash_str *pending = &log->file.pending;
    size_t before = pending->size_bytes;

    if (remember(log, record) < 0) return ash_err_set(err, -ENOMEM, "out of memory for the log");
    if (before < PENDING_MAX_BYTES && add_line(pending, record) < 0) {
        ash_str_cut(pending, before); /* no half lines */
        return ash_err_set(err, -ENOMEM, "out of memory for the log");
    }
    return ash_append_file_flush(&log->file, err);
}

int ash_runlog_write(struct ash_runlog *log, int *fd_out, struct ash_err *err)
{
    int rc = ash_append_file_flush(&log->file, err);

    if (rc < 0) return rc;
    *fd_out = log->file.fd;
    return 0;
}

size_t ash_runlog_count(const struct ash_runlog *log)
{
    return log->count;
}

const struct ash_log_record *ash_runlog_records(const struct ash_runlog *log)
{
    return log->records;
}

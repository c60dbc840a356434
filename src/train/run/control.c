/* Small JSON files, each replaced whole. */
#include "train/run/control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/json.h"

#define FILE_BYTES_MAX 65536
#define TAIL_BYTES 4096
#define STATUS_FILE "run.json"
#define REQUEST_FILE "request.json"

static int read_text(const char *dir, const char *name, char **text_out, size_t *size_out, struct ash_err *err)
{
    char path[PATH_MAX];

    if (ash_path_join(path, sizeof(path), dir, name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    return ash_file_read(path, FILE_BYTES_MAX, text_out, size_out, err);
}

static int write_json(const char *dir, const char *name, json_t *json, struct ash_err *err)
{
    char path[PATH_MAX];
    int rc = json == NULL ? ash_err_set(err, -ENOMEM, "out of memory for %s", name) : 0;

    if (rc == 0 && ash_path_join(path, sizeof(path), dir, name) < 0)
        rc = ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    if (rc == 0) rc = ash_json_save(path, json, err);
    json_decref(json);
    return rc;
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

static int read_string(const json_t *json, const char *key, char *buf, size_t buf_bytes, struct ash_err *err)
{
    const char *text = "";
    int rc = ash_json_string(json, key, &text, err);

    snprintf(buf, buf_bytes, "%s", text);
    return rc < 0 ? rc : 0;
}

static int read_count(const json_t *json, const char *key, int64_t *value_out, struct ash_err *err)
{
    int rc = ash_json_int(json, key, 0, INT64_MAX, value_out, err);

    return rc < 0 ? rc : 0;
}

static int read_counts(const json_t *json, struct ash_run_status *status, struct ash_err *err)
{
    const struct {
        const char *key;
        int64_t *value;
    } counts[] = {{"process", &status->process},
                  {"steps", &status->steps},
                  {"ranks", &status->ranks},
                  {"mesh_ranks", &status->mesh_ranks},
                  {"wanted_ranks", &status->wanted_ranks},
                  {"resizes", &status->resizes},
                  {"uncopied", &status->is_uncopied},
                  {"epoch", &status->epoch},
                  {"min_ranks", &status->min_ranks},
                  {"most_ranks", &status->most_ranks}};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof(counts) / sizeof(counts[0]); i++)
        rc = read_count(json, counts[i].key, counts[i].value, err);
    return rc;
}

int ash_run_status_decode(const char *text, size_t size_bytes, struct ash_run_status *status_out, struct ash_err *err)
{
    struct ash_run_status status = {0};
    json_t *json = NULL;
    int rc = ash_json_parse(text, size_bytes, STATUS_FILE, &json, err);

    if (rc < 0) return rc;
    rc = json_is_object(json) ? read_counts(json, &status, err) : ash_err_set(err, -EINVAL, STATUS_FILE " is no map");
    if (rc == 0) rc = read_string(json, "state", status.state, sizeof(status.state), err);
    if (rc == 0) rc = read_string(json, "mesh", status.mesh, sizeof(status.mesh), err);
    if (rc == 0) rc = read_string(json, "host", status.host, sizeof(status.host), err);
    if (rc == 0) rc = read_string(json, "run", status.run, sizeof(status.run), err);
    json_decref(json);
    if (rc == 0) *status_out = status;
    return rc;
}

int ash_run_status_read(const char *dir, struct ash_run_status *status_out, struct ash_err *err)
{
    char *text = NULL;
    size_t size = 0;
    int rc = read_text(dir, STATUS_FILE, &text, &size, err);

    if (rc < 0) return ash_err_set(err, -ENOENT, "%s holds no run: it has no " STATUS_FILE, dir);
    rc = ash_run_status_decode(text, size, status_out, err);
    free(text);
    return rc;
}

int ash_run_status_write(const char *dir, const struct ash_run_status *status, struct ash_err *err)
{
    return write_json(dir, STATUS_FILE,
                      json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "state",
                                status->state, "mesh", status->mesh, "host", status->host, "run", status->run,
                                "process", (json_int_t)status->process, "steps", (json_int_t)status->steps, "ranks",
                                (json_int_t)status->ranks, "mesh_ranks", (json_int_t)status->mesh_ranks, "wanted_ranks",
                                (json_int_t)status->wanted_ranks, "resizes", (json_int_t)status->resizes, "uncopied",
                                (json_int_t)status->is_uncopied, "epoch", (json_int_t)status->epoch, "min_ranks",
                                (json_int_t)status->min_ranks, "most_ranks", (json_int_t)status->most_ranks),
                      err);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

int ash_run_request_decode(const char *text, size_t size_bytes, struct ash_run_request *request_out,
                           struct ash_err *err)
{
    struct ash_run_request request = {0};
    json_t *json = NULL;
    int rc = ash_json_parse(text, size_bytes, REQUEST_FILE, &json, err);

    if (rc < 0) return rc;
    rc = json_is_object(json) ? ash_json_bool(json, "stop", &request.stop, err)
                              : ash_err_set(err, -EINVAL, REQUEST_FILE " is no map");
    if (rc >= 0) rc = ash_json_int(json, "ranks", 0, ASH_RUN_RANKS_MAX, &request.ranks, err);
    if (rc >= 0) rc = ash_json_int(json, "flip", 0, (int64_t)ASH_RUN_FLIPS * ASH_RUN_RANKS_MAX, &request.flip, err);
    if (rc >= 0) rc = ash_json_int(json, "slow", 0, ASH_RUN_RANKS_MAX, &request.slow, err);
    if (rc >= 0) rc = ash_json_int(json, "die", 0, (int64_t)ASH_FAULT_POINTS * ASH_RUN_RANKS_MAX, &request.die, err);
    if (rc >= 0) rc = ash_json_int(json, "passes", 0, ASH_RUN_PASSES_MAX, &request.passes, err);
    if (rc >= 0) rc = ash_json_bool(json, "doom", &request.doom, err);
    if (rc >= 0) rc = ash_json_int(json, "err", -ASH_RUN_RANKS_MAX, ASH_RUN_RANKS_MAX, &request.err, err);
    json_decref(json);
    if (rc < 0) return rc;
    *request_out = request;
    return 0;
}

int ash_run_request_write(const char *dir, const struct ash_run_request *request, struct ash_err *err)
{
    return write_json(dir, REQUEST_FILE,
                      json_pack("{s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I}", "stop", request->stop, "doom",
                                request->doom, "ranks", (json_int_t)request->ranks, "flip", (json_int_t)request->flip,
                                "slow", (json_int_t)request->slow, "die", (json_int_t)request->die, "passes",
                                (json_int_t)request->passes, "err", (json_int_t)request->err),
                      err);
}

bool ash_run_has_request(const char *dir)
{
    char path[PATH_MAX];

    return ash_path_join(path, sizeof(path), dir, REQUEST_FILE) == 0 && access(path, F_OK) == 0;
}

int ash_run_request_take(const char *dir, struct ash_run_request *request_out)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t size = 0;
    int rc;

    if (ash_path_join(path, sizeof(path), dir, REQUEST_FILE) < 0 || access(path, F_OK) < 0) return 0;
    rc = ash_file_read(path, FILE_BYTES_MAX, &text, &size, NULL);
    unlink(path);
    if (rc < 0) return 0;
    rc = ash_run_request_decode(text, size, request_out, NULL);
    free(text);
    return rc == 0;
}

/* ---- the log and the lock ---------------------------------------------------------------------------------------- */

/* The number after a key in a line; false if it is missing. */
static bool number_after(const char *line, const char *key, double *value_out)
{
    const char *at = strstr(line, key);

    if (at == NULL) return false;
    *value_out = strtod(at + strlen(key), NULL);
    return true;
}

uint64_t ash_run_newest_step(const char *dir, double *loss_out, double *speed_out)
{
    char path[PATH_MAX], text[TAIL_BYTES + 1];
    double step = 0, value;
    size_t size;
    FILE *file;

    if (ash_path_join(path, sizeof(path), dir, "log.jsonl") < 0 || (file = fopen(path, "r")) == NULL) return 0;
    if (fseek(file, -TAIL_BYTES, SEEK_END) < 0) rewind(file);
    size = fread(text, 1, TAIL_BYTES, file);
    fclose(file);
    while (size > 0 && text[size - 1] != '\n') /* a line that is being written */
        size--;
    text[size > 0 ? size - 1 : 0] = '\0';
    const char *line = strrchr(text, '\n') != NULL ? strrchr(text, '\n') + 1 : text;
    if (!number_after(line, "\"step\":", &step) || !(step >= 0 && step < 1e15)) return 0;
    if (loss_out != NULL && number_after(line, "\"loss\":", &value)) *loss_out = value;
    if (speed_out != NULL && number_after(line, "\"tokens_per_s\":", &value)) *speed_out = value;
    return (uint64_t)step;
}

bool ash_run_is_going(const char *dir)
{
    char path[PATH_MAX];
    int fd = ash_path_join(path, sizeof(path), dir, ".lock") == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool is_locked;

    if (fd < 0) return false;
    is_locked = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    close(fd);
    return is_locked;
}

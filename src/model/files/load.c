/* Reading and packing in one go. Packed from mapped pages after the first token, a cold model goes through memory three
 * times: into the page cache, whose pages must be found and filled first, out of it, and into the packed place. Here
 * the disk writes to a few buffers, again and again, which are packed out of the processor's caches. */
#include "model/files/load.h"

#include <errno.h>
#include <stdlib.h>

#include "base/intake.h"
#include "infra/cpu.h"
#include "model/model_priv.h"
#include "model/weight.h"

#define PART_BYTES (((size_t)2 << 20) - 8192) /* with what is read around it, a huge page */
#define SAMPLE_BYTES ((size_t)8 << 20)        /* one page of so many is looked at */
#define KEEP_SHARE 4 /* of memory, one part may go to files in the page cache; as many bytes are packed */
/* Bytes a second: from a slower disk a file is not read twice, so that the next start finds it in the page cache. */
#define SLOW_DISK 2000000000u

/* Rows of a matrix. */
struct load_rows {
    int32_t param;
    size_t first, count;
};

struct ash_load {
    struct ash_intake *intake;
    const struct ash_model *model;
    struct ash_exec exec; /* without workers: the threads that read pack for themselves */
    size_t *ends;         /* [param_count] parts that have been taken when a parameter is there; 0: it is not loaded */
    struct load_rows *rows;
    size_t row_count;
    struct ash_err err;
    int rc; /* of what was waited for */
};

static const struct ash_map *map_of(const struct ash_model *model, const void *data)
{
    if (model->gguf != NULL) return ash_gguf_map(model->gguf, data);
    return model->files != NULL ? ash_safetensors_map(model->files, data) : NULL;
}

bool ash_load_wanted(const struct ash_model *model, const struct ash_exec *exec)
{
    size_t there = 0, looked = 0;

    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];
        size_t bytes = ash_dtype_size(param->dtype, param->count);

        if (ash_model_packed_bytes(model, exec, (int32_t)i) == 0 || map_of(model, param->data) == NULL) continue;
        for (size_t at = 0; at < bytes; at += SAMPLE_BYTES, looked++)
            there += ash_map_cached((const char *)param->data + at);
    }
    return there < looked - looked / 2;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static size_t part_rows(size_t row_bytes)
{
    size_t rows = PART_BYTES / row_bytes / ASH_PACK_ROWS * ASH_PACK_ROWS;

    return rows > 0 ? rows : ASH_PACK_ROWS;
}

/* The parts of a matrix, written where there is room for them. Returns how many they are. */
static size_t add_parts(const struct ash_load *load, int32_t index, struct load_rows *rows,
                        struct ash_intake_part *parts)
{
    const struct ash_param *param = &load->model->params[index];
    size_t row_bytes = ash_dtype_size(param->dtype, param->dims[1]), step = part_rows(row_bytes), count = 0;

    for (size_t first = 0; first < param->dims[0]; first += step, count++) {
        size_t some = param->dims[0] - first < step ? param->dims[0] - first : step;

        if (rows == NULL) continue;
        rows[count] = (struct load_rows){index, first, some};
        parts[count] = (struct ash_intake_part){map_of(load->model, param->data),
                                                (const char *)param->data + first * row_bytes, some * row_bytes};
    }
    return count;
}

/* Parameters are listed in the order of use, but for an embedding that is the output matrix too: that comes last. */
static size_t list_parts(struct ash_load *load, struct load_rows *rows, struct ash_intake_part *parts)
{
    const struct ash_model *model = load->model;
    int32_t embed = model->top.param[ASH_ROLE_EMBED];
    size_t count = 0;

    for (size_t i = 0; i <= model->param_count; i++) {
        int32_t index = i < model->param_count ? (int32_t)i : embed;

        if (index < 0 || (i < model->param_count && index == embed)) continue;
        if (ash_model_packed_bytes(model, &load->exec, index) == 0) continue;
        count += add_parts(load, index, rows != NULL ? rows + count : NULL, parts != NULL ? parts + count : NULL);
        load->ends[index] = count;
    }
    return count;
}

/* A part has been read: its rows go to their place. */
static void pack_part(void *ctx, size_t index, const void *bytes)
{
    struct ash_load *load = ctx;
    const struct load_rows *rows = &load->rows[index];
    const struct ash_param *param = &load->model->params[rows->param];
    size_t in, row_bytes = ash_dtype_size(param->dtype, param->dims[1]);
    struct ash_weight w = ash_weight_stored(load->model, rows->param, &in);

    w.mat.data = (const void *)((uintptr_t)bytes - rows->first * row_bytes); /* as if all rows were there */
    load->exec.ops->matrix->pack(&load->exec, &w, in, rows->first, rows->count, (void *)(uintptr_t)param->packed);
}

/* The next start finds the files in memory where there is plenty of it. */
static uint64_t keep_below(const struct ash_intake_part *parts, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += parts[i].size_bytes;
    return bytes <= ash_cpu_get()->memory_bytes / KEEP_SHARE ? SLOW_DISK : 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int load_start(struct ash_load *load, struct ash_model *model, const struct ash_exec *exec, struct ash_err *err)
{
    struct ash_intake_part *parts = NULL;
    int rc = -ENOMEM;

    load->ends = calloc(model->param_count, sizeof(*load->ends));
    if (load->ends == NULL) return ash_err_set(err, rc, "out of memory for a list of matrices");
    load->row_count = list_parts(load, NULL, NULL);
    load->rows = calloc(load->row_count + 1, sizeof(*load->rows));
    parts = calloc(load->row_count + 1, sizeof(*parts));
    if (load->rows == NULL || parts == NULL) {
        free(parts);
        return ash_err_set(err, rc, "out of memory for a list of parts");
    }
    list_parts(load, load->rows, parts);
    rc = ash_model_place_packed(model, exec, err);
    if (rc == 0)
        rc = ash_intake_open(parts, load->row_count, keep_below(parts, load->row_count), pack_part, load, &load->intake,
                             err);
    if (rc < 0) ash_model_unpack(model);
    free(parts);
    return rc;
}

int ash_load_open(struct ash_model *model, const struct ash_exec *exec, struct ash_load **load_out, struct ash_err *err)
{
    struct ash_load *load = calloc(1, sizeof(*load));
    int rc;

    if (load == NULL) return ash_err_set(err, -ENOMEM, "out of memory for loading");
    load->model = model;
    load->exec = (struct ash_exec){.ops = exec->ops, .memory = exec->memory};
    rc = load_start(load, model, exec, err);
    if (rc == 0)
        *load_out = load;
    else
        ash_load_close(load);
    return rc;
}

void ash_load_wait(struct ash_load *load, int32_t param)
{
    if (load == NULL || load->rc < 0) return;
    load->rc = ash_intake_wait(load->intake, load->ends[param], &load->err);
}

int ash_load_check(const struct ash_load *load, struct ash_err *err)
{
    if (load == NULL || load->rc == 0) return 0;
    return ash_err_set(err, load->rc, "the weights: %s", load->err.text);
}

int ash_load_finish(struct ash_load *load, struct ash_err *err)
{
    if (load != NULL && load->rc == 0) load->rc = ash_intake_wait(load->intake, load->row_count, &load->err);
    return ash_load_check(load, err);
}

void ash_load_close(struct ash_load *load)
{
    if (load == NULL) return;
    ash_intake_close(load->intake);
    free(load->ends);
    free(load->rows);
    free(load);
}

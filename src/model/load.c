/* Reading and packing in one go. A cold model that is packed from mapped pages goes through memory three times: into
 * the page cache, out of it, and into the packed place. Here the disk writes to the same few buffers, which are
 * packed out of the processor's caches. */
#include "model/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "infra/cpu.h"
#include "model/model_priv.h"
#include "model/weight.h"
#include "storage/io/direct_reader.h"

#define CHUNK_BYTES (((size_t)2 << 20) - 8192) /* with the blocks around it, a huge page */
#define SAMPLE_BYTES ((size_t)8 << 20)         /* of these, one page is looked at */
#define CACHE_SHARE 4 /* the page cache may get a quarter of memory; as many bytes are packed */
/* From a slower disk a file is read once, through the page cache, so that the next start finds it there. */
#define SLOW_DISK_BYTES_S 2000000000u

/* A chunk: rows of a matrix. */
struct load_rows {
    int32_t param;
    size_t first, count;
};

struct ash_load {
    struct ash_direct_reader *reader;
    const struct ash_model *model;
    struct ash_exec exec; /* without workers: the threads that read pack for themselves */
    size_t *ends;         /* [param_count] chunks that have been read when a parameter is there; 0: it is not loaded */
    struct load_rows *rows;
    size_t row_count;
    struct ash_err err;
    bool is_remote; /* nothing is mapped: matrices that are not packed are copied to where the mapping has them */
    int rc;         /* of the last wait */
};

bool ash_load_wanted(const struct ash_model *model, const struct ash_exec *exec)
{
    size_t there = 0, looked = 0;

    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];
        size_t bytes = ash_dtype_size(param->dtype, param->count);

        if (ash_model_packed_bytes(model, exec, (int32_t)i) == 0) continue;
        if (ash_model_map(model, param->data) == NULL) return false; /* a copy of a part: no file has it like this */
        for (size_t at = 0; at < bytes; at += SAMPLE_BYTES, looked++)
            there += ash_map_cached((const char *)param->data + at);
    }
    return there < looked - looked / 2;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

static size_t chunk_rows(size_t row_bytes)
{
    return ash_max(CHUNK_BYTES / row_bytes / ASH_PACK_ROWS * ASH_PACK_ROWS, ASH_PACK_ROWS);
}

/* A matrix in chunks of whole rows, into rows and ranges (NULL: only counted). Returns how many there are. */
static size_t add_ranges(const struct ash_load *load, int32_t index, struct load_rows *rows,
                         struct ash_direct_range *ranges)
{
    const struct ash_param *param = &load->model->params[index];
    size_t row_bytes = ash_dtype_size(param->dtype, param->dims[1]), step = chunk_rows(row_bytes), count = 0;

    ash_assert(index >= 0);
    ash_assert((size_t)index < load->model->param_count);
    for (size_t first = 0; first < param->dims[0]; first += step, count++) {
        size_t some = ash_min(param->dims[0] - first, step);

        if (rows == NULL) continue;
        rows[count] = (struct load_rows){index, first, some};
        ranges[count] = (struct ash_direct_range){ash_model_map(load->model, param->data),
                                                  (const char *)param->data + first * row_bytes, some * row_bytes};
    }
    return count;
}

/* Does the reader bring this parameter? */
static bool is_loaded(const struct ash_load *load, int32_t index)
{
    const struct ash_param *param = &load->model->params[index];

    ash_assert(index >= 0);
    ash_assert((size_t)index < load->model->param_count);
    if (ash_model_packed_bytes(load->model, &load->exec, index) > 0) return true;
    return param->is_matrix && ash_model_param_is_remote(load->model, (size_t)index);
}

/* Parameters are listed in the order of use, but for an embedding that is the output matrix too: that comes last. A
 * remote one comes first: rows of it are looked up. */
static size_t list_ranges(struct ash_load *load, struct load_rows *rows, struct ash_direct_range *ranges)
{
    const struct ash_model *model = load->model;
    int32_t embed = model->top.param[ASH_ROLE_EMBED];
    size_t count = 0;

    for (size_t i = 0; i <= model->param_count; i++) {
        bool is_embed_turn = i == (load->is_remote ? 0 : model->param_count);
        int32_t index = is_embed_turn ? embed : (int32_t)i - (load->is_remote ? 1 : 0);

        if (index < 0 || (!is_embed_turn && index == embed) || !is_loaded(load, index)) continue;
        count += add_ranges(load, index, rows != NULL ? rows + count : NULL, ranges != NULL ? ranges + count : NULL);
        load->ends[index] = count;
    }
    return count;
}

/* A chunk has been read: its rows go to their place. */
static void pack_chunk(void *ctx, size_t index, const void *bytes)
{
    struct ash_load *load = ctx;
    const struct load_rows *rows = &load->rows[index];
    const struct ash_param *param = &load->model->params[rows->param];
    size_t in, row_bytes = ash_dtype_size(param->dtype, param->dims[1]);
    struct ash_weight w;

    ash_assert(rows->param < (int32_t)load->model->param_count);
    if (ash_model_param_is_remote(load->model, (size_t)rows->param) &&
        (param->packed == NULL || rows->param == load->model->top.param[ASH_ROLE_EMBED]))
        memcpy((char *)(uintptr_t)param->data + rows->first * row_bytes, bytes, rows->count * row_bytes);
    if (param->packed == NULL) return;
    w = ash_weight_stored(load->model, rows->param, &in);
    w.mat.data = (const void *)((uintptr_t)bytes - rows->first * row_bytes); /* as if all rows were there */
    load->exec.ops->matrix->pack(&load->exec, &w, in, rows->first, rows->count, (void *)(uintptr_t)param->packed);
}

/* The next start finds the files in memory if there is plenty. */
static uint64_t cache_if_slower_than_bytes_s(const struct ash_direct_range *ranges, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += ranges[i].size_bytes;
    return bytes <= ash_cpu_get()->memory_bytes / CACHE_SHARE ? SLOW_DISK_BYTES_S : 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int load_start(struct ash_load *load, struct ash_model *model, const struct ash_exec *exec, struct ash_err *err)
{
    struct ash_direct_range *ranges = NULL;
    int rc = -ENOMEM;

    load->ends = calloc(model->param_count, sizeof(*load->ends));
    if (load->ends == NULL) return ash_err_set(err, rc, "out of memory for a list of matrices");
    load->row_count = list_ranges(load, NULL, NULL);
    load->rows = calloc(load->row_count + 1, sizeof(*load->rows));
    ranges = calloc(load->row_count + 1, sizeof(*ranges));
    if (load->rows == NULL || ranges == NULL) {
        free(ranges);
        return ash_err_set(err, rc, "out of memory for the list of what to read");
    }
    list_ranges(load, load->rows, ranges);
    rc = ash_model_place_packed(model, exec, err);
    if (rc == 0)
        rc = ash_direct_reader_open(ranges, load->row_count, cache_if_slower_than_bytes_s(ranges, load->row_count),
                                    pack_chunk, load, &load->reader, err);
    if (rc < 0) ash_model_drop_packed(model);
    free(ranges);
    return rc;
}

int ash_load_open(struct ash_model *model, const struct ash_exec *exec, struct ash_load **load_out, struct ash_err *err)
{
    struct ash_load *load = calloc(1, sizeof(*load));
    int rc;

    if (load == NULL) return ash_err_set(err, -ENOMEM, "out of memory for loading");
    load->model = model;
    load->is_remote = ash_model_is_remote(model);
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
    load->rc = ash_direct_reader_wait(load->reader, load->ends[param], &load->err);
}

void ash_load_wait_rows(struct ash_load *load, int32_t param)
{
    if (load != NULL && load->is_remote) ash_load_wait(load, param);
}

int ash_load_check(const struct ash_load *load, struct ash_err *err)
{
    if (load == NULL || load->rc == 0) return 0;
    return ash_err_set(err, load->rc, "the weights: %s", load->err.text);
}

int ash_load_finish(struct ash_load *load, struct ash_err *err)
{
    if (load != NULL && load->rc == 0) load->rc = ash_direct_reader_wait(load->reader, load->row_count, &load->err);
    return ash_load_check(load, err);
}

void ash_load_close(struct ash_load *load)
{
    if (load == NULL) return;
    ash_direct_reader_close(load->reader);
    free(load->ends);
    free(load->rows);
    free(load);
}

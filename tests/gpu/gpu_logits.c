/* gpu_logits [--backend NAME] [--precision fp32|bf16] DIR...: one line per model folder with a hash of logits, for
 * scripts/gpu_check.sh, which compares the lines of two backends. Some thousand rows of drawn documents get the same
 * logits alone, in batches, in pieces through a cache, and the losses of the trainer's forward pass; a folder with
 * results of the transformers library is compared with them. Exits 1 where anything differs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/rng.h"
#include "compute/ops.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "storage/safetensors/safetensors.h"

#define DOCS 64
#define DOC_ROWS_MAX 32
#define BF16_LIMIT 1e-2 /* relative, in the L2 norm: its results are float32 */
#define FP32_LIMIT 1e-5

/* One model, and its drawn documents one after the other. */
struct subject {
    const char *dir;
    struct ash_exec exec, host;
    struct ash_model *model;
    size_t vocab, rows, first[DOCS + 1];
    int32_t *ids, *targets;
    float *alone, *other; /* [rows, vocab] */
    bool bf16;
};

static double limit_of(const struct subject *s)
{
    return s->bf16 ? BF16_LIMIT : FP32_LIMIT;
}

static void must(int rc, const char *what, const struct ash_err *err)
{
    if (rc >= 0) return;
    fprintf(stderr, "gpu_logits: %s: %s\n", what, err->text);
    exit(1);
}

static void draw(struct subject *s)
{
    const struct ash_model_config *config = ash_model_get_config(s->model);
    size_t most = ash_min(config->max_positions, DOC_ROWS_MAX);

    s->vocab = config->vocab;
    for (size_t d = 0; d < DOCS; d++)
        s->first[d + 1] = s->first[d] + 1 + ash_rng_u64(7, d, 0) % most;
    s->rows = s->first[DOCS];
    s->ids = calloc(s->rows, sizeof(*s->ids));
    s->targets = calloc(s->rows, sizeof(*s->targets));
    s->alone = calloc(s->rows * s->vocab, sizeof(float));
    s->other = calloc(s->rows * s->vocab, sizeof(float));
    ash_assert(s->ids != NULL && s->targets != NULL && s->alone != NULL && s->other != NULL);
    for (size_t r = 0; r < s->rows; r++) {
        s->ids[r] = (int32_t)(ash_rng_u64(8, r, 0) % s->vocab);
        s->targets[r] = (int32_t)(ash_rng_u64(9, r, 0) % s->vocab);
    }
}

/* Documents [from, to) as a batch. */
static struct ash_batch batch_of(const struct subject *s, size_t from, size_t to, struct ash_doc docs[DOCS])
{
    for (size_t d = from; d < to; d++)
        docs[d - from] = (struct ash_doc){.row = s->first[d] - s->first[from], .count = s->first[d + 1] - s->first[d]};
    return (struct ash_batch){.rows = s->first[to] - s->first[from],
                              .ids = s->ids + s->first[from],
                              .targets = s->targets + s->first[from],
                              .docs = docs,
                              .doc_count = to - from};
}

/* Logits in batches of `some` documents. */
static void run_batches(struct subject *s, size_t some, float *logits)
{
    struct ash_pass_opts opts = {.max_rows = some * DOC_ROWS_MAX};
    size_t wanted[DOCS * DOC_ROWS_MAX];
    struct ash_pass *pass = NULL;
    struct ash_doc docs[DOCS];
    struct ash_err err = {0};

    for (size_t r = 0; r < ASH_COUNT(wanted); r++)
        wanted[r] = r;
    must(ash_pass_open(s->model, &s->exec, &opts, &pass, &err), "open", &err);
    for (size_t from = 0; from < DOCS; from += some) {
        struct ash_batch batch = batch_of(s, from, ash_min(from + some, DOCS), docs);

        must(ash_pass_infer(pass, &batch, NULL, wanted, batch.rows, logits + s->first[from] * s->vocab, &err), "infer",
             &err);
    }
    ash_pass_close(pass);
}

/* Every document in drawn pieces through one cache. */
static void run_pieces(struct subject *s, float *logits)
{
    struct ash_pass_opts opts = {.max_rows = DOC_ROWS_MAX};
    struct ash_pass *pass = NULL;
    struct ash_cache *cache = NULL;
    struct ash_err err = {0};
    size_t wanted[DOC_ROWS_MAX];

    must(ash_pass_open(s->model, &s->exec, &opts, &pass, &err), "open", &err);
    must(ash_cache_open(s->model, DOCS * ash_cache_pages_for(DOC_ROWS_MAX), &cache, &err), "cache", &err);
    for (size_t r = 0; r < DOC_ROWS_MAX; r++)
        wanted[r] = r;
    for (size_t d = 0; d < DOCS; d++) {
        size_t count = s->first[d + 1] - s->first[d];
        struct ash_block_table table = {0};

        must(ash_block_table_init(&table, count), "pages", &err);
        must(ash_block_table_grow(&table, cache, count), "pages", &err);
        for (size_t at = 0, some; at < count; at += some) {
            some = ash_min(count - at, 1 + ash_rng_u64(10, d, at) % 9);
            struct ash_doc doc = {.count = some, .pos = at, .pages = table.pages, .page_count = table.count};
            struct ash_batch batch = {.rows = some, .ids = s->ids + s->first[d] + at, .docs = &doc, .doc_count = 1};

            must(ash_pass_infer(pass, &batch, cache, wanted, some, logits + (s->first[d] + at) * s->vocab, &err),
                 "a piece", &err);
        }
        ash_block_table_fini(&table);
    }
    ash_cache_close(cache);
    ash_pass_close(pass);
}

static bool is_same(const struct subject *s, const char *what)
{
    for (size_t i = 0; i < s->rows * s->vocab; i++) {
        if (memcmp(&s->alone[i], &s->other[i], sizeof(float)) == 0) continue;
        printf("%s: %s: row %zu, column %zu: %a alone, %a so\n", s->dir, what, i / s->vocab, i % s->vocab,
               (double)s->alone[i], (double)s->other[i]);
        return false;
    }
    return true;
}

/* Losses of the generator's logits, as the reference of what is tested computes them. */
static void losses_of(const struct subject *s, float *losses)
{
    struct ash_exec reference = s->host;

    reference.ops = s->exec.ops->reference;
    reference.ops->loss->cross_entropy(&reference, &(struct ash_loss_part){.rows = s->rows,
                                                                           .cols = s->vocab,
                                                                           .logits = s->alone,
                                                                           .targets = s->targets,
                                                                           .loss = losses,
                                                                           .round_bf16 = s->bf16});
}

/* The trainer's losses are those of the generator's logits. */
static bool has_losses(struct subject *s)
{
    struct ash_pass_opts opts = {.max_rows = s->rows, .backward = true};
    struct ash_pass *pass = NULL;
    struct ash_doc docs[DOCS];
    struct ash_batch batch = batch_of(s, 0, DOCS, docs);
    float *losses = calloc(2 * s->rows, sizeof(*losses)), *wanted = losses + s->rows;
    struct ash_err err = {0};
    size_t row = 0;

    ash_assert(losses != NULL);
    must(ash_pass_open(s->model, &s->exec, &opts, &pass, &err), "open", &err);
    must(ash_pass_forward(pass, &batch, &err), "forward", &err);
    must(ash_pass_losses(pass, losses, NULL, &err), "losses", &err);
    ash_pass_close(pass);
    losses_of(s, wanted);
    while (row < s->rows && memcmp(&losses[row], &wanted[row], sizeof(float)) == 0)
        row++;
    if (row < s->rows)
        printf("%s: row %zu: the trainer's loss is %a, the generator's %a\n", s->dir, row, (double)losses[row],
               (double)wanted[row]);
    free(losses);
    return row == s->rows;
}

/* A router's two best experts may be closer than bf16 tells apart, and another expert is another function: no rounding
 * is small enough for that. So the distance from float32 results is judged with float32's experts: they are recorded in
 * a float32 pass and chosen again in the bf16 one, which computes its own weights for them. */
static struct {
    const struct ash_ops *ops;
    int32_t *index;
    size_t count, at; /* at: how many were chosen again */
} experts;

static void record_experts(struct ash_exec *exec, const struct ash_route_args *args)
{
    size_t count = args->rows * args->choices;

    experts.ops->route->forward(exec, args);
    experts.index = realloc(experts.index, (experts.count + count) * sizeof(*experts.index));
    ash_assert(experts.index != NULL);
    memcpy(experts.index + experts.count, args->index, count * sizeof(*args->index));
    experts.count += count;
}

static void choose_recorded(struct ash_exec *exec, const struct ash_route_args *args)
{
    const float surely = 16.0f; /* scores are at most 1 */
    float bias[256];

    ash_assert(args->experts <= ASH_COUNT(bias) && experts.at + args->rows * args->choices <= experts.count);
    for (size_t r = 0; r < args->rows; r++) {
        struct ash_route_args one = *args;

        for (size_t e = 0; e < args->experts; e++)
            bias[e] = args->choice_bias != NULL ? args->choice_bias[e] : 0.0f;
        for (size_t c = 0; c < args->choices; c++)
            bias[experts.index[experts.at++]] += surely;
        one.rows = 1;
        one.choice_bias = bias;
        one.logits += r * args->experts;
        one.index += r * args->choices;
        one.weight += r * args->choices;
        experts.ops->route->forward(exec, &one);
    }
}

/* Logits of all rows of a batch, by one pass. */
static void infer(struct ash_model *model, struct ash_exec *exec, const struct ash_batch *batch, float *logits)
{
    size_t *wanted = calloc(batch->rows, sizeof(*wanted));
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};

    ash_assert(wanted != NULL);
    for (size_t r = 0; r < batch->rows; r++)
        wanted[r] = r;
    must(ash_pass_open(model, exec, &(struct ash_pass_opts){.max_rows = batch->rows}, &pass, &err), "open", &err);
    must(ash_pass_infer(pass, batch, NULL, wanted, batch->rows, logits, &err), "infer", &err);
    ash_pass_close(pass);
    free(wanted);
}

/* The same in bf16 with float32's experts, on the host, where an op can be another one. */
static void infer_with_experts_of_float32(struct subject *s, const struct ash_batch *batch, float *logits)
{
    const struct ash_ops *ops = s->host.ops;
    struct ash_route_ops route = *ops->route;
    struct ash_ops own = *ops;
    struct ash_model *model = NULL;
    struct ash_err err = {0};

    must(ash_model_open(s->dir, &model, &err), s->dir, &err);
    experts.ops = ops;
    own.route = &route;
    s->host.ops = &own;
    route.forward = record_experts;
    infer(model, &s->host, batch, logits);
    route.forward = choose_recorded;
    ash_model_round_bf16(model, true);
    infer(model, &s->host, batch, logits);
    ash_assert(experts.at == experts.count);
    s->host.ops = ops;
    ash_model_close(model);
    free(experts.index);
    memset(&experts, 0, sizeof(experts));
}

/* The relative L2 difference of the batch's logits from some that are given. */
static double difference_from(struct subject *s, const struct ash_batch *batch, const float *want)
{
    size_t count = batch->rows * s->vocab;
    float *logits = calloc(count, sizeof(*logits));
    double diff = 0.0, norm = 0.0;

    ash_assert(logits != NULL);
    if (s->bf16 && ash_model_get_config(s->model)->expert.experts > 0)
        infer_with_experts_of_float32(s, batch, logits);
    else
        infer(s->model, &s->exec, batch, logits);
    for (size_t i = 0; i < count; i++) {
        diff += ((double)logits[i] - (double)want[i]) * ((double)logits[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    free(logits);
    return norm > 0.0 ? sqrt(diff / norm) : 0.0;
}

/* The relative L2 difference from the transformers library; 0 where the folder has no results of it. */
static double difference(struct subject *s)
{
    char path[4096];
    struct ash_safetensors *file = NULL;
    struct ash_err err = {0};
    double difference = 0.0;

    if (ash_path_join(path, sizeof(path), s->dir, "reference.safetensors") < 0 || !ash_path_exists(path)) return 0.0;
    must(ash_safetensors_open(path, &file, &err), path, &err);
    const struct ash_tensor_view *ids = ash_safetensors_find(file, "input_ids");
    const struct ash_tensor_view *want = ash_safetensors_find(file, "logits");
    if (ids != NULL && want != NULL && ids->dim_count == 2) {
        size_t B = ids->dims[0], T = ids->dims[1];
        struct ash_doc *docs = calloc(B, sizeof(*docs));

        ash_assert(docs != NULL);
        for (size_t b = 0; b < B; b++)
            docs[b] = (struct ash_doc){.row = b * T, .count = T};
        difference = difference_from(
            s, &(struct ash_batch){.rows = B * T, .ids = ids->data, .docs = docs, .doc_count = B}, want->data);
        free(docs);
    }
    ash_safetensors_close(file);
    return difference;
}

static bool check(struct subject *s, const char *backend)
{
    static const size_t batches[] = {2, 7, DOCS};
    struct ash_err err = {0};
    double worst;
    bool ok = true;

    must(ash_exec_init(&s->exec, backend, 0, &err), "backend", &err);
    must(ash_exec_init(&s->host, "ref", 1, &err), "backend", &err);
    must(ash_model_open(s->dir, &s->model, &err), s->dir, &err);
    ash_model_round_bf16(s->model, s->bf16);
    draw(s);
    run_batches(s, 1, s->alone);
    for (size_t b = 0; b < ASH_COUNT(batches); b++) {
        char what[32];

        snprintf(what, sizeof(what), "in batches of %zu", batches[b]);
        run_batches(s, batches[b], s->other);
        ok &= is_same(s, what);
    }
    run_pieces(s, s->other);
    ok &= is_same(s, "in pieces");
    ok &= has_losses(s);
    worst = difference(s);

    if (!(worst <= limit_of(s))) {
        printf("%s: %.3e from the transformers library\n", s->dir, worst);
        ok = false;
    }
    printf("%s %s: %zu rows, logits %016llx\n", s->dir, s->bf16 ? "bf16" : "fp32", s->rows,
           (unsigned long long)ash_hash_bytes(s->alone, s->rows * s->vocab * sizeof(float), 0));
    ash_model_close(s->model);
    ash_exec_fini(&s->exec);
    ash_exec_fini(&s->host);
    free(s->ids);
    free(s->targets);
    free(s->alone);
    free(s->other);
    return ok;
}

int main(int argc, char **argv)
{
    const char *backend = "cuda";
    bool bf16 = false, ok = true;

    for (int i = 1; i < argc; i++) {
        struct subject subject = {.dir = argv[i]};

        if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc) {
            backend = argv[++i];
        } else if (strcmp(argv[i], "--precision") == 0 && i + 1 < argc) {
            bf16 = strcmp(argv[++i], "bf16") == 0;
        } else {
            subject.bf16 = bf16;
            ok &= check(&subject, backend);
        }
    }
    return ok ? 0 : 1;
}

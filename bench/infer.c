/* infer MODEL THREADS: prefill and decode on request. Prints one line about itself when it is ready (with the number of
 * weights that a decoded token reads); then, for each line on standard input, "prefill N" or "decode N" from an empty
 * cache, prints the seconds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "serve/generator.h"

#define TOKENS_MAX 1024

struct bench {
    struct ash_exec exec;
    struct ash_model *model;
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_block_table table;
    float *logits; /* [vocab] */
    int32_t ids[TOKENS_MAX];
};

static int bench_open(struct bench *bench, const char *path, int threads, struct ash_err *err)
{
    struct ash_pass_opts opts = {.max_rows = ASH_GENERATOR_PREFILL_ROWS};
    size_t vocab;
    int rc = ash_exec_init(&bench->exec, NULL, threads, err);

    if (rc < 0) return rc;
    rc = ash_model_open(path, &bench->model, err);
    if (rc < 0) return rc;
    ash_model_round_bf16(bench->model, true);
    rc = ash_model_pack(bench->model, &bench->exec, err);
    if (rc < 0) return rc;
    rc = ash_pass_open(bench->model, &bench->exec, &opts, &bench->pass, err);
    if (rc < 0) return rc;
    rc = ash_cache_open(bench->model, ash_cache_pages_for(TOKENS_MAX), &bench->cache, err);
    if (rc < 0) return rc;
    rc = ash_block_table_init(&bench->table, TOKENS_MAX);
    if (rc < 0) return ash_err_set(err, rc, "no memory for a block table");
    rc = ash_block_table_grow(&bench->table, bench->cache, TOKENS_MAX);
    if (rc < 0) return rc;
    vocab = ash_model_get_config(bench->model)->vocab;
    bench->logits = malloc(vocab * sizeof(float));
    if (bench->logits == NULL) return ash_err_set(err, -ENOMEM, "no memory for logits");
    for (size_t i = 0; i < TOKENS_MAX; i++)
        bench->ids[i] = (int32_t)ash_rng_below(1, 0, i, vocab);
    return 0;
}

static void bench_close(struct bench *bench)
{
    free(bench->logits);
    ash_block_table_fini(&bench->table);
    ash_cache_close(bench->cache);
    ash_pass_close(bench->pass);
    ash_model_close(bench->model);
    ash_exec_fini(&bench->exec);
}

/* Weights that every token reads: all but an embedding that is only looked up. */
static size_t token_weights(const struct ash_model *model)
{
    size_t count = ash_model_weight_count(model);
    const struct ash_param *embed = ash_model_find(model, "model.embed_tokens.weight");

    return embed != NULL && !ash_model_get_config(model)->tied ? count - embed->count : count;
}

/* Run ids[first ...] at their positions; the last one's logits are kept. */
static int run_rows(struct bench *bench, size_t first, size_t count, struct ash_err *err)
{
    struct ash_doc doc = {.count = count, .pos = first, .pages = bench->table.pages, .page_count = bench->table.count};
    struct ash_batch batch = {.rows = count, .ids = bench->ids + first, .docs = &doc, .doc_count = 1};
    size_t last = count - 1;

    return ash_pass_infer(bench->pass, &batch, bench->cache, &last, 1, bench->logits, err);
}

static int prefill(struct bench *bench, size_t count, struct ash_err *err)
{
    for (size_t done = 0; done < count;) {
        size_t rows = count - done < ASH_GENERATOR_PREFILL_ROWS ? count - done : ASH_GENERATOR_PREFILL_ROWS;
        int rc = run_rows(bench, done, rows, err);
        if (rc < 0) return rc;
        done += rows;
    }
    return 0;
}

/* The likeliest token goes in next. */
static int decode(struct bench *bench, size_t count, struct ash_err *err)
{
    size_t vocab = ash_model_get_config(bench->model)->vocab;

    for (size_t at = 0; at < count; at++) {
        size_t best = 0;
        int rc = run_rows(bench, at, 1, err);
        if (rc < 0) return rc;
        for (size_t v = 1; v < vocab; v++)
            if (bench->logits[v] > bench->logits[best]) best = v;
        bench->ids[at + 1] = (int32_t)best;
    }
    return 0;
}

static int serve(struct bench *bench, struct ash_err *err)
{
    char line[32];

    while (fgets(line, sizeof(line), stdin) != NULL) {
        bool decoding = strncmp(line, "decode ", 7) == 0;
        char *number = strchr(line, ' ');
        unsigned long count = number != NULL ? strtoul(number, NULL, 10) : 0;
        uint64_t start = ash_clock_ns();
        int rc;
        if (count < 1 || count >= TOKENS_MAX) return ash_err_set(err, -EINVAL, "cannot do '%s'", line);
        rc = decoding ? decode(bench, count, err) : prefill(bench, count, err);
        if (rc < 0) return rc;
        printf("%.6f\n", (double)(ash_clock_ns() - start) * 1e-9);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    struct ash_err err = {0};
    int rc;

    if (argc != 3) {
        fprintf(stderr, "usage: infer MODEL THREADS\n");
        return 2;
    }
    rc = bench_open(&bench, argv[1], (int)strtol(argv[2], NULL, 10), &err);
    if (rc == 0) {
        printf("%zu weights/token, %s\n", token_weights(bench.model), bench.exec.ops->name);
        fflush(stdout);
        rc = serve(&bench, &err);
    }
    if (rc < 0) fprintf(stderr, "infer: %s\n", err.text);
    bench_close(&bench);
    return rc < 0;
}

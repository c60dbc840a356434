/* train_step SHAPE THREADS: training steps on random weights and tokens: forward, loss, backward, gradient norm, AdamW.
 * Prints one line about itself when it is ready; then, for each line on standard input ("fp32" or "bf16"), runs a step
 * and prints its seconds. A process that waits to be asked can take turns with a peer without being loaded anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "infra/cpu.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/pass.h"
#include "train/state/optimizer.h"
#include "train/state/state.h"

#define SEQUENCES 4
#define TOKENS 256
#define ROWS (SEQUENCES * TOKENS)

static const struct shape {
    const char *name, *config;
} shapes[] = {
    {"gpt2-124m", "{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"n_embd\": 768, \"n_layer\": 12, \"n_head\": 12,"
                  " \"n_positions\": 1024}"},
    {"llama-300m",
     "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 1024, \"num_hidden_layers\": 20,"
     " \"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"intermediate_size\": 2816,"
     " \"max_position_embeddings\": 1024, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}"},
    {NULL, NULL},
};

static const struct ash_optimizer_opts optimizer_opts = {
    .lr = 3e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .clip = 1.0};

struct bench {
    struct ash_exec exec;
    struct ash_state state;
    struct ash_optimizer optimizer;
    struct ash_pass *pass;
    struct ash_buffer grads;
    int32_t ids[ROWS], targets[ROWS];
    struct ash_doc docs[SEQUENCES];
    float losses[ROWS];
};

static int create_model(const char *text, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model_config config;
    json_t *json = NULL;
    int rc = ash_json_parse(text, strlen(text), "shape", &json, err);

    if (rc < 0) return rc;
    rc = ash_model_config_parse(json, &config, err);
    json_decref(json);
    if (rc < 0) return rc;
    rc = ash_model_create(&config, 1, model_out, err);
    if (rc < 0) ash_model_config_fini(&config);
    return rc;
}

/* Rows of random text: each sequence is a document, and its targets are its ids one further. */
static void fill_batch(struct bench *bench, size_t vocab)
{
    for (size_t s = 0; s < SEQUENCES; s++)
        bench->docs[s] = (struct ash_doc){.row = s * TOKENS, .count = TOKENS};
    for (size_t r = 0; r < ROWS; r++) {
        uint64_t at = r + r / TOKENS;
        bench->ids[r] = (int32_t)ash_rng_below(1, 0, at, vocab);
        bench->targets[r] = (int32_t)ash_rng_below(1, 0, at + 1, vocab);
    }
}

static int bench_open(struct bench *bench, const char *config, int threads, struct ash_err *err)
{
    struct ash_pass_opts pass_opts = {.max_rows = ROWS, .backward = true};
    struct ash_model *model = NULL;
    int rc = ash_exec_init(&bench->exec, NULL, threads, err);

    if (rc < 0) return rc;
    rc = create_model(config, &model, err);
    if (rc < 0) return rc;
    rc = ash_state_init(&bench->state, &bench->exec, model, true, NULL, err);
    if (rc < 0) {
        ash_model_close(model);
        return rc;
    }
    fill_batch(bench, ash_model_get_config(model)->vocab);
    rc = ash_pass_open(model, &bench->exec, &pass_opts, &bench->pass, err);
    if (rc == 0) ash_optimizer_init(&bench->optimizer, &optimizer_opts, &bench->state);
    if (rc == 0)
        rc = ash_buffer_init(&bench->grads, bench->exec.memory, ash_model_grad_size(model) * sizeof(float), "gradients",
                             err);
    return rc;
}

static void bench_close(struct bench *bench)
{
    ash_buffer_fini(&bench->grads);
    ash_pass_close(bench->pass);
    ash_state_fini(&bench->state);
    ash_exec_fini(&bench->exec);
}

static int run_step(struct bench *bench, bool bf16, struct ash_err *err)
{
    struct ash_batch batch = {.rows = ROWS,
                              .ids = bench->ids,
                              .targets = bench->targets,
                              .docs = bench->docs,
                              .doc_count = SEQUENCES,
                              .seq_rows = TOKENS,
                              .flags = ASH_BATCH_OVERWRITES};
    struct ash_model *model = bench->state.model;
    float *grads = bench->grads.data;
    struct ash_optimizer *optimizer = &bench->optimizer;
    struct ash_optimizer_ranks alone = {0};
    const float *sums = grads;
    double norm;
    int rc;

    ash_model_use_bf16(model, bf16 ? bench->state.bf16.data : NULL);
    ash_model_clear_grads(model, &bench->exec, grads, (struct ash_range){0, ash_model_grad_size(model)});
    rc = ash_pass_train(bench->pass, &batch, 1.0f / ROWS, &(struct ash_pass_grads){.sums = grads}, bench->losses, err);
    if (rc < 0) return rc;
    ash_model_grad_fold(model, &bench->exec, grads);
    rc = ash_optimizer_norm(&optimizer, &sums, 1, &alone, &norm, err);
    if (rc < 0) return rc;
    ash_optimizer_update(&bench->optimizer, grads, norm, optimizer_opts.lr);
    ash_state_advance(&bench->state);
    return 0;
}

static int serve(struct bench *bench, struct ash_err *err)
{
    char line[16];

    while (fgets(line, sizeof(line), stdin) != NULL) {
        uint64_t start = ash_clock_ns();
        int rc = run_step(bench, strcmp(line, "bf16\n") == 0, err);
        if (rc < 0) return rc;
        printf("%.6f\n", (double)(ash_clock_ns() - start) * 1e-9);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    const struct shape *shape = shapes;
    struct ash_err err = {0};
    int rc;

    while (argc == 3 && shape->name != NULL && strcmp(shape->name, argv[1]) != 0)
        shape++;
    if (argc != 3 || shape->name == NULL) {
        fprintf(stderr, "usage: train_step gpt2-124m|llama-300m THREADS\n");
        return 2;
    }
    rc = bench_open(&bench, shape->config, (int)strtol(argv[2], NULL, 10), &err);
    if (rc == 0) {
        printf("%s (%.0fM, %d threads)\n", bench.exec.ops->name,
               (double)ash_model_weight_count(bench.state.model) * 1e-6, ash_workers_count(bench.exec.workers));
        fflush(stdout);
        rc = serve(&bench, &err);
    }
    if (rc < 0) fprintf(stderr, "train_step: %s\n", err.text);
    bench_close(&bench);
    return rc < 0;
}

/* What serving costs in addition to the model.
 *   serve_step bare MODEL THREADS ROWS: a loop of passes and nothing else. Prints a line when it is ready; then, for
 *     each line on standard input, "steps N" of ROWS rows after 256 tokens each, prints the seconds of one.
 *   serve_step null SEQUENCES: the schedule alone, over a stand-in for a model. Prints the seconds of a step.
 *   serve_step room TOKENS: the share of the held pages that sequences of that length leave empty.
 *   serve_step trace FILE REQUESTS PAGES: prompts of a trace, one after the other, through a prefix cache of PAGES
 *     pages. Prints the tokens that it found, and those that an ideal LRU of as many pages finds. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/rng.h"
#include "lib/team.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "serve/engine/core.h"

#define BEGIN 256 /* tokens that a sequence has before the first step */
#define STEPS_MAX 512
#define ROWS_MAX 64
#define NULL_STEPS 400
#define NULL_VOCAB 64
#define PAGE ASH_CACHE_PAGE_TOKENS
#define BLOCK 512 /* tokens that a hash of the trace stands for */

/* ---- bare passes ------------------------------------------------------------------------------------------------- */

struct bare {
    struct ash_exec exec;
    struct ash_model *model;
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_block_table tables[ROWS_MAX];
    size_t rows, vocab;
    float *logits; /* [rows, vocab] */
};

static int bare_open(struct bare *bare, const char *path, int threads, struct ash_err *err)
{
    struct ash_pass_opts opts = {.max_rows = BEGIN};
    size_t pages = ash_cache_pages_for(BEGIN + STEPS_MAX);
    int rc = ash_exec_init(&bare->exec, NULL, threads, err);

    if (rc == 0) rc = ash_model_open(path, &bare->model, err);
    if (rc < 0) return rc;
    ash_model_round_bf16(bare->model, true);
    rc = ash_model_pack(bare->model, &bare->exec, err);
    if (rc == 0) rc = ash_pass_open(bare->model, &bare->exec, &opts, &bare->pass, err);
    if (rc == 0) rc = ash_cache_open(bare->model, bare->rows * pages, &bare->cache, err);
    for (size_t r = 0; r < bare->rows && rc == 0; r++) {
        rc = ash_block_table_init(&bare->tables[r], BEGIN + STEPS_MAX);
        if (rc == 0) rc = ash_block_table_grow(&bare->tables[r], bare->cache, BEGIN + STEPS_MAX);
    }
    if (rc < 0) return rc;
    bare->vocab = ash_model_get_config(bare->model)->vocab;
    bare->logits = calloc(bare->rows, bare->vocab * sizeof(*bare->logits));
    return bare->logits != NULL ? 0 : ash_err_set(err, -ENOMEM, "no memory for logits");
}

static void bare_close(struct bare *bare)
{
    free(bare->logits);
    for (size_t r = 0; r < bare->rows; r++)
        ash_block_table_fini(&bare->tables[r]);
    ash_cache_close(bare->cache);
    ash_pass_close(bare->pass);
    ash_model_close(bare->model);
    ash_exec_fini(&bare->exec);
}

/* The first tokens of every sequence. */
static int bare_fill(struct bare *bare, struct ash_err *err)
{
    int32_t ids[BEGIN];
    size_t last = BEGIN - 1;
    int rc = 0;

    for (size_t r = 0; r < bare->rows && rc == 0; r++) {
        struct ash_doc doc = {.count = BEGIN, .pages = bare->tables[r].pages, .page_count = bare->tables[r].count};
        struct ash_batch batch = {.rows = BEGIN, .ids = ids, .docs = &doc, .doc_count = 1};

        for (size_t i = 0; i < BEGIN; i++)
            ids[i] = (int32_t)ash_rng_below(1, r, i, bare->vocab);
        rc = ash_pass_infer(bare->pass, &batch, bare->cache, &last, 1, bare->logits, err);
    }
    return rc;
}

static int bare_step(struct bare *bare, size_t pos, int32_t *ids, struct ash_err *err)
{
    struct ash_doc docs[ROWS_MAX];
    size_t wanted[ROWS_MAX];
    struct ash_batch batch = {.rows = bare->rows, .ids = ids, .docs = docs, .doc_count = bare->rows};
    int rc;

    for (size_t r = 0; r < bare->rows; r++) {
        docs[r] = (struct ash_doc){
            .row = r, .count = 1, .pos = pos, .pages = bare->tables[r].pages, .page_count = bare->tables[r].count};
        wanted[r] = r;
    }
    rc = ash_pass_infer(bare->pass, &batch, bare->cache, wanted, bare->rows, bare->logits, err);
    for (size_t r = 0; r < bare->rows && rc == 0; r++) {
        const float *logits = bare->logits + r * bare->vocab;
        size_t best = 0;

        for (size_t v = 1; v < bare->vocab; v++)
            if (logits[v] > logits[best]) best = v;
        ids[r] = (int32_t)best;
    }
    return rc;
}

static int bare_serve(struct bare *bare, struct ash_err *err)
{
    char line[32];
    int rc = bare_fill(bare, err);

    if (rc < 0) return rc;
    printf("%zu rows, %s\n", bare->rows, bare->exec.ops->name);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        size_t steps = strncmp(line, "steps ", 6) == 0 ? strtoul(line + 6, NULL, 10) : 0;
        int32_t ids[ROWS_MAX] = {0};
        uint64_t begin_ns = ash_clock_ns();

        if (steps < 1 || steps > STEPS_MAX) return ash_err_set(err, -EINVAL, "cannot do '%s'", line);
        for (size_t i = 0; i < steps; i++) {
            rc = bare_step(bare, BEGIN + i, ids, err);
            if (rc < 0) return rc;
        }
        printf("%.9f\n", (double)(ash_clock_ns() - begin_ns) * 1e-9 / (double)steps);
        fflush(stdout);
    }
    return 0;
}

static int run_bare(char **argv, struct ash_err *err)
{
    struct bare bare = {.rows = strtoul(argv[2], NULL, 10)};
    int rc;

    if (bare.rows < 1 || bare.rows > ROWS_MAX) return ash_err_set(err, -EINVAL, "1 to %d rows", ROWS_MAX);
    rc = bare_open(&bare, argv[0], atoi(argv[1]), err);
    if (rc == 0) rc = bare_serve(&bare, err);
    bare_close(&bare);
    return rc;
}

/* ---- the schedule alone ------------------------------------------------------------------------------------------ */

struct null_seq {
    struct ash_request request;
    struct ash_request_end end;
    int32_t *prompt;
    bool is_done;
};

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct null_seq *seq = ctx;

    seq->end = *end;
    seq->is_done = true;
}

static int submit(struct ash_core *core, struct null_seq *seq, size_t prompt, size_t answer, struct ash_err *err)
{
    seq->is_done = false;
    seq->request = (struct ash_request){.prompt = seq->prompt,
                                        .prompt_count = prompt,
                                        .sampler = ash_sampler_defaults(),
                                        .max_tokens = answer,
                                        .done = take_end,
                                        .ctx = seq};
    return ash_core_submit(core, &seq->request, err);
}

struct null_core {
    struct ash_exec exec;
    struct ash_core *core;
    struct ash_null_model model;
};

static int null_open(struct null_core *null, struct ash_core_opts opts, size_t positions, struct ash_err *err)
{
    int rc = ash_exec_init(&null->exec, NULL, 1, err);

    null->model = (struct ash_null_model){.vocab = NULL_VOCAB, .max_positions = positions};
    return rc < 0 ? rc : ash_core_open_null(&null->model, &null->exec, &opts, &null->core, err);
}

static void null_close(struct null_core *null)
{
    ash_core_close(null->core);
    ash_exec_fini(&null->exec);
}

/* Sequences of `prompt` tokens without a shared prefix, all running and with their prompts done. */
static int null_start(struct null_core *null, struct null_seq *seqs, size_t count, size_t prompt, size_t answer,
                      struct ash_err *err)
{
    int rc = 0;

    for (size_t s = 0; s < count && rc == 0; s++) {
        seqs[s].prompt = malloc(prompt * sizeof(*seqs[s].prompt));
        if (seqs[s].prompt == NULL) return ash_err_set(err, -ENOMEM, "no memory for prompts");
        for (size_t i = 0; i < prompt; i++)
            seqs[s].prompt[i] = (int32_t)ash_rng_below(2, s, i, NULL_VOCAB);
        rc = submit(null->core, &seqs[s], prompt, answer, err);
    }
    while (rc == 0 && ash_core_get_stats(null->core).answer_tokens < count && ash_core_step(null->core) > 0)
        ;
    return rc;
}

static void free_prompts(struct null_seq *seqs, size_t count)
{
    for (size_t s = 0; seqs != NULL && s < count; s++)
        free(seqs[s].prompt);
    free(seqs);
}

static int run_null(char **argv, struct ash_err *err)
{
    size_t count = strtoul(argv[0], NULL, 10), prompt = 100;
    struct ash_core_opts opts = {
        .max_seqs = count, .max_batch_rows = 2 * count, .kv_bytes = count * (prompt + NULL_STEPS + 2 * PAGE)};
    struct null_seq *seqs = calloc(count, sizeof(*seqs));
    double *seconds = calloc(NULL_STEPS, sizeof(*seconds));
    struct null_core null = {0};
    int rc = seqs != NULL && seconds != NULL ? null_open(&null, opts, 4096, err) : -ENOMEM;

    if (rc == 0) rc = null_start(&null, seqs, count, prompt, NULL_STEPS + 8, err);
    for (size_t i = 0; i < NULL_STEPS && rc == 0; i++) {
        if (ash_core_step(null.core) == 0) rc = ash_err_set(err, -EINVAL, "the sequences ended early");
        seconds[i] = ash_core_get_stats(null.core).schedule_s;
    }
    if (rc == 0) printf("%.9f\n", bench_median(seconds, NULL_STEPS));
    null_close(&null);
    free_prompts(seqs, count);
    free(seconds);
    return rc;
}

static int run_room(char **argv, struct ash_err *err)
{
    size_t tokens = strtoul(argv[0], NULL, 10), count = 64;
    struct ash_core_opts opts = {
        .max_seqs = count, .max_batch_rows = count * tokens, .kv_bytes = count * (tokens + 2 * PAGE)};
    struct null_seq *seqs = calloc(count, sizeof(*seqs));
    struct null_core null = {0};
    int rc = seqs != NULL ? null_open(&null, opts, tokens + 2 * PAGE, err) : -ENOMEM;

    if (rc == 0) rc = null_start(&null, seqs, count, tokens, 8, err);
    if (rc == 0) {
        double held = (double)(ash_core_get_stats(null.core).pages_held * PAGE);

        printf("%.6f\n", 1.0 - (double)(count * tokens) / held);
    }
    null_close(&null);
    free_prompts(seqs, count);
    return rc;
}

/* ---- a trace ----------------------------------------------------------------------------------------------------- */

/* An ideal LRU: blocks of a page by what they and all before them hold, none of them ever in the way. */
struct ideal {
    uint64_t *keys; /* [slots]: 0: free */
    uint64_t *used; /* [slots]: when */
    size_t slots, count, pages;
    uint64_t clock;
};

static size_t find_slot(const struct ideal *ideal, uint64_t key)
{
    size_t at = key % ideal->slots;

    while (ideal->keys[at] != 0 && ideal->keys[at] != key)
        at = (at + 1) % ideal->slots;
    return at;
}

static int compare_used(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Keep the `pages` used last; the table is made anew, because its chains have no holes. */
static int evict(struct ideal *ideal)
{
    uint64_t *order = malloc(ideal->count * sizeof(*order)), *keys = ideal->keys, *used = ideal->used, oldest;
    size_t count = 0;

    ideal->keys = calloc(ideal->slots, sizeof(*keys));
    ideal->used = calloc(ideal->slots, sizeof(*used));
    if (order == NULL || ideal->keys == NULL || ideal->used == NULL) return -ENOMEM;
    for (size_t i = 0; i < ideal->slots; i++)
        if (keys[i] != 0) order[count++] = used[i];
    qsort(order, count, sizeof(*order), compare_used);
    oldest = order[count - ideal->pages];
    for (size_t i = 0; i < ideal->slots; i++)
        if (keys[i] != 0 && used[i] >= oldest) {
            size_t slot = find_slot(ideal, keys[i]);

            ideal->keys[slot] = keys[i];
            ideal->used[slot] = used[i];
        }
    ideal->count = ideal->pages;
    free(order);
    free(keys);
    free(used);
    return 0;
}

/* Tokens of a prompt that the ideal cache has; then it has all of them. */
static int ideal_ask(struct ideal *ideal, const int32_t *prompt, size_t count, size_t *hits)
{
    uint64_t key = 1;
    bool is_found = true;

    for (size_t first = 0; first + PAGE <= count - 1; first += PAGE) {
        size_t slot;

        key = ash_hash_bytes(prompt + first, PAGE * sizeof(*prompt), key) | 1;
        slot = find_slot(ideal, key);
        is_found = is_found && ideal->keys[slot] == key;
        if (is_found) *hits += PAGE;
        ideal->count += ideal->keys[slot] == 0;
        ideal->keys[slot] = key;
        ideal->used[slot] = ++ideal->clock;
    }
    return ideal->count > ideal->pages ? evict(ideal) : 0;
}

/* The prompt of a line: tokens are made from the hashes. Returns how many there are, 0: the line is no request. */
static size_t make_prompt(const char *line, int32_t *prompt, size_t most)
{
    json_t *json = json_loads(line, 0, NULL), *hashes = json_object_get(json, "hash_ids");
    size_t count = (size_t)json_integer_value(json_object_get(json, "input_length"));

    count = ash_min(ash_min(count, most), json_array_size(hashes) * BLOCK);
    for (size_t i = 0; i < count; i++) {
        uint64_t hash = (uint64_t)json_integer_value(json_array_get(hashes, i / BLOCK));

        prompt[i] = (int32_t)ash_rng_below(3, hash, i % BLOCK, NULL_VOCAB);
    }
    json_decref(json);
    return count;
}

static int replay(FILE *file, size_t requests, struct null_core *null, struct ideal *ideal, size_t most,
                  struct ash_err *err)
{
    int32_t *prompt = calloc(most, sizeof(*prompt));
    size_t found = 0, possible = 0, size = 0, done = 0;
    char *line = NULL;
    int rc = prompt != NULL ? 0 : -ENOMEM;

    for (; done < requests && rc == 0 && getline(&line, &size, file) > 0; done++) {
        struct null_seq seq = {.prompt = prompt};
        size_t count = make_prompt(line, prompt, most);

        if (count < 2) continue;
        rc = submit(null->core, &seq, count, 1, err);
        while (rc == 0 && ash_core_step(null->core) > 0)
            ;
        found += seq.end.cached_tokens;
        if (rc == 0) rc = ideal_ask(ideal, prompt, count, &possible);
    }
    if (rc == 0) printf("%zu %zu\n", found, possible);
    free(line);
    free(prompt);
    return rc;
}

static int run_trace(char **argv, struct ash_err *err)
{
    size_t requests = strtoul(argv[1], NULL, 10), pages = strtoul(argv[2], NULL, 10), most = (pages - 1) * PAGE;
    struct ash_core_opts opts = {.max_seqs = 1, .max_batch_rows = 8192, .kv_bytes = pages * PAGE};
    struct ideal ideal = {.pages = pages, .slots = 4 * pages};
    FILE *file = fopen(argv[0], "r");
    struct null_core null = {0};
    int rc = file != NULL ? null_open(&null, opts, most, err) : ash_err_set(err, -errno, "cannot read '%s'", argv[0]);

    ideal.keys = calloc(ideal.slots, sizeof(*ideal.keys));
    ideal.used = calloc(ideal.slots, sizeof(*ideal.used));
    if (rc == 0 && (ideal.keys == NULL || ideal.used == NULL)) rc = -ENOMEM;
    if (rc == 0) rc = replay(file, requests, &null, &ideal, most - 1, err);
    if (file != NULL) fclose(file);
    null_close(&null);
    free(ideal.keys);
    free(ideal.used);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int args;
        int (*run)(char **argv, struct ash_err *err);
    } modes[] = {{"bare", 3, run_bare}, {"null", 1, run_null}, {"room", 1, run_room}, {"trace", 3, run_trace}};
    struct ash_err err = {0};

    for (size_t i = 0; argc > 1 && i < sizeof(modes) / sizeof(modes[0]); i++) {
        int rc;

        if (strcmp(argv[1], modes[i].name) != 0 || argc != 2 + modes[i].args) continue;
        rc = modes[i].run(argv + 2, &err);
        if (rc < 0) fprintf(stderr, "serve_step: error: %s\n", err.text[0] != '\0' ? err.text : strerror(-rc));
        return rc < 0;
    }
    fprintf(stderr,
            "usage: serve_step bare MODEL THREADS ROWS | null SEQUENCES | room TOKENS | trace FILE REQUESTS PAGES\n");
    return 2;
}

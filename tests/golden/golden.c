/* golden DIR...: holds Ashlar to reference results from outside. For each folder (a Hugging Face model plus
 * reference.json and, for numbers, reference.safetensors) it prints one line per check and exits 1 if any fails. logits
 * largest absolute difference       <= 2e-4 loss     relative difference               <= 1e-5 grad.*   relative L2
 * difference            <= 1e-4 adamw    each loss of a short training run <= 1e-4 relative greedy   token ids, or
 * text, equal A folder with encodings.json is a tokenizer: ids with and without special tokens and the decoded text of
 * every string must be equal.
 * --backend NAME picks the kernels. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "text/tokenizer/tokenizer.h"
#include "storage/safetensors/safetensors.h"

void golden_report(struct golden *g, const char *what, double value, double limit)
{
    int ok = value <= limit; /* false for NaN */

    printf("%-26s %-58s %.3e  limit %.0e  %s\n", g->name, what, value, limit, ok ? "ok" : "FAIL");
    g->checks++;
    g->failures += !ok;
}

void golden_report_equal(struct golden *g, const char *what, int equal, const char *detail)
{
    printf("%-26s %-58s %s  %s\n", g->name, what, detail, equal ? "ok" : "FAIL");
    g->checks++;
    g->failures += !equal;
}

void golden_broken(struct golden *g, const char *what, const struct ash_err *err)
{
    printf("%-26s %-58s %s  FAIL\n", g->name, what, err->text);
    g->checks++;
    g->failures++;
}

static double relative(double value, double reference)
{
    return fabs(value - reference) / fabs(reference);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* A [B, T] tensor of ids as a batch of B documents with shifted targets. */
struct rows {
    struct ash_batch batch;
    int32_t *targets;
    struct ash_doc *docs;
    size_t target_count;
};

static int rows_init(struct rows *rows, const struct golden *g, const char *name, struct ash_err *err)
{
    const struct ash_tensor_view *ids = ash_safetensors_find(g->tensors, name);

    if (ids == NULL || ids->dim_count != 2 || ids->dtype != ASH_I32)
        return ash_err_set(err, -EINVAL, "no int32 tensor '%s'", name);
    size_t B = ids->dims[0], T = ids->dims[1];
    const int32_t *data = ids->data;
    rows->targets = malloc(B * T * sizeof(int32_t));
    rows->docs = calloc(B, sizeof(*rows->docs));
    for (size_t b = 0; b < B; b++) {
        rows->docs[b] = (struct ash_doc){.row = b * T, .count = T};
        for (size_t t = 0; t < T; t++)
            rows->targets[b * T + t] = t + 1 < T ? data[b * T + t + 1] : -1;
    }
    rows->target_count = B * (T - 1);
    rows->batch =
        (struct ash_batch){.rows = B * T, .ids = data, .targets = rows->targets, .docs = rows->docs, .doc_count = B};
    return 0;
}

static void rows_fini(struct rows *rows)
{
    free(rows->targets);
    free(rows->docs);
}

static double mean_loss(const float *losses, const struct rows *rows)
{
    double sum = 0;

    for (size_t i = 0; i < rows->batch.rows; i++)
        sum += losses[i];
    return sum / (double)rows->target_count;
}

/* ---- logits, loss, gradients ------------------------------------------------------------------------------------- */

static void check_logits(struct golden *g, const struct rows *rows, const char *name)
{
    const struct ash_tensor_view *want = ash_safetensors_find(g->tensors, name);
    struct ash_pass_opts opts = {.max_rows = rows->batch.rows};
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};
    size_t count = rows->batch.rows * ash_model_get_config(g->model)->vocab;
    float *logits = malloc(count * sizeof(float));
    size_t *wanted = malloc(rows->batch.rows * sizeof(size_t));
    double worst = 0;

    for (size_t i = 0; i < rows->batch.rows; i++)
        wanted[i] = i;
    if (want == NULL || ash_tensor_count(want) != count) {
        ash_err_set(&err, -EINVAL, "no 'logits' of %zu elements", count);
        golden_broken(g, "logits", &err);
    } else if (ash_pass_open(g->model, &g->exec, &opts, &pass, &err) < 0 ||
               ash_pass_infer(pass, &rows->batch, NULL, wanted, rows->batch.rows, logits, &err) < 0) {
        golden_broken(g, "logits", &err);
    } else {
        for (size_t i = 0; i < count; i++) {
            double diff = fabs((double)logits[i] - ((const float *)want->data)[i]);
            worst = diff > worst || isnan(diff) ? diff : worst;
        }
        golden_report(g, name, worst, LOGITS_LIMIT);
    }
    ash_pass_close(pass);
    free(logits);
    free(wanted);
}

static void replace(char *text, size_t bytes, const char *from, const char *to)
{
    char *at = strstr(text, from), tail[256];

    if (at == NULL) return;
    snprintf(tail, sizeof(tail), "%s", at + strlen(from));
    snprintf(at, bytes - (size_t)(at - text), "%s%s", to, tail);
}

static const struct ash_param *find_param(const struct golden *g, const char *name)
{
    const struct ash_param *param = ash_model_find(g->model, name);
    char other[256];

    if (param != NULL) return param;
    snprintf(other, sizeof(other), "%s", name); /* mixtral's file has its own names, and PEFT's in-memory ones differ */
    replace(other, sizeof(other), ".modules_to_save.", ".");
    replace(other, sizeof(other), ".mlp.", ".block_sparse_moe.");
    replace(other, sizeof(other), "_moe.router.weight", "_moe.router.layer.weight");
    if (strcmp(other, "lm_head.weight") == 0) snprintf(other, sizeof(other), "embed_out.weight");
    return ash_model_find(g->model, other);
}

/* Part `expert` of a tensor that experts share in files, too; granitemoe's files have names of their own. */
static const struct ash_param *find_part(const struct golden *g, const char *stacked, size_t expert)
{
    char name[256], shared[200];

    snprintf(shared, sizeof(shared), "%s", stacked);
    for (int try = 0; try < 2; try++) {
        const struct ash_param *param;

        snprintf(name, sizeof(name), "%s[%zu]", shared, expert);
        param = ash_model_find(g->model, name);
        if (param != NULL) return param;
        replace(shared, sizeof(shared), ".experts.gate_up_proj", ".input_linear.weight");
        replace(shared, sizeof(shared), ".experts.down_proj", ".output_linear.weight");
    }
    return NULL;
}

/* The reference stacks experts in one tensor; files, and Ashlar, have one tensor each. */
static const struct ash_param *find_expert(const struct golden *g, const char *stacked, size_t expert, const char *part)
{
    static const char *const mixtral[3][2] = {{"gate_proj", "w1"}, {"up_proj", "w3"}, {"down_proj", "w2"}};
    const char *end = strstr(stacked, ".experts.");
    const struct ash_param *param;
    char name[256];

    snprintf(name, sizeof(name), "%.*s.experts.%zu.%s.weight", (int)(end - stacked), stacked, expert, part);
    param = ash_model_find(g->model, name);
    for (size_t i = 0; param == NULL && i < 3; i++) {
        if (strcmp(mixtral[i][0], part) != 0) continue;
        snprintf(name, sizeof(name), "%.*s.experts.%zu.%s.weight", (int)(end - stacked), stacked, expert,
                 mixtral[i][1]);
        replace(name, sizeof(name), ".mlp.", ".block_sparse_moe.");
        param = ash_model_find(g->model, name);
    }
    return param;
}

static void add_difference(const float *ours, const float *reference, size_t count, double *diff, double *norm)
{
    for (size_t i = 0; i < count; i++) {
        double d = (double)ours[i] - reference[i];
        *diff += d * d;
        *norm += (double)reference[i] * reference[i];
    }
}

/* Relative L2 difference of a reference gradient, or NaN when we have no such parameter. */
double golden_grad_difference(const struct golden *g, const struct ash_tensor_view *want, const char *prefix,
                              const float *grads)
{
    const char *name = want->name + strlen(prefix);
    const float *reference = want->data;
    double diff = 0, norm = 0;
    bool gate_up = strstr(name, ".experts.gate_up_proj") != NULL, down = strstr(name, ".experts.down_proj") != NULL;
    const struct ash_param *part = find_part(g, name, 0);

    for (size_t e = 0; part != NULL && e < want->dims[0]; e++) {
        part = find_part(g, name, e);
        if (part == NULL) return NAN;
        add_difference(grads + part->offset, reference + e * part->count, part->count, &diff, &norm);
    }
    if (part != NULL) gate_up = down = false;
    if (!gate_up && !down && part == NULL) {
        const struct ash_param *param = find_param(g, name);
        if (param == NULL || param->count != ash_tensor_count(want)) return NAN;
        add_difference(grads + param->offset, reference, param->count, &diff, &norm);
    }
    for (size_t e = 0; (gate_up || down) && e < want->dims[0]; e++) {
        const char *parts[2] = {gate_up ? "gate_proj" : "down_proj", "up_proj"};
        for (int i = 0; i < (gate_up ? 2 : 1); i++) {
            const struct ash_param *param = find_expert(g, name, e, parts[i]);
            if (param == NULL) return NAN;
            add_difference(grads + param->offset, reference, param->count, &diff, &norm);
            reference += param->count;
        }
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

/* Zeros in the memory of the kernels, as many floats as gradients have. */
static struct ash_buffer open_floats(struct golden *g)
{
    struct ash_buffer buffer = {0};
    struct ash_err err = {0};
    int rc = ash_buffer_init(&buffer, g->exec.memory, ash_model_grad_size(g->model) * sizeof(float), "gradients", &err);

    if (rc < 0) golden_broken(g, "gradients", &err);
    return buffer;
}

/* Their values, for the host to read and to free. */
static float *read_floats(const struct golden *g, const struct ash_buffer *buffer)
{
    float *values = malloc(buffer->size_bytes);

    if (values == NULL || g->exec.memory->copy(values, buffer->data, buffer->size_bytes) < 0) abort();
    return values;
}

static void check_grads(struct golden *g, const struct rows *rows)
{
    struct ash_pass_opts opts = {.max_rows = rows->batch.rows, .backward = true};
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};
    struct ash_buffer sums = open_floats(g);
    float *losses = malloc(rows->batch.rows * sizeof(float)), *grads = NULL;

    if (ash_pass_open(g->model, &g->exec, &opts, &pass, &err) < 0 ||
        ash_pass_train(pass, &rows->batch, 1.0f / (float)rows->target_count,
                       &(struct ash_pass_grads){.sums = sums.data}, losses, &err) < 0) {
        golden_broken(g, "gradients", &err);
    } else {
        ash_model_grad_fold(g->model, &g->exec, sums.data);
        grads = read_floats(g, &sums);
        golden_report(g, "loss, relative difference",
                      relative(mean_loss(losses, rows), json_number_value(json_object_get(g->json, "loss"))),
                      LOSS_LIMIT);
        for (size_t i = 0; i < ash_safetensors_size(g->tensors); i++) {
            const struct ash_tensor_view *want = ash_safetensors_at(g->tensors, i);
            if (strncmp(want->name, "grad.", 5) == 0)
                golden_report(g, want->name, golden_grad_difference(g, want, "grad.", grads), GRAD_LIMIT);
        }
    }
    ash_pass_close(pass);
    ash_buffer_fini(&sums);
    free(losses);
    free(grads);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

struct adamw {
    double lr, beta1, beta2, eps, decay, clip;
};

/* Gradients and moments, in the memory of the kernels. */
struct optimizer_state {
    struct ash_buffer grads, m, v;
};

static double grad_norm(const struct golden *g, const struct ash_buffer *sums)
{
    float *grads = read_floats(g, sums);
    double sum = 0;

    for (size_t i = 0; i < ash_model_size(g->model); i++)
        sum += (double)grads[i] * grads[i];
    free(grads);
    return sqrt(sum);
}

static void adamw_step(struct golden *g, const struct adamw *o, size_t step, const struct optimizer_state *state)
{
    double norm = grad_norm(g, &state->grads), clip = o->clip / (norm + 1e-6);
    float *grads = state->grads.data, *m = state->m.data, *v = state->v.data;

    for (size_t i = 0; i < ash_model_param_count(g->model); i++) {
        const struct ash_param *param = ash_model_param(g->model, i);
        if (!param->is_trained) continue;
        const struct ash_adamw_range all = {.count = param->count, .weight_decay = (float)o->decay};
        struct ash_adamw_args args = {.ranges = &all,
                                      .range_count = 1,
                                      .param = ash_model_values(g->model) + param->offset,
                                      .m = m + param->offset,
                                      .v = v + param->offset,
                                      .param_out = ash_model_values(g->model) + param->offset,
                                      .m_out = m + param->offset,
                                      .v_out = v + param->offset,
                                      .grad = grads + param->offset,
                                      .grad_scale = clip < 1 ? (float)clip : 1,
                                      .lr = (float)o->lr,
                                      .beta1 = (float)o->beta1,
                                      .beta2 = (float)o->beta2,
                                      .eps = (float)o->eps,
                                      .correction1 = (float)(1 - pow(o->beta1, (double)step)),
                                      .correction2 = (float)(1 - pow(o->beta2, (double)step))};
        g->exec.ops->optim->adamw(&g->exec, &args);
    }
    ash_model_refresh(g->model);
}

static void train(struct golden *g, const struct adamw *o, const json_t *losses_wanted)
{
    struct optimizer_state state = {open_floats(g), open_floats(g), open_floats(g)};
    float *grads = state.grads.data;
    struct ash_err err = {0};

    for (size_t s = 0; s < json_array_size(losses_wanted); s++) {
        struct rows rows = {0};
        struct ash_pass *pass = NULL;
        char name[32], what[48];
        snprintf(name, sizeof(name), "train_ids.%zu", s);
        snprintf(what, sizeof(what), "adamw loss before step %zu", s);
        ash_exec_zero(&g->exec, grads, state.grads.size_bytes);
        int rc = rows_init(&rows, g, name, &err);
        float *losses = malloc((rows.batch.rows + 1) * sizeof(float));
        struct ash_pass_opts opts = {
            .max_rows = rows.batch.rows, .backward = true, .recompute = (enum ash_recompute)(s % 3)};
        if (rc == 0) rc = ash_pass_open(g->model, &g->exec, &opts, &pass, &err);
        if (rc == 0)
            rc = ash_pass_train(pass, &rows.batch, 1.0f / (float)rows.target_count,
                                &(struct ash_pass_grads){.sums = grads}, losses, &err);
        if (rc < 0) {
            golden_broken(g, what, &err);
        } else {
            ash_model_grad_fold(g->model, &g->exec, grads);
            golden_report(g, what,
                          relative(mean_loss(losses, &rows), json_number_value(json_array_get(losses_wanted, s))),
                          ADAMW_LIMIT);
            adamw_step(g, o, s + 1, &state);
        }
        ash_pass_close(pass);
        free(losses);
        rows_fini(&rows);
    }
    ash_buffer_fini(&state.grads);
    ash_buffer_fini(&state.m);
    ash_buffer_fini(&state.v);
}

static void check_adamw(struct golden *g)
{
    const json_t *a = json_object_get(g->json, "adamw"), *betas = json_object_get(a, "betas");
    struct adamw o = {.lr = json_number_value(json_object_get(a, "lr")),
                      .beta1 = json_number_value(json_array_get(betas, 0)),
                      .beta2 = json_number_value(json_array_get(betas, 1)),
                      .eps = json_number_value(json_object_get(a, "eps")),
                      .decay = json_number_value(json_object_get(a, "weight_decay")),
                      .clip = json_number_value(json_object_get(a, "clip"))};

    if (a != NULL) train(g, &o, json_object_get(a, "losses"));
}

/* ---- greedy continuation ----------------------------------------------------------------------------------------- */

static int32_t argmax(const float *logits, size_t count)
{
    size_t best = 0;

    for (size_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Continue ids to `total` tokens with a cache: the prompt in two pieces, then one token at a time. */
static int continue_greedy(struct golden *g, struct ash_ids *ids, size_t total, struct ash_err *err)
{
    size_t vocab = ash_model_get_config(g->model)->vocab, done = 0, first = ids->count / 2;
    struct ash_pass_opts opts = {.max_rows = ids->count};
    struct ash_pass *pass = NULL;
    struct ash_cache *cache = NULL;
    struct ash_block_table table = {0};
    float *logits = malloc(vocab * sizeof(float));
    int rc = ash_pass_open(g->model, &g->exec, &opts, &pass, err);

    if (rc == 0) rc = ash_cache_open(g->model, ash_cache_pages_for(total), &cache, err);
    if (rc == 0) rc = ash_block_table_init(&table, total);
    if (rc == 0) rc = ash_block_table_grow(&table, cache, total);
    while (rc == 0 && ids->count < total) {
        size_t count = done == 0 && first > 0 ? first : ids->count - done, last = count - 1;
        struct ash_doc doc = {.count = count, .pos = done, .pages = table.pages, .page_count = table.count};
        struct ash_batch batch = {.rows = count, .ids = ids->data + done, .docs = &doc, .doc_count = 1};
        rc = ash_pass_infer(pass, &batch, cache, &last, 1, logits, err);
        done += count;
        if (rc == 0 && done == ids->count) rc = ash_ids_add(ids, argmax(logits, vocab));
    }
    ash_block_table_fini(&table);
    ash_cache_close(cache);
    ash_pass_close(pass);
    free(logits);
    return rc;
}

static void check_greedy_ids(struct golden *g, const json_t *greedy)
{
    const json_t *prompt = json_object_get(greedy, "prompt"), *tokens = json_object_get(greedy, "tokens");
    size_t given = json_array_size(prompt), wanted = json_array_size(tokens), equal = 0;
    struct ash_ids ids = {0};
    struct ash_err err = {0};
    char detail[64];

    for (size_t i = 0; i < given; i++)
        ash_ids_add(&ids, (int32_t)json_integer_value(json_array_get(prompt, i)));
    if (continue_greedy(g, &ids, given + wanted, &err) < 0) {
        golden_broken(g, "greedy tokens", &err);
    } else {
        while (equal < wanted && ids.data[given + equal] == json_integer_value(json_array_get(tokens, equal)))
            equal++;
        snprintf(detail, sizeof(detail), "%zu of %zu equal", equal, wanted);
        golden_report_equal(g, "greedy tokens", equal == wanted && wanted > 0, detail);
    }
    ash_ids_fini(&ids);
}

/* The text that `steps` tokens (prompt included) decode to begins with the reference text. */
static void check_greedy_text(struct golden *g, const json_t *entry)
{
    const char *prompt = json_string_value(json_object_get(entry, "prompt")),
               *want = json_string_value(json_object_get(entry, "text"));
    size_t steps = (size_t)json_integer_value(json_object_get(entry, "steps"));
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_ids ids = {0};
    struct ash_str text = {0};
    struct ash_err err = {0};
    char what[96];

    snprintf(what, sizeof(what), "greedy text of \"%s\"", prompt);
    int rc = ash_tokenizer_open(g->dir, &tokenizer, &err);
    if (rc == 0) rc = ash_tokenizer_encode(tokenizer, prompt, strlen(prompt), true, &ids, &err);
    if (rc == 0) rc = continue_greedy(g, &ids, steps + 1, &err);
    if (rc == 0) rc = ash_tokenizer_decode(tokenizer, ids.data, ids.count, true, &text, &err);
    if (rc < 0)
        golden_broken(g, what, &err);
    else
        golden_report_equal(g, what, strncmp(text.data, want, strlen(want)) == 0, "word for word");
    ash_str_fini(&text);
    ash_ids_fini(&ids);
    ash_tokenizer_close(tokenizer);
}

/* ---- tokenizers -------------------------------------------------------------------------------------------------- */

static bool ids_equal(const struct ash_ids *ids, const json_t *wanted)
{
    if (ids->count != json_array_size(wanted)) return false;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->data[i] != json_integer_value(json_array_get(wanted, i))) return false;
    return true;
}

/* One string of encodings.json. */
static bool check_string(const struct ash_tokenizer *tokenizer, const json_t *entry)
{
    const json_t *text = json_object_get(entry, "text"), *decoded = json_object_get(entry, "decoded");
    struct ash_ids special = {0}, plain = {0};
    struct ash_str back = {0};
    struct ash_err err = {0};
    bool ok =
        ash_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), true, &special, &err) == 0 &&
        ash_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), false, &plain, &err) == 0 &&
        ash_tokenizer_decode(tokenizer, plain.data, plain.count, false, &back, &err) == 0;

    ok = ok && ids_equal(&special, json_object_get(entry, "ids")) &&
         ids_equal(&plain, json_object_get(entry, "ids_nospecial")) && back.size_bytes == json_string_length(decoded) &&
         (back.size_bytes == 0 || memcmp(back.data, json_string_value(decoded), back.size_bytes) == 0);
    ash_str_fini(&back);
    ash_ids_fini(&special);
    ash_ids_fini(&plain);
    return ok;
}

static void check_tokenizer(struct golden *g, const char *encodings)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};
    json_t *list = NULL;
    char detail[64];
    size_t equal = 0, count;

    list = json_load_file(encodings, JSON_ALLOW_NUL,
                          NULL); /* some strings hold a NUL, which files of the product may not */
    if (list == NULL) ash_err_set(&err, -EINVAL, "encodings.json is not valid JSON");
    if (list == NULL || ash_tokenizer_open(g->dir, &tokenizer, &err) < 0) {
        golden_broken(g, "tokenizer", &err);
    } else {
        count = json_array_size(list);
        for (size_t i = 0; i < count; i++)
            equal += check_string(tokenizer, json_array_get(list, i));
        snprintf(detail, sizeof(detail), "%zu of %zu equal", equal, count);
        golden_report_equal(g, "strings", equal == count && count > 0, detail);
    }
    json_decref(list);
    ash_tokenizer_close(tokenizer);
}

static void check_greedy(struct golden *g)
{
    const json_t *greedy = json_object_get(g->json, "greedy");

    if (json_is_object(greedy)) check_greedy_ids(g, greedy);
    for (size_t i = 0; json_is_array(greedy) && i < json_array_size(greedy); i++)
        check_greedy_text(g, json_array_get(greedy, i));
}

/* ---- one folder -------------------------------------------------------------------------------------------------- */

static void check_numbers(struct golden *g)
{
    struct rows rows = {0};
    struct ash_err err = {0};

    if (rows_init(&rows, g, "input_ids", &err) < 0) {
        golden_broken(g, "input_ids", &err);
        return;
    }
    check_logits(g, &rows, "logits");
    check_greedy(g);
    if (json_object_get(g->json, "loss") == NULL) { /* with dropout there is none to compare with */
        rows_fini(&rows);
        return;
    }
    if (ash_model_own(g->model, &err) < 0) {
        golden_broken(g, "weights", &err);
    } else {
        check_grads(g, &rows);
        check_adamw(g);
    }
    rows_fini(&rows);
}

void golden_check_adamw(struct golden *g)
{
    check_adamw(g);
}

void golden_check_logits(struct golden *g, const char *name)
{
    struct rows rows = {0};
    struct ash_err err = {0};

    if (rows_init(&rows, g, "input_ids", &err) < 0)
        golden_broken(g, "input_ids", &err);
    else
        check_logits(g, &rows, name);
    rows_fini(&rows);
}

void golden_check_grads(struct golden *g)
{
    struct rows rows = {0};
    struct ash_err err = {0};

    if (rows_init(&rows, g, "input_ids", &err) < 0)
        golden_broken(g, "input_ids", &err);
    else
        check_grads(g, &rows);
    rows_fini(&rows);
}

static void check_folder(struct golden *g, const char *dir)
{
    char path[4096], encodings[4096];
    struct ash_err err = {0};
    const char *slash;

    snprintf(path, sizeof(path), "%s", dir);
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    slash = strrchr(path, '/');
    char name[128];
    snprintf(name, sizeof(name), "%s", slash != NULL ? slash + 1 : path);
    g->name = name;
    g->dir = dir;
    g->model = NULL;
    g->tensors = NULL;
    g->json = NULL;
    if (ash_path_join(encodings, sizeof(encodings), dir, "encodings.json") == 0 && ash_path_exists(encodings)) {
        check_tokenizer(g, encodings);
        return;
    }
    if (golden_post(g, dir)) return;
    int rc = ash_model_open(dir, &g->model, &err);
    if (rc == 0 && (rc = ash_path_join(path, sizeof(path), dir, "reference.json")) == 0)
        rc = ash_json_load(path, &g->json, &err);
    if (rc == 0 && (rc = ash_path_join(path, sizeof(path), dir, "reference.safetensors")) == 0 && ash_path_exists(path))
        rc = ash_safetensors_open(path, &g->tensors, &err);
    if (rc < 0)
        golden_broken(g, "open", &err);
    else if (g->tensors != NULL && !golden_encoder(g))
        check_numbers(g);
    else if (g->tensors == NULL)
        check_greedy(g);
    ash_model_close(g->model);
    ash_safetensors_close(g->tensors);
    json_decref(g->json);
}

int main(int argc, char **argv)
{
    struct golden g = {0};
    struct ash_err err = {0};
    const char *backend = NULL;
    int first = 1;

    if (argc > 2 && strcmp(argv[1], "--backend") == 0) {
        backend = argv[2];
        first = 3;
    }
    if (first >= argc) {
        fprintf(stderr, "usage: golden [--backend NAME] DIR...\n");
        return 2;
    }
    if (ash_exec_init(&g.exec, backend, 0, &err) < 0) {
        fprintf(stderr, "golden: %s\n", err.text);
        return 2;
    }
    for (int i = first; i < argc; i++)
        check_folder(&g, argv[i]);
    printf("golden: %d checks, %d failed (kernels: %s)\n", g.checks, g.failures, g.exec.ops->name);
    ash_exec_fini(&g.exec);
    return g.failures > 0 || g.checks == 0;
}

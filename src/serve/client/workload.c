/* The requests of a load test, drawn from a seed or read from a trace, and their prompts. */
#include "serve/client/workload.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"

#define TRACE_BYTES_MAX ((size_t)1 << 30)
#define LENGTH_MAX (1 << 24)
#define ID_FIRST 3 /* below are padding, start and end in most vocabularies */

/* Streams of random numbers. Those of blocks begin after BLOCKS. */
enum stream { GAPS, PROMPTS, ANSWERS, CHOICES, BLOCKS };
/* Names of blocks: of a trace, of shared prefixes, of what one request alone has. */
enum space { TRACED, SHARED, OWN };

static uint64_t block_name(enum space space, uint64_t index)
{
    return index * 3 + (uint64_t)space;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static int add_block(struct ash_workload *workload, uint64_t name, size_t tokens)
{
    if (tokens == 0) return 0;
    if (ash_array_reserve(&workload->blocks, &workload->block_capacity, workload->block_count + 1,
                          sizeof(*workload->blocks)) < 0)
        return -ENOMEM;
    workload->blocks[workload->block_count++] = (struct ash_workload_block){name, tokens};
    return 0;
}

/* Add an item whose blocks are those from first_block on. */
static int add_item(struct ash_workload *workload, double at_s, size_t first_block, size_t answer_tokens)
{
    struct ash_workload_item item = {.at_s = at_s, .first_block = first_block, .answer_tokens = answer_tokens};

    if (ash_array_reserve(&workload->items, &workload->capacity, workload->count + 1, sizeof(*workload->items)) < 0)
        return -ENOMEM;
    item.block_count = workload->block_count - first_block;
    for (size_t i = first_block; i < workload->block_count; i++)
        item.prompt_tokens += workload->blocks[i].tokens;
    workload->items[workload->count++] = item;
    return 0;
}

void ash_workload_fini(struct ash_workload *workload)
{
    free(workload->items);
    free(workload->blocks);
    *workload = (struct ash_workload){0};
}

/* ---- drawn ------------------------------------------------------------------------------------------------------- */

static size_t draw_length(const struct ash_workload_opts *opts, enum stream stream, size_t i, size_t mean)
{
    double factor = 1 + opts->spread * (2 * ash_rng_uniform(opts->seed, stream, i) - 1);

    return (size_t)fmax(1, round((double)mean * factor));
}

static int draw_items(struct ash_workload *workload, const struct ash_workload_opts *opts)
{
    double at_s = 0;
    int rc = 0;

    for (size_t i = 0; i < opts->requests && rc == 0; i++) {
        size_t first = workload->block_count;

        if (opts->rate > 0 && i > 0) at_s -= log1p(-ash_rng_uniform(opts->seed, GAPS, i)) / opts->rate;
        if (opts->prefixes > 0)
            rc =
                add_block(workload, block_name(SHARED, ash_rng_below(opts->seed, CHOICES, i, (uint64_t)opts->prefixes)),
                          opts->prefix_tokens);
        if (rc == 0 && opts->prompt_tokens > 0)
            rc = add_block(workload, block_name(OWN, i), draw_length(opts, PROMPTS, i, opts->prompt_tokens));
        if (rc == 0) rc = add_item(workload, at_s, first, draw_length(opts, ANSWERS, i, opts->answer_tokens));
    }
    return rc;
}

/* ---- traced ------------------------------------------------------------------------------------------------------ */

/* The blocks of a line: one for each hash, the last one with the rest of the prompt. */
static int add_hashes(struct ash_workload *workload, const struct ash_workload_opts *opts, const json_t *hashes,
                      int64_t input, struct ash_err *err)
{
    size_t count = json_array_size(hashes);
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        const json_t *hash = json_array_get(hashes, i);
        double begin = (double)(i * ASH_WORKLOAD_TRACE_BLOCK_TOKENS), end = begin + ASH_WORKLOAD_TRACE_BLOCK_TOKENS;

        if (!json_is_integer(hash) || json_integer_value(hash) < 0)
            return ash_err_set(err, -EINVAL, "hash_ids: whole numbers from 0 on are expected");
        begin = fmin(begin, (double)input);
        end = i + 1 == count ? (double)input : fmin(end, (double)input);
        rc = add_block(workload, block_name(TRACED, (uint64_t)json_integer_value(hash)),
                       (size_t)(ceil(end * opts->trace_scale) - ceil(begin * opts->trace_scale)));
    }
    if (rc == 0 && count == 0)
        rc = add_block(workload, block_name(OWN, workload->count), (size_t)ceil((double)input * opts->trace_scale));
    return rc < 0 ? ash_err_set(err, rc, "no memory") : 0;
}

static int add_line(struct ash_workload *workload, const struct ash_workload_opts *opts, const json_t *line,
                    struct ash_err *err)
{
    double timestamp_ms = 0, at_s, before = workload->count > 0 ? workload->items[workload->count - 1].at_s : 0;
    int64_t input = 0, output = 0;
    const json_t *hashes = NULL;
    size_t first = workload->block_count;
    int rc;

    if (!json_is_object(line)) return ash_err_set(err, -EINVAL, "an object is expected");
    rc = ash_json_double(line, "timestamp", 0, 1e15, &timestamp_ms, err);
    if (rc >= 0) rc = ash_json_int(line, "input_length", 1, LENGTH_MAX, &input, err);
    if (rc == 0) rc = ash_err_set(err, -EINVAL, "no input_length");
    if (rc > 0) rc = ash_json_int(line, "output_length", 1, LENGTH_MAX, &output, err);
    if (rc == 0) rc = ash_err_set(err, -EINVAL, "no output_length");
    if (rc > 0) rc = ash_json_array(line, "hash_ids", &hashes, err);
    if (rc < 0) return rc;
    at_s = workload->has_times ? timestamp_ms / 1000 / opts->trace_speed : 0;
    if (at_s < before) return ash_err_set(err, -EINVAL, "its timestamp is before that of the line above");
    rc = add_hashes(workload, opts, hashes, input, err);
    if (rc < 0) return rc;
    rc = add_item(workload, at_s, first, (size_t)fmax(1, round((double)output * opts->trace_scale)));
    return rc < 0 ? ash_err_set(err, rc, "no memory") : 0;
}

int ash_workload_add_trace(struct ash_workload *workload, const struct ash_workload_opts *opts, const char *text,
                           const char *name, struct ash_err *err)
{
    workload->has_times = opts->trace_speed > 0;
    for (uint64_t number = 1; *text != '\0' && (opts->requests == 0 || workload->count < opts->requests); number++) {
        size_t bytes = strcspn(text, "\n");
        json_t *line = NULL;
        int rc = 0;

        if (strspn(text, " \t\r") < bytes) {
            rc = ash_json_parse_line(text, bytes, name, number, &line, err);
            if (rc < 0) return rc;
            rc = add_line(workload, opts, line, err);
            json_decref(line);
        }
        if (rc < 0) return ash_err_prefix(err, rc, "%s, line %llu", name, (unsigned long long)number);
        text += bytes + (text[bytes] == '\n');
    }
    return workload->count > 0 ? 0 : ash_err_set(err, -EINVAL, "%s has no request", name);
}

static int read_trace(struct ash_workload *workload, const struct ash_workload_opts *opts, struct ash_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = ash_file_read(opts->trace, TRACE_BYTES_MAX, &text, &bytes, err);

    if (rc == 0) rc = ash_workload_add_trace(workload, opts, text, opts->trace, err);
    free(text);
    return rc;
}

int ash_workload_make(const struct ash_workload_opts *opts, struct ash_workload *workload_out, struct ash_err *err)
{
    struct ash_workload workload = {0};
    int rc;

    if (opts->trace != NULL) {
        rc = read_trace(&workload, opts, err);
    } else {
        workload.has_times = opts->rate > 0;
        rc = draw_items(&workload, opts);
        if (rc < 0) rc = ash_err_set(err, rc, "no memory for %zu requests", opts->requests);
    }
    if (rc < 0)
        ash_workload_fini(&workload);
    else
        *workload_out = workload;
    return rc;
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* Short common words: one token each in most vocabularies. */
static const char *const words[ASH_PROMPT_WORDS] = {
    "the", "of",   "and",  "to",    "in",    "is",  "you",  "that",  "it",    "he",   "was",  "for",   "on",
    "are", "as",   "with", "his",   "they",  "at",  "be",   "this",  "have",  "from", "or",   "one",   "had",
    "by",  "word", "but",  "not",   "what",  "all", "were", "we",    "when",  "your", "can",  "said",  "there",
    "use", "an",   "each", "which", "she",   "do",  "how",  "their", "if",    "will", "up",   "other", "about",
    "out", "many", "then", "them",  "these", "so",  "some", "her",   "would", "make", "like", "time"};

static int add_words(const struct ash_prompt_form *form, uint64_t name, size_t count, struct ash_str *out)
{
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = ash_str_adds(out, words[ash_rng_below(form->seed, BLOCKS + name, i, ASH_PROMPT_WORDS)]);
        if (rc == 0) rc = ash_str_add(out, " ", 1);
    }
    return rc;
}

int ash_prompt_add_all_words(size_t times, struct ash_str *out)
{
    int rc = 0;

    for (size_t i = 0; i < times * ASH_PROMPT_WORDS && rc == 0; i++)
        rc = ash_str_addf(out, "%s ", words[i % ASH_PROMPT_WORDS]);
    return rc;
}

static int add_ids(const struct ash_prompt_form *form, const struct ash_workload_block *block, struct ash_str *out)
{
    int rc = 0;

    for (size_t i = 0; i < block->tokens && rc == 0; i++)
        rc = ash_str_addf(out, "%llu,",
                          (unsigned long long)(ID_FIRST + ash_rng_below(form->seed, BLOCKS + block->name, i,
                                                                        form->vocab - ID_FIRST)));
    return rc;
}

int ash_prompt_add(const struct ash_prompt_form *form, const struct ash_workload *workload,
                   const struct ash_workload_item *item, struct ash_str *out)
{
    int rc = ash_str_adds(out, form->vocab > 0 ? "[" : "\"");

    for (size_t i = 0; i < item->block_count && rc == 0; i++) {
        const struct ash_workload_block *block = &workload->blocks[item->first_block + i];
        double tokens = (double)block->tokens - (i + 1 == item->block_count ? form->overhead_tokens : 0);

        if (form->vocab > 0)
            rc = add_ids(form, block, out);
        else
            rc = add_words(form, block->name, (size_t)fmax(1, round(tokens / form->word_tokens)), out);
    }
    if (rc == 0 && item->block_count > 0) out->data[--out->size_bytes] = '\0'; /* the last comma or space */
    return rc == 0 ? ash_str_adds(out, form->vocab > 0 ? "]" : "\"") : rc;
}

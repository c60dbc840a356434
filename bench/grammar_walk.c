/* Walks through grammars with a real vocabulary: for the comparison with other validators, and for the time of masks.
 *   grammar_walk TOKENIZER < requests > answers
 * A request is a line of JSON: {"schema": ..., "gbnf": "...", "regex": "...", "any_space": bool, "walks": count,
 * "seed": number, "texts": [...]}; one of the first three. Its answer is one too: {"error": "..."} or {"compile_us":
 * ..., "walks": [texts, null where one did not end], "takes": [bool of each text], "mask_us": [of each mask]}. A walk
 * draws a token among those allowed, and leans towards the end. With "masks": true a walk is {"ids": [...], "masks":
 * [...]} instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/rng.h"
#include "serve/grammar/grammar.h"

#define TOKENS_MAX 1000
#define TOKENS_LONG 40 /* from here on a walk looks for its end */

struct world {
    struct ash_tokenizer *tokenizer;
    struct ash_vocab_trie *trie;
    int32_t eos;
    int32_t near[1000]; /* eos, and tokens of one byte */
    int distances[1000];
    size_t near_count;
};

/* Time of this thread alone: other work on the machine does not count. */
static uint64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compile(const json_t *request, struct ash_grammar **grammar_out, struct ash_err *err)
{
    const char *gbnf = json_string_value(json_object_get(request, "gbnf"));
    const char *regex = json_string_value(json_object_get(request, "regex"));
    struct ash_grammar_opts opts = ash_grammar_default_opts();

    opts.limits.seconds = 30; /* machines of tests are busy */
    if (json_is_true(json_object_get(request, "any_space"))) opts.space = ASH_JSON_SPACE_ANY;
    if (gbnf != NULL) return ash_grammar_from_gbnf(gbnf, strlen(gbnf), &opts, grammar_out, err);
    if (regex != NULL) return ash_grammar_from_regex(regex, strlen(regex), &opts, grammar_out, err);
    return ash_grammar_from_json_schema(json_object_get(request, "schema"), &opts, grammar_out, err);
}

/* How soon a token leads to the end: lower is sooner. */
static int distance(const struct world *world, int32_t id)
{
    struct ash_str bytes = {0};
    int result = 9;

    if (id == world->eos) return 0;
    if (ash_tokenizer_add_bytes(world->tokenizer, id, &bytes) == 0 && bytes.size_bytes == 1) {
        char c = bytes.data[0];
        result = strchr("}]\"", c) != NULL ? 1 : strchr("0123456789abcdefghijklmnopqrstuvwxyz@.:-", c) ? 3 : 4;
    }
    ash_str_fini(&bytes);
    return result;
}

static bool has(const uint64_t *mask, int32_t id)
{
    return (mask[(size_t)id / 64] >> (size_t)id % 64 & 1) != 0;
}

/* The first allowed id from a drawn one on, or -1. */
static int32_t draw_any(const struct world *world, const uint64_t *mask, uint64_t seed, size_t step)
{
    size_t words = ash_vocab_trie_mask_words(world->trie);
    size_t from = ash_rng_below(seed, 1, step, words * 64), bit = from % 64;

    for (size_t i = 0; i <= words; i++, bit = 0) {
        size_t w = (from / 64 + i) % words;
        uint64_t bits = mask[w] >> bit << bit;
        if (bits != 0) return (int32_t)(w * 64 + (size_t)__builtin_ctzll(bits));
    }
    return -1;
}

static int32_t draw(const struct world *world, const uint64_t *mask, uint64_t seed, size_t step)
{
    bool is_wild = ash_rng_below(seed, 3, step, 3) == 0; /* a third of the time any byte: some ends are far from all */
    int32_t best[1000];
    size_t count = 0;
    int least = 10;

    for (size_t i = 0; i < world->near_count && step >= TOKENS_LONG; i++) {
        int32_t id = world->near[i];
        int own = is_wild ? 1 : world->distances[i];
        if (!has(mask, id) || own > least) continue;
        if (own < least) count = 0;
        least = own;
        best[count++] = id;
    }
    return count > 0 ? best[ash_rng_below(seed, 2, step, count)] : draw_any(world, mask, seed, step);
}

/* A mask as hexadecimal digits, words from the first on. */
static json_t *mask_text(const struct world *world, const uint64_t *mask)
{
    struct ash_str text = {0};
    json_t *result;

    for (size_t w = 0; w < ash_vocab_trie_mask_words(world->trie); w++)
        ash_str_addf(&text, "%016llx", (unsigned long long)mask[w]);
    result = json_stringn(text.data, text.size_bytes);
    ash_str_fini(&text);
    return result;
}

/* A walk as ids, and the mask before each. */
static json_t *walk_masks(const struct world *world, struct ash_grammar *grammar, uint64_t seed)
{
    json_t *ids = json_array(), *masks = json_array();
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};

    for (size_t i = 0; i < 100 && (matcher != NULL || ash_matcher_open(grammar, world->trie, &matcher, &err) == 0);
         i++) {
        const uint64_t *mask = ash_matcher_mask(matcher);
        int32_t id = mask != NULL ? draw(world, mask, seed, i) : -1;
        if (mask != NULL) json_array_append_new(masks, mask_text(world, mask));
        json_array_append_new(ids, json_integer(id));
        if (id < 0 || id == world->eos || ash_matcher_accept(matcher, id) < 0) break;
    }
    ash_matcher_close(matcher);
    return json_pack("{s:o, s:o}", "ids", ids, "masks", masks);
}

/* The text of one walk, or null. */
static json_t *walk(const struct world *world, struct ash_grammar *grammar, uint64_t seed, json_t *times)
{
    struct ash_matcher *matcher = NULL;
    struct ash_str text = {0};
    struct ash_err err = {0};
    json_t *result = NULL;

    if (ash_matcher_open(grammar, world->trie, &matcher, &err) < 0) return json_null();
    for (size_t i = 0; i < TOKENS_MAX; i++) {
        uint64_t start = cpu_ns();
        const uint64_t *mask = ash_matcher_mask(matcher);
        int32_t id;
        json_array_append_new(times, json_real((double)(cpu_ns() - start) * 1e-3));
        id = mask != NULL ? draw(world, mask, seed, i) : -1;
        if (id < 0 || ash_matcher_accept(matcher, id) < 0) break;
        if (id == world->eos) {
            result = json_stringn(text.data != NULL ? text.data : "", text.size_bytes);
            break;
        }
        if (ash_tokenizer_add_bytes(world->tokenizer, id, &text) < 0) break;
    }
    ash_str_fini(&text);
    ash_matcher_close(matcher);
    return result != NULL ? result : json_null();
}

/* The tokens of text in the middle of a text: behind a newline, which some vocabularies spell as a byte. */
static bool encode(const struct world *world, const char *text, struct ash_ids *ids)
{
    struct ash_str longer = {0};
    struct ash_err err = {0};
    bool is_byte = ash_tokenizer_id(world->tokenizer, "<0x0A>") >= 0;
    bool result = (!is_byte || ash_str_adds(&longer, "\n") == 0) && ash_str_adds(&longer, text) == 0 &&
                  ash_tokenizer_encode(world->tokenizer, longer.data, longer.size_bytes, false, ids, &err) == 0;

    if (result && is_byte) { /* its space and the newline go */
        memmove(ids->data, ids->data + 2, (ids->count - 2) * sizeof(*ids->data));
        ids->count -= 2;
    }
    ash_str_fini(&longer);
    return result;
}

/* Is text what the grammar takes, in the tokens that the tokenizer makes of it? */
static bool takes(const struct world *world, struct ash_grammar *grammar, const char *text)
{
    struct ash_matcher *matcher = NULL;
    struct ash_ids ids = {0};
    struct ash_err err = {0};
    bool result = encode(world, text, &ids) && ash_matcher_open(grammar, world->trie, &matcher, &err) == 0;

    for (size_t i = 0; i < ids.count && result; i++)
        result = ash_matcher_accept(matcher, ids.data[i]) == 0;
    result = result && ash_matcher_is_complete(matcher);
    ash_matcher_close(matcher);
    ash_ids_fini(&ids);
    return result;
}

static json_t *answer(const struct world *world, const json_t *request)
{
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(request, "seed"));
    json_int_t count = json_integer_value(json_object_get(request, "walks"));
    json_t *result = json_object(), *walks = json_array(), *taken = json_array(), *times = json_array(), *text;
    struct ash_grammar *grammar = NULL;
    struct ash_err err = {0};
    uint64_t start = cpu_ns();
    size_t index;

    if (compile(request, &grammar, &err) < 0) json_object_set_new(result, "error", json_string(err.text));
    json_object_set_new(result, "compile_us", json_real((double)(cpu_ns() - start) * 1e-3));
    for (json_int_t i = 0; i < count && grammar != NULL; i++) {
        uint64_t own = seed + (uint64_t)i * 1000003;
        json_array_append_new(walks, json_is_true(json_object_get(request, "masks"))
                                         ? walk_masks(world, grammar, own)
                                         : walk(world, grammar, own, times));
    }
    json_array_foreach(json_object_get(request, "texts"), index, text)
        if (grammar != NULL) json_array_append_new(taken, json_boolean(takes(world, grammar, json_string_value(text))));
    json_object_set_new(result, "walks", walks);
    json_object_set_new(result, "takes", taken);
    json_object_set_new(result, "mask_us", times);
    ash_grammar_put(grammar);
    return result;
}

static int open_world(struct world *world, const char *path, struct ash_err *err)
{
    static const char *const ends[] = {"<|im_end|>", "<|eot_id|>", "</s>", "<|endoftext|>"};
    int rc = ash_tokenizer_open(path, &world->tokenizer, err);

    if (rc < 0) return rc;
    world->eos = -1;
    for (size_t i = 0; i < 4 && world->eos < 0; i++)
        world->eos = ash_tokenizer_id(world->tokenizer, ends[i]);
    for (size_t id = 0; id < ash_tokenizer_vocab_size(world->tokenizer); id++) {
        int own = distance(world, (int32_t)id);
        if (own == 9 || world->near_count == 1000) continue;
        world->distances[world->near_count] = own;
        world->near[world->near_count++] = (int32_t)id;
    }
    return ash_vocab_trie_open(world->tokenizer, ash_tokenizer_vocab_size(world->tokenizer), &world->eos, 1,
                               &world->trie, err);
}

int main(int argc, char **argv)
{
    struct world world = {0};
    struct ash_err err = {0};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    int rc = argc == 2 ? open_world(&world, argv[1], &err) : ash_err_set(&err, -1, "usage: grammar_walk TOKENIZER");

    while (rc == 0 && (size = getline(&line, &capacity, stdin)) > 0) {
        json_t *request = NULL, *result;
        rc = ash_json_parse(line, (size_t)size, "request", &request, &err);
        if (rc < 0) break;
        result = answer(&world, request);
        json_dumpf(result, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(result);
        json_decref(request);
    }
    if (rc < 0) fprintf(stderr, "grammar_walk: %s\n", err.text);
    free(line);
    ash_vocab_trie_close(world.trie);
    ash_tokenizer_close(world.tokenizer);
    return rc == 0 ? 0 : 1;
}

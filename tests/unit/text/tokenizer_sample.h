/* tokenizer_sample - small tokenizers made of a line of JSON, for the tests of this folder. Include after cmocka.h. */
#ifndef TEST_TOKENIZER_SAMPLE_H
#define TEST_TOKENIZER_SAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"

/* The parts of a tokenizer.json, as JSON text; NULL is null (vocab: empty, merges: none). */
struct sample_parts {
    const char *normalizer, *pre, *post, *decoder, *added;
    const char *vocab, *merges, *options; /* options: more members of "model", each followed by a comma */
};

static inline char *sample_json(const struct sample_parts *parts)
{
    struct ash_str text = {0};
    int rc =
        ash_str_addf(&text,
                     "{\"version\": \"1.0\", \"normalizer\": %s, \"pre_tokenizer\": %s, \"post_processor\": %s, "
                     "\"decoder\": %s, \"added_tokens\": %s, \"model\": {%s \"vocab\": %s, \"merges\": %s}}",
                     parts->normalizer != NULL ? parts->normalizer : "null", parts->pre != NULL ? parts->pre : "null",
                     parts->post != NULL ? parts->post : "null", parts->decoder != NULL ? parts->decoder : "null",
                     parts->added != NULL ? parts->added : "[]", parts->options != NULL ? parts->options : "",
                     parts->vocab != NULL ? parts->vocab : "{}", parts->merges != NULL ? parts->merges : "[]");

    assert_int_equal(rc, 0);
    return text.data;
}

static inline int sample_parse(const struct sample_parts *parts, struct ash_tokenizer **tokenizer_out,
                               struct ash_err *err)
{
    char *json = sample_json(parts);
    int rc = ash_tokenizer_parse(json, strlen(json), "sample", tokenizer_out, err);

    free(json);
    return rc;
}

static inline struct ash_tokenizer *sample_open(const struct sample_parts *parts)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};

    if (sample_parse(parts, &tokenizer, &err) < 0) fail_msg("%s", err.text);
    return tokenizer;
}

/* The contents of text's ids with '|' between them must be expected. */
static inline void sample_check(const struct ash_tokenizer *tokenizer, const char *text, bool add_special,
                                const char *expected)
{
    struct ash_ids ids = {0};
    struct ash_str joined = {0};
    struct ash_err err = {0};

    if (ash_tokenizer_encode(tokenizer, text, strlen(text), add_special, &ids, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_str_adds(&joined, ""), 0);
    for (size_t i = 0; i < ids.count; i++) {
        const char *content = ash_tokenizer_content(tokenizer, ids.data[i]);
        assert_non_null(content);
        assert_int_equal(ash_str_addf(&joined, "%s%s", i > 0 ? "|" : "", content), 0);
    }
    assert_string_equal(joined.data, expected);
    ash_ids_fini(&ids);
    ash_str_fini(&joined);
}

/* A vocabulary of the words that expected lists, '|' between them, and "<unk>". With ignore_merges a word is one id
 * when the text was cut exactly there, and <unk> otherwise. The caller frees it. */
static inline char *sample_vocab(const char *expected)
{
    json_t *vocab = json_object();
    char *words = strdup(expected), *at = words, *text;
    int id = 0;

    json_object_set_new(vocab, "<unk>", json_integer(id++));
    while (at != NULL) {
        char *bar = strchr(at, '|');
        if (bar != NULL) *bar = '\0';
        if (*at != '\0' && json_object_get(vocab, at) == NULL) json_object_set_new(vocab, at, json_integer(id++));
        at = bar != NULL ? bar + 1 : NULL;
    }
    text = json_dumps(vocab, JSON_COMPACT);
    json_decref(vocab);
    free(words);
    return text;
}

/* text must fall into the words that expected lists. */
static inline void sample_check_words(const char *normalizer, const char *pre, const char *text, const char *expected)
{
    char *vocab = sample_vocab(expected);
    struct sample_parts parts = {.normalizer = normalizer,
                                 .pre = pre,
                                 .vocab = vocab,
                                 .options = "\"unk_token\": \"<unk>\", \"fuse_unk\": true, \"ignore_merges\": true,"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    sample_check(tokenizer, text, false, expected);
    ash_tokenizer_close(tokenizer);
    free(vocab);
}

#endif

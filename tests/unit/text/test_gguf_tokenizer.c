/* Tokenizers through GGUF files: the golden tokenizers give the same ids and texts when they come back from one, scores
 * decide merges as SentencePiece's do, and a file that makes no sense is refused with the reason. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/str.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/storage/scratch.h"

#define GOLDEN TEST_DATA "/golden/tokenizers"

static int no_tensor(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    (void)ctx, (void)index, (void)first_byte, (void)buf, (void)size_bytes;
    return -EINVAL;
}

static const char *write_file(const struct ash_gguf_entries *entries)
{
    const char *path = scratch_path("tokenizer.gguf");
    struct ash_err err = {0};

    unlink(path);
    if (ash_gguf_write(path, entries, NULL, 0, no_tensor, NULL, &err) < 0) fail_msg("%s", err.text);
    return path;
}

/* ---- there and back ---------------------------------------------------------------------------------------------- */

static void check_text(const struct ash_tokenizer *want, const struct ash_tokenizer *got, const char *text,
                       size_t bytes)
{
    struct ash_ids a = {0}, b = {0};
    struct ash_str x = {0}, y = {0};
    struct ash_err err = {0};

    assert_int_equal(ash_tokenizer_encode(want, text, bytes, true, &a, &err), 0);
    assert_int_equal(ash_tokenizer_encode(got, text, bytes, true, &b, &err), 0);
    assert_int_equal(a.count, b.count);
    if (a.count > 0) assert_memory_equal(a.data, b.data, a.count * sizeof(*a.data));
    assert_int_equal(ash_tokenizer_decode(want, a.data, a.count, true, &x, &err), 0);
    assert_int_equal(ash_tokenizer_decode(got, b.data, b.count, true, &y, &err), 0);
    assert_int_equal(x.size_bytes, y.size_bytes);
    if (x.size_bytes > 0) assert_memory_equal(x.data, y.data, x.size_bytes);
    ash_ids_fini(&a);
    ash_ids_fini(&b);
    ash_str_fini(&x);
    ash_str_fini(&y);
}

static void check_golden(const char *name, const struct ash_tokenizer *want, const struct ash_tokenizer *got)
{
    json_t *texts = NULL, *item;
    char path[512];
    size_t index;

    snprintf(path, sizeof(path), GOLDEN "/%s/encodings.json", name);
    texts = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_true(json_array_size(texts) > 20);
    json_array_foreach(texts, index, item) {
        const json_t *text = json_object_get(item, "text");

        check_text(want, got, json_string_value(text), json_string_length(text));
    }
    json_decref(texts);
}

static void test_golden(void **state)
{
    static const struct {
        const char *name;
        bool exact; /* a GGUF file can say it */
    } cases[] = {{"gpt2-bytelevel", true}, {"llama3-split", true}, {"qwen2-nfc", true}, {"llama2-bytefallback", false}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ash_tokenizer *want = NULL, *got = NULL;
        struct ash_arena *arena = ash_arena_open(4096);
        struct ash_gguf_entries entries = {0};
        struct ash_str notes = {0};
        struct ash_err err = {0};
        char dir[512];
        size_t vocab;

        snprintf(dir, sizeof(dir), GOLDEN "/%s", cases[i].name);
        if (ash_tokenizer_open(dir, &want, &err) < 0) fail_msg("%s", err.text);
        vocab = ash_tokenizer_vocab_size(want);
        assert_int_equal(ash_tokenizer_to_gguf(want, vocab - 1, -1, arena, &entries, NULL, &err), -EINVAL);
        entries.count = 0;
        if (ash_tokenizer_to_gguf(want, vocab + 3, -1, arena, &entries, &notes, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(notes.size_bytes == 0, cases[i].exact);
        if (ash_tokenizer_open(write_file(&entries), &got, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(ash_tokenizer_vocab_size(got), vocab + 3);
        if (cases[i].exact) check_golden(cases[i].name, want, got);
        ash_str_fini(&notes);
        ash_arena_close(arena);
        ash_tokenizer_close(got);
        ash_tokenizer_close(want);
    }
}

/* The golden tokenizer of llama3, but with another way to cut: that of a family, as its tokenizer.json has it. */
static struct ash_tokenizer *open_cut(const char *expression, bool nfc, bool ignore_merges)
{
    struct ash_tokenizer *tokenizer = NULL;
    json_t *root = json_load_file(GOLDEN "/llama3-split/tokenizer.json", 0, NULL), *split;
    struct ash_err err = {0};
    char *text;

    split = json_array_get(json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers"), 0);
    json_object_set_new(split, "pattern", json_pack("{s:s}", "Regex", expression));
    json_object_set_new(json_object_get(root, "model"), "ignore_merges", json_boolean(ignore_merges));
    if (nfc) json_object_set_new(root, "normalizer", json_pack("{s:s}", "type", "NFC"));
    text = json_dumps(root, 0);
    if (ash_tokenizer_parse(text, strlen(text), "cut", &tokenizer, &err) < 0) fail_msg("%s", err.text);
    free(text);
    json_decref(root);
    return tokenizer;
}

static void test_cutters(void **state)
{
    static const char qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                                "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const char qwen35[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                                 "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const char tekken[] =
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
        "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const struct {
        const char *expression, *name, *written;
        bool nfc, ignore_merges;
    } cases[] = {{qwen2, "deepseek-r1-qwen", "qwen2", true, false},
                 {qwen35, "qwen35", "qwen35", true, false},
                 {tekken, "tekken", "tekken", false, true}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ash_tokenizer *want = open_cut(cases[i].expression, cases[i].nfc, cases[i].ignore_merges), *got = NULL;
        struct ash_arena *arena = ash_arena_open(4096);
        struct ash_gguf_entries entries = {0};
        struct ash_str notes = {0};
        struct ash_err err = {0};

        assert_int_equal(ash_tokenizer_to_gguf(want, ash_tokenizer_vocab_size(want), -1, arena, &entries, &notes, &err),
                         0);
        assert_int_equal(notes.size_bytes, 0);
        for (size_t e = 0; e < entries.count; e++) {
            if (strcmp(entries.list[e].key, "tokenizer.ggml.pre") != 0) continue;
            assert_string_equal(entries.list[e].text, cases[i].written);
            entries.list[e].text = cases[i].name;
        }
        if (ash_tokenizer_open(write_file(&entries), &got, &err) < 0) fail_msg("%s", err.text);
        check_golden("llama3-split", want, got);
        check_text(want, got, "HelloWorld e\xcc\x81t\xc3\xa9 123//\n", 23);
        ash_str_fini(&notes);
        ash_arena_close(arena);
        ash_tokenizer_close(got);
        ash_tokenizer_close(want);
    }
}

/* ---- files made by hand ------------------------------------------------------------------------------------------ */

#define TOKENS 6
static const char *const letters[TOKENS] = {"<unk>", "a", "b", "ab", "ba", "aba"};
static const int32_t types[TOKENS] = {2, 1, 1, 1, 1, 1};

static void add_vocab(struct ash_gguf_entries *entries, const char *const *tokens, const float *scores)
{
    ash_gguf_add_text(entries, "tokenizer.ggml.model", "llama");
    ash_gguf_add_array(entries, "tokenizer.ggml.tokens", ASH_GGUF_STRING, tokens, TOKENS);
    ash_gguf_add_array(entries, "tokenizer.ggml.scores", ASH_GGUF_F32, scores, TOKENS);
    ash_gguf_add_array(entries, "tokenizer.ggml.token_type", ASH_GGUF_I32, types, TOKENS);
    ash_gguf_add_bool(entries, "tokenizer.ggml.add_bos_token", false);
    ash_gguf_add_bool(entries, "tokenizer.ggml.add_space_prefix", false);
}

/* The highest score first; the leftmost of equal ones; every pair that makes a token. */
static void test_scores(void **state)
{
    static const struct {
        float scores[TOKENS];
        const char *text;
        int32_t ids[4];
        size_t count;
    } cases[] = {
        {{0, 0, 0, -1, -1, -9}, "abab", {3, 3}, 2},
        {{0, 0, 0, -2, -1, -9}, "abab", {1, 4, 2}, 3}, /* ba first; nothing makes a + ba + b but aba */
        {{0, 0, 0, -1, -2, -3}, "aba", {5}, 1},        /* ab + a */
        {{0, 0, 0, -2, -1, -3}, "aba", {5}, 1},        /* a + ba */
        {{0, 0, 0, -1, -1, -9}, "baba", {4, 4}, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ash_tokenizer *tokenizer = NULL;
        struct ash_gguf_entries entries = {0};
        const char *tokens[TOKENS];
        struct ash_ids ids = {0};
        struct ash_err err = {0};

        memcpy(tokens, letters, sizeof(tokens));
        if (cases[i].count > 1) tokens[5] = "c"; /* without aba */
        add_vocab(&entries, tokens, cases[i].scores);
        if (ash_tokenizer_open(write_file(&entries), &tokenizer, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(ash_tokenizer_encode(tokenizer, cases[i].text, strlen(cases[i].text), true, &ids, &err), 0);
        assert_int_equal(ids.count, cases[i].count);
        assert_memory_equal(ids.data, cases[i].ids, ids.count * sizeof(*ids.data));
        ash_ids_fini(&ids);
        ash_tokenizer_close(tokenizer);
    }
}

static void refuse(const struct ash_gguf_entries *entries, int code, const char *cause)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_tokenizer_open(write_file(entries), &tokenizer, &err), code);
    if (strstr(err.text, cause) == NULL) fail_msg("'%s' does not say '%s'", err.text, cause);
}

static void test_bad_vocabularies(void **state)
{
    static const char *const twice[TOKENS] = {"<unk>", "a", "b", "a", "c", "d"};
    static const char *const bytes[TOKENS] = {"<unk>", "\xff", "b", "a", "c", "d"};
    static const float flat[TOKENS], odd[TOKENS] = {0, 0, 0, NAN};
    static char huge[2000];
    const char *const large[TOKENS] = {"<unk>", huge, "b", "a", "c", "d"};
    struct ash_gguf_entries entries = {0};

    (void)state;
    memset(huge, 'x', sizeof(huge) - 1);
    refuse(&entries, -ENOENT, "no vocabulary");
    ash_gguf_add_text(&entries, "tokenizer.ggml.model", "bert");
    refuse(&entries, -ENOTSUP, "'bert'");
    entries.list[0].text = "llama";
    refuse(&entries, -ENOENT, "no vocabulary");
    entries.list[0].text = "gpt2";
    refuse(&entries, -ENOTSUP, "'default'");
    ash_gguf_add_text(&entries, "tokenizer.ggml.pre", "gpt-2");
    ash_gguf_add_array(&entries, "tokenizer.ggml.tokens", ASH_GGUF_STRING, letters, TOKENS);
    refuse(&entries, -EINVAL, "tokenizer.ggml.merges");
    ash_gguf_add_array(&entries, "tokenizer.ggml.merges", ASH_GGUF_STRING, &letters[1], 1);
    refuse(&entries, -EINVAL, "merge 0");

    const struct {
        const char *const *tokens;
        const float *scores;
        const char *cause;
        int code;
    } cases[] = {{twice, flat, "two ids", -EINVAL},
                 {bytes, flat, "token 1 is not text", -EINVAL},
                 {letters, odd, "no number", -EINVAL},
                 {large, flat, "1999 bytes", -E2BIG}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        entries.count = 0;
        add_vocab(&entries, cases[i].tokens, cases[i].scores);
        refuse(&entries, cases[i].code, cases[i].cause);
    }
    entries.count = 0;
    add_vocab(&entries, letters, flat);
    ash_gguf_add_number(&entries, "tokenizer.ggml.bos_token_id", TOKENS);
    refuse(&entries, -EINVAL, "bos_token_id");
    entries.count -= 1;
    entries.list[1].count = TOKENS - 1; /* fewer tokens than scores is fine, more is not */
    entries.list[2].count = TOKENS - 2;
    refuse(&entries, -EINVAL, "tokenizer.ggml.scores");
}

/* The marks of a gap, by the ids of the file, under their names of today and of older files. */
static void test_fim_marks(void **state)
{
    static const float flat[TOKENS];
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_gguf_entries entries = {0};
    struct ash_fim_marks marks;
    struct ash_err err = {0};

    (void)state;
    add_vocab(&entries, letters, flat);
    if (ash_tokenizer_open(write_file(&entries), &tokenizer, &err) < 0) fail_msg("%s", err.text);
    marks = ash_tokenizer_fim_marks(tokenizer);
    assert_true(marks.prefix == -1 && marks.suffix == -1 && marks.middle == -1);
    ash_tokenizer_close(tokenizer);
    ash_gguf_add_number(&entries, "tokenizer.ggml.prefix_token_id", 1);
    ash_gguf_add_number(&entries, "tokenizer.ggml.fim_pre_token_id", 2);
    ash_gguf_add_number(&entries, "tokenizer.ggml.suffix_token_id", 3);
    ash_gguf_add_number(&entries, "tokenizer.ggml.fim_mid_token_id", 4);
    if (ash_tokenizer_open(write_file(&entries), &tokenizer, &err) < 0) fail_msg("%s", err.text);
    marks = ash_tokenizer_fim_marks(tokenizer);
    assert_true(marks.prefix == 2 && marks.suffix == 3 && marks.middle == 4);
    ash_tokenizer_close(tokenizer);
    ash_gguf_add_number(&entries, "tokenizer.ggml.fim_suf_token_id", TOKENS);
    refuse(&entries, -EINVAL, "fim_suf_token_id");
}

static void test_chat_template(void **state)
{
    static const float flat[TOKENS];
    struct ash_chat_message message = {"user", "hello"};
    struct ash_chat_template *chat = NULL;
    struct ash_gguf_entries entries = {0};
    struct ash_str text = {0};
    struct ash_err err = {0};

    (void)state;
    add_vocab(&entries, letters, flat);
    assert_int_equal(ash_chat_template_open(write_file(&entries), &chat, &err), -ENOENT);
    ash_gguf_add_number(&entries, "tokenizer.ggml.bos_token_id", 3);
    ash_gguf_add_text(&entries, "tokenizer.chat_template", "{{ bos_token }}:{{ messages[0].content }}");
    if (ash_chat_template_open(write_file(&entries), &chat, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_chat_template_render(chat, &message, 1, false, &text, &err), 0);
    assert_string_equal(text.data, "ab:hello");
    ash_str_fini(&text);
    ash_chat_template_close(chat);
}

/* A chat whose template lacks the beginning of texts gets it, if the file's texts begin so; one that has it stays. */
static void test_chats_begin_as_texts(void **state)
{
    static const float flat[TOKENS];
    static const struct {
        const char *template, *expected;
        bool has_key, adds;
    } cases[] = {
        {"{{ messages[0].content }}", "abhello", true, true},
        {"{{ messages[0].content }}", "hello", true, false},
        {"{{ messages[0].content }}", "abhello", false,
         false}, /* of this kind of vocabulary, unless the file says so */
        {"{{ bos_token }}{{ messages[0].content }}", "abhello", true, true},
        {"{% if false %}x{% endif %}", "", true, true},
    };
    struct ash_chat_message message = {"user", "hello"};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ash_chat_template *chat = NULL;
        struct ash_gguf_entries entries = {0};
        struct ash_str text = {0};
        struct ash_err err = {0};

        ash_gguf_add_text(&entries, "tokenizer.ggml.model", "llama");
        ash_gguf_add_array(&entries, "tokenizer.ggml.tokens", ASH_GGUF_STRING, letters, TOKENS);
        ash_gguf_add_array(&entries, "tokenizer.ggml.scores", ASH_GGUF_F32, flat, TOKENS);
        if (cases[i].has_key) ash_gguf_add_bool(&entries, "tokenizer.ggml.add_bos_token", cases[i].adds);
        ash_gguf_add_number(&entries, "tokenizer.ggml.bos_token_id", 3);
        ash_gguf_add_text(&entries, "tokenizer.chat_template", cases[i].template);
        if (ash_chat_template_open(write_file(&entries), &chat, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(ash_chat_template_render(chat, &message, 1, false, &text, &err), 0);
        assert_string_equal(text.data != NULL ? text.data : "", cases[i].expected);
        ash_str_fini(&text);
        ash_chat_template_close(chat);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden),
                                       cmocka_unit_test(test_cutters),
                                       cmocka_unit_test(test_scores),
                                       cmocka_unit_test(test_bad_vocabularies),
                                       cmocka_unit_test(test_fim_marks),
                                       cmocka_unit_test(test_chat_template),
                                       cmocka_unit_test(test_chats_begin_as_texts)};

    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}

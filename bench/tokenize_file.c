/* Encodes a corpus of documents and says how long that took: our side of the comparison with other tokenizers.
 *   tokenize_file TOKENIZER CORPUS IDS [WARMUPS]   CORPUS is documents, each "SIZE\n" and SIZE bytes; IDS gets for each
 * document a count and its ids (int32); one line of JSON goes to standard output tokenize_file --assigned prints the
 * ranges of characters that both Unicode libraries here know */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/clock.h"
#include "base/file.h"
#include "text/tokenizer/tokenizer.h"

/* A sanitizer makes times meaningless; the report says so. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define INSTRUMENTED "true"
#endif
#endif
#if !defined(INSTRUMENTED) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define INSTRUMENTED "true"
#endif
#ifndef INSTRUMENTED
#define INSTRUMENTED "false"
#endif

#define CORPUS_BYTES_MAX ((size_t)1 << 30)

struct document {
    const char *text;
    size_t size_bytes;
};

struct corpus {
    struct document *documents;
    size_t count, size_bytes;
};

/* ---- --assigned -------------------------------------------------------------------------------------------------- */

static pcre2_code *assigned_code;

static int is_assigned(uint32_t point, pcre2_match_data *match)
{
    utf8proc_uint8_t buf[4];
    utf8proc_ssize_t size = utf8proc_encode_char((utf8proc_int32_t)point, buf);

    if (utf8proc_category((utf8proc_int32_t)point) == UTF8PROC_CATEGORY_CN) return 0;
    return pcre2_match(assigned_code, buf, (size_t)size, 0, 0, match, NULL) > 0;
}

static int print_assigned(void)
{
    pcre2_match_data *match;
    int error;
    size_t offset;
    uint32_t first = UINT32_MAX;

    assigned_code = pcre2_compile((PCRE2_SPTR) "\\P{Cn}", PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);
    match = pcre2_match_data_create(1, NULL);
    if (assigned_code == NULL || match == NULL) return 1;
    for (uint32_t point = 0; point <= 0x110000; point++) {
        int known = point < 0x110000 && (point < 0xd800 || point > 0xdfff) && is_assigned(point, match);
        if (known && first == UINT32_MAX) first = point;
        if (known || first == UINT32_MAX) continue;
        printf("%x %x\n", first, point - 1);
        first = UINT32_MAX;
    }
    pcre2_match_data_free(match);
    pcre2_code_free(assigned_code);
    return 0;
}

/* ---- a corpus ---------------------------------------------------------------------------------------------------- */

static int corpus_add(struct corpus *corpus, const char *text, size_t size_bytes)
{
    struct document *grown = realloc(corpus->documents, (corpus->count + 1) * sizeof(*grown));

    if (grown == NULL) return -1;
    corpus->documents = grown;
    corpus->documents[corpus->count++] = (struct document){text, size_bytes};
    corpus->size_bytes += size_bytes;
    return 0;
}

/* text is NUL-terminated after its size_bytes. */
static int corpus_read(struct corpus *corpus, const char *text, size_t size_bytes)
{
    const char *at = text, *end = at + size_bytes;

    while (at < end) {
        char *after;
        unsigned long size = strtoul(at, &after, 10);
        if (after == at || *after != '\n' || size > (size_t)(end - after - 1)) return -1;
        if (corpus_add(corpus, after + 1, size) < 0) return -1;
        at = after + 1 + size;
    }
    return 0;
}

/* Encode every document; with out, write the ids. Returns the number of ids or -1. */
static long long encode_all(const struct ash_tokenizer *tokenizer, const struct corpus *corpus, FILE *out)
{
    struct ash_ids ids = {0};
    struct ash_err err = {0};
    long long total = 0;

    for (size_t i = 0; i < corpus->count && total >= 0; i++) {
        int32_t count;
        ids.count = 0;
        if (ash_tokenizer_encode(tokenizer, corpus->documents[i].text, corpus->documents[i].size_bytes, true, &ids,
                                 &err) < 0) {
            fprintf(stderr, "tokenize_file: document %zu: %s\n", i, err.text);
            total = -1;
            break;
        }
        total += (long long)ids.count;
        count = (int32_t)ids.count;
        if (out != NULL && (fwrite(&count, sizeof(count), 1, out) != 1 ||
                            fwrite(ids.data, sizeof(*ids.data), ids.count, out) != ids.count))
            total = -1;
    }
    ash_ids_fini(&ids);
    return total;
}

static int run(const struct ash_tokenizer *tokenizer, const struct corpus *corpus, const char *ids_path, long warmups,
               double load_s)
{
    FILE *out = fopen(ids_path, "wb");
    long long count = 0;
    uint64_t start;
    double seconds;

    if (out == NULL) {
        perror(ids_path);
        return 1;
    }
    for (long i = 0; i < warmups && count >= 0; i++)
        count = encode_all(tokenizer, corpus, NULL);
    start = ash_clock_ns();
    if (count >= 0) count = encode_all(tokenizer, corpus, NULL);
    seconds = (double)(ash_clock_ns() - start) * 1e-9;
    if (count >= 0) count = encode_all(tokenizer, corpus, out);
    if (fclose(out) != 0 || count < 0) return 1;
    printf("{\"documents\": %zu, \"bytes\": %zu, \"tokens\": %lld, \"seconds\": %.6f, \"load_seconds\": %.6f, "
           "\"instrumented\": " INSTRUMENTED "}\n",
           corpus->count, corpus->size_bytes, count, seconds, load_s);
    return 0;
}

int main(int argc, char **argv)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct corpus corpus = {0};
    char *text = NULL;
    size_t size = 0;
    struct ash_err err = {0};
    uint64_t start = ash_clock_ns();
    int rc = 1;

    if (argc == 2 && strcmp(argv[1], "--assigned") == 0) return print_assigned();
    if (argc < 4) {
        fprintf(stderr, "usage: tokenize_file TOKENIZER CORPUS IDS [WARMUPS]\n");
        return 2;
    }
    if (ash_tokenizer_open(argv[1], &tokenizer, &err) < 0 ||
        ash_file_read(argv[2], CORPUS_BYTES_MAX, &text, &size, &err) < 0) {
        fprintf(stderr, "tokenize_file: %s\n", err.text);
    } else if (corpus_read(&corpus, text, size) < 0) {
        fprintf(stderr, "tokenize_file: '%s' is not a list of documents\n", argv[2]);
    } else {
        rc = run(tokenizer, &corpus, argv[3], argc > 4 ? strtol(argv[4], NULL, 10) : 0,
                 (double)(ash_clock_ns() - start) * 1e-9);
    }
    free(corpus.documents);
    free(text);
    ash_tokenizer_close(tokenizer);
    return rc;
}

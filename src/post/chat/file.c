/* file: lines to examples. */
#include "post/chat/file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "train/data/tokenize_eos.h"

static struct ash_example example_of(const struct ash_chat_row *row)
{
    return (struct ash_example){row->ids.data, row->marks, row->ids.count};
}

static void count_row(struct ash_chat_file_result *result, const struct ash_chat_row *row)
{
    result->tokens += row->ids.count;
    for (size_t i = 1; i < row->ids.count; i++)
        result->learned += row->marks[i];
}

static int add_pair(struct ash_chat_lines *lines, const json_t *object, struct ash_err *err)
{
    struct ash_chat_file_result *result = &lines->result;
    struct ash_chat_row chosen = {0}, rejected = {0};
    struct ash_example sides[2];
    double margin = NAN;
    int rc = ash_chat_read_pair(lines->reader, object, &chosen, &rejected, &margin, err);

    if (rc == 0) {
        sides[0] = example_of(&chosen);
        sides[1] = example_of(&rejected);
        rc = ash_examples_writer_add(lines->writer, &sides[0], err);
        if (rc == 0) rc = ash_examples_writer_add(lines->writer, &sides[1], err);
        if (rc == 0 && !isnan(margin)) rc = ash_examples_writer_set_margin(lines->writer, (float)margin, err);
        count_row(result, &chosen);
        count_row(result, &rejected);
        result->pairs++;
        result->same += chosen.ids.count == rejected.ids.count &&
                        memcmp(chosen.ids.data, rejected.ids.data, chosen.ids.count * sizeof(int32_t)) == 0;
    }
    ash_chat_row_fini(&chosen);
    ash_chat_row_fini(&rejected);
    return rc;
}

static int add_single(struct ash_chat_lines *lines, const json_t *object, struct ash_err *err)
{
    struct ash_chat_row row = {0};
    struct ash_example example;
    int rc = ash_chat_read(lines->reader, object, &row, err);

    if (rc == 0) {
        example = example_of(&row);
        rc = ash_examples_writer_add(lines->writer, &example, err);
        count_row(&lines->result, &row);
        lines->result.examples++;
    }
    ash_chat_row_fini(&row);
    return rc;
}

static int add_object(struct ash_chat_lines *lines, const json_t *object, struct ash_err *err)
{
    bool is_pair = ash_chat_is_pair(object), is_first = lines->result.pairs + lines->result.examples == 0;
    int rc = 0;

    if (is_first) { /* lines before it, of either kind, were left out */
        ash_examples_writer_close(lines->writer);
        lines->writer = NULL;
        rc = ash_examples_writer_open(is_pair ? ASH_EXAMPLES_PAIRS : ASH_EXAMPLES_SINGLE, &lines->writer, err);
    } else if (is_pair != (lines->result.pairs > 0)) {
        rc = ash_err_set(err, -EINVAL, "pairs and examples are mixed: make two folders of them");
    }
    if (rc < 0) return rc;
    return is_pair ? add_pair(lines, object, err) : add_single(lines, object, err);
}

int ash_chat_add_line(struct ash_chat_lines *lines, const char *text, size_t size_bytes, const char *name,
                      uint64_t line, struct ash_err *err)
{
    json_t *object = NULL;
    int rc = ash_json_parse_line(text, size_bytes, name, line, &object, err);

    if (rc < 0) return rc;
    rc = add_object(lines, object, err);
    json_decref(object);
    return rc < 0 ? ash_err_prefix(err, rc, "%s: line %" PRIu64, name, line) : 0;
}

static int add_file(struct ash_chat_lines *lines, const char *path, bool skip_bad, struct ash_err *err)
{
    struct ash_chat_file_result *result = &lines->result;
    struct ash_map map = {0};
    uint64_t line = 0;
    int rc = ash_map_open(path, &map, err);

    for (size_t at = 0; rc == 0 && at < map.size_bytes;) {
        const char *text = (const char *)map.base + at, *end = memchr(text, '\n', map.size_bytes - at);
        size_t size = end != NULL ? (size_t)(end - text) : map.size_bytes - at;

        at += size + 1;
        line++;
        if (strspn(text, " \t\r") >= size) continue;
        rc = ash_chat_add_line(lines, text, size, path, line, err);
        if (rc == -ENOMEM || rc == 0 || !skip_bad) continue;
        if (result->skipped++ == 0) snprintf(result->first_skipped, sizeof(result->first_skipped), "%s", err->text);
        rc = 0;
    }
    ash_map_close(&map);
    return rc;
}

/* The reader of a tokenizer's folder. Opens *tokenizer_out and *template_out. */
static int open_reader(const struct ash_chat_file_opts *opts, struct ash_chat_reader *reader,
                       struct ash_tokenizer **tokenizer_out, struct ash_chat_template **template_out,
                       struct ash_err *why, struct ash_err *err)
{
    int rc = ash_tokenizer_open(opts->tokenizer_dir, tokenizer_out, err);

    if (rc < 0) return rc;
    rc = ash_chat_template_open(opts->tokenizer_dir, template_out, why);
    if (rc < 0 && rc != -ENOENT) return ash_err_set(err, rc, "%s", why->text);
    *reader = (struct ash_chat_reader){
        .tokenizer = *tokenizer_out, .template = *template_out, .template_why = why->text, .eos_id = -1};
    return ash_tokenizer_find_eos(opts->tokenizer_dir, *tokenizer_out, opts->eos, &reader->eos_id, err);
}

int ash_chat_write(const char *const *paths, size_t count, const struct ash_chat_file_opts *opts, const char *dir,
                   struct ash_chat_file_result *result_out, struct ash_err *err)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_chat_template *template = NULL;
    struct ash_chat_reader reader = {0};
    struct ash_chat_lines lines = {.reader = &reader};
    struct ash_err why = {0};
    json_t *source = json_object();
    int rc = open_reader(opts, &reader, &tokenizer, &template, &why, err);

    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = add_file(&lines, paths[i], opts->skip_bad, err);
    if (rc == 0 && lines.result.pairs + lines.result.examples == 0)
        rc = lines.result.skipped > 0 ? ash_err_set(err, -EINVAL, "no line can be used: %s", lines.result.first_skipped)
                                      : ash_err_set(err, -EINVAL, "there is not one line in it");
    if (rc == 0) {
        struct ash_examples_tokenizer made_with = {opts->tokenizer_dir, ash_tokenizer_hash(tokenizer),
                                                   ash_tokenizer_vocab_size(tokenizer)};

        rc = ash_examples_writer_save(lines.writer, dir, &made_with, source, err);
    }
    if (rc == 0) *result_out = lines.result;
    json_decref(source);
    ash_examples_writer_close(lines.writer);
    ash_chat_template_close(template);
    ash_tokenizer_close(tokenizer);
    return rc;
}

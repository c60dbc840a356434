/* ashlar data dedup: JSON lines without those whose text was there before, to the byte or nearly. */
#include "cmd/data_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/file.h"
#include "train/data/dedup.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar data dedup --out FILE.jsonl [--near SHARE] FILE.jsonl...",
    .about =
        "Copies JSON lines, in their order, and leaves out those whose text was there before: to the byte, or with\n"
        "--near those that share this part of their runs of words (MinHash). The first of several stays.",
    .examples = "  ashlar data dedup --out clean.jsonl part-1.jsonl part-2.jsonl\n"
                "  ashlar data dedup --near 0.8 --out clean.jsonl crawl.jsonl",
};

struct settings {
    const char *out, *column;
    double near;
    int64_t words;
    bool overwrite;
};

static const struct ash_opt opts_list[] = {
    {"out", ASH_OPT_STRING, offsetof(struct settings, out), NULL, "file for the lines that stay", 0, 0, NULL},
    {"column", ASH_OPT_STRING, offsetof(struct settings, column), "text",
     "the field that is compared; a line without it is compared as a whole", 0, 0, NULL},
    {"near", ASH_OPT_DOUBLE, offsetof(struct settings, near), "0",
     "texts that share this part of their runs of words are the same; 0: only equal ones", 0, 1, NULL},
    {"words", ASH_OPT_INT, offsetof(struct settings, words), "5", "words in a run", 1, 64, NULL},
    {"overwrite", ASH_OPT_BOOL, offsetof(struct settings, overwrite), NULL,
     "replace the file that --out names; never one that is read", 0, 0, NULL},
};

struct counts {
    size_t lines, kept, equal, near;
};

struct work {
    const struct settings *settings;
    struct ash_dedup *dedup;
    FILE *out;
    struct counts counts;
};

/* One line: into out, or counted. */
static int take_line(struct work *work, const char *line, size_t size, const json_t *json, struct ash_err *err)
{
    const json_t *column = json_object_get(json, work->settings->column);
    bool is_text = json_is_string(column);
    enum ash_dedup_verdict verdict = ASH_DEDUP_NEW;
    size_t like = 0;
    int rc = ash_dedup_add(work->dedup, is_text ? json_string_value(column) : line,
                           is_text ? json_string_length(column) : size, &verdict, &like);

    if (rc < 0) return ash_err_set(err, rc, "out of memory after %zu lines", work->counts.lines);
    work->counts.lines++;
    work->counts.kept += verdict == ASH_DEDUP_NEW;
    work->counts.equal += verdict == ASH_DEDUP_EQUAL;
    work->counts.near += verdict == ASH_DEDUP_NEAR;
    if (verdict != ASH_DEDUP_NEW || (fwrite(line, 1, size, work->out) == size && fputc('\n', work->out) != EOF))
        return 0;
    return ash_err_set(err, -errno, "%s: %s", work->settings->out, strerror(errno));
}

static int take_file(struct work *work, const char *path, struct ash_err *err)
{
    struct ash_map map = {0};
    uint64_t number = 0;
    int rc = ash_map_open(path, &map, err);

    for (size_t at = 0; rc == 0 && at < map.size_bytes;) {
        const char *line = (const char *)map.base + at, *end = memchr(line, '\n', map.size_bytes - at);
        size_t size = end != NULL ? (size_t)(end - line) : map.size_bytes - at;
        json_t *json = NULL;

        number++;
        at += size + 1;
        if (size == 0) continue;
        rc = ash_json_parse_line(line, size, path, number, &json, err);
        if (rc == 0) rc = take_line(work, line, size, json, err);
        json_decref(json);
    }
    ash_map_close(&map);
    return rc;
}

/* Nothing is replaced unasked, and no input ever. */
static int check_out(const struct settings *settings, const char *const *paths, size_t count, struct ash_err *err)
{
    struct stat out, in;

    if (stat(settings->out, &out) < 0) return 0;
    for (size_t i = 0; i < count; i++)
        if (stat(paths[i], &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return ash_err_set(err, -EEXIST, "--out is '%s', which is read: name another file", settings->out);
    if (settings->overwrite && S_ISREG(out.st_mode)) return 0;
    return ash_err_set(err, -EEXIST, "'%s' exists already: name another file%s", settings->out,
                       S_ISREG(out.st_mode) ? ", or give --overwrite" : "");
}

/* The file appears whole or not at all. */
static int take_all(struct work *work, const char *const *paths, size_t count, struct ash_err *err)
{
    struct ash_str name = {0};
    int rc = ash_str_addf(&name, "%s.part", work->settings->out);

    if (rc < 0) return ash_err_set(err, rc, "out of memory");
    work->out = fopen(name.data, "we");
    if (work->out == NULL) rc = ash_err_set(err, -errno, "%s: %s", name.data, strerror(errno));
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = take_file(work, paths[i], err);
    if (work->out != NULL && fclose(work->out) != 0 && rc == 0)
        rc = ash_err_set(err, -errno, "%s: %s", name.data, strerror(errno));
    if (rc == 0 && rename(name.data, work->settings->out) < 0)
        rc = ash_err_set(err, -errno, "%s: %s", work->settings->out, strerror(errno));
    if (rc < 0) remove(name.data);
    ash_str_fini(&name);
    return rc;
}

static int dedup(const struct settings *settings, const char *const *paths, size_t count)
{
    struct ash_dedup_opts opts = {.near = settings->near, .words = (size_t)settings->words};
    struct work work = {.settings = settings};
    struct ash_err err = {0};
    int rc = check_out(settings, paths, count, &err);

    if (rc == 0) rc = ash_dedup_open(&opts, &work.dedup, &err);
    if (rc == 0) rc = take_all(&work, paths, count, &err);
    ash_dedup_close(work.dedup);
    if (rc < 0) return ash_cmd_fail(&err);
    printf("%s: %zu of %zu lines; %zu equal to an earlier one, %zu nearly\n", settings->out, work.counts.kept,
           work.counts.lines, work.counts.equal, work.counts.near);
    return 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *const *paths, size_t count)
{
    const struct settings *settings = ctx;

    (void)opts;
    if (settings->out == NULL)
        return ash_cmd_misuse("data dedup", "--out is missing: name a file for the lines that stay");
    if (count == 0) return ash_cmd_misuse("data dedup", "what to read? name a file of JSON lines");
    return dedup(settings, paths, count);
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table table = {"", "flags", opts_list, ASH_COUNT(opts_list)};
    struct settings settings = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&table, &settings}}, .respond_words = respond, .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_data_dedup = {"dedup", "JSON lines without those that were there before", run};

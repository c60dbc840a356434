/* YAML job files, read event by event: nested maps become "section.name" keys, so nothing of the file is kept in
 * memory. What a job file does not need (anchors, aliases, tags, several documents) is refused rather than half
 * understood. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/file.h"
#include "base/opts_priv.h"
#include "base/spelling.h"
#include "base/str.h"
#include "base/utf8.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define DEPTH_MAX 8
#define MAPS_MAX 256 /* in one file */
#define SOURCE_BYTES 256

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    bool has_event;
    struct ash_opts *opts;
    const char *name;
    char path[DEPTH_MAX * ASH_OPT_KEY_BYTES]; /* "a.b." of the maps that are open */
    uint64_t maps_seen_count;
    char *maps_seen[MAPS_MAX]; /* paths of maps so far, to catch a section that is written twice */
    struct ash_err *err;
};

static size_t line_of(const yaml_mark_t *mark)
{
    return mark->line + 1;
}

/* "job.yaml:12" of the current event. */
static const char *source(const struct reader *reader, char *buf, size_t buf_bytes)
{
    snprintf(buf, buf_bytes, "%.200s:%zu", reader->name, line_of(&reader->event.start_mark));
    return buf;
}

static int refuse(struct reader *reader, const char *what)
{
    return ash_err_set(reader->err, -EINVAL, "%.200s:%zu: %s", reader->name, line_of(&reader->event.start_mark), what);
}

/* The scanner's complaint, in words that say what to change. */
static int syntax_error(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    const char *problem = parser->problem != NULL ? parser->problem : "it cannot be read";
    const char *hint = "";

    if (parser->error == YAML_MEMORY_ERROR)
        return ash_err_set(reader->err, -ENOMEM, "%.200s: out of memory", reader->name);
    if (strstr(problem, "cannot start any token") != NULL)
        hint = " (indent with spaces, not tabs; quote values that start with @, ` or %)";
    if (strstr(problem, "mapping values are not allowed") != NULL)
        hint = " (check the indentation; quote values that contain ': ')";
    return ash_err_set(reader->err, -EINVAL, "%.200s:%zu: not valid YAML: %s%s", reader->name,
                       line_of(&parser->problem_mark), problem, hint);
}

/* Move on to the next event; anchors, aliases and tags end here. */
static int next(struct reader *reader)
{
    const yaml_event_t *event = &reader->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;

    if (reader->has_event) yaml_event_delete(&reader->event);
    reader->has_event = yaml_parser_parse(&reader->parser, &reader->event) == 1;
    if (!reader->has_event) return syntax_error(reader);
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor, tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor, tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor, tag = event->data.mapping_start.tag;
        break;
    case YAML_ALIAS_EVENT:
        return refuse(reader, "aliases (*name) are not supported: write the value out");
    default:
        break;
    }
    if (anchor != NULL) return refuse(reader, "anchors (&name) are not supported: repeat the value instead");
    if (tag != NULL) return refuse(reader, "tags (!name) are not supported");
    return 0;
}

/* The scalar of the current event as text, or NULL when it holds a NUL byte. */
static const char *scalar(const struct reader *reader)
{
    const char *text = (const char *)reader->event.data.scalar.value;

    return strlen(text) == reader->event.data.scalar.length ? text : NULL;
}

static bool is_null(const struct reader *reader)
{
    const char *text = (const char *)reader->event.data.scalar.value;

    if (reader->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

/* Does any setting begin with path ("train.")? */
static bool is_section(const struct ash_opts *opts, const char *path)
{
    for (size_t i = 0; i < opts->count; i++) {
        char head[ASH_OPT_KEY_BYTES];
        size_t length = strlen(path);
        if (length >= sizeof(head) || strlen(opts->slots[i].key) <= length) continue;
        memcpy(head, opts->slots[i].key, length);
        head[length] = '\0';
        if (ash_opts_same_key(head, path)) return true;
    }
    return false;
}

static int unknown_section(const struct reader *reader, const char *path, size_t line)
{
    const struct ash_opts *opts = reader->opts;
    const char *nearest = NULL;
    size_t least = 0;

    for (size_t i = 0; i < opts->count; i++) {
        const char *section = opts->slots[i].table->section;
        size_t distance = ash_spelling_distance(path, section);
        if (section[0] == '\0' || (nearest != NULL && distance >= least)) continue;
        nearest = section;
        least = distance;
    }
    if (nearest == NULL)
        return ash_err_set(reader->err, -ENOENT, "%.200s:%zu: there is no section '%.100s'", reader->name, line, path);
    return ash_err_set(reader->err, -ENOENT, "%.200s:%zu: there is no section '%.100s'; did you mean '%s'?",
                       reader->name, line, path, nearest);
}

static int set_null(struct reader *reader, struct ash_opt_slot *slot)
{
    if (ash_opt_is_list(slot->opt)) {
        ash_opts_empty_list(reader->opts, slot);
    } else if (slot->opt->type == ASH_OPT_STRING) {
        *(const char **)slot->field = NULL;
        slot->is_set = true;
        slot->generation = reader->opts->generation;
    } else {
        return ash_err_set(reader->err, -EINVAL, "%.200s:%zu: '%s' has no value", reader->name,
                           line_of(&reader->event.start_mark), slot->key);
    }
    return 0;
}

static int set_scalar(struct reader *reader, struct ash_opt_slot *slot)
{
    char where[SOURCE_BYTES];
    const char *text = scalar(reader);

    if (text == NULL) return refuse(reader, "the value contains a NUL character");
    if (is_null(reader)) return set_null(reader, slot);
    return ash_opts_store(reader->opts, slot, text, source(reader, where, sizeof(where)), reader->err);
}

static int set_sequence(struct reader *reader, struct ash_opt_slot *slot)
{
    char where[SOURCE_BYTES];
    int rc;

    if (!ash_opt_is_list(slot->opt))
        return ash_err_set(reader->err, -EINVAL, "%s: '%s' takes one value, not a list",
                           source(reader, where, sizeof(where)), slot->key);
    ash_opts_empty_list(reader->opts, slot);
    for (;;) {
        rc = next(reader);
        if (rc < 0 || reader->event.type == YAML_SEQUENCE_END_EVENT) return rc;
        if (reader->event.type != YAML_SCALAR_EVENT)
            return refuse(reader, "a list holds plain values, not lists or maps");
        if (scalar(reader) == NULL) return refuse(reader, "the value contains a NUL character");
        rc = ash_opts_store_item(reader->opts, slot, scalar(reader), source(reader, where, sizeof(where)), reader->err);
        if (rc < 0) return rc;
    }
}

/* A map as a list of texts: "key=value" each. */
static int set_pairs(struct reader *reader, struct ash_opt_slot *slot)
{
    char where[SOURCE_BYTES];
    struct ash_str pair = {0};
    int rc;

    ash_opts_empty_list(reader->opts, slot);
    for (bool is_key = true;; is_key = !is_key) {
        rc = next(reader);
        if (rc < 0 || reader->event.type == YAML_MAPPING_END_EVENT) break;
        if (reader->event.type != YAML_SCALAR_EVENT)
            rc = refuse(reader, "this map holds plain values, not lists or maps");
        else if (scalar(reader) == NULL)
            rc = refuse(reader, "the value contains a NUL character");
        if (rc == 0) rc = is_key ? ash_str_addf(&pair, "%s=", scalar(reader)) : ash_str_adds(&pair, scalar(reader));
        if (rc == 0 && !is_key)
            rc = ash_opts_store_item(reader->opts, slot, pair.data, source(reader, where, sizeof(where)), reader->err);
        if (rc < 0) break;
        if (!is_key) ash_str_clear(&pair);
    }
    ash_str_fini(&pair);
    return rc;
}

/* The value of a known setting; key_line is the line of its key. */
static int set_value(struct reader *reader, struct ash_opt_slot *slot, size_t key_line)
{
    if (slot->is_set && slot->generation == reader->opts->generation)
        return ash_err_set(reader->err, -EINVAL, "%.200s:%zu: '%s' is given twice (first on line %zu)", reader->name,
                           key_line, slot->key, slot->line);
    slot->line = key_line;
    if (reader->event.type == YAML_SCALAR_EVENT) return set_scalar(reader, slot);
    if (reader->event.type == YAML_SEQUENCE_START_EVENT) return set_sequence(reader, slot);
    if (slot->opt->type == ASH_OPT_TEXTS) return set_pairs(reader, slot);
    return ash_err_set(reader->err, -EINVAL, "%.200s:%zu: '%s' takes %s, not a map", reader->name, key_line, slot->key,
                       ash_opt_is_list(slot->opt) ? "a list" : "one value");
}

static int remember_map(struct reader *reader, size_t line)
{
    for (size_t i = 0; i < reader->maps_seen_count; i++)
        if (ash_opts_same_key(reader->maps_seen[i], reader->path))
            return ash_err_set(reader->err, -EINVAL, "%.200s:%zu: the section '%.*s' is given twice", reader->name,
                               line, (int)strlen(reader->path) - 1, reader->path);
    if (reader->maps_seen_count == MAPS_MAX)
        return ash_err_set(reader->err, -E2BIG, "%.200s:%zu: more than %d sections", reader->name, line, MAPS_MAX);
    reader->maps_seen[reader->maps_seen_count] = strdup(reader->path);
    if (reader->maps_seen[reader->maps_seen_count] == NULL)
        return ash_err_set(reader->err, -ENOMEM, "%.200s: out of memory", reader->name);
    reader->maps_seen_count++;
    return 0;
}

static int read_map(struct reader *reader, int depth);

/* Leave the value of the current event behind, whatever it is. */
static int pass_over(struct reader *reader)
{
    size_t open = 0;
    int rc = 0;

    for (;;) {
        yaml_event_type_t type = reader->event.type;

        if (type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT) open++;
        if (type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT) open--;
        if (open == 0) return 0;
        rc = next(reader);
        if (rc < 0) return rc;
    }
}

/* Does the current event set a removed setting to the value that always holds now? Job files of older runs do. */
static bool is_removed(const struct reader *reader)
{
    static const char *const removed[][2] = {{"runtime.mode", "exact"}};

    if (reader->event.type != YAML_SCALAR_EVENT || scalar(reader) == NULL) return false;
    for (size_t i = 0; i < sizeof(removed) / sizeof(removed[0]); i++)
        if (ash_opts_same_key(reader->path, removed[i][0]) && strcmp(scalar(reader), removed[i][1]) == 0) return true;
    return false;
}

/* The value of a key that is not a setting: a section with a map below, or a mistake. reader->path is "...key". */
static int read_section(struct reader *reader, size_t key_line, int depth)
{
    char where[SOURCE_BYTES];
    size_t length = strlen(reader->path);
    int rc;

    reader->path[length] = '.';
    reader->path[length + 1] = '\0';
    if (!is_section(reader->opts, reader->path)) {
        reader->path[length] = '\0';
        if (ash_opts_is_passed(reader->opts, reader->path)) return pass_over(reader);
        if (reader->event.type == YAML_MAPPING_START_EVENT) return unknown_section(reader, reader->path, key_line);
        if (is_removed(reader)) return 0;
        snprintf(where, sizeof(where), "%.200s:%zu", reader->name, key_line);
        return ash_opts_unknown(reader->opts, reader->path, where, reader->err);
    }
    if (reader->event.type == YAML_SCALAR_EVENT && is_null(reader)) return 0; /* a section with nothing below */
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return ash_err_set(reader->err, -EINVAL, "%.200s:%zu: '%.*s' is a section: its settings go below it, indented",
                           reader->name, key_line, (int)length, reader->path);
    if (depth >= DEPTH_MAX) return refuse(reader, "maps are nested too deep");
    rc = remember_map(reader, key_line);
    return rc < 0 ? rc : read_map(reader, depth + 1);
}

/* One key of a map and what belongs to it. */
static int read_entry(struct reader *reader, int depth)
{
    size_t path_length = strlen(reader->path), key_line = line_of(&reader->event.start_mark);
    struct ash_opt_slot *slot = NULL;
    const char *key = NULL;
    int rc;

    if (reader->event.type != YAML_SCALAR_EVENT) return refuse(reader, "a key must be a plain word");
    key = scalar(reader);
    if (key == NULL || key[0] == '\0') return refuse(reader, "a key must be a plain word");
    if (strlen(key) >= ASH_OPT_KEY_BYTES || path_length + strlen(key) + 2 > sizeof(reader->path))
        return ash_err_set(reader->err, -ENOENT, "%.200s:%zu: there is no setting '%.60s...'", reader->name, key_line,
                           key);
    memcpy(reader->path + path_length, key, strlen(key) + 1);
    rc = next(reader);
    if (rc < 0) return rc;
    slot = ash_opts_find(reader->opts, reader->path);
    rc = slot != NULL ? set_value(reader, slot, key_line) : read_section(reader, key_line, depth);
    reader->path[path_length] = '\0';
    return rc;
}

static int read_map(struct reader *reader, int depth)
{
    for (;;) {
        int rc = next(reader);
        if (rc < 0 || reader->event.type == YAML_MAPPING_END_EVENT) return rc;
        rc = read_entry(reader, depth);
        if (rc < 0) return rc;
    }
}

static int read_stream(struct reader *reader)
{
    int rc = next(reader); /* stream start */

    if (rc == 0) rc = next(reader);
    if (rc < 0 || reader->event.type == YAML_STREAM_END_EVENT) return rc; /* an empty file changes nothing */
    rc = next(reader);
    if (rc < 0) return rc;
    if (reader->event.type == YAML_MAPPING_START_EVENT)
        rc = read_map(reader, 1);
    else if (reader->event.type != YAML_SCALAR_EVENT || !is_null(reader))
        rc = refuse(reader, "a job file is a map: lines of 'key: value'");
    if (rc < 0) return rc;
    rc = next(reader); /* document end */
    if (rc < 0) return rc;
    rc = next(reader);
    if (rc < 0) return rc;
    return reader->event.type == YAML_STREAM_END_EVENT ? 0 : refuse(reader, "a second document (---) is not supported");
}

/* libyaml reports bad bytes without a line. */
static int check_utf8(const char *text, size_t size_bytes, const char *name, struct ash_err *err)
{
    size_t valid = ash_utf8_valid_prefix(text, size_bytes), line = 1;

    if (valid == size_bytes) return 0;
    for (size_t i = 0; i < valid; i++)
        line += text[i] == '\n';
    return ash_err_set(err, -EILSEQ, "%.200s:%zu: byte 0x%02x is not valid UTF-8: save the file as UTF-8", name, line,
                       (unsigned char)text[valid]);
}

int ash_opts_parse_yaml(struct ash_opts *opts, const char *text, size_t size_bytes, const char *name,
                        struct ash_err *err)
{
    struct reader reader = {.opts = opts, .name = name, .err = err};
    int rc;

    if (size_bytes > FILE_BYTES_MAX)
        return ash_err_set(err, -EFBIG, "%.200s: a job file has at most %zu bytes", name, FILE_BYTES_MAX);
    rc = check_utf8(text, size_bytes, name, err);
    if (rc < 0) return rc;
    if (yaml_parser_initialize(&reader.parser) != 1) return ash_err_set(err, -ENOMEM, "%.200s: out of memory", name);
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, size_bytes);
    opts->generation++;
    rc = read_stream(&reader);
    if (reader.has_event) yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    for (size_t i = 0; i < reader.maps_seen_count; i++)
        free(reader.maps_seen[i]);
    return rc;
}

int ash_opts_load_yaml(struct ash_opts *opts, const char *path, struct ash_err *err)
{
    char *text = NULL;
    size_t size_bytes = 0;
    int rc = ash_file_read(path, FILE_BYTES_MAX, &text, &size_bytes, err);

    if (rc < 0) return rc;
    rc = ash_opts_parse_yaml(opts, text, size_bytes, path, err);
    free(text);
    return rc;
}

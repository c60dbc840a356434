/* YAML into JSON, event by event with a stack of open containers: no recursion, so depth is a limit and not a crash. */
#include "base/yaml.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/number.h"

#define DEPTH_MAX 32

struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    const char *name;
    json_t *root;
    json_t *open[DEPTH_MAX]; /* borrowed from root */
    char *keys[DEPTH_MAX];   /* of each open object: the key that waits for its value */
    size_t depth;
    bool is_done;
    struct ash_err *err;
};

static int refuse(struct reader *reader, const char *what)
{
    return ash_err_set(reader->err, -EINVAL, "%.200s:%zu: %s", reader->name, reader->event.start_mark.line + 1, what);
}

static int syntax_error(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;

    if (parser->error == YAML_MEMORY_ERROR)
        return ash_err_set(reader->err, -ENOMEM, "%.200s: out of memory", reader->name);
    return ash_err_set(reader->err, -EINVAL, "%.200s:%zu: not valid YAML: %s", reader->name,
                       parser->problem_mark.line + 1, parser->problem != NULL ? parser->problem : "it cannot be read");
}

/* A plain number that fits is a number; hexadecimal, infinities and the like stay text. */
static json_t *plain_number(const char *text)
{
    double value;
    char *end = NULL;
    long long whole;

    if (strspn(text, "+-.0123456789eE") != strlen(text) || strpbrk(text, "0123456789") == NULL) return NULL;
    if (strspn(text, "+-0123456789") == strlen(text)) {
        errno = 0;
        whole = strtoll(text, &end, 10);
        return errno == 0 && *end == '\0' ? json_integer(whole) : NULL;
    }
    return ash_number_parse(text, &value) == 0 ? json_real(value) : NULL;
}

static json_t *scalar_value(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t size_bytes = event->data.scalar.length;
    json_t *number;

    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        if (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0) return json_null();
        if (strcmp(text, "true") == 0) return json_true();
        if (strcmp(text, "false") == 0) return json_false();
        number = plain_number(text);
        if (number != NULL) return number;
    }
    return json_stringn(text, size_bytes); /* NULL if it is not UTF-8 */
}

/* Hang value (stolen) under the innermost open container. */
static int attach(struct reader *reader, json_t *value)
{
    json_t *parent;
    char **key;
    int rc;

    if (value == NULL) return refuse(reader, "this text is not UTF-8");
    if (reader->depth == 0) {
        reader->root = value;
        return 0;
    }
    parent = reader->open[reader->depth - 1];
    key = &reader->keys[reader->depth - 1];
    if (json_is_array(parent)) {
        rc = json_array_append_new(parent, value);
    } else {
        rc = json_object_set_new(parent, *key, value);
        free(*key);
        *key = NULL;
    }
    return rc == 0 ? 0 : refuse(reader, "this value cannot be kept: it is not UTF-8 or memory is short");
}

static int take_key(struct reader *reader)
{
    const char *text = (const char *)reader->event.data.scalar.value;
    json_t *parent = reader->open[reader->depth - 1];

    if (strlen(text) != reader->event.data.scalar.length) return refuse(reader, "a key holds a zero byte");
    if (json_object_get(parent, text) != NULL) return refuse(reader, "this key is written twice");
    reader->keys[reader->depth - 1] = strdup(text);
    return reader->keys[reader->depth - 1] != NULL ? 0 : ash_err_set(reader->err, -ENOMEM, "out of memory");
}

static bool wants_key(const struct reader *reader)
{
    return reader->depth > 0 && json_is_object(reader->open[reader->depth - 1]) &&
           reader->keys[reader->depth - 1] == NULL;
}

static int open_container(struct reader *reader, json_t *container)
{
    int rc;

    if (wants_key(reader) || reader->depth == DEPTH_MAX) {
        json_decref(container);
        return refuse(reader, reader->depth == DEPTH_MAX ? "nested too deeply" : "a key must be plain text");
    }
    rc = attach(reader, container);
    if (rc == 0) reader->open[reader->depth++] = container;
    return rc;
}

static int plain_only(struct reader *reader, const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor != NULL) return refuse(reader, "anchors (&name) are not supported: write the value out");
    return tag != NULL ? refuse(reader, "tags (!name) are not supported") : 0;
}

static int take_event(struct reader *reader)
{
    const yaml_event_t *event = &reader->event;
    int rc;

    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return refuse(reader, "aliases (*name) are not supported: write the value out");
    case YAML_SCALAR_EVENT:
        rc = plain_only(reader, event->data.scalar.anchor, event->data.scalar.tag);
        if (rc < 0) return rc;
        return wants_key(reader) ? take_key(reader) : attach(reader, scalar_value(event));
    case YAML_SEQUENCE_START_EVENT:
        rc = plain_only(reader, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        return rc < 0 ? rc : open_container(reader, json_array());
    case YAML_MAPPING_START_EVENT:
        rc = plain_only(reader, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        return rc < 0 ? rc : open_container(reader, json_object());
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        reader->depth--;
        return 0;
    case YAML_DOCUMENT_START_EVENT:
        return reader->root != NULL ? refuse(reader, "only one document is expected") : 0;
    case YAML_STREAM_END_EVENT:
        reader->is_done = true;
        return 0;
    default:
        return 0;
    }
}

int ash_yaml_parse(const char *text, size_t size_bytes, const char *name, json_t **json_out, struct ash_err *err)
{
    struct reader reader = {.name = name, .err = err};
    int rc = 0;

    if (yaml_parser_initialize(&reader.parser) == 0) return ash_err_set(err, -ENOMEM, "%.200s: out of memory", name);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, size_bytes);
    while (rc == 0 && !reader.is_done) {
        if (yaml_parser_parse(&reader.parser, &reader.event) == 0) {
            rc = syntax_error(&reader);
            break;
        }
        rc = take_event(&reader);
        yaml_event_delete(&reader.event);
    }
    for (size_t i = 0; i < DEPTH_MAX; i++)
        free(reader.keys[i]);
    yaml_parser_delete(&reader.parser);
    if (rc < 0)
        json_decref(reader.root);
    else
        *json_out = reader.root != NULL ? reader.root : json_null();
    return rc;
}

int ash_yaml_load(const char *path, json_t **json_out, struct ash_err *err)
{
    size_t size_bytes = 0;
    char *text = NULL;
    int rc = ash_file_read(path, ASH_YAML_MAX_BYTES, &text, &size_bytes, err);

    if (rc < 0) return rc;
    rc = ash_yaml_parse(text, size_bytes, path, json_out, err);
    free(text);
    return rc;
}

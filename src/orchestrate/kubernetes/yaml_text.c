/* JSON as YAML documents that people read: block style, and quotes only where a reader would take a text for something
 * else. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/assert.h"
#include "orchestrate/kubernetes/manifest.h"

static int append(void *ctx, unsigned char *bytes, size_t size)
{
    return ash_str_add(ctx, bytes, size) == 0;
}

/* Would a plain scalar of this text be read as something other than a string? The emitter itself quotes what plain
 * scalars cannot hold. */
static bool needs_quotes(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "null", "~", "y", "n"};

    if (text[0] == '\0' || strspn(text, "0123456789+-.eE_:xobinfaINFA") == strlen(text)) return true;
    for (size_t i = 0; i < ASH_COUNT(words); i++)
        if (strcasecmp(text, words[i]) == 0) return true;
    return false;
}

static int put(yaml_emitter_t *emitter, yaml_event_t *event)
{
    return yaml_emitter_emit(emitter, event) == 1 ? 0 : -ENOMEM;
}

static int put_text(yaml_emitter_t *emitter, const char *text, bool is_string)
{
    yaml_event_t event;
    yaml_scalar_style_t style = YAML_PLAIN_SCALAR_STYLE;

    if (is_string && strchr(text, '\n') != NULL)
        style = YAML_LITERAL_SCALAR_STYLE;
    else if (is_string && needs_quotes(text))
        style = YAML_DOUBLE_QUOTED_SCALAR_STYLE;
    if (yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text, (int)strlen(text), 1, 1, style) !=
        1)
        return -ENOMEM;
    return put(emitter, &event);
}

static int put_value(yaml_emitter_t *emitter, const json_t *value);

static int put_map(yaml_emitter_t *emitter, const json_t *object)
{
    yaml_event_t event;
    const char *key;
    json_t *value;
    int rc;

    if (yaml_mapping_start_event_initialize(&event, NULL, NULL, 1,
                                            json_object_size(object) == 0 ? YAML_FLOW_MAPPING_STYLE
                                                                          : YAML_BLOCK_MAPPING_STYLE) != 1)
        return -ENOMEM;
    rc = put(emitter, &event);
    json_object_foreach((json_t *)object, key, value) {
        if (rc == 0) rc = put_text(emitter, key, true);
        if (rc == 0) rc = put_value(emitter, value);
    }
    if (rc < 0 || yaml_mapping_end_event_initialize(&event) != 1) return -ENOMEM;
    return put(emitter, &event);
}

/* Short lists of words, such as a command's, go on one line. */
static int put_list(yaml_emitter_t *emitter, const json_t *array)
{
    yaml_event_t event;
    bool is_flat = true;
    int rc;

    for (size_t i = 0; i < json_array_size(array); i++)
        is_flat = is_flat && !json_is_object(json_array_get(array, i)) && !json_is_array(json_array_get(array, i));
    if (yaml_sequence_start_event_initialize(&event, NULL, NULL, 1,
                                             is_flat ? YAML_FLOW_SEQUENCE_STYLE : YAML_BLOCK_SEQUENCE_STYLE) != 1)
        return -ENOMEM;
    rc = put(emitter, &event);
    for (size_t i = 0; i < json_array_size(array) && rc == 0; i++)
        rc = put_value(emitter, json_array_get(array, i));
    if (rc < 0 || yaml_sequence_end_event_initialize(&event) != 1) return -ENOMEM;
    return put(emitter, &event);
}

static int put_value(yaml_emitter_t *emitter, const json_t *value)
{
    char number[32];

    if (json_is_object(value)) return put_map(emitter, value);
    if (json_is_array(value)) return put_list(emitter, value);
    if (json_is_string(value)) return put_text(emitter, json_string_value(value), true);
    if (json_is_boolean(value)) return put_text(emitter, json_is_true(value) ? "true" : "false", false);
    if (json_is_integer(value)) {
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
        return put_text(emitter, number, false);
    }
    return put_text(emitter, "null", false);
}

static int put_document(yaml_emitter_t *emitter, const json_t *object)
{
    yaml_event_t event;
    int rc;

    if (yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 0) != 1) return -ENOMEM;
    rc = put(emitter, &event);
    if (rc == 0) rc = put_value(emitter, object);
    if (rc < 0 || yaml_document_end_event_initialize(&event, 1) != 1) return -ENOMEM;
    return put(emitter, &event);
}

int ash_kube_add_yaml(const json_t *objects, struct ash_str *text_out)
{
    yaml_emitter_t emitter;
    yaml_event_t event;
    int rc;

    if (yaml_emitter_initialize(&emitter) != 1) return -ENOMEM;
    yaml_emitter_set_output(&emitter, append, text_out);
    yaml_emitter_set_width(&emitter, 120);
    yaml_emitter_set_unicode(&emitter, 1);
    rc = yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) == 1 ? put(&emitter, &event) : -ENOMEM;
    for (size_t i = 0; i < json_array_size(objects) && rc == 0; i++)
        rc = put_document(&emitter, json_array_get(objects, i));
    if (rc == 0) rc = yaml_stream_end_event_initialize(&event) == 1 ? put(&emitter, &event) : -ENOMEM;
    yaml_emitter_delete(&emitter);
    return rc;
}

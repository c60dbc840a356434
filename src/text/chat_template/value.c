/* Values of a template: made in the rendering's arena, compared, and turned from JSON. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

#define EQUAL_DEPTH_MAX 100

struct ash_jinja_text ash_jinja_text_of(const char *text)
{
    return (struct ash_jinja_text){text, strlen(text)};
}

bool ash_jinja_text_equal(struct ash_jinja_text a, struct ash_jinja_text b)
{
    return a.size_bytes == b.size_bytes && (a.size_bytes == 0 || memcmp(a.data, b.data, a.size_bytes) == 0);
}

bool ash_jinja_text_is(struct ash_jinja_text text, const char *other)
{
    return ash_jinja_text_equal(text, ash_jinja_text_of(other));
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

struct ash_jinja_value ash_jinja_undefined(struct ash_jinja_text name)
{
    return (struct ash_jinja_value){ASH_JINJA_UNDEFINED, {.text = name}};
}

struct ash_jinja_value ash_jinja_none(void)
{
    return (struct ash_jinja_value){ASH_JINJA_NONE, {.flag = false}};
}

struct ash_jinja_value ash_jinja_bool(bool flag)
{
    return (struct ash_jinja_value){ASH_JINJA_BOOL, {.flag = flag}};
}

struct ash_jinja_value ash_jinja_int(int64_t integer)
{
    return (struct ash_jinja_value){ASH_JINJA_INT, {.integer = integer}};
}

struct ash_jinja_value ash_jinja_float(double real)
{
    return (struct ash_jinja_value){ASH_JINJA_FLOAT, {.real = real}};
}

struct ash_jinja_value ash_jinja_string(struct ash_jinja_text text)
{
    return (struct ash_jinja_value){ASH_JINJA_STRING, {.text = text}};
}

void *ash_jinja_alloc(struct ash_jinja_run *run, size_t size_bytes)
{
    void *memory = NULL;

    if (size_bytes <= ASH_JINJA_MEMORY_BYTES_MAX &&
        ash_arena_used_bytes(run->arena) <= ASH_JINJA_MEMORY_BYTES_MAX - size_bytes)
        memory = ash_arena_alloc(run->arena, size_bytes);
    if (memory == NULL)
        ash_jinja_fail(run, -ENOMEM, "the template needs more than %zu MiB", ASH_JINJA_MEMORY_BYTES_MAX >> 20);
    return memory;
}

int ash_jinja_copy(struct ash_jinja_run *run, const char *data, size_t size_bytes, struct ash_jinja_value *out)
{
    char *copy = ash_jinja_alloc(run, size_bytes + 1);

    if (copy == NULL) return -ENOMEM;
    if (size_bytes > 0) memcpy(copy, data, size_bytes);
    *out = ash_jinja_string((struct ash_jinja_text){copy, size_bytes});
    return 0;
}

/* Room for one more item of item_bytes: the place to put the grown array, or NULL. */
static void *grow(struct ash_jinja_run *run, const void *items, size_t count, size_t *capacity, size_t item_bytes)
{
    size_t wanted = *capacity > 0 ? *capacity * 2 : 8;
    void *grown = ash_jinja_alloc(run, wanted * item_bytes);

    if (grown == NULL) return NULL;
    if (count > 0) memcpy(grown, items, count * item_bytes);
    *capacity = wanted;
    return grown;
}

int ash_jinja_list_new(struct ash_jinja_run *run, struct ash_jinja_value *out)
{
    struct ash_jinja_list *list = ash_jinja_alloc(run, sizeof(*list));

    if (list == NULL) return -ENOMEM;
    *list = (struct ash_jinja_list){0};
    *out = (struct ash_jinja_value){ASH_JINJA_LIST, {.list = list}};
    return 0;
}

int ash_jinja_list_add(struct ash_jinja_run *run, struct ash_jinja_list *list, struct ash_jinja_value value)
{
    ash_assert(list != NULL && list->count <= list->capacity);
    if (list->count == list->capacity) {
        struct ash_jinja_value *grown = grow(run, list->items, list->count, &list->capacity, sizeof(*grown));
        if (grown == NULL) return -ENOMEM;
        list->items = grown;
    }
    list->items[list->count++] = value;
    return 0;
}

int ash_jinja_dict_new(struct ash_jinja_run *run, enum ash_jinja_kind kind, struct ash_jinja_value *out)
{
    struct ash_jinja_dict *dict = ash_jinja_alloc(run, sizeof(*dict));

    if (dict == NULL) return -ENOMEM;
    *dict = (struct ash_jinja_dict){0};
    *out = (struct ash_jinja_value){kind, {.dict = dict}};
    return 0;
}

const struct ash_jinja_value *ash_jinja_dict_get(const struct ash_jinja_dict *dict, struct ash_jinja_text key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (ash_jinja_text_equal(dict->pairs[i].key, key)) return &dict->pairs[i].value;
    return NULL;
}

int ash_jinja_dict_set(struct ash_jinja_run *run, struct ash_jinja_dict *dict, struct ash_jinja_text key,
                       struct ash_jinja_value value)
{
    struct ash_jinja_value *old = (struct ash_jinja_value *)ash_jinja_dict_get(dict, key);

    ash_assert(dict != NULL && dict->count <= dict->capacity);
    if (old != NULL) {
        *old = value;
        return 0;
    }
    if (dict->count == dict->capacity) {
        struct ash_jinja_pair *grown = grow(run, dict->pairs, dict->count, &dict->capacity, sizeof(*grown));
        if (grown == NULL) return -ENOMEM;
        dict->pairs = grown;
    }
    dict->pairs[dict->count++] = (struct ash_jinja_pair){key, value};
    return 0;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static int from_json_array(struct ash_jinja_run *run, const json_t *json, struct ash_jinja_value *out)
{
    size_t index;
    json_t *item;
    int rc = ash_jinja_list_new(run, out);

    json_array_foreach(json, index, item) {
        struct ash_jinja_value value;
        if (rc == 0) rc = ash_jinja_from_json(run, item, &value);
        if (rc == 0) rc = ash_jinja_list_add(run, out->list, value);
    }
    return rc;
}

static int from_json_object(struct ash_jinja_run *run, const json_t *json, struct ash_jinja_value *out)
{
    const char *key;
    json_t *item;
    int rc = ash_jinja_dict_new(run, ASH_JINJA_DICT, out);

    json_object_foreach((json_t *)json, key, item) {
        struct ash_jinja_value value;
        if (rc == 0) rc = ash_jinja_from_json(run, item, &value);
        if (rc == 0) rc = ash_jinja_dict_set(run, out->dict, ash_jinja_text_of(key), value);
    }
    return rc;
}

int ash_jinja_from_json(struct ash_jinja_run *run, const json_t *json, struct ash_jinja_value *out)
{
    int rc = ash_jinja_enter(run);

    if (rc < 0) return rc;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        rc = from_json_object(run, json, out);
        break;
    case JSON_ARRAY:
        rc = from_json_array(run, json, out);
        break;
    case JSON_STRING:
        *out = ash_jinja_string((struct ash_jinja_text){json_string_value(json), json_string_length(json)});
        break;
    case JSON_INTEGER:
        *out = ash_jinja_int(json_integer_value(json));
        break;
    case JSON_REAL:
        *out = ash_jinja_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = ash_jinja_bool(json_is_true(json));
        break;
    default:
        *out = ash_jinja_none();
    }
    ash_jinja_leave(run);
    return rc;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

bool ash_jinja_truthy(struct ash_jinja_value value)
{
    switch (value.kind) {
    case ASH_JINJA_UNDEFINED:
    case ASH_JINJA_NONE:
        return false;
    case ASH_JINJA_BOOL:
        return value.flag;
    case ASH_JINJA_INT:
        return value.integer != 0;
    case ASH_JINJA_FLOAT:
        return value.real != 0;
    case ASH_JINJA_STRING:
        return value.text.size_bytes > 0;
    case ASH_JINJA_LIST:
        return value.list->count > 0;
    case ASH_JINJA_DICT:
        return value.dict->count > 0;
    default:
        return true;
    }
}

static bool lists_equal(const struct ash_jinja_list *left, const struct ash_jinja_list *right, int depth)
{
    if (left->count != right->count) return false;
    for (size_t i = 0; i < left->count; i++)
        if (!ash_jinja_equal(left->items[i], right->items[i], depth + 1)) return false;
    return true;
}

static bool dicts_equal(const struct ash_jinja_dict *left, const struct ash_jinja_dict *right, int depth)
{
    if (left->count != right->count) return false;
    for (size_t i = 0; i < left->count; i++) {
        const struct ash_jinja_value *other = ash_jinja_dict_get(right, left->pairs[i].key);
        if (other == NULL || !ash_jinja_equal(left->pairs[i].value, *other, depth + 1)) return false;
    }
    return true;
}

static bool is_number(struct ash_jinja_value value)
{
    return value.kind == ASH_JINJA_BOOL || value.kind == ASH_JINJA_INT || value.kind == ASH_JINJA_FLOAT;
}

static double number_of(struct ash_jinja_value value)
{
    return value.kind == ASH_JINJA_FLOAT ? value.real
           : value.kind == ASH_JINJA_INT ? (double)value.integer
                                         : (double)value.flag;
}

bool ash_jinja_equal(struct ash_jinja_value left, struct ash_jinja_value right, int depth)
{
    if (depth > EQUAL_DEPTH_MAX) return false;
    if (left.kind == ASH_JINJA_INT && right.kind == ASH_JINJA_INT) return left.integer == right.integer;
    if (is_number(left) && is_number(right)) return number_of(left) == number_of(right);
    if (left.kind != right.kind) return false;
    switch (left.kind) {
    case ASH_JINJA_STRING:
        return ash_jinja_text_equal(left.text, right.text);
    case ASH_JINJA_LIST:
        return lists_equal(left.list, right.list, depth);
    case ASH_JINJA_DICT:
        return dicts_equal(left.dict, right.dict, depth);
    case ASH_JINJA_NAMESPACE:
        return left.dict == right.dict;
    case ASH_JINJA_MACRO:
        return left.macro == right.macro;
    case ASH_JINJA_FUNCTION:
        return left.function == right.function;
    default:
        return true; /* none and none, undefined and undefined */
    }
}

const char *ash_jinja_kind_name(struct ash_jinja_value value)
{
    static const char *const names[] = {"undefined", "none",   "a boolean",   "an integer", "a number",  "a string",
                                        "a list",    "a dict", "a namespace", "a macro",    "a function"};

    return names[value.kind];
}

int ash_jinja_length(struct ash_jinja_run *run, struct ash_jinja_value value, size_t *out)
{
    size_t count = 0;

    switch (value.kind) {
    case ASH_JINJA_STRING:
        if (ash_jinja_spend(run, value.text.size_bytes) < 0) return -EOVERFLOW;
        for (size_t i = 0; i < value.text.size_bytes; i++)
            count += ((uint8_t)value.text.data[i] & 0xc0) != 0x80;
        *out = count;
        return 0;
    case ASH_JINJA_LIST:
        *out = value.list->count;
        return 0;
    case ASH_JINJA_DICT:
        *out = value.dict->count;
        return 0;
    case ASH_JINJA_UNDEFINED:
        *out = 0;
        return 0;
    default:
        return ash_jinja_fail(run, -EINVAL, "%s has no length", ash_jinja_kind_name(value));
    }
}

static int string_to_list(struct ash_jinja_run *run, struct ash_jinja_text text, struct ash_jinja_list *list)
{
    for (size_t at = 0; at < text.size_bytes;) {
        uint32_t point;
        int size = ash_utf8_decode(text.data + at, text.size_bytes - at, &point);
        struct ash_jinja_text piece = {text.data + at, size > 0 ? (size_t)size : 1};
        int rc = ash_jinja_list_add(run, list, ash_jinja_string(piece));
        if (rc < 0) return rc;
        at += piece.size_bytes;
    }
    return 0;
}

int ash_jinja_to_list(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_list **out)
{
    struct ash_jinja_value list;
    int rc;

    if (value.kind == ASH_JINJA_LIST) {
        *out = value.list;
        return 0;
    }
    rc = ash_jinja_list_new(run, &list);
    if (rc < 0) return rc;
    *out = list.list;
    switch (value.kind) {
    case ASH_JINJA_UNDEFINED:
        return 0;
    case ASH_JINJA_STRING:
        return string_to_list(run, value.text, list.list);
    case ASH_JINJA_DICT:
        for (size_t i = 0; rc == 0 && i < value.dict->count; i++)
            rc = ash_jinja_list_add(run, list.list, ash_jinja_key_value(value.dict->pairs[i].key));
        return rc;
    default:
        return ash_jinja_fail(run, -EINVAL, "%s is nothing to loop over", ash_jinja_kind_name(value));
    }
}

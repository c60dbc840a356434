/* Reaching into values: value.name, value[key] and value[start:stop:step], with Python's rules for negative places. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>

/* Undefined itself has no parts: that is nearly always a mistake, so it is said. */
static int undefined_part(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_text part)
{
    return ash_jinja_fail(run, -EINVAL, "'%.*s' is undefined and has no '%.*s'",
                          value.text.size_bytes < 64 ? (int)value.text.size_bytes : 64,
                          value.text.data != NULL ? value.text.data : "",
                          part.size_bytes < 64 ? (int)part.size_bytes : 64, part.data);
}

int ash_jinja_attr(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_text name,
                   struct ash_jinja_value *out)
{
    const struct ash_jinja_value *member;

    *out = ash_jinja_undefined(name);
    if (value.kind == ASH_JINJA_UNDEFINED) return undefined_part(run, value, name);
    if (value.kind != ASH_JINJA_DICT && value.kind != ASH_JINJA_NAMESPACE) return 0;
    member = ash_jinja_dict_get(value.dict, name);
    if (member != NULL) *out = *member;
    return 0;
}

/* Where the character with this number begins; the end for one past the last. */
static size_t offset_of(struct ash_jinja_text text, size_t number)
{
    size_t at = 0;

    for (; at < text.size_bytes; at++) {
        if (((uint8_t)text.data[at] & 0xc0) == 0x80) continue;
        if (number-- == 0) break;
    }
    return at;
}

static struct ash_jinja_value character_at(struct ash_jinja_text text, size_t number)
{
    size_t start = offset_of(text, number), end = start + 1;

    while (end < text.size_bytes && ((uint8_t)text.data[end] & 0xc0) == 0x80)
        end++;
    return ash_jinja_string((struct ash_jinja_text){text.data + start, end - start});
}

int ash_jinja_index(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_value key,
                    struct ash_jinja_value *out)
{
    size_t count = 0;
    int64_t at;
    int rc;

    if (key.kind == ASH_JINJA_STRING) return ash_jinja_attr(run, value, key.text, out);
    if (value.kind == ASH_JINJA_UNDEFINED) return undefined_part(run, value, ash_jinja_text_of("item"));
    if (value.kind == ASH_JINJA_DICT && key.kind == ASH_JINJA_INT) {
        struct ash_jinja_text text;

        rc = ash_jinja_key(run, key, &text);
        return rc < 0 ? rc : ash_jinja_attr(run, value, text, out);
    }
    *out = ash_jinja_undefined(ash_jinja_text_of("item"));
    if (key.kind != ASH_JINJA_INT || (value.kind != ASH_JINJA_LIST && value.kind != ASH_JINJA_STRING)) return 0;
    rc = ash_jinja_length(run, value, &count);
    at = key.integer < 0 ? key.integer + (int64_t)count : key.integer;
    if (rc < 0 || at < 0 || at >= (int64_t)count) return rc;
    *out = value.kind == ASH_JINJA_LIST ? value.list->items[at] : character_at(value.text, (size_t)at);
    return 0;
}

/* A bound brought into [low, high]; none is absent. */
static int clamp_bound(struct ash_jinja_run *run, struct ash_jinja_value bound, int64_t count, int64_t low,
                       int64_t high, int64_t absent, int64_t *out)
{
    *out = absent;
    if (bound.kind == ASH_JINJA_NONE) return 0;
    if (bound.kind != ASH_JINJA_INT)
        return ash_jinja_fail(run, -EINVAL, "a bound of a slice must be an integer, not %s",
                              ash_jinja_kind_name(bound));
    *out = bound.integer < 0 ? bound.integer + count : bound.integer;
    *out = *out < low ? low : *out > high ? high : *out;
    return 0;
}

/* A slice of characters with step 1 is a part of the string; otherwise it is put together. */
static int slice_text(struct ash_jinja_run *run, struct ash_jinja_text text, int64_t start, int64_t stop, int64_t step,
                      struct ash_jinja_value *out)
{
    struct ash_jinja_list *characters = NULL;
    struct ash_str pieces = {0};
    int rc;

    if (step == 1) {
        size_t from = offset_of(text, (size_t)start), to = stop > start ? offset_of(text, (size_t)stop) : from;
        *out = ash_jinja_string((struct ash_jinja_text){text.data + from, to - from});
        return 0;
    }
    rc = ash_jinja_to_list(run, ash_jinja_string(text), &characters);
    for (int64_t at = start; rc == 0 && (step > 0 ? at < stop : at > stop); at += step) {
        struct ash_jinja_text piece = characters->items[at].text;
        if (ash_str_add(&pieces, piece.data, piece.size_bytes) < 0) rc = ash_jinja_fail(run, -ENOMEM, "out of memory");
    }
    if (rc == 0) rc = ash_jinja_copy(run, pieces.data, pieces.size_bytes, out);
    ash_str_fini(&pieces);
    return rc;
}

static int slice_list(struct ash_jinja_run *run, const struct ash_jinja_list *list, int64_t start, int64_t stop,
                      int64_t step, struct ash_jinja_value *out)
{
    struct ash_jinja_value slice;
    int rc = ash_jinja_list_new(run, &slice);

    for (int64_t at = start; rc == 0 && (step > 0 ? at < stop : at > stop); at += step)
        rc = ash_jinja_list_add(run, slice.list, list->items[at]);
    *out = slice;
    return rc;
}

/* The step of a slice of count members, cut down to what makes a difference, so that it cannot overflow. */
static int read_step(struct ash_jinja_run *run, struct ash_jinja_value bound, int64_t count, int64_t *step_out)
{
    int64_t step = bound.kind == ASH_JINJA_INT ? bound.integer : 1;

    if (step == 0) return ash_jinja_fail(run, -EINVAL, "the step of a slice must not be zero");
    if (step < -count - 1) step = -count - 1;
    *step_out = step > count + 1 ? count + 1 : step;
    return 0;
}

int ash_jinja_slice(struct ash_jinja_run *run, struct ash_jinja_value value, const struct ash_jinja_value bounds[3],
                    struct ash_jinja_value *out)
{
    int64_t start = 0, stop = 0, step = 1, count;
    size_t length = 0;
    int rc;

    if (value.kind != ASH_JINJA_LIST && value.kind != ASH_JINJA_STRING)
        return ash_jinja_fail(run, -EINVAL, "%s cannot be sliced", ash_jinja_kind_name(value));
    rc = ash_jinja_length(run, value, &length);
    count = (int64_t)length;
    if (rc < 0) return rc;
    rc = read_step(run, bounds[2], count, &step);
    if (rc < 0) return rc;
    if (step > 0) {
        rc = clamp_bound(run, bounds[0], count, 0, count, 0, &start);
        if (rc == 0) rc = clamp_bound(run, bounds[1], count, 0, count, count, &stop);
    } else {
        rc = clamp_bound(run, bounds[0], count, -1, count - 1, count - 1, &start);
        if (rc == 0) rc = clamp_bound(run, bounds[1], count, -1, count - 1, -1, &stop);
    }
    if (rc < 0) return rc;
    return value.kind == ASH_JINJA_LIST ? slice_list(run, value.list, start, stop, step, out)
                                        : slice_text(run, value.text, start, stop, step, out);
}

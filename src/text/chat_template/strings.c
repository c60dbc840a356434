/* What strings can do: Python's methods, several of which are filters too. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>
#include <string.h>
#include <utf8proc.h>

#include "base/assert.h"
#include "base/utf8.h"

/* ---- characters -------------------------------------------------------------------------------------------------- */

/* What Python's str.strip() takes off. */
static bool is_space(uint32_t point)
{
    if (point < 0x80) return point == ' ' || (point >= 0x09 && point <= 0x0d) || (point >= 0x1c && point <= 0x1f);
    return point == 0x85 || point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) ||
           point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

/* The character at text, at least one byte long. */
static size_t decode(struct ash_jinja_text text, uint32_t *point_out)
{
    int size = ash_utf8_decode(text.data, text.size_bytes, point_out);

    return size > 0 ? (size_t)size : 1;
}

static struct ash_jinja_text after(struct ash_jinja_text text, size_t bytes)
{
    ash_assert(bytes <= text.size_bytes);
    return (struct ash_jinja_text){text.data + bytes, text.size_bytes - bytes};
}

/* Is the character one of set, or without a set white space? */
static bool is_stripped(uint32_t point, const struct ash_jinja_value *set)
{
    if (set == NULL) return is_space(point);
    for (struct ash_jinja_text left = set->text; left.size_bytes > 0;) {
        uint32_t other = 0;
        left = after(left, decode(left, &other));
        if (other == point) return true;
    }
    return false;
}

/* The place of needle in text from at on, or SIZE_MAX. */
static size_t find(struct ash_jinja_text text, struct ash_jinja_text needle, size_t at)
{
    const char *found = memmem(text.data + at, text.size_bytes - at, needle.data, needle.size_bytes);

    ash_assert(at <= text.size_bytes);
    return found != NULL ? (size_t)(found - text.data) : SIZE_MAX;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

const struct ash_jinja_value *ash_jinja_arg(const struct ash_jinja_args *args, size_t position, const char *name)
{
    if (position < args->count && args->names[position].size_bytes == 0) return &args->values[position];
    for (size_t i = 0; name != NULL && i < args->count; i++)
        if (args->names[i].size_bytes > 0 && ash_jinja_text_is(args->names[i], name)) return &args->values[i];
    return NULL;
}

/* The argument as a string; *out NULL when it is not given or none. */
static int string_arg(struct ash_jinja_run *run, const struct ash_jinja_args *args, size_t position, const char *name,
                      const struct ash_jinja_value **out)
{
    *out = ash_jinja_arg(args, position, name);
    if (*out != NULL && (*out)->kind == ASH_JINJA_NONE) *out = NULL;
    if (*out != NULL && (*out)->kind != ASH_JINJA_STRING)
        return ash_jinja_fail(run, -EINVAL, "a string is needed here, not %s", ash_jinja_kind_name(**out));
    return 0;
}

static int needed_string_arg(struct ash_jinja_run *run, const struct ash_jinja_args *args, size_t position,
                             const char *name, const struct ash_jinja_value **out)
{
    int rc = string_arg(run, args, position, name, out);

    if (rc == 0 && *out == NULL) return ash_jinja_fail(run, -EINVAL, "an argument is missing");
    return rc;
}

/* ---- stripping --------------------------------------------------------------------------------------------------- */

static int strip_sides(struct ash_jinja_run *run, struct ash_jinja_text text, const struct ash_jinja_args *args,
                       bool left, bool right, struct ash_jinja_value *out)
{
    const struct ash_jinja_value *set;
    uint32_t point = 0;
    int rc = string_arg(run, args, 0, "chars", &set);

    if (rc < 0) return rc;
    while (left && text.size_bytes > 0) {
        size_t size = decode(text, &point);
        if (!is_stripped(point, set)) break;
        text = after(text, size);
    }
    while (right && text.size_bytes > 0) {
        size_t start = text.size_bytes - 1;
        while (start > 0 && ((uint8_t)text.data[start] & 0xc0) == 0x80)
            start--;
        decode(after(text, start), &point);
        if (!is_stripped(point, set)) break;
        text.size_bytes = start;
    }
    *out = ash_jinja_string(text);
    return 0;
}

static int do_strip(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    return strip_sides(run, self.text, args, true, true, out);
}

static int do_lstrip(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    return strip_sides(run, self.text, args, true, false, out);
}

static int do_rstrip(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    return strip_sides(run, self.text, args, false, true, out);
}

/* ---- splitting and joining --------------------------------------------------------------------------------------- */

static int add_piece(struct ash_jinja_run *run, struct ash_jinja_list *list, struct ash_jinja_text text, size_t start,
                     size_t end)
{
    return ash_jinja_list_add(run, list, ash_jinja_string((struct ash_jinja_text){text.data + start, end - start}));
}

/* At runs of white space, of which those at the ends do not count. */
static int split_spaces(struct ash_jinja_run *run, struct ash_jinja_text text, int64_t most,
                        struct ash_jinja_list *list)
{
    size_t start = SIZE_MAX, size;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < text.size_bytes; at += size) {
        uint32_t point = 0;
        size = decode(after(text, at), &point);
        if (!is_space(point)) {
            if (start == SIZE_MAX) start = at;
            if (most >= 0 && (int64_t)list->count >= most) break;
        } else if (start != SIZE_MAX) {
            rc = add_piece(run, list, text, start, at);
            start = SIZE_MAX;
        }
    }
    if (rc < 0 || start == SIZE_MAX) return rc;
    while (text.size_bytes > start && (int64_t)list->count == most && is_space((uint8_t)text.data[text.size_bytes - 1]))
        text.size_bytes--; /* the rest, less its white space at the end */
    return add_piece(run, list, text, start, text.size_bytes);
}

static int split_at(struct ash_jinja_run *run, struct ash_jinja_text text, struct ash_jinja_text mark, int64_t most,
                    struct ash_jinja_list *list)
{
    size_t start = 0;
    int rc = 0;

    if (mark.size_bytes == 0) return ash_jinja_fail(run, -EINVAL, "a string cannot be split at nothing");
    while (rc == 0 && (most < 0 || (int64_t)list->count < most)) {
        size_t found = find(text, mark, start);
        if (found == SIZE_MAX) break;
        rc = add_piece(run, list, text, start, found);
        start = found + mark.size_bytes;
    }
    return rc < 0 ? rc : add_piece(run, list, text, start, text.size_bytes);
}

static int do_split(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    const struct ash_jinja_value *mark, *most = ash_jinja_arg(args, 1, "maxsplit");
    int64_t limit = most != NULL && most->kind == ASH_JINJA_INT ? most->integer : -1;
    int rc = string_arg(run, args, 0, "sep", &mark);

    if (rc < 0) return rc;
    rc = ash_jinja_list_new(run, out);
    if (rc < 0) return rc;
    return mark == NULL ? split_spaces(run, self.text, limit, out->list)
                        : split_at(run, self.text, mark->text, limit, out->list);
}

static int do_splitlines(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                         struct ash_jinja_value *out)
{
    struct ash_jinja_text text = self.text;
    size_t start = 0;
    int rc = ash_jinja_list_new(run, out);

    (void)args;
    for (size_t at = 0; rc == 0 && at < text.size_bytes; at++) {
        if (text.data[at] != '\n' && text.data[at] != '\r') continue;
        rc = add_piece(run, out->list, text, start, at);
        if (text.data[at] == '\r' && at + 1 < text.size_bytes && text.data[at + 1] == '\n') at++;
        start = at + 1;
    }
    return rc < 0 || start == text.size_bytes ? rc : add_piece(run, out->list, text, start, text.size_bytes);
}

static int do_join(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                   struct ash_jinja_value *out)
{
    const struct ash_jinja_value *value = ash_jinja_arg(args, 0, "iterable");
    struct ash_jinja_list *list = NULL;
    struct ash_str text = {0};
    int rc =
        value != NULL ? ash_jinja_to_list(run, *value, &list) : ash_jinja_fail(run, -EINVAL, "an argument is missing");

    for (size_t i = 0; rc == 0 && i < list->count; i++) {
        if (i > 0) rc = ash_jinja_print(run, &text, self);
        if (rc == 0) rc = ash_jinja_print(run, &text, list->items[i]);
    }
    if (rc == 0) rc = ash_jinja_copy(run, text.data, text.size_bytes, out);
    ash_str_fini(&text);
    return rc;
}

/* ---- replacing and case ------------------------------------------------------------------------------------------ */

static int replace_all(struct ash_jinja_run *run, struct ash_jinja_text text, struct ash_jinja_text from,
                       struct ash_jinja_value to, int64_t most, struct ash_str *out)
{
    size_t done = 0;
    int rc = 0;

    while (rc == 0 && most != 0 && from.size_bytes > 0) {
        size_t found = find(text, from, done);
        if (found == SIZE_MAX) break;
        rc = ash_jinja_print(run, out, ash_jinja_string((struct ash_jinja_text){text.data + done, found - done}));
        if (rc == 0) rc = ash_jinja_print(run, out, to);
        done = found + from.size_bytes;
        if (most > 0) most--;
    }
    return rc < 0 ? rc : ash_jinja_print(run, out, ash_jinja_string(after(text, done)));
}

static int do_replace(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                      struct ash_jinja_value *out)
{
    const struct ash_jinja_value *from = NULL, *to = NULL, *most = ash_jinja_arg(args, 2, "count");
    struct ash_str text = {0};
    int rc = needed_string_arg(run, args, 0, "old", &from);

    if (rc < 0) return rc;
    rc = needed_string_arg(run, args, 1, "new", &to);
    if (rc < 0) return rc;
    if (from->text.size_bytes == 0) return ash_jinja_fail(run, -ENOTSUP, "replacing nothing is not supported");
    rc = replace_all(run, self.text, from->text, *to, most != NULL && most->kind == ASH_JINJA_INT ? most->integer : -1,
                     &text);
    if (rc == 0) rc = ash_jinja_copy(run, text.data, text.size_bytes, out);
    ash_str_fini(&text);
    return rc;
}

enum letters { LOWER, UPPER, TITLE, CAPITALIZE };

static int change_case(struct ash_jinja_run *run, struct ash_jinja_text text, enum letters letters,
                       struct ash_jinja_value *out)
{
    struct ash_str changed = {0};
    bool inside = false; /* a word, or for CAPITALIZE the text, has begun */
    int rc = ash_str_adds(&changed, "");

    while (rc == 0 && text.size_bytes > 0) {
        uint32_t point = 0;
        char buf[4];
        size_t size = decode(text, &point);
        bool upper = letters == UPPER || (letters != LOWER && !inside);
        utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);
        inside = letters == CAPITALIZE || category <= UTF8PROC_CATEGORY_LO;
        point =
            (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)point) : utf8proc_tolower((utf8proc_int32_t)point));
        rc = ash_str_add(&changed, buf, (size_t)ash_utf8_encode(point, buf));
        text = after(text, size);
    }
    rc = rc < 0 ? ash_jinja_fail(run, -ENOMEM, "out of memory")
                : ash_jinja_copy(run, changed.data, changed.size_bytes, out);
    ash_str_fini(&changed);
    return rc;
}

static int do_lower(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    (void)args;
    return change_case(run, self.text, LOWER, out);
}

static int do_upper(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    (void)args;
    return change_case(run, self.text, UPPER, out);
}

static int do_title(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    (void)args;
    return change_case(run, self.text, TITLE, out);
}

static int do_capitalize(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                         struct ash_jinja_value *out)
{
    (void)args;
    return change_case(run, self.text, CAPITALIZE, out);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* Does text begin (or end) with the string, or with one of a list of strings? */
static int has_affix(struct ash_jinja_run *run, struct ash_jinja_text text, const struct ash_jinja_args *args,
                     bool at_end, struct ash_jinja_value *out)
{
    const struct ash_jinja_value *affix = ash_jinja_arg(args, 0, NULL);
    size_t count = affix != NULL && affix->kind == ASH_JINJA_LIST ? affix->list->count : 1;

    *out = ash_jinja_bool(false);
    for (size_t i = 0; affix != NULL && i < count; i++) {
        struct ash_jinja_value one = affix->kind == ASH_JINJA_LIST ? affix->list->items[i] : *affix;
        const char *start;
        if (one.kind != ASH_JINJA_STRING)
            return ash_jinja_fail(run, -EINVAL, "a string is needed here, not %s", ash_jinja_kind_name(one));
        if (one.text.size_bytes > text.size_bytes) continue;
        start = at_end ? text.data + text.size_bytes - one.text.size_bytes : text.data;
        if (one.text.size_bytes == 0 || memcmp(start, one.text.data, one.text.size_bytes) == 0)
            *out = ash_jinja_bool(true);
    }
    return affix != NULL ? 0 : ash_jinja_fail(run, -EINVAL, "an argument is missing");
}

static int do_startswith(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                         struct ash_jinja_value *out)
{
    return has_affix(run, self.text, args, false, out);
}

static int do_endswith(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                       struct ash_jinja_value *out)
{
    return has_affix(run, self.text, args, true, out);
}

static int do_find(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                   struct ash_jinja_value *out)
{
    const struct ash_jinja_value *needle;
    size_t place = 0, count = 0;
    int rc = needed_string_arg(run, args, 0, "sub", &needle);

    if (rc < 0) return rc;
    if (needle->text.size_bytes > 0) place = find(self.text, needle->text, 0);
    if (place == SIZE_MAX) {
        *out = ash_jinja_int(-1);
        return 0;
    }
    rc = ash_jinja_length(run, ash_jinja_string((struct ash_jinja_text){self.text.data, place}), &count);
    *out = ash_jinja_int((int64_t)count);
    return rc;
}

static int do_count(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    const struct ash_jinja_value *needle;
    int64_t count = 0;
    int rc = needed_string_arg(run, args, 0, "sub", &needle);

    if (rc < 0) return rc;
    if (needle->text.size_bytes == 0) return ash_jinja_fail(run, -ENOTSUP, "counting nothing is not supported");
    for (size_t at = find(self.text, needle->text, 0); at != SIZE_MAX;
         at = find(self.text, needle->text, at + needle->text.size_bytes))
        count++;
    *out = ash_jinja_int(count);
    return 0;
}

/* ---- by name ----------------------------------------------------------------------------------------------------- */

ash_jinja_call_fn ash_jinja_string_method(struct ash_jinja_text name)
{
    static const struct ash_jinja_function methods[] = {
        {"strip", do_strip},           {"lstrip", do_lstrip},
        {"rstrip", do_rstrip},         {"split", do_split},
        {"splitlines", do_splitlines}, {"join", do_join},
        {"replace", do_replace},       {"lower", do_lower},
        {"upper", do_upper},           {"title", do_title},
        {"capitalize", do_capitalize}, {"startswith", do_startswith},
        {"endswith", do_endswith},     {"find", do_find},
        {"count", do_count},           {"format", ash_jinja_format},
    };

    for (size_t i = 0; i < ASH_COUNT(methods); i++)
        if (ash_jinja_text_is(name, methods[i].name)) return methods[i].call;
    return NULL;
}

/* Keys of dicts that are integers, dicts in the order of their keys, and the format method. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat_template/jinja_priv.h"

#define INTEGER_MARK '\xff' /* no byte of UTF-8 */

int ash_jinja_key(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_text *key_out)
{
    struct ash_jinja_value copy;
    char text[32];
    int rc;

    if (value.kind == ASH_JINJA_STRING) {
        *key_out = value.text;
        return 0;
    }
    if (value.kind != ASH_JINJA_INT)
        return ash_jinja_fail(run, -ENOTSUP, "keys of a dict must be strings or integers, not %s",
                              ash_jinja_kind_name(value));
    snprintf(text, sizeof(text), "%c%" PRId64, INTEGER_MARK, value.integer);
    rc = ash_jinja_copy(run, text, strlen(text), &copy);
    *key_out = copy.text;
    return rc;
}

struct ash_jinja_value ash_jinja_key_value(struct ash_jinja_text key)
{
    char digits[32];

    if (key.size_bytes == 0 || key.data[0] != INTEGER_MARK) return ash_jinja_string(key);
    snprintf(digits, sizeof(digits), "%.*s", (int)(key.size_bytes - 1), key.data + 1);
    return ash_jinja_int(strtoll(digits, NULL, 10));
}

/* ---- dictsort ---------------------------------------------------------------------------------------------------- */

/* Integers by value before strings, which are compared without regard to case, as Jinja does. */
static int compare_keys(const void *a, const void *b)
{
    const struct ash_jinja_pair *left = a, *right = b;
    struct ash_jinja_value x = ash_jinja_key_value(left->key), y = ash_jinja_key_value(right->key);
    size_t count;

    if (x.kind != y.kind) return x.kind == ASH_JINJA_INT ? -1 : 1;
    if (x.kind == ASH_JINJA_INT) return (x.integer > y.integer) - (x.integer < y.integer);
    count = x.text.size_bytes < y.text.size_bytes ? x.text.size_bytes : y.text.size_bytes;
    for (size_t i = 0; i < count; i++) {
        int p = tolower((unsigned char)x.text.data[i]), q = tolower((unsigned char)y.text.data[i]);

        if (p != q) return p - q;
    }
    return (x.text.size_bytes > y.text.size_bytes) - (x.text.size_bytes < y.text.size_bytes);
}

int ash_jinja_dictsort(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                       struct ash_jinja_value *out)
{
    const struct ash_jinja_value *reverse = ash_jinja_arg(args, 2, "reverse");
    struct ash_jinja_pair *pairs;
    bool is_reverse = reverse != NULL && ash_jinja_truthy(*reverse);
    int rc;

    if (self.kind != ASH_JINJA_DICT) return ash_jinja_fail(run, -EINVAL, "%s has no items", ash_jinja_kind_name(self));
    if (ash_jinja_arg(args, 0, "case_sensitive") != NULL || ash_jinja_arg(args, 1, "by") != NULL)
        return ash_jinja_fail(run, -ENOTSUP, "dictsort sorts by key, whatever the case");
    pairs = ash_jinja_alloc(run, (self.dict->count + 1) * sizeof(*pairs));
    if (pairs == NULL) return -ENOMEM;
    if (self.dict->count > 0) memcpy(pairs, self.dict->pairs, self.dict->count * sizeof(*pairs));
    qsort(pairs, self.dict->count, sizeof(*pairs), compare_keys);
    rc = ash_jinja_list_new(run, out);
    for (size_t i = 0; rc == 0 && i < self.dict->count; i++) {
        const struct ash_jinja_pair *pair = &pairs[is_reverse ? self.dict->count - 1 - i : i];
        struct ash_jinja_value both;

        rc = ash_jinja_list_new(run, &both);
        if (rc < 0) return rc;
        both.list->tuple = true;
        rc = ash_jinja_list_add(run, both.list, ash_jinja_key_value(pair->key));
        if (rc == 0) rc = ash_jinja_list_add(run, both.list, pair->value);
        if (rc == 0) rc = ash_jinja_list_add(run, out->list, both);
    }
    return rc;
}

/* ---- format ------------------------------------------------------------------------------------------------------ */

/* The argument that a field names: {} the next one, {0} by position, {name}. NULL: there is none. */
static const struct ash_jinja_value *find_field(const struct ash_jinja_args *args, struct ash_jinja_text field,
                                                size_t *next)
{
    char name[64];
    size_t position;

    if (field.size_bytes >= sizeof(name)) return NULL;
    snprintf(name, sizeof(name), "%.*s", (int)field.size_bytes, field.data);
    if (field.size_bytes > 0 && !isdigit((unsigned char)name[0])) return ash_jinja_arg(args, ASH_JINJA_ARGS_MAX, name);
    position = field.size_bytes == 0 ? (*next)++ : strtoul(name, NULL, 10);
    return ash_jinja_arg(args, position, "");
}

/* One {field} or {{ or }} at text, into out. Returns the bytes that it takes, or a negative errno. */
static int add_field(struct ash_jinja_run *run, struct ash_jinja_text text, const struct ash_jinja_args *args,
                     size_t *next, struct ash_str *out)
{
    const char *end = memchr(text.data, '}', text.size_bytes);
    const struct ash_jinja_value *value;
    size_t size;
    int rc;

    if (text.size_bytes > 1 && text.data[1] == text.data[0]) {
        rc = ash_str_add(out, text.data, 1);
        return rc < 0 ? ash_jinja_fail(run, rc, "out of memory") : 2;
    }
    if (text.data[0] == '}' || end == NULL) return ash_jinja_fail(run, -EINVAL, "format: a single brace");
    size = (size_t)(end - text.data) - 1;
    if (size > 0 && strcspn(text.data + 1, ":!.[}") < size)
        return ash_jinja_fail(run, -ENOTSUP, "format takes {}, {0} and {name} only");
    value = find_field(args, (struct ash_jinja_text){text.data + 1, size}, next);
    if (value == NULL) return ash_jinja_fail(run, -EINVAL, "format: an argument is missing");
    rc = ash_jinja_print(run, out, *value);
    return rc < 0 ? rc : (int)size + 2;
}

int ash_jinja_format(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    struct ash_jinja_text text = self.text;
    struct ash_str made = {0};
    size_t next = 0;
    int rc = ash_str_adds(&made, "");

    while (rc >= 0 && text.size_bytes > 0) {
        size_t used = 1;

        if (text.data[0] == '{' || text.data[0] == '}') {
            rc = add_field(run, text, args, &next, &made);
            used = rc > 0 ? (size_t)rc : 1;
        } else {
            rc = ash_str_add(&made, text.data, 1);
        }
        text = (struct ash_jinja_text){text.data + used, text.size_bytes - used};
    }
    if (rc >= 0) rc = ash_jinja_copy(run, made.data, made.size_bytes, out);
    ash_str_fini(&made);
    return rc;
}

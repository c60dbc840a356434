/* Values of options: from text to a typed field with its limits checked, and back to text. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/number.h"
#include "base/opts_priv.h"
#include "base/utf8.h"

#define SUFFIX_MIN 1000 /* settings that reach it are offered suffixes */

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* A number, or digits with the suffix that people write for large ones: 70B, 1.5T. Returns as ash_number_parse. */
static int parse_double(const char *text, double *value_out)
{
    static const struct {
        char letter;
        double factor;
    } known[] = {{'k', 1e3}, {'m', 1e6}, {'g', 1e9}, {'b', 1e9}, {'t', 1e12}};
    char digits[32];
    size_t length = strspn(text, "0123456789.");
    int rc;

    if (length == 0 || length >= sizeof(digits) || text[length] == '\0' || text[length + 1] != '\0')
        return ash_number_parse(text, value_out);
    memcpy(digits, text, length);
    digits[length] = '\0';
    for (size_t i = 0; i < ASH_COUNT(known); i++) {
        if (tolower((unsigned char)text[length]) != known[i].letter) continue;
        rc = ash_number_parse(digits, value_out);
        if (rc == 0) *value_out *= known[i].factor;
        return rc;
    }
    return -EINVAL;
}

/* The same, or a whole number as people write large ones: 1_000_000, 64ki. */
static int parse_any(const char *text, double *value_out)
{
    int64_t whole = 0;
    int rc = parse_double(text, value_out);

    if (rc != -EINVAL || ash_number_parse_whole(text, &whole) < 0) return rc;
    *value_out = (double)whole;
    return 0;
}

/* ---- storing ----------------------------------------------------------------------------------------------------- */

const char *ash_opts_subject(const struct ash_opt_slot *slot, const char *source, char *buf, size_t buf_bytes)
{
    size_t used = 0;

    if (source != NULL) {
        snprintf(buf, buf_bytes, "%s: '%s'", source, slot->key);
        return buf;
    }
    if (slot->table->section[0] != '\0') return slot->key;
    used = (size_t)snprintf(buf, buf_bytes, "--");
    for (const char *c = slot->key; *c != '\0' && used + 1 < buf_bytes; c++)
        buf[used++] = *c == '_' ? '-' : *c;
    buf[used] = '\0';
    return buf;
}

static int no_memory(const struct ash_opt_slot *slot, const char *source, struct ash_err *err)
{
    char subject[ASH_OPT_SUBJECT_BYTES];

    return ash_err_set(err, -ENOMEM, "%s: out of memory", ash_opts_subject(slot, source, subject, sizeof(subject)));
}

static int wrong(const struct ash_opt_slot *slot, const char *text, const char *source, const char *expected,
                 struct ash_err *err)
{
    char subject[ASH_OPT_SUBJECT_BYTES];

    return ash_err_set(err, -EINVAL, "%s must be %s, not '%.100s'",
                       ash_opts_subject(slot, source, subject, sizeof(subject)), expected, text);
}

static int out_of_range(const struct ash_opt_slot *slot, const char *text, const char *source, const char *why,
                        struct ash_err *err)
{
    char subject[ASH_OPT_SUBJECT_BYTES];

    return ash_err_set(err, -ERANGE, "%s is %.100s, which is %s",
                       ash_opts_subject(slot, source, subject, sizeof(subject)), text, why);
}

static int check_limits(const struct ash_opt_slot *slot, double value, const char *text, const char *source,
                        struct ash_err *err)
{
    const struct ash_opt *opt = slot->opt;
    char subject[ASH_OPT_SUBJECT_BYTES], limits[80];

    if ((opt->min == 0 && opt->max == 0) || (value >= opt->min && value <= opt->max)) return 0;
    if (isinf(opt->max))
        snprintf(limits, sizeof(limits), "at least %.15g", opt->min);
    else if (isinf(opt->min))
        snprintf(limits, sizeof(limits), "at most %.15g", opt->max);
    else
        snprintf(limits, sizeof(limits), "from %.15g to %.15g", opt->min, opt->max);
    return ash_err_set(err, -ERANGE, "%s is %.100s, but it must be %s",
                       ash_opts_subject(slot, source, subject, sizeof(subject)), text, limits);
}

/* Can the setting be so large that people write it with a suffix? */
static bool is_often_large(const struct ash_opt *opt)
{
    return (opt->min == 0 && opt->max == 0) || opt->max >= SUFFIX_MIN;
}

static int store_int(struct ash_opt_slot *slot, const char *text, const char *source, struct ash_err *err)
{
    int64_t value = 0;
    int rc = ash_number_parse_whole(text, &value);

    if (rc == -EINVAL)
        return wrong(slot, text, source,
                     is_often_large(slot->opt) ? "a whole number (such as 2000, 2_000, 2e3 or 2k)" : "a whole number",
                     err);
    if (rc < 0) return out_of_range(slot, text, source, "too large", err);
    rc = check_limits(slot, (double)value, text, source, err);
    if (rc == 0) *(int64_t *)slot->field = value;
    return rc;
}

static int store_double(struct ash_opt_slot *slot, const char *text, const char *source, struct ash_err *err)
{
    double value = 0;
    int rc = parse_any(text, &value);

    if (rc == -EINVAL)
        return wrong(slot, text, source, is_often_large(slot->opt) ? "a number (such as 2000, 2e3 or 2k)" : "a number",
                     err);
    if (rc < 0) return out_of_range(slot, text, source, "not finite", err);
    rc = check_limits(slot, value, text, source, err);
    if (rc == 0) *(double *)slot->field = value;
    return rc;
}

static int store_bool(struct ash_opt_slot *slot, const char *text, const char *source, struct ash_err *err)
{
    static const char *const words[2][4] = {{"false", "no", "off", "0"}, {"true", "yes", "on", "1"}};

    for (int value = 0; value < 2; value++) {
        for (int i = 0; i < 4; i++) {
            if (strcasecmp(text, words[value][i]) != 0) continue;
            *(bool *)slot->field = value;
            return 0;
        }
    }
    return wrong(slot, text, source, "true or false", err);
}

static int store_choice(struct ash_opt_slot *slot, const char *text, const char *source, struct ash_err *err)
{
    char list[ASH_ERR_TEXT_BYTES] = "one of";
    size_t used = strlen(list);

    for (int i = 0; slot->opt->choices[i] != NULL; i++) {
        if (strcmp(slot->opt->choices[i], text) == 0) {
            *(int *)slot->field = i;
            return 0;
        }
        int more = snprintf(list + used, sizeof(list) - used, "%s %s", i > 0 ? "," : "", slot->opt->choices[i]);
        if (more > 0 && (size_t)more < sizeof(list) - used) used += (size_t)more;
    }
    return wrong(slot, text, source, list, err);
}

static int store_string(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, const char *source,
                        struct ash_err *err)
{
    const char *copy = ash_arena_strdup(opts->arena, text);

    if (copy == NULL) return no_memory(slot, source, err);
    *(const char **)slot->field = copy;
    return 0;
}

/* Append one item to the list as it is. */
static int push_item(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, const char *source,
                     struct ash_err *err)
{
    struct ash_opt_list *list = slot->field;
    const char *copy = ash_arena_strdup(opts->arena, text);
    char subject[ASH_OPT_SUBJECT_BYTES];

    if (list->count >= ASH_OPT_ITEMS_MAX)
        return ash_err_set(err, -E2BIG, "%s has more than %d items",
                           ash_opts_subject(slot, source, subject, sizeof(subject)), ASH_OPT_ITEMS_MAX);
    if (copy != NULL && list->count == slot->capacity) {
        size_t capacity = slot->capacity > 0 ? slot->capacity * 2 : 4;
        const char **items = ash_arena_calloc(opts->arena, capacity, sizeof(*items));
        if (items == NULL) return no_memory(slot, source, err);
        if (list->count > 0) memcpy(items, list->items, list->count * sizeof(*items));
        list->items = items;
        slot->capacity = capacity;
    }
    if (copy == NULL) return no_memory(slot, source, err);
    list->items[list->count++] = copy;
    return 0;
}

/* The first comma that ends an item, or NULL. "\," is a comma within it, and loses its backslash. */
static char *end_item(char *text)
{
    char *to = text, *from = text;

    for (; *from != '\0' && *from != ','; from++) {
        if (from[0] == '\\' && from[1] == ',') from++;
        *to++ = *from;
    }
    if (to < from) memset(to, '\0', (size_t)(from - to));
    return *from == ',' ? from : NULL;
}

static int push_comma_separated(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, const char *source,
                                struct ash_err *err)
{
    char *items = ash_arena_strdup(opts->arena, text);
    int rc = items == NULL ? no_memory(slot, source, err) : 0;

    while (rc == 0 && items != NULL && items[0] != '\0') {
        char *comma = end_item(items);
        if (comma != NULL) *comma = '\0';
        if (items[0] != '\0') rc = push_item(opts, slot, items, source, err);
        items = comma != NULL ? comma + 1 : NULL;
    }
    return rc;
}

/* A list that another source filled starts empty. */
static void begin_list(const struct ash_opts *opts, struct ash_opt_slot *slot)
{
    if (slot->generation == opts->generation && slot->is_set) return;
    *(struct ash_opt_list *)slot->field = (struct ash_opt_list){0};
    slot->capacity = 0;
}

static int store_list(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, bool whole,
                      const char *source, struct ash_err *err)
{
    struct ash_opt_list kept = *(struct ash_opt_list *)slot->field;
    size_t capacity = slot->capacity;
    int rc;

    begin_list(opts, slot);
    rc = whole ? push_item(opts, slot, text, source, err) : push_comma_separated(opts, slot, text, source, err);
    if (rc < 0) {
        *(struct ash_opt_list *)slot->field = kept;
        slot->capacity = capacity;
    }
    return rc;
}

static void mark_set(const struct ash_opts *opts, struct ash_opt_slot *slot)
{
    slot->generation = opts->generation;
    slot->is_set = opts->generation > 0; /* generation 0 is the defaults */
}

static int check_text(const struct ash_opt_slot *slot, const char *text, const char *source, struct ash_err *err)
{
    size_t size_bytes = strlen(text);
    char subject[ASH_OPT_SUBJECT_BYTES];

    if (ash_utf8_valid_prefix(text, size_bytes) == size_bytes) return 0;
    return ash_err_set(err, -EILSEQ, "%s is not valid UTF-8", ash_opts_subject(slot, source, subject, sizeof(subject)));
}

int ash_opts_store(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, const char *source,
                   struct ash_err *err)
{
    int rc = check_text(slot, text, source, err);

    if (rc < 0) return rc;
    switch (slot->opt->type) {
    case ASH_OPT_INT:
        rc = store_int(slot, text, source, err);
        break;
    case ASH_OPT_DOUBLE:
        rc = store_double(slot, text, source, err);
        break;
    case ASH_OPT_BOOL:
        rc = store_bool(slot, text, source, err);
        break;
    case ASH_OPT_CHOICE:
        rc = store_choice(slot, text, source, err);
        break;
    case ASH_OPT_STRING:
        rc = store_string(opts, slot, text, source, err);
        break;
    case ASH_OPT_LIST:
    case ASH_OPT_TEXTS:
        rc = store_list(opts, slot, text, slot->opt->type == ASH_OPT_TEXTS, source, err);
        break;
    }
    if (rc == 0) mark_set(opts, slot);
    return rc;
}

int ash_opts_store_item(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, const char *source,
                        struct ash_err *err)
{
    int rc = check_text(slot, text, source, err);

    if (rc == 0) rc = store_list(opts, slot, text, true, source, err);
    if (rc == 0) mark_set(opts, slot);
    return rc;
}

void ash_opts_empty_list(struct ash_opts *opts, struct ash_opt_slot *slot)
{
    *(struct ash_opt_list *)slot->field = (struct ash_opt_list){0};
    slot->capacity = 0;
    mark_set(opts, slot);
}

/* ---- showing ----------------------------------------------------------------------------------------------------- */

int ash_opts_show(const struct ash_opt_slot *slot, struct ash_str *text)
{
    switch (slot->opt->type) {
    case ASH_OPT_INT:
        return ash_str_addf(text, "%lld", (long long)*(const int64_t *)slot->field);
    case ASH_OPT_DOUBLE:
        return ash_number_add(text, *(const double *)slot->field);
    case ASH_OPT_BOOL:
        return ash_str_adds(text, *(const bool *)slot->field ? "true" : "false");
    case ASH_OPT_CHOICE:
        return ash_str_adds(text, slot->opt->choices[*(const int *)slot->field]);
    default:
        return -EINVAL;
    }
}

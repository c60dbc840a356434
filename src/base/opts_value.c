/* Values of options: from text to a typed field with its limits checked, and back to text. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/number.h"
#include "base/opts_priv.h"
#include "base/utf8.h"

/* ---- numbers --------------------------------------------------------------------------------------------------------
 */

/* The factor of a suffix, 1 for none, or 0. */
static int64_t suffix_factor(const char *suffix)
{
    static const struct {
        const char *text;
        int64_t factor;
    } known[] = {{"", 1},         {"k", 1000},     {"m", 1000000}, {"g", 1000000000},
                 {"ki", 1 << 10}, {"mi", 1 << 20}, {"gi", 1 << 30}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcasecmp(known[i].text, suffix) == 0) return known[i].factor;
    return 0;
}

/* Returns 0, -EINVAL for text that is no whole number, -ERANGE for one that does not fit. */
static int parse_int(const char *text, int64_t *value_out)
{
    const char *digits = text[0] == '-' || text[0] == '+' ? text + 1 : text;
    int64_t value, factor;
    char *end = NULL;

    if (!isdigit((unsigned char)digits[0])) return -EINVAL;
    errno = 0;
    value = strtoll(text, &end, 10);
    factor = suffix_factor(end);
    if (factor == 0) return -EINVAL;
    if (errno == ERANGE || __builtin_mul_overflow(value, factor, value_out)) return -ERANGE;
    return 0;
}

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
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (tolower((unsigned char)text[length]) != known[i].letter) continue;
        rc = ash_number_parse(digits, value_out);
        if (rc == 0) *value_out *= known[i].factor;
        return rc;
    }
    return -EINVAL;
}

/* ---- storing --------------------------------------------------------------------------------------------------------
 */

static int wrong(const struct ash_opt_slot *slot, const char *text, const char *source, const char *expected,
                 struct ash_err *err)
{
    return ash_err_set(err, -EINVAL, "%s: '%s' must be %s, not '%.100s'", source, slot->key, expected, text);
}

static int check_limits(const struct ash_opt_slot *slot, double value, const char *text, const char *source,
                        struct ash_err *err)
{
    const struct ash_opt *opt = slot->opt;

    if ((opt->min == 0 && opt->max == 0) || (value >= opt->min && value <= opt->max)) return 0;
    if (isinf(opt->max))
        return ash_err_set(err, -ERANGE, "%s: '%s' is %.100s, but it must be at least %.15g", source, slot->key, text,
                           opt->min);
    if (isinf(opt->min))
        return ash_err_set(err, -ERANGE, "%s: '%s' is %.100s, but it must be at most %.15g", source, slot->key, text,
                           opt->max);
    return ash_err_set(err, -ERANGE, "%s: '%s' is %.100s, but it must be from %.15g to %.15g", source, slot->key, text,
                       opt->min, opt->max);
}

static int store_int(struct ash_opt_slot *slot, const char *text, const char *source, struct ash_err *err)
{
    int64_t value = 0;
    int rc = parse_int(text, &value);

    if (rc == -EINVAL) return wrong(slot, text, source, "a whole number (suffixes k, m, g, ki, mi, gi are fine)", err);
    if (rc < 0) return ash_err_set(err, rc, "%s: '%s' is %.100s, which is too large", source, slot->key, text);
    rc = check_limits(slot, (double)value, text, source, err);
    if (rc == 0) *(int64_t *)slot->field = value;
    return rc;
}

static int store_double(struct ash_opt_slot *slot, const char *text, const char *source, struct ash_err *err)
{
    double value = 0;
    int rc = parse_double(text, &value);

    if (rc == -EINVAL) return wrong(slot, text, source, "a number (suffixes k, m, g or b, t are fine)", err);
    if (rc < 0) return ash_err_set(err, rc, "%s: '%s' is %.100s, which is not finite", source, slot->key, text);
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

    if (copy == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory for '%s'", source, slot->key);
    *(const char **)slot->field = copy;
    return 0;
}

/* Append one item to the list as it is. */
static int push_item(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, const char *source,
                     struct ash_err *err)
{
    struct ash_opt_list *list = slot->field;
    const char *copy = ash_arena_strdup(opts->arena, text);

    if (list->count >= ASH_OPT_ITEMS_MAX)
        return ash_err_set(err, -E2BIG, "%s: '%s' has more than %d items", source, slot->key, ASH_OPT_ITEMS_MAX);
    if (copy != NULL && list->count == slot->capacity) {
        size_t capacity = slot->capacity > 0 ? slot->capacity * 2 : 4;
        const char **items = ash_arena_calloc(opts->arena, capacity, sizeof(*items));
        if (items == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory for '%s'", source, slot->key);
        if (list->count > 0) memcpy(items, list->items, list->count * sizeof(*items));
        list->items = items;
        slot->capacity = capacity;
    }
    if (copy == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory for '%s'", source, slot->key);
    list->items[list->count++] = copy;
    return 0;
}

static int push_comma_separated(struct ash_opts *opts, struct ash_opt_slot *slot, const char *text, const char *source,
                                struct ash_err *err)
{
    char *items = ash_arena_strdup(opts->arena, text);
    int rc = items == NULL ? ash_err_set(err, -ENOMEM, "%s: out of memory for '%s'", source, slot->key) : 0;

    while (rc == 0 && items != NULL && items[0] != '\0') {
        char *comma = strchr(items, ',');
        if (comma != NULL) *comma = '\0';
        if (items[0] != '\0') rc = push_item(opts, slot, items, source, err);
        items = comma != NULL ? comma + 1 : NULL;
    }
    return rc;
}

/* A list that another source filled starts anew. */
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

    if (ash_utf8_valid_prefix(text, size_bytes) == size_bytes) return 0;
    return ash_err_set(err, -EILSEQ, "%s: the value of '%s' is not valid UTF-8", source, slot->key);
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

/* ---- showing --------------------------------------------------------------------------------------------------------
 */

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

/* filter: regular expressions run by PCRE2, whose dialect is Python's in what tasks use. */
#include "post/eval/filter.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/assert.h"

#define STEPS_MAX 16
#define MATCH_LIMIT 1000000 /* steps of one match: an expression cannot hang a run */

struct ash_pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

enum step_kind { STEP_REGEX, STEP_FIRST, STEP_FIRST_K, STEP_MAJORITY, STEP_SPACE, STEP_LOWER, STEP_UPPER };

struct step {
    enum step_kind kind;
    struct ash_pattern *pattern;
    const char *fallback;
    long group_select;
    size_t k;
};

struct ash_filter {
    const char *name;
    struct step steps[STEPS_MAX];
    size_t count;
};

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

void ash_pattern_close(struct ash_pattern *pattern)
{
    if (pattern == NULL) return;
    pcre2_match_data_free(pattern->data);
    pcre2_match_context_free(pattern->context);
    pcre2_code_free(pattern->code);
    free(pattern);
}

int ash_pattern_open(const char *expression, struct ash_pattern **pattern_out, struct ash_err *err)
{
    struct ash_pattern *pattern = calloc(1, sizeof(*pattern));
    PCRE2_SIZE at = 0;
    int code = 0;

    if (pattern == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a regular expression");
    pattern->code =
        pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (pattern->code != NULL) pattern->data = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    pattern->context = pcre2_match_context_create(NULL);
    if (pattern->code == NULL || pattern->data == NULL || pattern->context == NULL) {
        PCRE2_UCHAR why[128] = "out of memory";

        if (pattern->code == NULL) pcre2_get_error_message(code, why, sizeof(why));
        ash_pattern_close(pattern);
        return ash_err_set(err, -EINVAL, "regular expression '%.80s', at %zu: %s", expression, (size_t)at, (char *)why);
    }
    pcre2_set_match_limit(pattern->context, MATCH_LIMIT);
    *pattern_out = pattern;
    return 0;
}

/* Find it from `from` on. Returns how many groups there are (1: the whole alone), or 0. */
static int find(const struct ash_pattern *pattern, const char *text, size_t from)
{
    int rc = pcre2_match(pattern->code, (PCRE2_SPTR)text, strlen(text), from, 0, pattern->data, pattern->context);

    return rc > 0 ? rc : 0;
}

/* Where the next search begins: an empty match must not be found again. */
static size_t after(const struct ash_pattern *pattern, const char *text)
{
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(pattern->data);
    size_t next = ends[1];

    if (ends[0] != ends[1]) return next;
    next += text[next] != '\0';
    while ((text[next] & 0xc0) == 0x80)
        next++;
    return next;
}

int ash_pattern_remove(const struct ash_pattern *pattern, const char *text, struct ash_str *out)
{
    size_t kept = 0, from = 0, size = strlen(text);
    int rc = ash_str_adds(out, "");

    while (rc == 0 && from <= size && find(pattern, text, from) > 0) {
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(pattern->data);

        rc = ash_str_add(out, text + kept, ends[0] - kept);
        kept = ends[1];
        if (ends[0] == ends[1] && ends[1] == size) break;
        from = after(pattern, text);
    }
    return rc < 0 ? rc : ash_str_adds(out, text + kept);
}

/* Match number `wanted` of Python's findall: its first group that is not empty, or the whole. Returns how many matches
 * there are up to it (all of them for -1). */
static long find_match(const struct ash_pattern *pattern, const char *text, long wanted, size_t bounds[2])
{
    size_t size = strlen(text);
    long at = 0;
    int groups;

    for (size_t from = 0; from <= size && (groups = find(pattern, text, from)) > 0;) {
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(pattern->data);
        int group = groups > 1 ? 1 : 0;

        while (group > 0 && group + 1 < groups && ends[2 * group] == ends[2 * group + 1])
            group++;
        if (at++ == wanted) {
            bounds[0] = ends[2 * group];
            bounds[1] = ends[2 * group + 1];
            break;
        }
        if (ends[0] == ends[1] && ends[1] == size) break;
        from = after(pattern, text);
    }
    return at;
}

/* The match that a step selects (from the end where negative), stripped; or its fallback. */
static int take_match(const struct step *step, const char *text, struct ash_str *out)
{
    size_t bounds[2] = {0, 0};
    long wanted = step->group_select, count = wanted < 0 ? find_match(step->pattern, text, -1, bounds) : 0;

    if (wanted < 0) wanted += count;
    if (wanted < 0 || find_match(step->pattern, text, wanted, bounds) <= wanted || bounds[0] == PCRE2_UNSET)
        return ash_str_adds(out, step->fallback);
    while (bounds[0] < bounds[1] && isspace((unsigned char)text[bounds[0]]))
        bounds[0]++;
    while (bounds[1] > bounds[0] && isspace((unsigned char)text[bounds[1] - 1]))
        bounds[1]--;
    return ash_str_add(out, text + bounds[0], bounds[1] - bounds[0]);
}

/* ---- pipelines --------------------------------------------------------------------------------------------------- */

static int open_step(const json_t *json, struct step *step, struct ash_err *err)
{
    static const struct {
        const char *name;
        enum step_kind kind;
    } kinds[] = {{"regex", STEP_REGEX},
                 {"take_first", STEP_FIRST},
                 {"take_first_k", STEP_FIRST_K},
                 {"majority_vote", STEP_MAJORITY},
                 {"remove_whitespace", STEP_SPACE},
                 {"lowercase", STEP_LOWER},
                 {"uppercase", STEP_UPPER}};
    const char *name = json_string_value(json_object_get(json, "function")),
               *expression = json_string_value(json_object_get(json, "regex_pattern")),
               *fallback = json_string_value(json_object_get(json, "fallback"));

    step->fallback = fallback != NULL ? fallback : "[invalid]";
    step->group_select = (long)json_integer_value(json_object_get(json, "group_select"));
    step->k =
        json_integer_value(json_object_get(json, "k")) > 0 ? (size_t)json_integer_value(json_object_get(json, "k")) : 1;
    for (size_t i = 0; name != NULL && i < ASH_COUNT(kinds); i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        step->kind = kinds[i].kind;
        return step->kind == STEP_REGEX
                   ? ash_pattern_open(expression != NULL ? expression : "#### (\\-?[0-9\\.\\,]+)", &step->pattern, err)
                   : 0;
    }
    return ash_err_set(err, -ENOTSUP,
                       "filter function %s is not supported; regex, take_first, take_first_k, majority_vote, "
                       "remove_whitespace, lowercase and uppercase are",
                       name != NULL ? name : "(none)");
}

int ash_filter_open(const json_t *json, struct ash_filter **filter_out, struct ash_err *err)
{
    struct ash_filter *filter = calloc(1, sizeof(*filter));
    const json_t *steps = json_object_get(json, "filter");
    const char *name = json_string_value(json_object_get(json, "name"));
    int rc = 0;

    if (filter == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a filter");
    filter->name = name != NULL ? name : "none";
    if (json_array_size(steps) > STEPS_MAX)
        rc = ash_err_set(err, -EINVAL, "filter %s has more than %d functions", filter->name, STEPS_MAX);
    for (size_t i = 0; rc == 0 && i < json_array_size(steps); i++)
        rc = open_step(json_array_get(steps, i), &filter->steps[filter->count++], err);
    if (rc < 0) {
        ash_filter_close(filter);
        return rc;
    }
    *filter_out = filter;
    return 0;
}

void ash_filter_close(struct ash_filter *filter)
{
    if (filter == NULL) return;
    for (size_t i = 0; i < filter->count; i++)
        ash_pattern_close(filter->steps[i].pattern);
    free(filter);
}

const char *ash_filter_name(const struct ash_filter *filter)
{
    return filter->name;
}

/* The text that is there most often; of several, the one that comes first. */
static size_t majority(const struct ash_str *texts, size_t count)
{
    size_t best = 0, most = 0;

    for (size_t i = 0; i < count; i++) {
        size_t times = 0;

        for (size_t k = 0; k < count; k++)
            times += strcmp(texts[i].data, texts[k].data) == 0;
        if (times > most) {
            most = times;
            best = i;
        }
    }
    return best;
}

static int change_text(const struct step *step, struct ash_str *text)
{
    struct ash_str changed = {0};
    int rc = ash_str_adds(&changed, "");

    if (rc == 0 && step->kind == STEP_REGEX)
        rc = take_match(step, text->data, &changed);
    else if (rc == 0)
        rc = ash_str_adds(&changed, text->data + (step->kind == STEP_SPACE && text->data[0] == ' '));
    for (size_t i = 0; rc == 0 && step->kind >= STEP_LOWER && i < changed.size_bytes; i++)
        changed.data[i] = (char)(step->kind == STEP_LOWER ? tolower((unsigned char)changed.data[i])
                                                          : toupper((unsigned char)changed.data[i]));
    ash_str_fini(text);
    *text = changed;
    return rc;
}

/* Run one step over the texts; returns how many are left, or -ENOMEM. */
static ssize_t run_step(const struct step *step, struct ash_str *texts, size_t count)
{
    size_t chosen = 0;

    ash_assert(count > 0); /* no step leaves nothing */
    switch (step->kind) {
    case STEP_FIRST:
        return 1;
    case STEP_FIRST_K:
        return (ssize_t)(step->k < count ? step->k : count);
    case STEP_MAJORITY:
        chosen = majority(texts, count);
        if (chosen > 0) {
            struct ash_str kept = texts[0];

            texts[0] = texts[chosen];
            texts[chosen] = kept;
        }
        return 1;
    default:
        break;
    }
    for (size_t i = 0; i < count; i++)
        if (change_text(step, &texts[i]) < 0) return -ENOMEM;
    return (ssize_t)count;
}

int ash_filter_apply(const struct ash_filter *filter, char *const *texts, size_t count, struct ash_str *text)
{
    struct ash_str *all = calloc(count, sizeof(*all));
    ssize_t left = (ssize_t)count;
    int rc = all == NULL ? -ENOMEM : 0;

    ash_assert(count > 0);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = ash_str_adds(&all[i], texts[i]);
    for (size_t s = 0; rc == 0 && s < filter->count; s++) {
        left = run_step(&filter->steps[s], all, (size_t)left);
        if (left < 0) rc = (int)left;
    }
    if (rc == 0) rc = ash_str_adds(text, all[0].data);
    for (size_t i = 0; all != NULL && i < count; i++)
        ash_str_fini(&all[i]);
    free(all);
    return rc;
}

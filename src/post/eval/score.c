/* score: metrics over answers, and how they are written. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "post/eval/filter.h"
#include "post/eval/task.h"

#define PATTERNS_MAX 16

/* ---- metrics ----------------------------------------------------------------------------------------------------- */

/* Sums that metrics are made of. value: of one document. */
struct sums {
    double sum, square, weight;
    size_t count;
};

static void add_to(struct sums *sums, double value, double weight)
{
    sums->sum += value;
    sums->square += value * value;
    sums->weight += weight;
    sums->count++;
}

static size_t count_points(const char *text)
{
    size_t count = 0;

    for (; *text != '\0'; text++)
        count += (*text & 0xc0) != 0x80;
    return count;
}

/* Pieces that Python's re.split(r"\s+") gives. */
static size_t count_words(const char *text)
{
    size_t count = 1;

    for (bool is_inside = false; *text != '\0'; text++) {
        bool is_space = isspace((unsigned char)*text) != 0;

        count += is_space && !is_inside;
        is_inside = is_space;
    }
    return count;
}

/* The choice with the largest log-likelihood, divided by characters where lengths do not count. */
static long best_choice(const struct ash_task_answer *answer, bool is_per_character)
{
    long best = 0;
    double most = -INFINITY;

    for (size_t i = 0; i < json_array_size(answer->item->choices); i++) {
        const char *choice = json_string_value(json_array_get(answer->item->choices, i));
        double length = is_per_character ? (double)count_points(choice) : 1.0;
        double value = answer->loglikelihoods[i] / (length > 0 ? length : 1.0);

        if (value <= most) continue;
        most = value;
        best = (long)i;
    }
    return best;
}

/* What exact_match leaves out of both texts. */
struct ignored {
    bool has_case, has_punctuation, has_numbers; /* these count not */
    struct ash_pattern *patterns[PATTERNS_MAX];
    size_t pattern_count;
};

static int plain(const struct ignored *ignored, const char *text, struct ash_str *out)
{
    struct ash_str now = {0};
    size_t kept = 0;
    int rc = ash_str_adds(&now, text);

    for (size_t i = 0; rc == 0 && i < ignored->pattern_count; i++) {
        struct ash_str next = {0};

        rc = ash_pattern_remove(ignored->patterns[i], now.data, &next);
        ash_str_fini(&now);
        now = next;
    }
    for (size_t i = 0; rc == 0 && i < now.size_bytes; i++) {
        unsigned char c = (unsigned char)now.data[i];

        if ((ignored->has_punctuation && ispunct(c)) || (ignored->has_numbers && isdigit(c))) continue;
        now.data[kept++] = (char)(ignored->has_case ? tolower(c) : c);
    }
    if (rc == 0) rc = ash_str_adds(out, "");
    if (rc == 0) rc = ash_str_add(out, now.data, kept);
    ash_str_fini(&now);
    return rc;
}

static int is_match(const struct ignored *ignored, const char *found, const char *wanted, bool *is_match_out)
{
    struct ash_str a = {0}, b = {0};
    int rc = plain(ignored, found, &a);

    if (rc == 0) rc = plain(ignored, wanted, &b);
    if (rc == 0) *is_match_out = a.size_bytes == b.size_bytes && memcmp(a.data, b.data, a.size_bytes) == 0;
    ash_str_fini(&a);
    ash_str_fini(&b);
    return rc;
}

/* 1 where a text is one of the right answers. */
static int match_any(const struct ignored *ignored, const struct ash_task_item *item, const char *text, double *value)
{
    size_t count = item->targets != NULL ? json_array_size(item->targets) : 1;
    int rc = 0;

    *value = 0.0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const char *choice = json_string_value(json_array_get(item->choices, item->gold >= 0 ? (size_t)item->gold : 0));
        const char *wanted = item->targets != NULL ? json_string_value(json_array_get(item->targets, i))
                             : item->gold >= 0     ? choice
                                                   : item->target;
        bool is_right = false;

        rc = is_match(ignored, text, wanted, &is_right);
        if (is_right) *value = 1.0;
    }
    return rc;
}

enum metric { ACC, ACC_NORM, PERPLEXITY, WORD_PERPLEXITY, BYTE_PERPLEXITY, BITS_PER_BYTE, EXACT_MATCH };
#define KIND(output) (1u << (output))
static const struct {
    const char *name;
    unsigned outputs;
    bool higher_is_better;
} metrics[] = {
    [ACC] = {"acc", KIND(ASH_TASK_MULTIPLE_CHOICE) | KIND(ASH_TASK_LOGLIKELIHOOD), true},
    [ACC_NORM] = {"acc_norm", KIND(ASH_TASK_MULTIPLE_CHOICE), true},
    [PERPLEXITY] = {"perplexity", KIND(ASH_TASK_LOGLIKELIHOOD), false},
    [WORD_PERPLEXITY] = {"word_perplexity", KIND(ASH_TASK_ROLLING), false},
    [BYTE_PERPLEXITY] = {"byte_perplexity", KIND(ASH_TASK_ROLLING), false},
    [BITS_PER_BYTE] = {"bits_per_byte", KIND(ASH_TASK_ROLLING), false},
    [EXACT_MATCH] = {"exact_match", KIND(ASH_TASK_GENERATE), true},
};

/* Add a document's value of a metric that needs no text. */
static void add_likelihood(enum metric metric, const struct ash_task_answer *answer, struct sums *sums)
{
    const char *text = answer->item->target;

    switch (metric) {
    case ACC:
        add_to(sums,
               answer->item->choices != NULL ? best_choice(answer, false) == answer->item->gold : answer->is_greedy,
               1.0);
        break;
    case ACC_NORM:
        add_to(sums, best_choice(answer, true) == answer->item->gold, 1.0);
        break;
    case WORD_PERPLEXITY:
        add_to(sums, answer->loglikelihoods[0], (double)count_words(text));
        break;
    case BYTE_PERPLEXITY:
    case BITS_PER_BYTE:
        add_to(sums, answer->loglikelihoods[0], (double)strlen(text));
        break;
    default:
        add_to(sums, answer->loglikelihoods[0], 1.0);
    }
}

static double value_of(enum metric metric, const struct sums *sums)
{
    double mean = sums->sum / (sums->weight > 0 ? sums->weight : 1.0);

    switch (metric) {
    case PERPLEXITY:
    case WORD_PERPLEXITY:
    case BYTE_PERPLEXITY:
        return exp(-mean);
    case BITS_PER_BYTE:
        return -mean / log(2.0);
    default:
        return mean;
    }
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void set_result(json_t *results, enum metric metric, const char *filter, const struct sums *sums)
{
    double n = (double)sums->count, mean = sums->count > 0 ? sums->sum / n : 0.0;
    bool is_mean = metric == ACC || metric == ACC_NORM || metric == EXACT_MATCH;
    char key[160];

    ash_assert(metric < ASH_COUNT(metrics));
    snprintf(key, sizeof(key), "%s,%s", metrics[metric].name, filter);
    json_object_set_new(results, key, json_real(value_of(metric, sums)));
    snprintf(key, sizeof(key), "%s_stderr,%s", metrics[metric].name, filter);
    json_object_set_new(results, key,
                        is_mean && sums->count > 1
                            ? json_real(sqrt(fmax(0.0, sums->square - n * mean * mean) / (n - 1.0) / n))
                            : json_string("N/A"));
}

static int find_metric(const struct ash_task *task, const char *name, enum metric *metric_out, struct ash_err *err)
{
    for (size_t i = 0; name != NULL && i < ASH_COUNT(metrics); i++) {
        if (strcmp(metrics[i].name, name) != 0 || (metrics[i].outputs & KIND(task->output)) == 0) continue;
        *metric_out = (enum metric)i;
        return 0;
    }
    return ash_err_set(err, -ENOTSUP, "metric %s is not supported for this output_type",
                       name != NULL ? name : "(none)");
}

/* Metric number index of a task: of its list, or of those that its output has by default. Returns 0, 1 (no more) or an
 * error. */
static int metric_at(const struct ash_task *task, size_t index, enum metric *metric_out, struct ash_err *err)
{
    size_t found = 0;

    if (task->metrics != NULL) {
        const json_t *entry = json_array_get(task->metrics, index);

        if (entry == NULL) return 1;
        return find_metric(task, json_string_value(json_object_get(entry, "metric")), metric_out, err);
    }
    for (size_t i = 0; i < ASH_COUNT(metrics); i++) {
        if ((metrics[i].outputs & KIND(task->output)) == 0 || found++ != index) continue;
        *metric_out = (enum metric)i;
        return 0;
    }
    return 1;
}

static void close_ignored(struct ignored *ignored)
{
    for (size_t i = 0; i < ignored->pattern_count; i++)
        ash_pattern_close(ignored->patterns[i]);
}

static int open_ignored(const json_t *entry, struct ignored *ignored, struct ash_err *err)
{
    const json_t *list = json_object_get(entry, "regexes_to_ignore");
    int rc = 0;

    ignored->has_case = json_is_true(json_object_get(entry, "ignore_case"));
    ignored->has_punctuation = json_is_true(json_object_get(entry, "ignore_punctuation"));
    ignored->has_numbers = json_is_true(json_object_get(entry, "ignore_numbers"));
    if (json_array_size(list) > PATTERNS_MAX) return ash_err_set(err, -EINVAL, "too many regexes_to_ignore");
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const char *expression = json_string_value(json_array_get(list, i));

        rc = expression == NULL ? ash_err_set(err, -EINVAL, "regexes_to_ignore has something that is no text")
                                : ash_pattern_open(expression, &ignored->patterns[ignored->pattern_count], err);
        if (rc == 0) ignored->pattern_count++;
    }
    return rc;
}

static int score_texts(const struct ash_task *task, const struct ash_filter *filter, const struct ignored *ignored,
                       const struct ash_task_answer *answers, size_t count, struct sums *sums)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct ash_str text = {0};
        double value = 0.0;

        rc = ash_filter_apply(filter, answers[i].texts, task->repeats, &text);
        if (rc == 0) rc = match_any(ignored, answers[i].item, text.data, &value);
        if (rc == 0) add_to(sums, value, 1.0);
        ash_str_fini(&text);
    }
    return rc;
}

/* Input and output of scoring. */
struct scoring {
    const struct ash_task *task;
    const struct ash_task_answer *answers;
    size_t count;
    json_t *results; /* NULL: only checked */
};

/* One metric of generated texts after one filter. */
static int score_filtered(const struct scoring *scoring, size_t filter_index, size_t metric_index, struct ash_err *err)
{
    const struct ash_task *task = scoring->task;
    struct ash_filter *filter = NULL;
    struct ignored ignored = {0};
    struct sums sums = {0};
    int rc = ash_filter_open(json_array_get(task->filters, filter_index), &filter, err);

    if (rc == 0) rc = open_ignored(json_array_get(task->metrics, metric_index), &ignored, err);
    if (rc == 0 && score_texts(task, filter, &ignored, scoring->answers, scoring->count, &sums) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory for scores");
    if (rc == 0 && scoring->results != NULL) set_result(scoring->results, EXACT_MATCH, ash_filter_name(filter), &sums);
    close_ignored(&ignored);
    ash_filter_close(filter);
    return rc;
}

static int score_all(const struct scoring *scoring, struct ash_err *err)
{
    const struct ash_task *task = scoring->task;
    size_t filter_count = task->filters != NULL ? json_array_size(task->filters) : 1;
    enum metric metric = ACC;
    int rc = 0, more;

    for (size_t m = 0; rc == 0 && (more = metric_at(task, m, &metric, err)) != 1; m++) {
        struct sums sums = {0};

        if (more < 0) return more;
        for (size_t f = 0; rc == 0 && task->output == ASH_TASK_GENERATE && f < filter_count; f++)
            rc = score_filtered(scoring, f, m, err);
        if (task->output == ASH_TASK_GENERATE) continue;
        for (size_t i = 0; i < scoring->count; i++)
            add_likelihood(metric, &scoring->answers[i], &sums);
        if (scoring->results != NULL) set_result(scoring->results, metric, "none", &sums);
    }
    return rc;
}

int ash_task_check(const struct ash_task *task, struct ash_err *err)
{
    return score_all(&(struct scoring){.task = task}, err);
}

int ash_task_score(const struct ash_task *task, const struct ash_task_answer *answers, size_t count,
                   json_t **results_out, struct ash_err *err)
{
    json_t *results = json_pack("{s:s}", "alias", task->name);
    int rc = score_all(&(struct scoring){task, answers, count, results}, err);

    if (rc < 0) {
        json_decref(results);
        return rc;
    }
    *results_out = results;
    return 0;
}

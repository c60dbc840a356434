/* filter - answers made comparable, as lm-evaluation-harness's filters do: a pipeline of functions over the texts of
 * one document. */
#ifndef ASH_POST_EVAL_FILTER_H
#define ASH_POST_EVAL_FILTER_H

#include <stddef.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "base/str.h"

struct ash_filter; /* a pipeline, ready to run; one owner thread */

/* From an entry of filter_list ({name, filter: [{function, ...}]}); NULL: the first text as it is, named none. Returns
 * 0, -ENOTSUP (a function that is not known) or -EINVAL (an expression that is none). Borrows json. */
int ash_filter_open(const json_t *json, struct ash_filter **filter_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_filter_close(struct ash_filter *filter);
/* Its name, for results. */
const char *ash_filter_name(const struct ash_filter *filter);
/* What texts [count] become: one text, appended to text. Returns 0 or -ENOMEM. */
int ash_filter_apply(const struct ash_filter *filter, char *const *texts, size_t count, struct ash_str *text);

struct ash_pattern; /* a regular expression of Python's kind */

/* Compile one. -EINVAL with the position of the error. */
int ash_pattern_open(const char *expression, struct ash_pattern **pattern_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_pattern_close(struct ash_pattern *pattern);
/* Append text without what pattern matches. Returns 0 or -ENOMEM. */
int ash_pattern_remove(const struct ash_pattern *pattern, const char *text, struct ash_str *out);

#endif

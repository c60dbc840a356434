/* json_form - does a text have the form of a JSON schema? The automaton of constrained output answers, byte by byte.
 * One owner thread. */
#ifndef ASH_POST_REWARD_JSON_FORM_H
#define ASH_POST_REWARD_JSON_FORM_H

#include <stdbool.h>
#include "ashlar/err.h"

struct ash_json_form;

/* The schema of a file. Returns 0, or an error that names its unsupported part. */
int ash_json_form_open(const char *path, struct ash_json_form **form_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_json_form_close(struct ash_json_form *form);
/* Is text, as a whole, JSON that fits? Returns 0 or -ENOMEM. */
int ash_json_form_fits(const struct ash_json_form *form, const char *text, bool *is_fit_out, struct ash_err *err);

#endif

/* rewards: the checks, one case each; programs and models have files of their own. */
#include "post/rl/rewards.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "post/reward/json_form.h"
#include "post/reward/program.h"
#include "post/reward/scorer.h"

enum kind { KIND_EXACT, KIND_REGEX, KIND_LENGTH, KIND_ENDED, KIND_SCHEMA, KIND_PROGRAM, KIND_MODEL };

struct reward {
    enum kind kind;
    double weight, length;
    regex_t regex;
    bool has_regex;
    struct ash_json_form *form;  /* of a schema */
    struct ash_program *program; /* NULL: not started yet */
    struct ash_scorer *scorer;   /* NULL: not open yet */
    char *source;                /* the program's command, the model's folder */
};

struct ash_rewards {
    struct reward *items;
    size_t count;
};

void ash_rewards_close(struct ash_rewards *rewards)
{
    if (rewards == NULL) return;
    for (size_t i = 0; i < rewards->count; i++) {
        struct reward *reward = &rewards->items[i];

        if (reward->has_regex) regfree(&reward->regex);
        ash_json_form_close(reward->form);
        ash_program_close(reward->program);
        ash_scorer_close(reward->scorer);
        free(reward->source);
    }
    free(rewards->items);
    free(rewards);
}

/* Cut ":WEIGHT" off the end of a text. */
static double cut_weight(char *text)
{
    char *colon = strrchr(text, ':'), *end = NULL;
    double weight = colon != NULL ? strtod(colon + 1, &end) : 1.0;

    if (colon == NULL || end == colon + 1 || *end != '\0' || !isfinite(weight)) return 1.0;
    *colon = '\0';
    return weight;
}

/* The text after NAME=; NULL: it is another kind. */
static const char *value_of(const char *text, const char *name)
{
    size_t size = strlen(name);

    return strncmp(text, name, size) == 0 && text[size] == '=' ? text + size + 1 : NULL;
}

/* Kinds with a value. Returns 0, 1 (none of them) or an error. */
static int parse_valued(const char *text, struct reward *reward, struct ash_err *err)
{
    const char *value;

    if ((value = value_of(text, "length")) != NULL) {
        reward->kind = KIND_LENGTH;
        reward->length = strtod(value, NULL);
        return reward->length >= 1 ? 0 : ash_err_set(err, -EINVAL, "'%s' needs a number of tokens", text);
    }
    if ((value = value_of(text, "regex")) != NULL) {
        reward->kind = KIND_REGEX;
        if (regcomp(&reward->regex, value, REG_EXTENDED | REG_NOSUB) != 0)
            return ash_err_set(err, -EINVAL, "'%s' is no regular expression", value);
        reward->has_regex = true;
        return 0;
    }
    if ((value = value_of(text, "schema")) != NULL) {
        reward->kind = KIND_SCHEMA;
        return ash_json_form_open(value, &reward->form, err);
    }
    if ((value = value_of(text, "program")) == NULL && (value = value_of(text, "model")) == NULL) return 1;
    reward->kind = text[0] == 'p' ? KIND_PROGRAM : KIND_MODEL;
    reward->source = strdup(value);
    return reward->source == NULL ? ash_err_set(err, -ENOMEM, "out of memory for rewards") : 0;
}

static int parse_reward(const char *item, struct reward *reward, struct ash_err *err)
{
    char text[4096];
    int rc;

    if ((size_t)snprintf(text, sizeof(text), "%s", item) >= sizeof(text))
        return ash_err_set(err, -EINVAL, "'%.60s...' is longer than %zu bytes", item, sizeof(text) - 1);
    reward->weight = cut_weight(text);
    reward->kind = KIND_EXACT;
    if (strcmp(text, "arithmetic") == 0 || strcmp(text, "exact") == 0) return 0;
    reward->kind = KIND_ENDED;
    if (strcmp(text, "ended") == 0) return 0;
    rc = parse_valued(text, reward, err);
    if (rc <= 0) return rc;
    return ash_err_set(
        err, -EINVAL,
        "'%s' is not known; arithmetic, exact, ended, length=N, regex=PATTERN, schema=FILE, program=COMMAND and "
        "model=DIR are",
        item);
}

int ash_rewards_open(const char *const *items, size_t count, struct ash_rewards **rewards_out, struct ash_err *err)
{
    struct ash_rewards *rewards = calloc(1, sizeof(*rewards));
    int rc = 0;

    if (rewards == NULL || (rewards->items = calloc(count + 1, sizeof(*rewards->items))) == NULL) {
        free(rewards);
        return ash_err_set(err, -ENOMEM, "out of memory for rewards");
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = parse_reward(items[i], &rewards->items[rewards->count], err);
        rewards->count++;
    }
    if (rc == 0 && rewards->count == 0) rc = ash_err_set(err, -EINVAL, "the list is empty");
    if (rc < 0) {
        ash_rewards_close(rewards);
        return rc;
    }
    *rewards_out = rewards;
    return 0;
}

/* Are both the same but for blanks around them? */
static bool is_same(const char *a, const char *b)
{
    size_t a_size, b_size;

    while (isspace((unsigned char)*a))
        a++;
    while (isspace((unsigned char)*b))
        b++;
    a_size = strlen(a);
    b_size = strlen(b);
    while (a_size > 0 && isspace((unsigned char)a[a_size - 1]))
        a_size--;
    while (b_size > 0 && isspace((unsigned char)b[b_size - 1]))
        b_size--;
    return a_size == b_size && memcmp(a, b, a_size) == 0;
}

static const char *after_work(const struct ash_rewarded *answer)
{
    const char *equals = answer->may_have_work ? strrchr(answer->text, '=') : NULL;

    return equals != NULL ? equals + 1 : answer->text;
}

static double check(const struct reward *reward, const struct ash_rewarded *answer)
{
    double beyond;

    switch (reward->kind) {
    case KIND_EXACT: /* an answer without an end is not an answer */
        return answer->has_ended && is_same(after_work(answer), answer->answer) ? 1.0 : 0.0;
    case KIND_REGEX:
        return regexec(&reward->regex, answer->text, 0, NULL, 0) == 0 ? 1.0 : 0.0;
    case KIND_LENGTH:
        beyond = (double)answer->own_tokens - reward->length;
        return beyond > 0 ? -beyond / reward->length : 0.0;
    default:
        return answer->has_ended ? 1.0 : 0.0;
    }
}

/* The program starts with its first answer: a run without answers needs none. */
static int ask_program(struct reward *reward, const struct ash_rewarded *answer, double *value, struct ash_err *err)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:b}", "prompt", answer->prompt, "answer", answer->text, "wanted",
                             answer->answer, "tokens", (json_int_t)answer->own_tokens, "ended", (int)answer->has_ended);
    char *line = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    int rc = line == NULL ? ash_err_set(err, -ENOMEM, "out of memory for an answer") : 0;

    if (rc == 0 && reward->program == NULL) rc = ash_program_open(reward->source, NULL, &reward->program, err);
    if (rc == 0) rc = ash_program_ask(reward->program, line, value, err);
    if (rc < 0) { /* it is dead: the next answer starts a new one */
        ash_program_close(reward->program);
        reward->program = NULL;
    }
    free(line);
    json_decref(json);
    return rc;
}

static int reward_of(struct reward *reward, const struct ash_rewarded *answer, double *value, struct ash_err *err)
{
    bool is_fit = false;
    int rc;

    switch (reward->kind) {
    case KIND_SCHEMA:
        rc = ash_json_form_fits(reward->form, answer->text, &is_fit, err);
        *value = answer->has_ended && is_fit ? 1.0 : 0.0;
        return rc;
    case KIND_PROGRAM:
        return ask_program(reward, answer, value, err);
    case KIND_MODEL:
        return ash_scorer_score(reward->scorer,
                                &(struct ash_scored){.prompt = answer->prompt_ids,
                                                     .answer = answer->ids,
                                                     .prompt_count = answer->prompt_tokens,
                                                     .answer_count = answer->tokens},
                                value, err);
    default:
        *value = check(reward, answer);
        return 0;
    }
}

int ash_rewards_use(struct ash_rewards *rewards, struct ash_exec *exec, uint64_t tokenizer_hash, size_t max_tokens,
                    struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < rewards->count; i++) {
        struct reward *reward = &rewards->items[i];

        if (reward->kind == KIND_MODEL && reward->scorer == NULL)
            rc = ash_scorer_open(reward->source, exec, tokenizer_hash, max_tokens, &reward->scorer, err);
    }
    return rc;
}

bool ash_rewards_need_wanted(const struct ash_rewards *rewards)
{
    for (size_t i = 0; i < rewards->count; i++)
        if (rewards->items[i].kind == KIND_EXACT) return true;
    return false;
}

bool ash_rewards_is_pure(const struct ash_rewards *rewards)
{
    for (size_t i = 0; i < rewards->count; i++)
        if (rewards->items[i].kind == KIND_PROGRAM || rewards->items[i].kind == KIND_MODEL) return false;
    return true;
}

int ash_rewards_get(struct ash_rewards *rewards, const struct ash_rewarded *answer, double *reward_out,
                    struct ash_err *err)
{
    double sum = 0.0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < rewards->count; i++) {
        double value = 0.0;

        rc = reward_of(&rewards->items[i], answer, &value, err);
        sum += rewards->items[i].weight * value;
    }
    if (rc == 0 && !isfinite(sum)) rc = ash_err_set(err, -ERANGE, "the reward is not a finite number");
    if (rc == 0) *reward_out = sum;
    return rc;
}

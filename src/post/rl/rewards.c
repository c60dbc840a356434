/* rewards: the checks, one case each. */
#include "post/rl/rewards.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_EXACT, KIND_REGEX, KIND_LENGTH, KIND_ENDED };

struct reward {
    enum kind kind;
    double weight, length;
    regex_t regex;
    bool has_regex;
};

struct ash_rewards {
    struct reward *items;
    size_t count;
};

void ash_rewards_close(struct ash_rewards *rewards)
{
    if (rewards == NULL) return;
    for (size_t i = 0; i < rewards->count; i++)
        if (rewards->items[i].has_regex) regfree(&rewards->items[i].regex);
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

static int parse_reward(const char *item, struct reward *reward, struct ash_err *err)
{
    char text[512];

    snprintf(text, sizeof(text), "%s", item);
    reward->weight = cut_weight(text);
    if (strcmp(text, "arithmetic") == 0 || strcmp(text, "exact") == 0) {
        reward->kind = KIND_EXACT;
    } else if (strcmp(text, "ended") == 0) {
        reward->kind = KIND_ENDED;
    } else if (strncmp(text, "length=", 7) == 0) {
        reward->kind = KIND_LENGTH;
        reward->length = strtod(text + 7, NULL);
        if (!(reward->length >= 1)) return ash_err_set(err, -EINVAL, "rl.rewards: '%s' needs a number of tokens", item);
    } else if (strncmp(text, "regex=", 6) == 0) {
        reward->kind = KIND_REGEX;
        if (regcomp(&reward->regex, text + 6, REG_EXTENDED | REG_NOSUB) != 0)
            return ash_err_set(err, -EINVAL, "rl.rewards: '%s' is no regular expression", text + 6);
        reward->has_regex = true;
    } else {
        return ash_err_set(err, -EINVAL,
                           "rl.rewards: '%s' is not known; arithmetic, exact, ended, length=N and regex=PATTERN are",
                           item);
    }
    return 0;
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
        if (rc == 0) rewards->count++;
    }
    if (rc == 0 && rewards->count == 0) rc = ash_err_set(err, -EINVAL, "rl.rewards is empty: nothing would be learned");
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

static double reward_of(const struct reward *reward, const struct ash_rewarded *answer)
{
    double beyond;

    switch (reward->kind) {
    case KIND_EXACT: /* an answer without an end is not an answer */
        return answer->has_ended && is_same(answer->text, answer->answer) ? 1.0 : 0.0;
    case KIND_REGEX:
        return regexec(&reward->regex, answer->text, 0, NULL, 0) == 0 ? 1.0 : 0.0;
    case KIND_LENGTH:
        beyond = (double)answer->tokens - reward->length;
        return beyond > 0 ? -beyond / reward->length : 0.0;
    case KIND_ENDED:
        break;
    }
    return answer->has_ended ? 1.0 : 0.0;
}

double ash_rewards_of(const struct ash_rewards *rewards, const struct ash_rewarded *answer)
{
    double sum = 0.0;

    for (size_t i = 0; i < rewards->count; i++)
        sum += rewards->items[i].weight * reward_of(&rewards->items[i], answer);
    return sum;
}

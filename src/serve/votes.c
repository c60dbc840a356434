/* votes: parts of answers, majority, weights. */
#include "serve/votes.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

const char *const ash_strategy_names[] = {"greedy", "best", "majority", "weighted", NULL};
const char *const ash_vote_on_names[] = {"all", "last-line", "last-number", NULL};

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static const char *after_thoughts(const char *text)
{
    static const char close[] = "</think>";

    for (const char *found; (found = strstr(text, close)) != NULL;)
        text = found + sizeof(close) - 1;
    return text;
}

/* A text without the blanks around it. */
static int add_trimmed(const char *text, size_t size, struct ash_str *out)
{
    while (size > 0 && isspace((unsigned char)*text)) {
        text++;
        size--;
    }
    while (size > 0 && isspace((unsigned char)text[size - 1]))
        size--;
    return ash_str_add(out, text, size);
}

static int add_last_line(const char *text, struct ash_str *out)
{
    size_t end = strlen(text), start;

    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    for (start = end; start > 0 && text[start - 1] != '\n';)
        start--;
    return add_trimmed(text + start, end - start, out);
}

static bool is_decimal(char c)
{
    return c >= '0' && c <= '9';
}

/* Does a number that continues at text[start] begin earlier: with a digit, or a point or comma after one? */
static bool is_number_before(const char *text, size_t start)
{
    if (start == 0) return false;
    if (is_decimal(text[start - 1])) return true;
    return (text[start - 1] == '.' || text[start - 1] == ',') && start > 1 && is_decimal(text[start - 2]);
}

/* A minus that follows no letter or digit. */
static bool is_sign_before(const char *text, size_t start)
{
    return start > 0 && text[start - 1] == '-' && (start == 1 || !isalnum((unsigned char)text[start - 2]));
}

static int add_last_number(const char *text, struct ash_str *out)
{
    size_t end = strlen(text), start;
    int rc = 0;

    while (end > 0 && !is_decimal(text[end - 1]))
        end--;
    for (start = end; is_number_before(text, start);)
        start--;
    if (start < end && is_sign_before(text, start)) start--;
    for (size_t i = start; rc == 0 && i < end; i++)
        if (text[i] != ',') rc = ash_str_add(out, &text[i], 1);
    return rc;
}

int ash_vote_part(const char *text, enum ash_vote_on on, struct ash_str *out)
{
    int rc = ash_str_adds(out, "");

    text = after_thoughts(text);
    if (rc < 0) return rc;
    if (on == ASH_VOTE_ON_LAST_LINE) return add_last_line(text, out);
    if (on == ASH_VOTE_ON_LAST_NUMBER) return add_last_number(text, out);
    return add_trimmed(text, strlen(text), out);
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

double ash_votes_sum(const struct ash_vote *votes, size_t count, enum ash_strategy strategy, size_t i)
{
    double sum = 0.0;

    ash_assert(i < count);
    if (votes[i].text[0] == '\0') return 0.0;
    for (size_t k = 0; k < count; k++)
        if (strcmp(votes[i].text, votes[k].text) == 0)
            sum += strategy == ASH_STRATEGY_WEIGHTED ? fmax(votes[k].weight, 0.0) : 1.0;
    return sum;
}

size_t ash_votes_choose(const struct ash_vote *votes, size_t count, enum ash_strategy strategy)
{
    size_t best = 0;
    double most = -INFINITY;

    ash_assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        double sum = strategy == ASH_STRATEGY_BEST ? votes[i].weight : 0.0;

        if (strategy >= ASH_STRATEGY_MAJORITY) sum = ash_votes_sum(votes, count, strategy, i);
        if (sum <= most) continue;
        most = sum;
        best = i;
    }
    return best;
}

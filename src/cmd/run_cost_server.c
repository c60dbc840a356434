/* ashlar run cost http://...: what the tokens of a server cost, by its metrics since it was started. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/opts.h"
#include "base/str.h"
#include "cmd/run_priv.h"
#include "http/fetch.h"

#define FETCH_S 10.0
#define PAGE_BYTES_MAX ((size_t)16 << 20)

struct server_cost {
    double hours, prompt_tokens, answer_tokens, usd;
};

/* The sum of a metric's samples; absent: 0. */
static double sum_of(const char *page, const char *name)
{
    size_t length = strlen(name);
    double sum = 0.0;

    for (const char *line = page; line != NULL && *line != '\0';) {
        const char *next = strchr(line, '\n'), *value = line + length;

        if (strncmp(line, name, length) == 0 && (*value == '{' || *value == ' ')) {
            value += *value == '{' ? strcspn(value, "}\n") : 0;
            sum += *value != '\n' && *value != '\0' ? strtod(value + 1, NULL) : 0.0;
        }
        line = next != NULL ? next + 1 : NULL;
    }
    return sum;
}

static int fetch_metrics(const char *url, struct ash_str *page, struct ash_err *err)
{
    struct ash_str whole = {0};
    size_t length = strlen(url);
    int rc;

    while (length > 0 && url[length - 1] == '/')
        length--;
    rc = ash_str_addf(&whole, "%.*s/metrics", (int)length, url);
    if (rc == 0) rc = ash_fetch(whole.data, ash_env_get("ASHLAR_API_KEY"), FETCH_S, PAGE_BYTES_MAX, page, err);
    ash_str_fini(&whole);
    return rc;
}

static void print(const struct server_cost *cost, bool as_json)
{
    double answers = cost->answer_tokens / 1e6, all = answers + cost->prompt_tokens / 1e6;

    if (as_json) {
        printf("{\"hours\": %.9g, \"prompt_tokens\": %.0f, \"answer_tokens\": %.0f, \"usd\": %.9g", cost->hours,
               cost->prompt_tokens, cost->answer_tokens, cost->usd);
        if (all > 0.0) printf(", \"usd_million_tokens\": %.9g", cost->usd / all);
        if (answers > 0.0) printf(", \"usd_million_answer_tokens\": %.9g", cost->usd / answers);
        printf("}\n");
        return;
    }
    printf("%-10s %.4g hours, $%.2f\n", "up", cost->hours, cost->usd);
    printf("%-10s %.0f of prompts, %.0f of answers\n", "tokens", cost->prompt_tokens, cost->answer_tokens);
    if (all > 0.0) printf("%-10s $%.4g of tokens", "a million", cost->usd / all);
    if (answers > 0.0) printf(", $%.4g of answers alone", cost->usd / answers);
    if (all > 0.0) printf("\n");
}

int ash_cmd_show_server_cost(const char *url, double usd_hour, bool as_json, struct ash_err *err)
{
    struct ash_str page = {0};
    struct server_cost cost = {0};
    double start_s = 0.0, now_s = ash_clock_wall_s();
    int rc = fetch_metrics(url, &page, err);

    if (rc == 0 && page.data != NULL) {
        cost.prompt_tokens = sum_of(page.data, "vllm:prompt_tokens_total");
        cost.answer_tokens = sum_of(page.data, "vllm:generation_tokens_total");
        start_s = sum_of(page.data, "process_start_time_seconds");
    }
    ash_str_fini(&page);
    if (rc < 0) return rc;
    if (start_s <= 0.0 || start_s > now_s)
        return ash_err_set(err, -EINVAL, "%.100s does not say since when it runs (process_start_time_seconds)", url);
    cost.hours = (now_s - start_s) / 3600.0;
    cost.usd = cost.hours * usd_hour;
    print(&cost, as_json);
    return 0;
}

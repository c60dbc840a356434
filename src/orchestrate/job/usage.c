/* Lists of what jobs have used, and moments as people write them. */
#include "orchestrate/job/usage.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"

static void free_entry(struct ash_usage_entry *entry)
{
    free(entry->id);
    free(entry->name);
    free(entry->user);
    free(entry->team);
    free(entry->out);
}

static char *copy_of(const char *text)
{
    return strdup(text != NULL ? text : "");
}

int ash_usage_add(struct ash_usage_list *list, const struct ash_usage_entry *entry, double from_s, double to_s)
{
    struct ash_usage_entry copy = *entry;

    copy.start_s = fmax(entry->start_s, from_s);
    copy.end_s = fmin(entry->end_s, to_s);
    if (!(copy.end_s > copy.start_s)) return 0;
    if (ash_array_reserve(&list->entries, &list->capacity, list->count + 1, sizeof(copy)) < 0) return -ENOMEM;
    copy.id = copy_of(entry->id);
    copy.name = copy_of(entry->name);
    copy.user = copy_of(entry->user);
    copy.team = copy_of(entry->team);
    copy.out = entry->out != NULL && entry->out[0] != '\0' ? strdup(entry->out) : NULL;
    if (copy.id == NULL || copy.name == NULL || copy.user == NULL || copy.team == NULL) {
        free_entry(&copy);
        return -ENOMEM;
    }
    list->entries[list->count++] = copy;
    return 0;
}

void ash_usage_free(struct ash_usage_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free_entry(&list->entries[i]);
    free(list->entries);
    *list = (struct ash_usage_list){0};
}

int ash_usage_parse_time(const char *text, double now_s, double *moment_out)
{
    static const char *const formats[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M",
                                          "%Y-%m-%d %H:%M:%S"};
    double before_s;

    if (strcmp(text, "now") == 0) {
        *moment_out = now_s;
        return 0;
    }
    for (size_t i = 0; i < ASH_COUNT(formats); i++) {
        struct tm when = {.tm_isdst = -1};
        const char *end = strptime(text, formats[i], &when);

        if (end == NULL || *end != '\0') continue;
        *moment_out = (double)mktime(&when);
        return 0;
    }
    if (strchr(text, ':') != NULL || ash_clock_parse(text, &before_s) < 0) return -EINVAL;
    *moment_out = now_s - before_s;
    return 0;
}

/* The results of checks. */
#include <stdarg.h>
#include <stdio.h>

#include "observe/check/check.h"

void ash_check_add(struct ash_check_report *report, const char *name, enum ash_check_grade grade, const char *wanted,
                   const char *fmt, ...)
{
    struct ash_check_result *result;
    va_list args;

    if (report->count == ASH_CHECK_RESULTS_MAX) return;
    result = &report->results[report->count++];
    *result = (struct ash_check_result){.name = name, .grade = grade};
    snprintf(result->wanted, sizeof(result->wanted), "%s", wanted);
    va_start(args, fmt);
    vsnprintf(result->found, sizeof(result->found), fmt, args);
    va_end(args);
}

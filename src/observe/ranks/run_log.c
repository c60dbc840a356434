/* A key is looked for as text: lines are short, many, and written by the trainer alone. */
#include "observe/ranks/run_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX 1e30

double ash_run_log_number(const char *line, const char *key)
{
    char wanted[32];
    const char *at;
    double value;

    snprintf(wanted, sizeof(wanted), "\"%s\":", key);
    at = strstr(line, wanted);
    if (at == NULL) return NAN;
    at += strlen(wanted);
    value = *at == '-' || (*at >= '0' && *at <= '9') ? strtod(at, NULL) : NAN;
    return fabs(value) < NUMBER_MAX ? value : NAN;
}

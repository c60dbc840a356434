/* Errors: formats the sentence once, where the cause is known. */
#include "ashlar/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ash_err_set(struct ash_err *err, int code, const char *fmt, ...)
{
    va_list args;

    if (err == NULL) return code;
    err->code = code;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    return code;
}

int ash_err_prefix(struct ash_err *err, int code, const char *fmt, ...)
{
    char cause[ASH_ERR_TEXT_BYTES];
    va_list args;
    int used;

    if (err == NULL) return code;
    memcpy(cause, err->text, sizeof(cause));
    va_start(args, fmt);
    used = vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof(err->text))
        snprintf(err->text + used, sizeof(err->text) - (size_t)used, ": %s", cause);
    if (err->code == 0) err->code = code;
    return err->code;
}

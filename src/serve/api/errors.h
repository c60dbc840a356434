/* errors - errors of a request, and how each form writes them. */
#ifndef ASH_SERVE_API_ERRORS_H
#define ASH_SERVE_API_ERRORS_H

#include "ashlar/err.h"
#include "base/str.h"
#include "http/http.h"

#define ASH_API_PARAM_BYTES 96

/* Zero-initialise. */
struct ash_api_err {
    unsigned status;                 /* of HTTP; 0: nothing is wrong */
    const char *code;                /* "context_length_exceeded"; a string that lives for good */
    char param[ASH_API_PARAM_BYTES]; /* the field, or empty */
    char text[ASH_ERR_TEXT_BYTES];
    size_t prompt_tokens, context_tokens; /* of a prompt that is too long; else 0 */
};

/* Name a part of a field, as printf: "messages[3].content". Longer ones are cut. */
void ash_api_param_set(char param[ASH_API_PARAM_BYTES], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Set the error, unless one is set. param may be NULL. Returns -EINVAL. */
int ash_api_err_set(struct ash_api_err *err, unsigned status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The same from an error of a floor below: -ENOMEM is 503, anything else 400. Returns its code. */
int ash_api_err_take(struct ash_api_err *err, const char *param, const struct ash_err *cause);

/* A prompt and the answer that it asks for are longer than the context: 400. */
void ash_api_err_too_long(struct ash_api_err *err, const char *param, size_t context, size_t prompt, size_t answer);
/* No model of this name: 404. */
void ash_api_err_no_model(struct ash_api_err *err, const char *served, const char *name);
/* Append the error as the JSON object that clients of path expect. id is the request's. Returns 0 or -ENOMEM. */
int ash_api_err_write(const struct ash_api_err *err, const char *path, const char *id, struct ash_str *out);
/* Respond with it. */
void ash_api_respond_err(struct ash_http_exchange *exchange, const struct ash_api_err *err);

#endif

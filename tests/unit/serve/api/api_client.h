/* For the tests of the request forms: a server over a model that says a given text, and its answers as JSON. */
#ifndef TESTS_UNIT_SERVE_API_API_CLIENT_H
#define TESTS_UNIT_SERVE_API_API_CLIENT_H

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/json.h"
#include "harness/api_server.h"
#include "serve/api/request.h"

static struct api_server server;

static inline void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* POST, check the status, and give the answer's JSON. */
static inline json_t *post(const char *path, const char *body, int status)
{
    struct http_answer answer = http_do(server.port, "POST", path, "", body);
    json_error_t where;
    json_t *json = json_loads(answer.body.data, 0, &where);

    if (answer.status != status) fail_msg("%s %s: %d %s", path, body, answer.status, answer.body.data);
    if (json == NULL) fail_msg("%s: not JSON: %s", path, answer.body.data);
    http_answer_fini(&answer);
    return json;
}

/* The value at a path like "choices.0.message.content", or NULL. */
static inline json_t *at(json_t *json, const char *path)
{
    char name[64];

    while (json != NULL && *path != '\0') {
        size_t bytes = strcspn(path, ".");

        snprintf(name, sizeof(name), "%.*s", (int)bytes, path);
        json = json_is_array(json) ? json_array_get(json, (size_t)atoi(name)) : json_object_get(json, name);
        path += bytes + (path[bytes] == '.');
    }
    return json;
}

static const char *text_at(json_t *json, const char *path)
{
    return json_string_value(at(json, path));
}

static inline json_int_t int_at(json_t *json, const char *path)
{
    return json_integer_value(at(json, path));
}

static inline int setup(void **state)
{
    (void)state;
    ash_log_set_level(ASH_LOG_WARN);
    api_server_init(&server);
    server.template = "{# <tool_call> <think> #}{% for m in messages %}[{{ m.role }}] {% if m.content is none and "
                      "m.tool_calls %}calls {{ m.tool_calls[0].function.name }}{% else %}{{ m.content }}{% endif %}"
                      "{% endfor %}";
    server.api_opts.queue_max = 6;
    server.api_opts.stall_seconds = 0.3;
    server.http_opts.stall_seconds = 1;
    api_server_open(&server, TEST_DATA);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    api_server_close(&server);
    return 0;
}

#endif

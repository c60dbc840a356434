/* One pass over the bytes of an event: strings that a colon follows are keys, braces and brackets are depth. That is
 * exact for JSON; for other bytes it is some answer, and the same one each time. */
#include "serve/route/event.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define NUMBER_DIGITS_MAX 18

size_t ash_route_event_bytes(const char *bytes, size_t size_bytes)
{
    size_t line = 0;

    while (line < size_bytes) {
        const char *end = memchr(bytes + line, '\n', size_bytes - line);
        size_t length;

        if (end == NULL) return 0;
        length = (size_t)(end - bytes) - line;
        if (length == 0 || (length == 1 && bytes[line] == '\r')) return (size_t)(end - bytes) + 1;
        line = (size_t)(end - bytes) + 1;
    }
    return 0;
}

/* ---- one pass ---------------------------------------------------------------------------------------------------- */

struct pass {
    const char *bytes;
    size_t size_bytes, at;
    size_t hashed; /* bytes before are in the digest, or left out of it */
    unsigned depth;
    unsigned muted_depth; /* inside a value at this depth that is left out; 0: none is */
    bool mutes_next;      /* the next value is left out */
    bool has_choice;
    struct ash_route_event *event;
};

/* Put the bytes up to `end` into the digest. */
static void hash_to(struct pass *pass, size_t end)
{
    if (pass->hashed < end)
        pass->event->digest = ash_hash_bytes(pass->bytes + pass->hashed, end - pass->hashed, pass->event->digest);
    pass->hashed = end;
}

static bool is_key(const char *key, size_t bytes, const char *name)
{
    return strlen(name) == bytes && memcmp(key, name, bytes) == 0;
}

static bool is_one_of(const char *key, size_t bytes, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_key(key, bytes, names[i])) return true;
    return false;
}

/* The number that begins here, if one does. */
static bool read_number(const struct pass *pass, size_t at, uint64_t *value_out)
{
    uint64_t value = 0;
    size_t digits = 0;

    while (at < pass->size_bytes && pass->bytes[at] == ' ')
        at++;
    for (; at < pass->size_bytes && pass->bytes[at] >= '0' && pass->bytes[at] <= '9'; at++, digits++)
        value = digits < NUMBER_DIGITS_MAX ? 10 * value + (uint64_t)(pass->bytes[at] - '0') : value;
    if (digits > 0) *value_out = value;
    return digits > 0;
}

static bool is_null(const struct pass *pass, size_t at)
{
    while (at < pass->size_bytes && pass->bytes[at] == ' ')
        at++;
    return pass->size_bytes - at >= 4 && memcmp(pass->bytes + at, "null", 4) == 0;
}

/* A key whose value begins at `at`. */
static void see_key(struct pass *pass, const char *key, size_t bytes, size_t at)
{
    static const char *const volatiles[] = {"usage", "timings", "system_fingerprint"};
    static const char *const prompts[] = {"prompt_tokens", "input_tokens", "prompt_n"};
    static const char *const cached[] = {"cached_tokens", "cache_read_input_tokens", "cache_n"};
    static const char *const answers[] = {"completion_tokens", "output_tokens", "predicted_n"};
    struct ash_route_event *event = pass->event;

    if (pass->muted_depth == 0 && is_one_of(key, bytes, volatiles, ASH_COUNT(volatiles))) {
        hash_to(pass, at);
        pass->mutes_next = true;
    } else if (!pass->has_choice && is_key(key, bytes, "index")) {
        pass->has_choice = read_number(pass, at, &event->choice);
    } else if (pass->depth == 1 && is_key(key, bytes, "error") && !is_null(pass, at)) {
        event->is_error = true;
    } else if (is_one_of(key, bytes, prompts, ASH_COUNT(prompts))) {
        (void)read_number(pass, at, &event->usage.prompt_tokens);
    } else if (is_one_of(key, bytes, cached, ASH_COUNT(cached))) {
        (void)read_number(pass, at, &event->usage.cached_tokens);
    } else if (is_one_of(key, bytes, answers, ASH_COUNT(answers))) {
        (void)read_number(pass, at, &event->usage.answer_tokens);
    }
}

/* The value that was left out ends before `at`. */
static void end_muted(struct pass *pass, size_t at)
{
    pass->mutes_next = false;
    pass->muted_depth = 0;
    pass->hashed = at;
}

/* A string, whose quote is at pass->at. */
static void see_string(struct pass *pass)
{
    static const char *const endings[] = {"shutting_down", "overloaded_error"};
    size_t begin = ++pass->at, after;

    while (pass->at < pass->size_bytes && pass->bytes[pass->at] != '"')
        pass->at += pass->bytes[pass->at] == '\\' ? 2 : 1;
    if (pass->at > pass->size_bytes) pass->at = pass->size_bytes;
    if (pass->event->is_error && is_one_of(pass->bytes + begin, pass->at - begin, endings, ASH_COUNT(endings)))
        pass->event->is_shutdown = true;
    for (after = pass->at + 1; after < pass->size_bytes && pass->bytes[after] == ' ';)
        after++;
    if (after < pass->size_bytes && pass->bytes[after] == ':')
        see_key(pass, pass->bytes + begin, pass->at - begin, after + 1);
}

static void see_byte(struct pass *pass, char byte)
{
    if (byte == '{' || byte == '[') {
        pass->depth++;
        if (pass->mutes_next && pass->muted_depth == 0) pass->muted_depth = pass->depth;
    } else if (byte == '}' || byte == ']') {
        bool ends_muted = pass->depth == pass->muted_depth && pass->muted_depth > 0;

        if (pass->mutes_next && pass->muted_depth == 0) end_muted(pass, pass->at);
        if (ends_muted) end_muted(pass, pass->at + 1);
        if (pass->depth > 0) pass->depth--;
    } else if (byte == ',' && pass->mutes_next && pass->muted_depth == 0) {
        end_muted(pass, pass->at);
    }
}

void ash_route_event_read(const char *bytes, size_t size_bytes, struct ash_route_event *event_out)
{
    struct pass pass = {.bytes = bytes, .size_bytes = size_bytes, .event = event_out};
    static const char data[] = "data:", error[] = "event: error";

    *event_out = (struct ash_route_event){0};
    for (size_t line = 0; line < size_bytes && !event_out->has_data;) {
        const char *end = memchr(bytes + line, '\n', size_bytes - line);

        event_out->has_data =
            size_bytes - line >= sizeof(data) - 1 && memcmp(bytes + line, data, sizeof(data) - 1) == 0;
        line = end != NULL ? (size_t)(end - bytes) + 1 : size_bytes;
    }
    event_out->is_error = size_bytes > sizeof(error) - 1 && memcmp(bytes, error, sizeof(error) - 1) == 0;
    for (; pass.at < size_bytes; pass.at++) {
        if (bytes[pass.at] == '"')
            see_string(&pass);
        else
            see_byte(&pass, bytes[pass.at]);
    }
    if (!pass.mutes_next) hash_to(&pass, size_bytes);
}

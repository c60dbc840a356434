/* Models in Ollama's lists. */
#include "serve/api/ollama_list.h"

#include <stdio.h>
#include <time.h>

#include "base/json_put.h"

const char *ash_ollama_time(int64_t seconds, char buf[ASH_OLLAMA_TIME_BYTES])
{
    time_t time = (time_t)seconds;
    struct tm parts;

    gmtime_r(&time, &parts);
    strftime(buf, ASH_OLLAMA_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return buf;
}

void ash_ollama_put_details(struct ash_str *out)
{
    ash_json_put_begin(out, "details", '{');
    ash_json_put_text(out, "parent_model", "");
    ash_json_put_text(out, "format", "");
    ash_json_put_text(out, "family", "");
    ash_json_put_begin(out, "families", '[');
    ash_json_put_end(out, ']');
    ash_json_put_text(out, "parameter_size", "");
    ash_json_put_text(out, "quantization_level", "");
    ash_json_put_end(out, '}');
}

void ash_ollama_put_model(const struct ash_ollama_model *model, struct ash_str *out)
{
    char digest[32], buf[ASH_OLLAMA_TIME_BYTES];

    snprintf(digest, sizeof(digest), "%016llx", (unsigned long long)model->digest);
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_text(out, "name", model->name);
    ash_json_put_text(out, "model", model->name);
    ash_json_put_text(out, "modified_at", ash_ollama_time(model->modified_s, buf));
    if (model->has_expiry) ash_json_put_text(out, "expires_at", ash_ollama_time(model->expires_s, buf));
    ash_json_put_int(out, "size", (int64_t)model->bytes);
    ash_json_put_text(out, "digest", digest);
    ash_ollama_put_details(out);
    ash_json_put_end(out, '}');
}

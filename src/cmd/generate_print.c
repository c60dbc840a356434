/* How answers of `ashlar generate` come out: as text while they are written, as a line of JSON, and their speeds. */
#include "cmd/generate_priv.h"

#include <errno.h>
#include <stdio.h>

#include "base/interrupt.h"
#include "base/log.h"

static void show_piece(const char *data, size_t size_bytes, bool *front)
{
    while (*front && size_bytes > 0 && (*data == ' ' || *data == '\n')) {
        data++;
        size_bytes--;
    }
    if (size_bytes == 0) return;
    *front = false;
    fwrite(data, 1, size_bytes, stdout);
    fflush(stdout);
}

int ash_generate_pull(struct ash_answer *answer, bool show, bool trim, struct ash_generate_result *result,
                      struct ash_err *err)
{
    bool front = trim;

    while (result->finish == ASH_FINISH_NOT_YET && !result->interrupted) {
        struct ash_text piece = {0};
        int rc = ash_answer_next(answer, &piece, &result->finish, err);

        if (rc < 0) return rc;
        if (piece.size_bytes > 0 && ash_str_add(&result->text, piece.data, piece.size_bytes) < 0)
            return ash_err_set(err, -ENOMEM, "no memory for the answer");
        if (show) show_piece(piece.data, piece.size_bytes, &front);
        result->interrupted = ash_interrupt_requested();
    }
    return 0;
}

static double per_second(size_t count, double seconds)
{
    return seconds > 0.0 ? (double)count / seconds : 0.0;
}

static double prompt_speed(const struct ash_answer_stats *stats)
{
    return per_second(stats->prompt_tokens - stats->reused_tokens, stats->prompt_s);
}

/* The first token comes out of the prompt; the others take a step each. */
static double answer_speed(const struct ash_answer_stats *stats)
{
    return per_second(stats->answer_tokens > 0 ? stats->answer_tokens - 1 : 0, stats->answer_s);
}

void ash_generate_print_stats(const struct ash_answer *answer)
{
    struct ash_answer_stats stats;

    ash_answer_get_stats(answer, &stats);
    ash_log(
        ASH_LOG_INFO,
        "prompt %zu token%s (%zu reused), %.1f tokens/s; first token after %.3f s; answer %zu token%s, %.1f tokens/s",
        stats.prompt_tokens, stats.prompt_tokens == 1 ? "" : "s", stats.reused_tokens, prompt_speed(&stats),
        stats.first_token_s, stats.answer_tokens, stats.answer_tokens == 1 ? "" : "s", answer_speed(&stats));
}

const char *ash_generate_finish_detail(enum ash_finish finish)
{
    switch (finish) {
    case ASH_FINISH_EOS:
        return "end of text";
    case ASH_FINISH_STOP:
        return "stop string";
    case ASH_FINISH_MAX_TOKENS:
        return "max tokens";
    default:
        return "context full";
    }
}

json_t *ash_generate_ids_json(const int32_t *ids, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count && list != NULL; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *logprobs_json(const float *logprobs, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count && list != NULL; i++)
        json_array_append_new(list, json_real((double)logprobs[i]));
    return list;
}

static json_t *usage_json(const struct ash_answer_stats *stats)
{
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)stats->prompt_tokens, "reused_tokens",
                     (json_int_t)stats->reused_tokens, "answer_tokens", (json_int_t)stats->answer_tokens);
}

static json_t *timings_json(const struct ash_answer_stats *stats)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "prompt_s", stats->prompt_s, "first_token_s", stats->first_token_s,
                     "answer_s", stats->answer_s, "prompt_tokens_per_s", prompt_speed(stats), "answer_tokens_per_s",
                     answer_speed(stats));
}

int ash_generate_print_json(const struct ash_generate *generate, const struct ash_answer *answer, const char *prompt,
                            const struct ash_generate_result *result, struct ash_err *err)
{
    const char *reason = result->interrupted ? "interrupted" : ash_finish_reason(result->finish);
    const char *detail = result->interrupted ? "interrupted" : ash_generate_finish_detail(result->finish);
    size_t count = 0;
    const int32_t *ids = ash_answer_ids(answer, &count);
    struct ash_answer_stats stats;
    struct ash_str text = {0};
    json_t *json = NULL;
    int rc = ash_str_adds(&text, generate->echo ? prompt : "");

    if (rc == 0) rc = ash_str_add(&text, result->text.data, result->text.size_bytes);
    ash_answer_get_stats(answer, &stats);
    if (rc == 0)
        json = json_pack("{s:s%, s:o, s:s, s:s, s:o, s:o}", "text", text.data, text.size_bytes, "ids",
                         ash_generate_ids_json(ids, count), "finish_reason", reason, "finish_detail", detail, "usage",
                         usage_json(&stats), "timings", timings_json(&stats));
    ash_str_fini(&text);
    if (json == NULL) return ash_err_set(err, -ENOMEM, "no memory for the JSON of the answer");
    if (generate->logprobs) {
        const float *logprobs = ash_answer_logprobs(answer, &count);

        json_object_set_new(json, "logprobs", logprobs_json(logprobs, count));
    }
    json_dumpf(json, stdout, JSON_COMPACT | JSON_REAL_PRECISION(generate->logprobs ? 17 : 6));
    putchar('\n');
    json_decref(json);
    return 0;
}

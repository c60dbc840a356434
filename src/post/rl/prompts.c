/* prompts: generated, or read from a file. */
#include "post/rl/prompts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/rng.h"
#include "post/chat/rows.h"

#define STREAM_ORDER 0x70726f6d7074u

struct line {
    char *prompt, *answer;
};

struct ash_prompt_list {
    const struct ash_tokenizer *tokenizer;
    bool is_arithmetic;
    struct ash_arithmetic train, valid;
    struct line *lines;
    size_t count;
    uint64_t hash;
};

void ash_prompt_fini(struct ash_prompt *prompt)
{
    ash_ids_fini(&prompt->ids);
    free(prompt->text);
    free(prompt->answer);
    *prompt = (struct ash_prompt){0};
}

void ash_prompts_close(struct ash_prompt_list *prompts)
{
    if (prompts == NULL) return;
    for (size_t i = 0; i < prompts->count; i++) {
        free(prompts->lines[i].prompt);
        free(prompts->lines[i].answer);
    }
    free(prompts->lines);
    free(prompts);
}

static int open_arithmetic(struct ash_prompt_list *prompts, const struct ash_arithmetic_opts *opts, struct ash_err *err)
{
    struct ash_arithmetic_opts held_out = *opts;
    int rc = ash_arithmetic_init(&prompts->train, opts, err);

    held_out.split = ASH_ARITHMETIC_VALID;
    held_out.seed = opts->seed + 1000000007;
    if (rc == 0) rc = ash_arithmetic_init(&prompts->valid, &held_out, err);
    prompts->is_arithmetic = true;
    prompts->hash = ash_hash_bytes(&prompts->train, sizeof(prompts->train), 1);
    return rc;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A prompt as text: as it is, or messages as the template writes them before an answer. */
static int render_prompt(const json_t *prompt, const json_t *object, const struct ash_chat_template *template,
                         struct ash_str *text, struct ash_err *err)
{
    json_t *variables;
    int rc;

    if (json_is_string(prompt))
        return ash_str_adds(text, json_string_value(prompt)) < 0 ? ash_err_set(err, -ENOMEM, "out of memory") : 0;
    if (!json_is_array(prompt)) return ash_err_set(err, -EINVAL, "prompt must be a text or a list of messages");
    if (template == NULL) return ash_err_set(err, -EINVAL, "the model has no chat template: give prompts as text");
    variables = json_pack("{s:O, s:b}", "messages", prompt, "add_generation_prompt", 1);
    rc = ash_chat_set_tools(object, variables, err);
    if (rc == 0) rc = ash_chat_template_render_json(template, variables, text, err);
    json_decref(variables);
    return rc;
}

static int add_line(struct ash_prompt_list *prompts, const json_t *object, const struct ash_chat_template *template,
                    struct ash_err *err)
{
    const json_t *answer = json_object_get(object, "answer");
    struct ash_str text = {0};
    struct line *lines;
    int rc;

    if (!json_is_object(object)) return ash_err_set(err, -EINVAL, "it is not a JSON object");
    if (answer != NULL && !json_is_string(answer)) return ash_err_set(err, -EINVAL, "answer must be a text");
    rc = render_prompt(json_object_get(object, "prompt"), object, template, &text, err);
    if (rc < 0) {
        ash_str_fini(&text);
        return rc;
    }
    lines = realloc(prompts->lines, (prompts->count + 1) * sizeof(*lines));
    if (lines != NULL) prompts->lines = lines;
    if (lines == NULL) {
        ash_str_fini(&text);
        return ash_err_set(err, -ENOMEM, "out of memory for prompts");
    }
    lines[prompts->count] = (struct line){strdup(text.data != NULL ? text.data : ""),
                                          strdup(answer != NULL ? json_string_value(answer) : "")};
    prompts->hash = ash_hash_bytes(text.data, text.size_bytes, prompts->hash);
    ash_str_fini(&text);
    prompts->count++;
    return 0;
}

static int open_file(struct ash_prompt_list *prompts, const char *path, const struct ash_chat_template *template,
                     struct ash_err *err)
{
    struct ash_map map = {0};
    uint64_t number = 0;
    int rc = ash_map_open(path, &map, err);

    for (size_t at = 0; rc == 0 && at < map.size_bytes;) {
        const char *text = (const char *)map.base + at, *end = memchr(text, '\n', map.size_bytes - at);
        size_t size = end != NULL ? (size_t)(end - text) : map.size_bytes - at;
        json_t *object = NULL;

        at += size + 1;
        number++;
        if (size == 0) continue;
        rc = ash_json_parse_line(text, size, path, number, &object, err);
        if (rc < 0) break;
        rc = add_line(prompts, object, template, err);
        if (rc < 0) ash_err_prefix(err, rc, "%s: line %" PRIu64, path, number);
        json_decref(object);
    }
    ash_map_close(&map);
    if (rc == 0 && prompts->count == 0) rc = ash_err_set(err, -EINVAL, "%s holds no prompt", path);
    return rc;
}

int ash_prompts_open(const char *path, const struct ash_arithmetic_opts *arithmetic,
                     const struct ash_tokenizer *tokenizer, const struct ash_chat_template *template,
                     struct ash_prompt_list **prompts_out, struct ash_err *err)
{
    struct ash_prompt_list *prompts = calloc(1, sizeof(*prompts));
    int rc;

    if (prompts == NULL) return ash_err_set(err, -ENOMEM, "out of memory for prompts");
    prompts->tokenizer = tokenizer;
    rc = strcmp(path, "arithmetic") == 0 ? open_arithmetic(prompts, arithmetic, err)
                                         : open_file(prompts, path, template, err);
    if (rc < 0) {
        ash_prompts_close(prompts);
        return rc;
    }
    *prompts_out = prompts;
    return 0;
}

int ash_prompts_get(const struct ash_prompt_list *prompts, uint64_t seed, uint64_t n, bool held_out,
                    struct ash_prompt *prompt_out, struct ash_err *err)
{
    struct ash_problem problem;
    struct ash_prompt prompt = {0};
    const char *text = problem.prompt, *answer = problem.answer;
    int rc;

    if (prompts->is_arithmetic) {
        ash_arithmetic_problem(held_out ? &prompts->valid : &prompts->train, n, &problem);
    } else {
        uint64_t epoch = n / prompts->count;
        uint64_t i =
            held_out ? n % prompts->count
                     : ash_rng_permute(seed, ash_hash_mix(STREAM_ORDER + epoch), n % prompts->count, prompts->count);

        text = prompts->lines[i].prompt;
        answer = prompts->lines[i].answer;
    }
    prompt.text = strdup(text);
    prompt.answer = strdup(answer);
    if (prompt.text == NULL || prompt.answer == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory for a prompt");
    else
        rc = ash_tokenizer_encode(prompts->tokenizer, text, strlen(text), prompts->is_arithmetic, &prompt.ids, err);
    if (rc == 0 && prompt.ids.count == 0) rc = ash_err_set(err, -EINVAL, "prompt '%.80s' has no tokens", text);
    if (rc < 0) {
        ash_prompt_fini(&prompt);
        return rc;
    }
    *prompt_out = prompt;
    return 0;
}

uint64_t ash_prompts_hash(const struct ash_prompt_list *prompts)
{
    return prompts->hash;
}

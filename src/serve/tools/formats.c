/* The list of formats, and which one a chat template speaks of. */
#include "serve/tools/tools_priv.h"

#include <string.h>

#include "base/assert.h"

static const struct {
    const char *name;
    const struct ash_tool_format_ops *ops;
} formats[ASH_TOOL_FORMATS] = {
    [ASH_TOOLS_NONE] = {"none", NULL},
    [ASH_TOOLS_HERMES] = {"hermes", &ash_tool_hermes_ops},
    [ASH_TOOLS_LLAMA3] = {"llama3_json", &ash_tool_llama3_ops},
    [ASH_TOOLS_MISTRAL] = {"mistral", &ash_tool_mistral_ops},
    [ASH_TOOLS_MISTRAL_NAMED] = {"mistral_named", &ash_tool_mistral_ops},
    [ASH_TOOLS_DEEPSEEK_V3] = {"deepseek_v3", &ash_tool_deepseek_ops},
    [ASH_TOOLS_DEEPSEEK_V31] = {"deepseek_v31", &ash_tool_deepseek_ops},
    [ASH_TOOLS_QWEN3_CODER] = {"qwen3_coder", &ash_tool_qwen_ops},
    [ASH_TOOLS_DEEPSEEK_V32] = {"deepseek_v32", &ash_tool_dsml_ops},
    [ASH_TOOLS_DEEPSEEK_V4] = {"deepseek_v4", &ash_tool_dsml4_ops},
    [ASH_TOOLS_GLM] = {"glm", &ash_tool_glm_ops},
    [ASH_TOOLS_HARMONY] = {"harmony", &ash_tool_harmony_ops},
};

const struct ash_tool_format_ops *ash_tool_format_get(enum ash_tool_format format)
{
    ash_assert((size_t)format < ASH_COUNT(formats));
    return formats[format].ops;
}

int ash_tool_format_find(const char *name)
{
    for (int i = 0; i < ASH_TOOL_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0) return i;
    return -1;
}

const char *ash_tool_format_name(enum ash_tool_format format)
{
    ash_assert((size_t)format < ASH_COUNT(formats));
    return formats[format].name;
}

/* Tags of DeepSeek's newer models are put together by templates: the word in them tells. */
static enum ash_tool_format detect_tagged(const char *template)
{
    if (strstr(template, "｜DSML｜") != NULL)
        return strstr(template, "function_calls>") != NULL ? ASH_TOOLS_DEEPSEEK_V32 : ASH_TOOLS_DEEPSEEK_V4;
    if (strstr(template, ASH_HARMONY_CHANNEL) != NULL && strstr(template, ASH_HARMONY_CALL) != NULL)
        return ASH_TOOLS_HARMONY;
    if (strstr(template, ASH_HERMES_OPEN) == NULL) return ASH_TOOLS_NONE;
    if (strstr(template, "<parameter=") != NULL) return ASH_TOOLS_QWEN3_CODER;
    if (strstr(template, "<arg_key>") != NULL) return ASH_TOOLS_GLM;
    return ASH_TOOLS_NONE;
}

enum ash_tool_format ash_tool_format_detect(const char *template)
{
    enum ash_tool_format tagged = detect_tagged(template);

    if (tagged != ASH_TOOLS_NONE) return tagged;
    if (strstr(template, ASH_DEEPSEEK_CALLS_BEGIN) != NULL)
        return strstr(template, "```json") != NULL ? ASH_TOOLS_DEEPSEEK_V3 : ASH_TOOLS_DEEPSEEK_V31;
    if (strstr(template, ASH_MISTRAL_CALLS) != NULL)
        return strstr(template, ASH_MISTRAL_ARGS) != NULL ? ASH_TOOLS_MISTRAL_NAMED : ASH_TOOLS_MISTRAL;
    if (strstr(template, ASH_HERMES_OPEN) != NULL && strstr(template, "<function=") == NULL) return ASH_TOOLS_HERMES;
    if (strstr(template, ASH_LLAMA_TAG) != NULL ||
        ((strstr(template, "<|start_header_id|>") != NULL || strstr(template, "<|header_start|>") != NULL) &&
         strstr(template, "\"parameters\"") != NULL))
        return ASH_TOOLS_LLAMA3;
    return ASH_TOOLS_NONE;
}

struct ash_thought_tags ash_thought_tags_detect(const char *template)
{
    static const struct ash_thought_tags known[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strstr(template, known[i].open) != NULL || strstr(template, known[i].close) != NULL) return known[i];
    if (strstr(template, ASH_HARMONY_ANALYSIS) != NULL)
        return (struct ash_thought_tags){ASH_HARMONY_ANALYSIS, ASH_HARMONY_END};
    return (struct ash_thought_tags){NULL, NULL};
}

bool ash_thought_is_open(struct ash_thought_tags tags, const char *prompt, size_t size_bytes)
{
    size_t size = tags.open != NULL ? strlen(tags.open) : 0;

    while (size_bytes > 0 && ash_tool_is_space(prompt[size_bytes - 1]))
        size_bytes--;
    return size > 0 && size_bytes >= size && memcmp(prompt + size_bytes - size, tags.open, size) == 0;
}

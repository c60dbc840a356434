/* Fuzz target: lines of a file of conversations, examples or pairs. Whatever a line says, it is added or refused with a
 * sentence; added ones are counted. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "post/chat/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* Every byte is a token. */
static struct ash_tokenizer *open_tokenizer(void)
{
    struct ash_str text = {0};
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};

    ash_str_adds(&text, "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[],\"vocab\":{\"<unk>\":0,"
                        "\"<s>\":1,\"</s>\":2");
    for (int i = 0; i < 256; i++)
        ash_str_addf(&text, ",\"<0x%02X>\":%d", (unsigned)i, i + 3);
    ash_str_adds(&text, "}}}");
    ash_assert(ash_tokenizer_parse(text.data, text.size_bytes, "bytes", &tokenizer, &err) == 0);
    ash_str_fini(&text);
    return tokenizer;
}

static struct ash_chat_template *open_template(void)
{
    static const char source[] = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{{ m.content }}"
                                 "{% endif %}{% if m.role != 'assistant' %}{{ m.content }}{% endif %}</s>{% endfor %}"
                                 "{% if add_generation_prompt %}[assistant]{% endif %}";
    struct ash_chat_template *template = NULL;
    struct ash_err err = {0};

    ash_assert(ash_chat_template_parse(source, sizeof(source) - 1, "fuzz", "<s>", "</s>", &template, &err) == 0);
    return template;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static struct ash_chat_reader reader = {.template_why = "", .eos_id = 2};
    struct ash_chat_lines lines = {.reader = &reader};
    uint64_t number = 0;

    if (reader.tokenizer == NULL) {
        reader.tokenizer = open_tokenizer();
        reader.template = open_template();
    }
    for (size_t at = 0; at < size_bytes;) {
        const uint8_t *end = memchr(data + at, '\n', size_bytes - at);
        size_t bytes = end != NULL ? (size_t)(end - data) - at : size_bytes - at;
        size_t before = lines.result.examples + lines.result.pairs;
        struct ash_err err = {0};
        int rc = ash_chat_add_line(&lines, (const char *)data + at, bytes, "fuzz", ++number, &err);

        ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
        ash_assert(lines.result.examples + lines.result.pairs == before + (rc == 0));
        at += bytes + 1;
    }
    ash_assert(lines.writer == NULL ||
               ash_examples_writer_count(lines.writer) == lines.result.examples + 2 * lines.result.pairs);
    ash_examples_writer_close(lines.writer);
    return 0;
}

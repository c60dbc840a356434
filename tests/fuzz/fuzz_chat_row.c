/* Fuzz target: lines of conversations, completions and pairs. An accepted one has ids of the vocabulary, marks that are
 * 0 or 1, and something to learn. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "post/chat/file.h"
#include "post/chat/rows.h"
#include "train/data/arithmetic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static const char source[] = "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
                             "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";

static void check(const struct ash_chat_reader *reader, const struct ash_chat_row *row)
{
    size_t marked = 0;

    for (size_t i = 0; i < row->ids.count; i++) {
        ash_assert(row->ids.data[i] >= 0 && (size_t)row->ids.data[i] < ash_tokenizer_vocab_size(reader->tokenizer));
        ash_assert(row->marks[i] <= 1);
        marked += row->marks[i];
    }
    ash_assert(marked > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static struct ash_tokenizer *tokenizer;
    static struct ash_chat_template *template;
    struct ash_chat_row chosen = {0}, rejected = {0};
    struct ash_err err = {0};
    const char *json_text = ash_arithmetic_tokenizer();
    struct ash_chat_reader reader;
    json_t *json = NULL;
    double margin = 0;

    if (tokenizer == NULL && ash_tokenizer_parse(json_text, strlen(json_text), "fuzz", &tokenizer, &err) < 0) return 0;
    if (template == NULL && ash_chat_template_parse(source, strlen(source), "fuzz", NULL, NULL, &template, &err) < 0)
        return 0;
    reader = (struct ash_chat_reader){.tokenizer = tokenizer, .template = template, .eos_id = 1};
    if (ash_json_parse_line((const char *)data, size_bytes, "fuzz", 1, &json, &err) < 0) return 0;
    if (ash_chat_is_pair(json)) {
        if (ash_chat_read_pair(&reader, json, &chosen, &rejected, &margin, &err) == 0) {
            check(&reader, &chosen);
            check(&reader, &rejected);
        }
    } else if (ash_chat_read(&reader, json, &chosen, &err) == 0) {
        check(&reader, &chosen);
    } else {
        ash_assert(err.text[0] != '\0');
    }
    ash_chat_row_fini(&chosen);
    ash_chat_row_fini(&rejected);
    json_decref(json);
    return 0;
}

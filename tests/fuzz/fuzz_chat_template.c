/* Fuzz target: a chat template up to the first NUL, then the content of a message. Rendering twice must give the
 * same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "text/chat_template/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static int render(const struct ash_chat_template *template, const char *content, struct ash_str *text)
{
    const struct ash_chat_message messages[] = {
        {"system", "be brief"}, {"user", content}, {"assistant", "a b"}, {"user", "?"}};
    struct ash_err err = {0};
    int rc = ash_chat_template_render(template, messages, 4, true, text, &err);

    ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0' && text->size_bytes == 0));
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const uint8_t *end = memchr(data, '\0', size_bytes);
    size_t source_bytes = end != NULL ? (size_t)(end - data) : size_bytes;
    struct ash_chat_template *template = NULL;
    struct ash_str first = {0}, second = {0}, content = {0};
    struct ash_err err = {0};
    int rc;

    if (size_bytes == 0) return 0;
    rc = ash_chat_template_parse((const char *)data, source_bytes, "fuzz", "<s>", NULL, &template, &err);
    ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
    if (rc == 0 &&
        ash_str_add(&content, data + source_bytes + (end != NULL), size_bytes - source_bytes - (end != NULL)) == 0) {
        rc = render(template, content.data, &first);
        ash_assert(render(template, content.data, &second) == rc);
        ash_assert(first.size_bytes == second.size_bytes &&
                   (first.size_bytes == 0 || memcmp(first.data, second.data, first.size_bytes) == 0));
    }
    ash_chat_template_close(template);
    ash_str_fini(&first);
    ash_str_fini(&second);
    ash_str_fini(&content);
    return 0;
}

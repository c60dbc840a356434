/* wire: words in, words out. What comes from a socket is validated here; indices are the reader's. */
#include "post/rl/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>

#include "base/assert.h"

#define MAGIC 0x31525341u /* "ASR1" */
#define TASK_WORDS 8      /* before the ids */
#define ANSWER_WORDS 7

ssize_t ash_wire_begin(struct ash_str *text, enum ash_wire_kind kind)
{
    struct ash_wire_head head = {.magic = MAGIC, .kind = kind};
    size_t start = text->size_bytes;
    int rc = ash_str_add(text, &head, sizeof(head));

    return rc < 0 ? rc : (ssize_t)start;
}

void ash_wire_end(struct ash_str *text, size_t start)
{
    struct ash_wire_head head;

    ash_assert(start + sizeof(head) <= text->size_bytes);
    ash_assert(text->size_bytes - start - sizeof(head) <= ASH_WIRE_BODY_MAX);
    memcpy(&head, text->data + start, sizeof(head));
    head.size_bytes = (uint32_t)(text->size_bytes - start - sizeof(head));
    memcpy(text->data + start, &head, sizeof(head));
}

int ash_wire_add_text(struct ash_str *text, enum ash_wire_kind kind, const char *body)
{
    static const char zeros[sizeof(uint32_t)];
    ssize_t start = ash_wire_begin(text, kind);
    size_t size = body != NULL ? strlen(body) : 0;
    int rc = start < 0 ? (int)start : 0;

    if (rc == 0 && size > 0) rc = ash_str_add(text, body, size);
    if (rc == 0 && size % sizeof(zeros) != 0) rc = ash_str_add(text, zeros, sizeof(zeros) - size % sizeof(zeros));
    if (rc == 0) ash_wire_end(text, (size_t)start);
    return rc;
}

static int add_words(struct ash_str *text, const void *words, size_t count)
{
    return count > 0 ? ash_str_add(text, words, count * sizeof(uint32_t)) : 0;
}

int ash_wire_add_task(struct ash_str *text, const struct ash_wire_task *task)
{
    uint32_t words[TASK_WORDS] = {(uint32_t)task->order,
                                  (uint32_t)(task->order >> 32),
                                  (uint32_t)task->seed,
                                  (uint32_t)(task->seed >> 32),
                                  task->group,
                                  task->answer,
                                  task->more,
                                  task->count};
    int rc = add_words(text, words, TASK_WORDS);

    return rc < 0 ? rc : add_words(text, task->ids, task->count);
}

int ash_wire_add_answer(struct ash_str *text, const struct ash_wire_answer *answer)
{
    uint32_t words[ANSWER_WORDS] = {(uint32_t)answer->order, (uint32_t)(answer->order >> 32),
                                    answer->group,           answer->answer,
                                    answer->has_ended,       answer->count,
                                    answer->kept_count};
    int rc = add_words(text, words, ANSWER_WORDS);

    if (rc == 0) rc = add_words(text, answer->ids, answer->count);
    if (rc == 0) rc = add_words(text, answer->logps, answer->count);
    if (rc == 0 && answer->kept_count > 0) rc = add_words(text, answer->kept_ends, answer->count);
    return rc < 0 ? rc : add_words(text, answer->kept, answer->kept_count);
}

int ash_wire_peek(const uint8_t *data, size_t size_bytes, struct ash_wire_head *head_out)
{
    struct ash_wire_head head;

    if (size_bytes < sizeof(head)) return 0;
    memcpy(&head, data, sizeof(head));
    if (head.magic != MAGIC || head.kind < ASH_WIRE_HELLO || head.kind >= ASH_WIRE_KINDS ||
        head.size_bytes > ASH_WIRE_BODY_MAX || head.size_bytes % sizeof(uint32_t) != 0)
        return -EBADMSG;
    *head_out = head;
    return size_bytes - sizeof(head) >= head.size_bytes;
}

int ash_wire_read(struct ash_wire_reader *reader, void *data, size_t size_bytes)
{
    ash_assert(reader->at <= reader->size_bytes);
    if (reader->size_bytes - reader->at < size_bytes) return -EBADMSG;
    memcpy(data, reader->data + reader->at, size_bytes);
    reader->at += size_bytes;
    return 0;
}

/* count words, in place. */
static const void *take_words(struct ash_wire_reader *reader, size_t count)
{
    const void *words = reader->data + reader->at;

    if ((reader->size_bytes - reader->at) / sizeof(uint32_t) < count) return NULL;
    reader->at += count * sizeof(uint32_t);
    return words;
}

int ash_wire_next_task(struct ash_wire_reader *reader, struct ash_wire_task *task_out)
{
    uint32_t words[TASK_WORDS];
    const int32_t *ids;

    if (reader->at == reader->size_bytes) return 0;
    if (ash_wire_read(reader, words, sizeof(words)) < 0) return -EBADMSG;
    ids = take_words(reader, words[7]);
    if (ids == NULL || words[7] == 0 || words[6] == 0) return -EBADMSG;
    *task_out = (struct ash_wire_task){.order = words[0] | (uint64_t)words[1] << 32,
                                       .seed = words[2] | (uint64_t)words[3] << 32,
                                       .group = words[4],
                                       .answer = words[5],
                                       .more = words[6],
                                       .count = words[7],
                                       .ids = ids};
    return 1;
}

/* Do the ends of the kept ids ascend, up to all of them? */
static bool are_ends(const struct ash_wire_answer *answer)
{
    int32_t before = 0;

    for (uint32_t t = 0; t < answer->count; t++) {
        if (answer->kept_ends[t] < before) return false;
        before = answer->kept_ends[t];
    }
    return (uint32_t)before == answer->kept_count;
}

int ash_wire_next_answer(struct ash_wire_reader *reader, struct ash_wire_answer *answer_out)
{
    uint32_t words[ANSWER_WORDS];
    struct ash_wire_answer answer;

    if (reader->at == reader->size_bytes) return 0;
    if (ash_wire_read(reader, words, sizeof(words)) < 0) return -EBADMSG;
    answer = (struct ash_wire_answer){.order = words[0] | (uint64_t)words[1] << 32,
                                      .group = words[2],
                                      .answer = words[3],
                                      .has_ended = words[4],
                                      .count = words[5],
                                      .kept_count = words[6]};
    answer.ids = take_words(reader, answer.count);
    answer.logps = take_words(reader, answer.count);
    if (answer.kept_count > 0) answer.kept_ends = take_words(reader, answer.count);
    answer.kept = take_words(reader, answer.kept_count);
    if (answer.ids == NULL || answer.logps == NULL || answer.kept == NULL || answer.has_ended > 1 ||
        (answer.kept_count > 0 && (answer.kept_ends == NULL || answer.kept_count > INT32_MAX || !are_ends(&answer))))
        return -EBADMSG;
    *answer_out = answer;
    return 1;
}

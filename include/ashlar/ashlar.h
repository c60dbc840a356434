/* ashlar - language models in a C program: open a Hugging Face folder, pull text out of it, close it.
 *
 *     struct ash_engine *engine = NULL;
 *     struct ash_answer *answer = NULL;
 *     struct ash_err err = {0};
 *     struct ash_text piece;
 *     enum ash_finish finish = ASH_FINISH_NOT_YET;
 *
 *     if (ash_engine_open("model", NULL, &engine, &err) < 0) ...
 *     if (ash_answer_open(engine, NULL, &answer, &err) < 0) ...
 *     if (ash_answer_start(answer, "Once upon a time", &err) < 0) ...
 *     while (finish == ASH_FINISH_NOT_YET && ash_answer_next(answer, &piece, &finish, &err) == 0)
 *         fwrite(piece.data, 1, piece.size_bytes, stdout);
 *     ash_answer_close(answer);
 *     ash_engine_close(engine);
 *
 * Calls return 0 or a negative errno; then the struct ash_err that was passed (may be NULL) holds a sentence for the
 * user, and outputs are as they were. An engine and what was opened from it belong to one thread at a time. Nothing
 * calls back, prints or exits. Structs of options begin with their size, so that later versions can add to them: use
 * the _init functions. */
#ifndef ASHLAR_ASHLAR_H
#define ASHLAR_ASHLAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* of the shared library, these are what one sees */

#define ASHLAR_VERSION "0.1.0"

/* The version of the library that is linked in; ASHLAR_VERSION is the one compiled against. */
const char *ash_version(void);

/* Borrowed UTF-8 bytes, not NUL-terminated. */
struct ash_text {
    const char *data;
    size_t size_bytes;
};

/* ---- a model, ready to run --------------------------------------------------------------------------------------- */

struct ash_engine; /* weights, tokenizer, chat template and threads */

struct ash_engine_opts {
    size_t size;         /* of this struct */
    const char *backend; /* NULL: the best that this machine can run; `ashlar version` lists them */
    int threads;         /* 0: one per core */
    bool bf16;           /* round matrix operands to bfloat16 (sums stay float32) instead of computing in float32 */
    bool auto_bf16;      /* the same if a GPU computes and the weights are bfloat16 */
    const char *lora;    /* a PEFT folder whose adapters the model gets; NULL: none */
};

/* The defaults: what a NULL opts means. */
void ash_engine_opts_init(struct ash_engine_opts *opts);

/* Open a Hugging Face folder (config.json, safetensors and tokenizer.json) or a GGUF file (or the folder of a
 * model.gguf). Weights stay mapped and are read when they are used. The caller owns *engine_out. -ENOENT where there is
 * no such model, -EINVAL and -ENOTSUP for files that are damaged or of a kind that is not read, -ENOMEM. */
int ash_engine_open(const char *path, const struct ash_engine_opts *opts, struct ash_engine **engine_out,
                    struct ash_err *err);
/* Everything opened from it must be closed before. NULL is a no-op. */
void ash_engine_close(struct ash_engine *engine);

/* The most tokens that a prompt and its answer may have together. */
size_t ash_engine_context(const struct ash_engine *engine);

/* Text (UTF-8, NUL-terminated) to token ids: *count_out of them in *ids_out (free with ash_free). add_special puts the
 * model's beginning-of-text token (and the like) in front. Returns 0, -EILSEQ (not UTF-8) or -ENOMEM. */
int ash_engine_encode(const struct ash_engine *engine, const char *text, bool add_special, int32_t **ids_out,
                      size_t *count_out, struct ash_err *err);
/* Token ids to text, in *text_out, NUL-terminated (free with ash_free). keep_special: special tokens appear in it.
 * Returns 0, -EINVAL (an id that the vocabulary does not have) or -ENOMEM. */
int ash_engine_decode(const struct ash_engine *engine, const int32_t *ids, size_t count, bool keep_special,
                      char **text_out, struct ash_err *err);

/* One message of a conversation. */
struct ash_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
};

/* Does the folder say how a conversation is written? */
bool ash_engine_has_chat(const struct ash_engine *engine);
/* A conversation as the model's own template writes it, ready for the next answer, in *prompt_out (free with ash_free).
 * Start it with ash_answer_start_chat or encode it without special tokens: the template has written them. -ENOTSUP when
 * the folder has no template. */
int ash_engine_render_chat(const struct ash_engine *engine, const struct ash_message *messages, size_t count,
                           char **prompt_out, struct ash_err *err);

/* Free a text that one of these calls returned. NULL is a no-op. */
void ash_free(void *ptr);

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Why an answer is over. */
enum ash_finish {
    ASH_FINISH_NOT_YET,
    ASH_FINISH_EOS,        /* the model ended it */
    ASH_FINISH_STOP,       /* a stop string came */
    ASH_FINISH_MAX_TOKENS, /* it is as long as was asked for */
    ASH_FINISH_CONTEXT,    /* the context is full */
    ASH_FINISH_CANCELLED,  /* its result is not wanted any more */
    ASH_FINISH_FAILED,     /* an error says why */
};

/* "stop" or "length", the words of the OpenAI API; "" for those that it has no word for. */
const char *ash_finish_reason(enum ash_finish finish);

struct ash_answer_opts {
    size_t size;               /* of this struct */
    size_t context_tokens;     /* of prompt and answer, which memory is taken for; 0: what the model can */
    size_t max_tokens;         /* of an answer; 0: until the context is full */
    double temperature;        /* 0: always the most likely token */
    size_t top_k;              /* 0: off */
    double top_p;              /* 1: off */
    double min_p;              /* 0: off */
    double repetition_penalty; /* 1: off */
    uint64_t seed;             /* it and the prompt decide the answer, on any machine and any number of threads */
    const char *const *stops;  /* strings that end an answer and are not shown; NULL: none */
    size_t stop_count;
    bool keep_special; /* special tokens appear in the text */
    /* Budget forcing, for models that think before they answer: thoughts of fewer tokens than think_min are continued
     * (their end is replaced by think_more), those of think_max tokens are ended. 0: as they come. */
    size_t think_min, think_max;
    const char *think_end;  /* the token that ends thoughts; NULL: "</think>". Used by ash_answer_open alone */
    const char *think_more; /* NULL: "Wait". The same */
    double presence_penalty, frequency_penalty; /* off the logits of tokens that occurred in the answer; 0: off */
    /* The form of the answer, at most one: a JSON schema, a regular expression, a grammar in llama.cpp's GBNF; NULL:
     * free. Used by ash_answer_open alone. */
    const char *json_schema, *regex, *grammar;
    bool wants_logprobs; /* ash_answer_logprobs has them */
};

/* Fill opts with the settings that the model's generation_config.json asks for, as transformers would take them: what a
 * NULL opts means. */
void ash_answer_opts_init(const struct ash_engine *engine, struct ash_answer_opts *opts);

struct ash_answer; /* one conversation's memory, and the answer that is being written */

/* Take the memory of a conversation of up to opts->context_tokens tokens. opts (NULL: the model's own) and its stops
 * are copied; engine is borrowed until close. Several may be open at a time. The caller owns *answer_out. Returns 0,
 * -EINVAL (a setting out of its range, which the sentence names) or -ENOMEM. */
int ash_answer_open(struct ash_engine *engine, const struct ash_answer_opts *opts, struct ash_answer **answer_out,
                    struct ash_err *err);
/* Free a conversation and what was borrowed from it. NULL is a no-op. */
void ash_answer_close(struct ash_answer *answer);

/* Begin to answer a text that is to be continued. This and the two below may be called again at any time: what the new
 * prompt has in common with the text before is not computed again. Returns 0, -EOVERFLOW when the prompt does not fit
 * the context, -EINVAL for one that is empty, -EILSEQ for text that is not UTF-8, or -ENOMEM. */
int ash_answer_start(struct ash_answer *answer, const char *prompt, struct ash_err *err);
/* The same for a conversation of count messages, as the model's chat template writes it. -ENOTSUP when it has none. */
int ash_answer_start_chat(struct ash_answer *answer, const struct ash_message *messages, size_t count,
                          struct ash_err *err);
/* The same for token ids as they are. -EINVAL for an id that the vocabulary does not have. */
int ash_answer_start_ids(struct ash_answer *answer, const int32_t *ids, size_t count, struct ash_err *err);

/* Work for a moment, on the prompt or on one token, and give out what has become certain: *piece_out (perhaps empty,
 * always whole characters) is valid until the next call. *finish_out is ASH_FINISH_NOT_YET while more will come.
 * Returns 0, or -EINVAL when nothing was started. */
int ash_answer_next(struct ash_answer *answer, struct ash_text *piece_out, enum ash_finish *finish_out,
                    struct ash_err *err);

/* The token ids of the answer so far, *count_out of them, borrowed until the next call. */
const int32_t *ash_answer_ids(const struct ash_answer *answer, size_t *count_out);

/* With wants_logprobs: the natural log-probability of each token of the answer by the model alone, without temperature
 * and filters; *count_out of them (one that ended the answer has none), borrowed until the next call. */
const float *ash_answer_logprobs(const struct ash_answer *answer, size_t *count_out);

struct ash_answer_stats {
    size_t prompt_tokens, reused_tokens, answer_tokens; /* of the prompt, reused_tokens were not computed again */
    double prompt_s, first_token_s, answer_s; /* seconds: computing the prompt; start to first token; that to last */
};
/* What the answer that was started last has taken so far. */
void ash_answer_get_stats(const struct ash_answer *answer, struct ash_answer_stats *stats_out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

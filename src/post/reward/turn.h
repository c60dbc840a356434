/* turn - an environment's reply to a policy's turn: a program's line. */
#ifndef ASH_POST_REWARD_TURN_H
#define ASH_POST_REWARD_TURN_H

#include <stddef.h>
#include "ashlar/err.h"

/* Zero-initialise, free with ash_turn_fini. */
struct ash_turn {
    char *text; /* NULL: no reply, and the conversation is over */
    char *role; /* whose message the text is, for the chat template; NULL: the text goes in as it is */
};
/* Free it and leave it empty. */
void ash_turn_fini(struct ash_turn *turn);

/* A line: null or {}: nothing; {"text": "..."}: this text; {"role": "...", "content": "..."}: a message. Returns 0, or
 * -EBADMSG with a sentence. */
int ash_turn_parse(const char *line, size_t size_bytes, struct ash_turn *turn, struct ash_err *err);

#endif

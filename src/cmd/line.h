/* line - lines that a person types: with editing and history (libedit) where the build has it, else as the terminal
 * gives them. One owner thread. */
#ifndef ASH_CMD_LINE_H
#define ASH_CMD_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "ashlar/err.h"

/* Filled in by open; its members are owned by line_edit.c or line_plain.c. */
struct ash_line {
    const char *sign;
    bool is_terminal;
    char *text; /* the last line */
    size_t capacity;
    void *editor; /* NULL: lines come as they are */
};

/* Read standard input; a terminal (is_terminal) gets sign in front of every line. sign is borrowed. */
int ash_line_init(struct ash_line *line, const char *sign, bool is_terminal, struct ash_err *err);
/* A zeroed struct is a no-op. */
void ash_line_fini(struct ash_line *line);
/* The next line with its newline, in *text_out, borrowed until the next call and writable. Lines pasted into an editor
 * are one, with newlines between them. Returns its bytes, or -1 at the end and when a signal came. */
ssize_t ash_line_next(struct ash_line *line, char **text_out);
/* Can lines be edited, and earlier ones brought back with the arrow keys? */
bool ash_line_has_editing(void);

#endif

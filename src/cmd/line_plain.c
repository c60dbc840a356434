/* Lines as the terminal gives them, for builds without libedit. */
#include "cmd/line.h"

#include <stdio.h>
#include <stdlib.h>

int ash_line_init(struct ash_line *line, const char *sign, bool is_terminal, struct ash_err *err)
{
    (void)err;
    *line = (struct ash_line){.sign = sign, .is_terminal = is_terminal};
    return 0;
}

void ash_line_fini(struct ash_line *line)
{
    free(line->text);
    *line = (struct ash_line){0};
}

ssize_t ash_line_next(struct ash_line *line, char **text_out)
{
    ssize_t bytes;

    if (line->is_terminal) {
        fputs(line->sign, stdout);
        fflush(stdout);
    }
    bytes = getline(&line->text, &line->capacity, stdin);
    *text_out = line->text;
    return bytes;
}

bool ash_line_has_editing(void)
{
    return false;
}

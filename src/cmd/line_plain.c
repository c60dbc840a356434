/* Lines as the terminal gives them, for builds without libedit. */
#include "cmd/line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct ash_line {
    const char *sign;
    bool is_terminal;
    char *text;
    size_t capacity;
};

int ash_line_open(const char *sign, bool is_terminal, struct ash_line **line_out, struct ash_err *err)
{
    struct ash_line *line = calloc(1, sizeof(*line));

    if (line == NULL) return ash_err_set(err, -ENOMEM, "no memory to read lines");
    *line = (struct ash_line){.sign = sign, .is_terminal = is_terminal};
    *line_out = line;
    return 0;
}

void ash_line_close(struct ash_line *line)
{
    if (line == NULL) return;
    free(line->text);
    free(line);
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

/* Lines with editing and history through libedit. It would read on after a signal, so characters are read here: a
 * signal ends the line, as it ends getline. What is no terminal is read by getline. */
#include "cmd/line.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/interrupt.h"

#define HISTORY_LINES 1000

struct ash_line {
    const char *sign;
    EditLine *edit; /* NULL: no terminal */
    History *history;
    char *text;
    size_t capacity;
};

static char *get_sign(EditLine *edit)
{
    struct ash_line *line = NULL;

    el_get(edit, EL_CLIENTDATA, &line);
    return (char *)(uintptr_t)line->sign; /* libedit does not write there */
}

/* One character of the locale. Returns 1, 0 at the end, -1 after a signal or an error. */
static int get_character(EditLine *edit, wchar_t *character_out)
{
    mbstate_t state = {0};

    (void)edit;
    for (;;) {
        char byte;
        ssize_t count = read(STDIN_FILENO, &byte, 1);
        size_t used;

        if (count < 0 && errno == EINTR && !ash_interrupt_requested()) continue; /* the window changed */
        if (count <= 0) return (int)count;
        used = mbrtowc(character_out, &byte, 1, &state);
        if (used == (size_t)-2) continue; /* the character goes on */
        if (used == (size_t)-1) {         /* not one: take the byte and begin anew */
            memset(&state, 0, sizeof(state));
            *character_out = (unsigned char)byte;
        }
        return 1;
    }
}

static int open_editor(struct ash_line *line, struct ash_err *err)
{
    HistEvent event;

    /* Which bytes make a character: UTF-8 in any case, as models read it. Numbers keep their form. */
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    line->edit = el_init("ashlar", stdin, stdout, stderr);
    line->history = history_init();
    if (line->edit == NULL || line->history == NULL)
        return ash_err_set(err, -ENOMEM, "no memory for an editor of lines");
    history(line->history, &event, H_SETSIZE, HISTORY_LINES);
    history(line->history, &event, H_SETUNIQUE, 1);
    el_set(line->edit, EL_CLIENTDATA, line);
    el_set(line->edit, EL_PROMPT, get_sign);
    el_set(line->edit, EL_EDITOR, "emacs");
    el_set(line->edit, EL_SIGNAL, 0);
    el_set(line->edit, EL_HIST, history, line->history);
    el_set(line->edit, EL_GETCFN, get_character);
    el_source(line->edit, NULL); /* ~/.editrc */
    return 0;
}

int ash_line_open(const char *sign, bool is_terminal, struct ash_line **line_out, struct ash_err *err)
{
    struct ash_line *line = calloc(1, sizeof(*line));
    int rc;

    if (line == NULL) return ash_err_set(err, -ENOMEM, "no memory to read lines");
    line->sign = sign;
    rc = is_terminal && isatty(STDOUT_FILENO) ? open_editor(line, err) : 0;
    if (rc < 0) {
        ash_line_close(line);
        return rc;
    }
    *line_out = line;
    return 0;
}

void ash_line_close(struct ash_line *line)
{
    if (line == NULL) return;
    if (line->edit != NULL) el_end(line->edit);
    if (line->history != NULL) history_end(line->history);
    free(line->text);
    free(line);
}

/* Keep a copy: the caller may write into it. */
static ssize_t keep(struct ash_line *line, const char *text, int bytes)
{
    HistEvent event;

    if (text == NULL || bytes <= 0) return -1;
    free(line->text);
    line->text = strndup(text, (size_t)bytes);
    if (line->text == NULL) return -1;
    if (text[strspn(text, " \t\r\n")] != '\0') history(line->history, &event, H_ENTER, text);
    return bytes;
}

ssize_t ash_line_next(struct ash_line *line, char **text_out)
{
    ssize_t bytes;

    if (line->edit != NULL) {
        int count = 0;
        const char *text = el_gets(line->edit, &count);

        bytes = keep(line, text, count);
    } else {
        bytes = getline(&line->text, &line->capacity, stdin);
    }
    *text_out = line->text;
    return bytes;
}

bool ash_line_has_editing(void)
{
    return true;
}

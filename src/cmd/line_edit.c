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

struct editor {
    EditLine *edit;
    History *history;
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
    const LineInfo *info = el_line(edit);
    mbstate_t state = {0};

    for (;;) {
        char byte;
        ssize_t count = read(STDIN_FILENO, &byte, 1);
        size_t used;

        if (count < 0 && errno == EINTR && !ash_interrupt_requested()) continue; /* the window changed */
        if (count <= 0) return (int)count;
        /* Ctrl-D that was typed while an answer was written comes as NUL. */
        if (byte == '\0' && info->lastchar == info->buffer) return 0;
        used = mbrtowc(character_out, &byte, 1, &state);
        if (used == (size_t)-2) continue; /* an incomplete character */
        if (used == (size_t)-1) {         /* not one: take the byte and begin anew */
            memset(&state, 0, sizeof(state));
            *character_out = (unsigned char)byte;
        }
        return 1;
    }
}

static void close_editor(struct editor *editor)
{
    if (editor->edit != NULL) el_end(editor->edit);
    if (editor->history != NULL) history_end(editor->history);
    free(editor);
}

static int open_editor(struct ash_line *line, struct ash_err *err)
{
    struct editor *editor = calloc(1, sizeof(*editor));
    HistEvent event;

    if (editor == NULL) return ash_err_set(err, -ENOMEM, "no memory for an editor of lines");
    /* Which bytes make a character: UTF-8 in any case, as models read it. Numbers keep their form. */
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    editor->edit = el_init("ashlar", stdin, stdout, stderr);
    editor->history = history_init();
    if (editor->edit == NULL || editor->history == NULL) {
        close_editor(editor);
        return ash_err_set(err, -ENOMEM, "no memory for an editor of lines");
    }
    history(editor->history, &event, H_SETSIZE, HISTORY_LINES);
    history(editor->history, &event, H_SETUNIQUE, 1);
    el_set(editor->edit, EL_CLIENTDATA, line);
    el_set(editor->edit, EL_PROMPT, get_sign);
    el_set(editor->edit, EL_EDITOR, "emacs");
    el_set(editor->edit, EL_SIGNAL, 0);
    el_set(editor->edit, EL_HIST, history, editor->history);
    el_set(editor->edit, EL_GETCFN, get_character);
    el_source(editor->edit, NULL); /* ~/.editrc */
    line->editor = editor;
    return 0;
}

int ash_line_init(struct ash_line *line, const char *sign, bool is_terminal, struct ash_err *err)
{
    *line = (struct ash_line){.sign = sign, .is_terminal = is_terminal};
    return is_terminal && isatty(STDOUT_FILENO) ? open_editor(line, err) : 0;
}

void ash_line_fini(struct ash_line *line)
{
    if (line->editor != NULL) close_editor(line->editor);
    free(line->text);
    *line = (struct ash_line){0};
}

/* Keep a copy: the caller may write into it. */
static ssize_t keep(struct ash_line *line, const char *text, int bytes)
{
    const struct editor *editor = line->editor;
    HistEvent event;

    if (text == NULL || bytes <= 0) return -1;
    free(line->text);
    line->text = strndup(text, (size_t)bytes);
    if (line->text == NULL) return -1;
    if (text[strspn(text, " \t\r\n")] != '\0') history(editor->history, &event, H_ENTER, text);
    return bytes;
}

ssize_t ash_line_next(struct ash_line *line, char **text_out)
{
    const struct editor *editor = line->editor;
    ssize_t bytes;

    if (editor != NULL) {
        int count = 0;
        const char *text = el_gets(editor->edit, &count);

        bytes = keep(line, text, count);
    } else {
        if (line->is_terminal) {
            fputs(line->sign, stdout);
            fflush(stdout);
        }
        bytes = getline(&line->text, &line->capacity, stdin);
    }
    *text_out = line->text;
    return bytes;
}

bool ash_line_has_editing(void)
{
    return true;
}

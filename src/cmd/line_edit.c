/* Lines with editing and history through libedit. It would read on after a signal, so characters are read here: a
 * signal ends the line, as it ends getline. Input that is no terminal is read by getline. */
#include "cmd/line.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/interrupt.h"

#define HISTORY_LINES 1000

/* Escape sequences around pasted text (bracketed paste). */
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define PASTE_BEGINS "\033[200~"
#define PASTE_ENDS "\033[201~"
#define MARK_BYTES 6
#define QUOTE 026 /* Ctrl-V: the next character is text */

struct editor {
    EditLine *edit;
    History *history;
    bool is_pasting, is_quoted; /* is_quoted: the newline at the front of ahead is text */
    char ahead[MARK_BYTES + 1]; /* bytes that were read to see whether they are a mark */
    size_t ahead_count;
};

static volatile sig_atomic_t has_continued, has_resized;

static void on_signal(int number)
{
    if (number == SIGCONT)
        has_continued = 1;
    else
        has_resized = 1;
}

/* After Ctrl-Z and fg, and when the window has another size, the line is drawn again. */
static void redraw(EditLine *edit)
{
    if (has_resized) el_resize(edit);
    if (has_continued) el_set(edit, EL_PREP_TERM, 1);
    if (has_continued || has_resized) el_set(edit, EL_REFRESH);
    has_continued = has_resized = 0;
}

static char *get_sign(EditLine *edit)
{
    struct ash_line *line = NULL;

    el_get(edit, EL_CLIENTDATA, &line);
    return (char *)(uintptr_t)line->sign; /* libedit does not write there */
}

/* One byte as it comes. Returns 1, 0 at the end, -1 after a terminating signal, or an error. */
static int read_byte(EditLine *edit, char *byte_out)
{
    ssize_t count;

    for (;;) {
        count = read(STDIN_FILENO, byte_out, 1);
        if (count >= 0 || errno != EINTR || ash_interrupt_requested()) return (int)count;
        redraw(edit);
    }
}

/* The same without the marks around pasted text, of which *is_pasting keeps track. */
static int next_byte(EditLine *edit, struct editor *editor, char *byte_out)
{
    const char *mark = editor->is_pasting ? PASTE_ENDS : PASTE_BEGINS;
    int rc = 1;

    if (editor->ahead_count == 0) {
        rc = read_byte(edit, byte_out);
        if (rc <= 0 || *byte_out != mark[0]) return rc;
        editor->ahead[editor->ahead_count++] = *byte_out;
        while (rc > 0 && editor->ahead_count < MARK_BYTES &&
               editor->ahead[editor->ahead_count - 1] == mark[editor->ahead_count - 1]) {
            rc = read_byte(edit, &editor->ahead[editor->ahead_count]);
            editor->ahead_count += rc > 0;
        }
        if (rc <= 0) return rc;
        if (memcmp(editor->ahead, mark, MARK_BYTES) == 0 && editor->ahead_count == MARK_BYTES) {
            editor->ahead_count = 0;
            editor->is_pasting = !editor->is_pasting;
            return next_byte(edit, editor, byte_out);
        }
    }
    *byte_out = editor->ahead[0];
    memmove(editor->ahead, editor->ahead + 1, --editor->ahead_count);
    return rc;
}

/* One character of the locale. Returns 1, 0 at the end, -1 after a signal or an error. */
static int get_character(EditLine *edit, wchar_t *character_out)
{
    const LineInfo *info = el_line(edit);
    struct ash_line *line = NULL;
    struct editor *editor;
    mbstate_t state = {0};

    el_get(edit, EL_CLIENTDATA, &line);
    editor = line->editor;
    for (;;) {
        char byte;
        int count = next_byte(edit, editor, &byte);
        size_t used;

        if (count <= 0) return count;
        if (editor->is_pasting && !editor->is_quoted && (byte == '\n' || byte == '\r')) {
            memmove(editor->ahead + 1, editor->ahead, editor->ahead_count++);
            editor->ahead[0] = '\n';
            editor->is_quoted = true;
            *character_out = QUOTE;
            return 1;
        }
        editor->is_quoted = false;
        /* Ctrl-D that was typed while an answer was written comes as NUL. */
        if (byte == '\0' && info->lastchar == info->buffer) return 0;
        used = mbrtowc(character_out, &byte, 1, &state);
        if (used == (size_t)-2) continue; /* an incomplete character */
        if (used == (size_t)-1) {         /* invalid: take the byte and restart */
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

/* While a line is read: pasted text comes marked, and the two signals interrupt the wait. */
static void watch_terminal(bool is_on)
{
    struct sigaction action = {.sa_handler = is_on ? on_signal : SIG_DFL};

    sigemptyset(&action.sa_mask);
    sigaction(SIGCONT, &action, NULL);
    sigaction(SIGWINCH, &action, NULL);
    fputs(is_on ? PASTE_ON : PASTE_OFF, stdout);
    fflush(stdout);
}

ssize_t ash_line_next(struct ash_line *line, char **text_out)
{
    const struct editor *editor = line->editor;
    ssize_t bytes;

    if (editor != NULL) {
        int count = 0;
        const char *text;

        watch_terminal(true);
        text = el_gets(editor->edit, &count);
        watch_terminal(false);
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

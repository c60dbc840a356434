/* Options for people: the body of --help, and the present values as a job file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/opts_priv.h"
#include "base/utf8.h"

#define LEFT_COLUMNS_MAX 30 /* a longer left part gets its own line */
#define LINE_COLUMNS 100

/* ---- help -------------------------------------------------------------------------------------------------------- */

static int add_choices(const struct ash_opt *opt, struct ash_str *text)
{
    int rc = 0;

    for (int i = 0; opt->choices[i] != NULL && rc == 0; i++)
        rc = ash_str_addf(text, "%s%s", i > 0 ? "|" : "", opt->choices[i]);
    return rc;
}

static bool is_on_by_default(const struct ash_opt *opt)
{
    return opt->type == ASH_OPT_BOOL && opt->default_text != NULL && strcmp(opt->default_text, "true") == 0;
}

/* "  --name VALUE" or "  section.name VALUE". */
static void add_left(const struct ash_opt_slot *slot, struct ash_str *text)
{
    static const char *const values[] = {
        [ASH_OPT_INT] = " N",   [ASH_OPT_DOUBLE] = " X",    [ASH_OPT_BOOL] = "",      [ASH_OPT_STRING] = " TEXT",
        [ASH_OPT_CHOICE] = " ", [ASH_OPT_LIST] = " A,B...", [ASH_OPT_TEXTS] = " TEXT"};
    bool flag = slot->table->section[0] == '\0';

    ash_str_adds(text, flag ? "  --" : "  ");
    if (flag && is_on_by_default(slot->opt)) ash_str_adds(text, "[no-]");
    for (const char *c = slot->key; *c != '\0'; c++)
        ash_str_add(text, flag && *c == '_' ? "-" : c, 1);
    ash_str_adds(text, !flag && slot->opt->type == ASH_OPT_BOOL ? " true|false" : values[slot->opt->type]);
    if (slot->opt->type == ASH_OPT_CHOICE) add_choices(slot->opt, text);
}

static void add_limits(const struct ash_opt *opt, const char *lead, struct ash_str *text)
{
    if (opt->min == 0 && opt->max == 0) return;
    if (isinf(opt->max))
        ash_str_addf(text, "%sat least %.15g", lead, opt->min);
    else if (isinf(opt->min))
        ash_str_addf(text, "%sat most %.15g", lead, opt->max);
    else
        ash_str_addf(text, "%s%.15g..%.15g", lead, opt->min, opt->max);
}

/* "help (default X, min..max)". */
static void add_right(const struct ash_opt_slot *slot, struct ash_str *text)
{
    const struct ash_opt *opt = slot->opt;
    bool has_default = opt->default_text != NULL && opt->default_text[0] != '\0';
    size_t before;

    ash_str_adds(text, opt->help);
    ash_str_adds(text, " (");
    before = text->size_bytes;
    if (has_default &&
        !(opt->type == ASH_OPT_BOOL && strcmp(opt->default_text, "false") == 0 && slot->table->section[0] == '\0'))
        ash_str_addf(text, "default %s", opt->default_text);
    add_limits(opt, text->size_bytes > before ? ", " : "", text);
    if (text->size_bytes > before)
        ash_str_adds(text, ")");
    else
        ash_str_cut(text, before - 2); /* nothing to say in brackets */
}

/* Print text from the given column on, going to new lines between words. */
static void print_wrapped(const char *text, int column, FILE *out)
{
    int at = column;

    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (at > column && at + 1 + length > LINE_COLUMNS) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", length, text);
        at += length;
        text += length;
        while (*text == ' ')
            text++;
    }
    fputc('\n', out);
}

static int left_columns(const struct ash_opts *opts)
{
    size_t widest = 0;

    for (size_t i = 0; i < opts->count; i++) {
        struct ash_str left = {0};
        add_left(&opts->slots[i], &left);
        if (left.size_bytes > widest && left.size_bytes <= LEFT_COLUMNS_MAX) widest = left.size_bytes;
        ash_str_fini(&left);
    }
    return (int)widest + 2;
}

static void print_setting(const struct ash_opt_slot *slot, int columns, FILE *out)
{
    struct ash_str left = {0}, right = {0};

    add_left(slot, &left);
    add_right(slot, &right);
    if (left.data != NULL && right.data != NULL) {
        if ((int)left.size_bytes + 2 > columns)
            fprintf(out, "%s\n%*s", left.data, columns, "");
        else
            fprintf(out, "%-*s", columns, left.data);
        print_wrapped(right.data, columns, out);
    }
    ash_str_fini(&left);
    ash_str_fini(&right);
}

void ash_opts_print_help(const struct ash_opts *opts, FILE *out)
{
    const struct ash_opt_table *table = NULL;
    int columns = left_columns(opts);

    for (size_t i = 0; i < opts->count; i++) {
        const struct ash_opt_slot *slot = &opts->slots[i];
        if (slot->table != table) {
            const char *section = slot->table->section, *help = slot->table->help;
            if (table != NULL) fputc('\n', out);
            table = slot->table;
            fprintf(out, "%s%s%s:\n", section, section[0] != '\0' && help != NULL ? " - " : "",
                    help != NULL         ? help
                    : section[0] != '\0' ? ""
                                         : "flags");
        }
        print_setting(slot, columns, out);
    }
}

/* ---- job file ---------------------------------------------------------------------------------------------------- */

/* May a double-quoted scalar hold this code point without an escape? */
static bool is_printable(uint32_t point)
{
    if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return false;
    return point != 0x2028 && point != 0x2029 && point != 0xfeff && point != 0xfffe && point != 0xffff;
}

static void print_quoted(const char *text, FILE *out)
{
    size_t left = strlen(text);

    fputc('"', out);
    while (left > 0) {
        uint32_t point = 0;
        int length = ash_utf8_decode(text, left, &point);
        if (length == 0) break; /* cannot be: values are checked when they are set */
        if (point == '"' || point == '\\')
            fprintf(out, "\\%c", (char)point);
        else if (is_printable(point))
            fprintf(out, "%.*s", length, text);
        else
            fprintf(out, "\\u%04X", point);
        text += length;
        left -= (size_t)length;
    }
    fputc('"', out);
}

static void print_value(const struct ash_opt_slot *slot, FILE *out)
{
    const struct ash_opt_list *list = slot->field;
    const char *string = NULL;
    struct ash_str text = {0};

    if (slot->opt->type == ASH_OPT_STRING) {
        string = *(const char *const *)slot->field;
        if (string == NULL)
            fputs("null", out);
        else
            print_quoted(string, out);
    } else if (ash_opt_is_list(slot->opt)) {
        fputc('[', out);
        for (size_t i = 0; i < list->count; i++) {
            if (i > 0) fputs(", ", out);
            print_quoted(list->items[i], out);
        }
        fputc(']', out);
    } else if (ash_opts_show(slot, &text) == 0) {
        fputs(text.data, out);
    }
    ash_str_fini(&text);
}

/* All tables of one section go below one key. */
static void print_section(const struct ash_opts *opts, const char *section, FILE *out)
{
    bool nested = section[0] != '\0';

    if (nested) fprintf(out, "%s:\n", section);
    for (size_t i = 0; i < opts->count; i++) {
        if (strcmp(opts->slots[i].table->section, section) != 0) continue;
        fprintf(out, "%s%s: ", nested ? "  " : "", opts->slots[i].opt->name);
        print_value(&opts->slots[i], out);
        fputc('\n', out);
    }
}

void ash_opts_print_yaml(const struct ash_opts *opts, FILE *out)
{
    for (size_t i = 0; i < opts->count; i++) {
        bool first = true;
        for (size_t j = 0; j < i && first; j++)
            first = strcmp(opts->slots[j].table->section, opts->slots[i].table->section) != 0;
        if (first) print_section(opts, opts->slots[i].table->section, out);
    }
}

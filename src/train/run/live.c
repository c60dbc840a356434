/* live: one status line. Fields go from the right when the terminal is narrow; nothing wraps. */
#include "train/run/live.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/math.h"
#include "base/clock.h"

#define REDRAW_NS 100000000u  /* at most ten times a second */
#define QUIET_NS 30000000000u /* without a terminal: a sign of life */
#define PLAIN_LINES 20
#define BAR_CELLS 24
#define BAR_WIDTH_MIN 100 /* columns of a terminal that has room for the bar */
#define LINE_BYTES 512
#define CLEAR_LINE "\r\033[K"

const char *ash_live_count(uint64_t value, char *buf, size_t buf_bytes)
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, value);
    size_t at = 0;

    for (int i = 0; i < length && at + 2 < buf_bytes; i++) {
        if (i > 0 && (length - i) % 3 == 0) buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

#define UNITS 5
static const char *const count_units[UNITS] = {"", "k", "M", "B", "T"};
static const char *const byte_units[UNITS] = {" B", " kB", " MB", " GB", " TB"};

static const char *shorten(double value, const char *const *units, char *buf, size_t buf_bytes)
{
    size_t unit = 0;

    while (value >= 999.5 && unit < UNITS - 1) {
        value /= 1000.0;
        unit++;
    }
    snprintf(buf, buf_bytes, "%.*f%s", unit == 0 || value >= 99.95 ? 0 : 1, value, units[unit]);
    return buf;
}

const char *ash_live_short(double value, char *buf, size_t buf_bytes)
{
    return shorten(value, count_units, buf, buf_bytes);
}

const char *ash_live_bytes(double value, char *buf, size_t buf_bytes)
{
    return shorten(value, byte_units, buf, buf_bytes);
}

void ash_live_init(struct ash_live *live, FILE *out, bool terminal, int width, uint64_t total_steps)
{
    *live = (struct ash_live){.out = out, .terminal = terminal, .width = width};
    live->every_steps = ash_max(ash_div_up(total_steps, PLAIN_LINES), 1);
}

static int terminal_width(const struct ash_live *live)
{
    struct winsize size;

    if (live->width > 0) return live->width;
    if (ioctl(fileno(live->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

/* Append a field if it fits into the columns that are left. */
static void add_field(char *line, int *left, const char *field)
{
    int width = (int)strlen(field) + 2;

    if (width > *left) {
        *left = 0; /* a narrower field further right must not jump the queue */
        return;
    }
    size_t used = strlen(line);
    snprintf(line + used, LINE_BYTES - used, "  %s", field);
    *left -= width;
}

static double rate_of(const struct ash_live *live)
{
    return live->tokens / live->time_s;
}

/* On a terminal: what matters most comes first. */
static void add_fields(char *line, int left, const struct ash_live *live, const struct ash_live_view *view)
{
    char field[64], number[32];

    snprintf(field, sizeof(field), "loss %.4f", view->loss);
    add_field(line, &left, field);
    if (!isnan(view->valid_loss)) {
        snprintf(field, sizeof(field), "valid %.4f", view->valid_loss);
        add_field(line, &left, field);
    }
    if (!isnan(view->valid_accuracy)) {
        snprintf(field, sizeof(field), "right %.1f %%", view->valid_accuracy * 100);
        add_field(line, &left, field);
    }
    snprintf(field, sizeof(field), "%s tok/s", ash_live_short(rate_of(live), number, sizeof(number)));
    add_field(line, &left, field);
    if (view->step < view->total && isfinite(view->left_s)) {
        snprintf(field, sizeof(field), "%s left", ash_clock_format(view->left_s, number, sizeof(number)));
        add_field(line, &left, field);
    }
    snprintf(field, sizeof(field), "lr %.2e", view->lr);
    add_field(line, &left, field);
    snprintf(field, sizeof(field), "norm %.3g", view->norm);
    add_field(line, &left, field);
}

/* A bar of heavy and light strokes (three bytes a cell). */
static void add_bar(char *line, uint64_t step, uint64_t total)
{
    size_t full = total > 0 ? (size_t)((double)step / (double)total * BAR_CELLS) : 0;
    size_t used = strlen(line);

    for (size_t i = 0; i < BAR_CELLS; i++) {
        snprintf(line + used, LINE_BYTES - used, "%s", i < full ? "\xe2\x94\x81" : "\xe2\x94\x80");
        used += 3;
    }
}

/* "step  9/60": as wide for every step. Returns its width. */
static int begin_line(char *line, uint64_t step, uint64_t total)
{
    int digits = snprintf(NULL, 0, "%" PRIu64, total);

    return snprintf(line, LINE_BYTES, "step %*" PRIu64 "/%" PRIu64, digits, step, total);
}

/* The step and, if there is room, the bar. Returns the columns used. */
static int begin_drawing(char *line, int width, uint64_t step, uint64_t total)
{
    int used = begin_line(line, step, total);

    if (width < BAR_WIDTH_MIN) return used;
    snprintf(line + used, LINE_BYTES - (size_t)used, "  ");
    add_bar(line, step, total);
    return used + 2 + BAR_CELLS;
}

static void draw(struct ash_live *live, const struct ash_live_view *view)
{
    char line[LINE_BYTES];
    int width = terminal_width(live) - 1; /* the last column would wrap on some terminals */
    int used = begin_drawing(line, width, view->step, view->total);

    add_fields(line, width - used, live, view);
    fprintf(live->out, CLEAR_LINE "%s", line);
    live->drawn = true;
}

void ash_live_start(struct ash_live *live, uint64_t step, uint64_t total_steps)
{
    char line[LINE_BYTES];
    int left;

    if (live->out == NULL || !live->terminal) return;
    left = terminal_width(live) - 1;
    left -= begin_drawing(line, left, step, total_steps);
    add_field(line, &left, "first step under way");
    fprintf(live->out, CLEAR_LINE "%s", line);
    fflush(live->out);
    live->drawn = true;
}

/* In columns, because many of these lines are read together. */
static void print_plain(struct ash_live *live, const struct ash_live_view *view)
{
    char line[LINE_BYTES], number[32];
    bool has_left = view->step < view->total && isfinite(view->left_s);
    int used = begin_line(line, view->step, view->total);

    used += snprintf(line + used, LINE_BYTES - (size_t)used, "  loss %7.4f  %5s tok/s  lr %.2e  norm %-*.3g",
                     view->loss, ash_live_short(rate_of(live), number, sizeof(number)), view->lr,
                     has_left || view->measured ? 7 : 0, view->norm);
    if (has_left)
        used += snprintf(line + used, LINE_BYTES - (size_t)used, "  %6s left",
                         ash_clock_format(view->left_s, number, sizeof(number)));
    if (view->measured) used += snprintf(line + used, LINE_BYTES - (size_t)used, "  valid %.4f", view->valid_loss);
    if (view->measured && !isnan(view->valid_accuracy))
        snprintf(line + used, LINE_BYTES - (size_t)used, "  right %.1f %%", view->valid_accuracy * 100);
    fprintf(live->out, "%s\n", line);
}

void ash_live_step(struct ash_live *live, const struct ash_live_view *view)
{
    uint64_t now_ns = ash_clock_ns(), age_ns = now_ns - live->shown_ns;
    bool first = live->shown_ns == 0, last = view->step == view->total, due;

    if (live->out == NULL) return;
    live->tokens += (double)view->tokens;
    live->time_s += view->step_s;
    if (live->terminal)
        due = age_ns >= REDRAW_NS;
    else
        due = age_ns >= QUIET_NS || view->step % live->every_steps == 0 || view->measured;
    if (!due && !first && !last) return;
    if (live->terminal)
        draw(live, view);
    else
        print_plain(live, view);
    fflush(live->out);
    live->shown_ns = now_ns;
    live->tokens = live->time_s = 0;
}

void ash_live_clear(struct ash_live *live)
{
    if (live->out == NULL || !live->drawn) return;
    fputs(CLEAR_LINE, live->out);
    fflush(live->out);
    live->drawn = false;
}

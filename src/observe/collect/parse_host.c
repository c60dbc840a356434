/* The host: /proc/stat, meminfo, loadavg, vmstat, pressure, file descriptors. */
#include "observe/collect/parse.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "observe/collect/exposition.h"
#include "observe/collect/source.h"

#define CPU_MODES 10

static double ticks_to_s(const char *word)
{
    return (double)strtoull(word, NULL, 10) / (double)sysconf(_SC_CLK_TCK);
}

/* "cpu3 1 2 ..." of /proc/stat: samples of two families, which are written one after the other. */
static void add_cpu(char *name, char *rest, struct ash_str *seconds, struct ash_str *guest)
{
    static const char *const modes[CPU_MODES] = {"user", "nice",    "system", "idle", "iowait",
                                                 "irq",  "softirq", "steal",  "user", "nice"};
    char labels[96];

    for (size_t i = 0; i < CPU_MODES; i++) {
        char *word = ash_text_word(&rest);

        if (word == NULL) return;
        snprintf(labels, sizeof(labels), "cpu=\"%.32s\",mode=\"%s\"", name + 3, modes[i]);
        if (i < 8)
            ash_exp_value(seconds, "node_cpu_seconds_total", labels, ticks_to_s(word));
        else
            ash_exp_value(guest, "node_cpu_guest_seconds_total", labels, ticks_to_s(word));
    }
}

static void add_stat_line(const char *name, char *rest, struct ash_str *out)
{
    static const struct {
        const char *key, *name, *type, *help;
    } singles[] = {
        {"ctxt", "node_context_switches_total", "counter", "Total number of context switches."},
        {"processes", "node_forks_total", "counter", "Total number of forks."},
        {"intr", "node_intr_total", "counter", "Total number of interrupts serviced."},
        {"btime", "node_boot_time_seconds", "gauge", "Node boot time, in unixtime."},
        {"procs_running", "node_procs_running", "gauge", "Number of processes in runnable state."},
        {"procs_blocked", "node_procs_blocked", "gauge", "Number of processes blocked waiting for I/O to complete."},
    };
    char *word = ash_text_word(&rest);

    for (size_t i = 0; word != NULL && i < ASH_COUNT(singles); i++) {
        if (strcmp(name, singles[i].key) != 0) continue;
        ash_exp_family(out, singles[i].name, singles[i].type, singles[i].help);
        ash_exp_count(out, singles[i].name, NULL, strtoull(word, NULL, 10));
    }
}

static bool is_cpu_name(const char *name)
{
    return strncmp(name, "cpu", 3) == 0 && name[3] != '\0' && strspn(name + 3, "0123456789") == strlen(name + 3);
}

static void parse_stat(char *text, struct ash_str *out)
{
    struct ash_str seconds = {0}, guest = {0};
    char *line;

    while ((line = ash_text_line(&text)) != NULL) {
        char *name = ash_text_word(&line);

        if (name == NULL) continue;
        if (is_cpu_name(name))
            add_cpu(name, line, &seconds, &guest);
        else
            add_stat_line(name, line, out);
    }
    if (seconds.size_bytes > 0) {
        ash_exp_family(out, "node_cpu_seconds_total", "counter", "Seconds the CPUs spent in each mode.");
        ash_str_add(out, seconds.data, seconds.size_bytes);
    }
    if (guest.size_bytes > 0) {
        ash_exp_family(out, "node_cpu_guest_seconds_total", "counter",
                       "Seconds the CPUs spent in guests (VMs) for each mode.");
        ash_str_add(out, guest.data, guest.size_bytes);
    }
    ash_str_fini(&seconds);
    ash_str_fini(&guest);
}

/* "Active(anon)" becomes Active_anon; whatever a name may not hold becomes _. */
static void clean_name(const char *key, char *buf, size_t buf_bytes)
{
    size_t used = 0;

    for (; *key != '\0' && used + 1 < buf_bytes; key++) {
        bool is_good =
            (*key >= 'a' && *key <= 'z') || (*key >= 'A' && *key <= 'Z') || (*key >= '0' && *key <= '9') || *key == '_';

        if (*key != ')') buf[used++] = (char)(is_good ? *key : '_');
    }
    buf[used] = '\0';
}

static void parse_meminfo(char *text, struct ash_str *out)
{
    char *line;

    while ((line = ash_text_line(&text)) != NULL) {
        char *key = ash_text_word(&line), *value = ash_text_word(&line), *unit = ash_text_word(&line);
        char clean[96], name[128], help[160];
        size_t bytes = key != NULL ? strlen(key) : 0;

        if (value == NULL || bytes < 2 || key[bytes - 1] != ':' || value[0] < '0' || value[0] > '9') continue;
        key[bytes - 1] = '\0';
        clean_name(key, clean, sizeof(clean));
        snprintf(name, sizeof(name), "node_memory_%s%s", clean, unit != NULL ? "_bytes" : "");
        snprintf(help, sizeof(help), "Memory information field %s%s.", clean, unit != NULL ? "_bytes" : "");
        ash_exp_family(out, name, "gauge", help);
        ash_exp_count(out, name, NULL, strtoull(value, NULL, 10) * (unit != NULL ? 1024 : 1));
    }
}

static void parse_loadavg(char *text, struct ash_str *out)
{
    static const char *const names[] = {"node_load1", "node_load5", "node_load15"};
    static const char *const helps[] = {"1m load average.", "5m load average.", "15m load average."};

    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        char *word = ash_text_word(&text);

        if (word != NULL) ash_exp_single(out, names[i], "gauge", helps[i], strtod(word, NULL));
    }
}

static void parse_vmstat(char *text, struct ash_str *out)
{
    static const char *const wanted[] = {"oom_kill", "pgpgin", "pgpgout", "pswpin", "pswpout", "pgfault", "pgmajfault"};
    char *line;

    while ((line = ash_text_line(&text)) != NULL) {
        char *key = ash_text_word(&line), *value = ash_text_word(&line);

        for (size_t i = 0; value != NULL && i < ASH_COUNT(wanted); i++) {
            char name[64], help[96];

            if (strcmp(key, wanted[i]) != 0) continue;
            snprintf(name, sizeof(name), "node_vmstat_%s", wanted[i]);
            snprintf(help, sizeof(help), "/proc/vmstat information field %s.", wanted[i]);
            ash_exp_family(out, name, "untyped", help);
            ash_exp_count(out, name, NULL, strtoull(value, NULL, 10));
        }
    }
}

/* "some avg10=0.00 ... total=123": microseconds of one kind. */
static void add_pressure(char *text, const char *kind, const char *name, const char *help, struct ash_str *out)
{
    char *line;

    while ((line = ash_text_line(&text)) != NULL) {
        const char *total = strstr(line, "total=");

        if (strncmp(line, kind, strlen(kind)) != 0 || total == NULL) continue;
        ash_exp_single(out, name, "counter", help, (double)strtoull(total + 6, NULL, 10) / 1e6);
        return;
    }
}

static void parse_pressure_cpu(char *text, struct ash_str *out)
{
    add_pressure(text, "some", "node_pressure_cpu_waiting_seconds_total",
                 "Total time in seconds that processes have waited for CPU time", out);
}

/* Lines are cut in place, so each kind reads a copy. */
static void add_both(char *text, const char *waiting, const char *waiting_help, const char *stalled,
                     const char *stalled_help, struct ash_str *out)
{
    char *copy = strdup(text);

    add_pressure(text, "some", waiting, waiting_help, out);
    if (copy != NULL) add_pressure(copy, "full", stalled, stalled_help, out);
    free(copy);
}

static void parse_pressure_io(char *text, struct ash_str *out)
{
    add_both(text, "node_pressure_io_waiting_seconds_total",
             "Total time in seconds that processes have waited due to IO congestion",
             "node_pressure_io_stalled_seconds_total",
             "Total time in seconds no process could make progress due to IO congestion", out);
}

static void parse_pressure_memory(char *text, struct ash_str *out)
{
    add_both(text, "node_pressure_memory_waiting_seconds_total",
             "Total time in seconds that processes have waited for memory",
             "node_pressure_memory_stalled_seconds_total",
             "Total time in seconds no process could make progress due to memory congestion", out);
}

static void parse_file_nr(char *text, struct ash_str *out)
{
    char *words[3];

    text[strcspn(text, "\n")] = '\0';
    for (size_t i = 0; i < ASH_COUNT(words); i++)
        words[i] = ash_text_word(&text);
    if (words[0] == NULL || words[2] == NULL) return;
    ash_exp_family(out, "node_filefd_allocated", "gauge", "File descriptor statistics: allocated.");
    ash_exp_count(out, "node_filefd_allocated", NULL, strtoull(words[0], NULL, 10));
    ash_exp_family(out, "node_filefd_maximum", "gauge", "File descriptor statistics: maximum.");
    ash_exp_value(out, "node_filefd_maximum", NULL, strtod(words[2], NULL));
}

const struct ash_parser ash_parsers_host[] = {
    {"/proc/stat", parse_stat},
    {"/proc/meminfo", parse_meminfo},
    {"/proc/loadavg", parse_loadavg},
    {"/proc/vmstat", parse_vmstat},
    {"/proc/pressure/cpu", parse_pressure_cpu},
    {"/proc/pressure/io", parse_pressure_io},
    {"/proc/pressure/memory", parse_pressure_memory},
    {"/proc/sys/fs/file-nr", parse_file_nr},
};
const size_t ash_parsers_host_count = ASH_COUNT(ash_parsers_host);

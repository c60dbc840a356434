/* Processors: instruction sets by the kernel's auxiliary vector (arm64) or cpuid (x86-64), caches from sysfs. */
#include "infra/cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/cgroup.h"
#include "base/cores.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

#define ARCH_REQ_XCOMP_PERM 0x1023 /* of arch_prctl; older headers lack both */
#define XFEATURE_TILEDATA 18
#endif

#define CACHE_FOLDER "/sys/devices/system/cpu/cpu0/cache"
#define CACHES_MAX 16

/* ---- instruction sets and model ---------------------------------------------------------------------------------- */

#if defined(__aarch64__)

static void find_model(struct ash_cpu *cpu)
{
    static const struct {
        unsigned part;
        const char *name;
    } arm_parts[] = {{0xd03, "Cortex-A53"},  {0xd08, "Cortex-A72"},  {0xd0b, "Cortex-A76"},  {0xd0c, "Neoverse N1"},
                     {0xd40, "Neoverse V1"}, {0xd49, "Neoverse N2"}, {0xd4f, "Neoverse V2"}, {0xd83, "Neoverse V3AE"},
                     {0xd84, "Neoverse V3"}, {0xd8e, "Neoverse N3"}};
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", "re");
    unsigned long long midr = 0;

    if (file == NULL) return;
    if (fscanf(file, "%llx", &midr) != 1) midr = 0;
    fclose(file);
    unsigned maker = (unsigned)(midr >> 24 & 0xff), part = (unsigned)(midr >> 4 & 0xfff);
    if (midr != 0) snprintf(cpu->model, sizeof(cpu->model), "maker 0x%02x part 0x%03x", maker, part);
    for (size_t i = 0; i < ASH_COUNT(arm_parts); i++)
        if (maker == 0x41 && part == arm_parts[i].part)
            snprintf(cpu->model, sizeof(cpu->model), "%s", arm_parts[i].name);
}

static void find_features(struct ash_cpu *cpu)
{
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);

    cpu->arch = "arm64";
    cpu->asimd = (first & HWCAP_ASIMD) != 0;
    cpu->fp16 = (first & HWCAP_ASIMDHP) != 0;
    cpu->dotprod = (first & HWCAP_ASIMDDP) != 0;
    cpu->sve = (first & HWCAP_SVE) != 0;
    cpu->bf16 = (second & HWCAP2_BF16) != 0;
    cpu->i8mm = (second & HWCAP2_I8MM) != 0;
}

#elif defined(__x86_64__)

struct leaf {
    unsigned a, b, c, d;
};

static struct leaf cpuid(unsigned number, unsigned part)
{
    struct leaf leaf = {0};

    if (__get_cpuid_count(number, part, &leaf.a, &leaf.b, &leaf.c, &leaf.d) == 0) return (struct leaf){0};
    return leaf;
}

static bool bit(unsigned word, int index)
{
    ash_assert(index >= 0);
    ash_assert(index < 32);
    return (word >> index & 1u) != 0;
}

static void find_model(struct ash_cpu *cpu)
{
    struct leaf words[3] = {cpuid(0x80000002, 0), cpuid(0x80000003, 0), cpuid(0x80000004, 0)};
    char text[sizeof(words) + 1] = {0};
    const char *start = text;

    memcpy(text, words, sizeof(words));
    while (*start == ' ')
        start++;
    snprintf(cpu->model, sizeof(cpu->model), "%s", start);
    for (size_t end = strlen(cpu->model); end > 0 && cpu->model[end - 1] == ' '; end--)
        cpu->model[end - 1] = '\0';
}

/* Which register files the kernel saves for us (XCR0); 0 when it does not say. */
static uint64_t saved_registers(struct leaf basic)
{
    uint32_t low = 0, high = 0;

    if (!bit(basic.c, 27)) return 0; /* OSXSAVE */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Tiles are 8 KiB of state that Linux saves only for processes that asked; all their threads may then use them. */
static bool may_use_tiles(uint64_t saved)
{
    return (saved & 0x60000) == 0x60000 && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILEDATA) == 0;
}

static void find_features(struct ash_cpu *cpu)
{
    struct leaf basic = cpuid(1, 0), seven = cpuid(7, 0), more = cpuid(7, 1);
    uint64_t saved = saved_registers(basic);
    bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6, tiles = may_use_tiles(saved);

    cpu->arch = "x86-64";
    cpu->fma = ymm && bit(basic.c, 12);
    cpu->f16c = ymm && bit(basic.c, 29);
    cpu->avx2 = ymm && bit(seven.b, 5);
    cpu->avx512f = zmm && bit(seven.b, 16);
    cpu->avx512dq = zmm && bit(seven.b, 17);
    cpu->avx512bw = zmm && bit(seven.b, 30);
    cpu->avx512vl = zmm && bit(seven.b, 31);
    cpu->avx512_vnni = zmm && bit(seven.c, 11);
    cpu->avx512_fp16 = zmm && bit(seven.d, 23);
    cpu->avx512_bf16 = zmm && bit(more.a, 5);
    cpu->amx_bf16 = tiles && bit(seven.d, 22);
    cpu->amx_tile = tiles && bit(seven.d, 24);
    cpu->amx_int8 = tiles && bit(seven.d, 25);
}

#else

static void find_model(struct ash_cpu *cpu)
{
    cpu->model[0] = '\0';
}

static void find_features(struct ash_cpu *cpu)
{
    cpu->arch = "other";
}

#endif

/* ---- caches and memory ------------------------------------------------------------------------------------------- */

/* The text of one file of one cache, without its newline; "" when there is none. */
static void read_cache_file(int index, const char *name, char *text, size_t text_bytes)
{
    char path[128];
    FILE *file = NULL;

    text[0] = '\0';
    snprintf(path, sizeof(path), CACHE_FOLDER "/index%d/%s", index, name);
    file = fopen(path, "re");
    if (file == NULL) return;
    if (fgets(text, (int)text_bytes, file) != NULL) text[strcspn(text, "\n")] = '\0';
    fclose(file);
}

/* "32768K" in bytes. */
static size_t parse_size(const char *text)
{
    char *unit = NULL;
    unsigned long long size = strtoull(text, &unit, 10);

    return (size_t)(*unit == 'K' ? size << 10 : *unit == 'M' ? size << 20 : size);
}

static void find_caches(struct ash_cpu *cpu)
{
    for (int i = 0; i < CACHES_MAX; i++) {
        char level[32], type[32], size[32], line[32];
        read_cache_file(i, "level", level, sizeof(level));
        read_cache_file(i, "type", type, sizeof(type));
        read_cache_file(i, "size", size, sizeof(size));
        read_cache_file(i, "coherency_line_size", line, sizeof(line));
        if (level[0] == '\0') break;
        if (strcmp(type, "Instruction") == 0) continue;
        if (level[0] == '1') cpu->l1d_bytes = parse_size(size);
        if (level[0] == '2') cpu->l2_bytes = parse_size(size);
        if (level[0] == '3') cpu->l3_bytes = parse_size(size);
        if (level[0] == '1') cpu->line_bytes = parse_size(line);
    }
}

static void find_memory(struct ash_cpu *cpu)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    double limit = ash_cgroup_limit("memory.max");

    if (pages > 0 && page_bytes > 0) cpu->memory_bytes = (uint64_t)pages * (uint64_t)page_bytes;
    if (limit < (double)cpu->memory_bytes) cpu->memory_bytes = (uint64_t)limit;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static struct ash_cpu found;

static void find_once(void)
{
    find_features(&found);
    find_model(&found);
    find_caches(&found);
    find_memory(&found);
    found.core_count = ash_cores_usable();
}

const struct ash_cpu *ash_cpu_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_once);
    return &found;
}

/* Append to buf what fits. */
static void append(char *buf, size_t buf_bytes, const char *before, const char *text)
{
    size_t used = strlen(buf);

    snprintf(buf + used, buf_bytes - used, "%s%s", before, text);
}

static void append_size(char *buf, size_t buf_bytes, const char *name, size_t size_bytes)
{
    char text[32];

    if (size_bytes == 0) return;
    if (size_bytes >= (size_t)1 << 20)
        snprintf(text, sizeof(text), "%.4g MiB", (double)size_bytes / 0x1p20);
    else
        snprintf(text, sizeof(text), "%.4g KiB", (double)size_bytes / 0x1p10);
    append(buf, buf_bytes, name, text);
}

/* The instruction sets that products have kernels for, " " between them. */
static void append_features(const struct ash_cpu *cpu, char *buf, size_t buf_bytes)
{
    const struct {
        const char *name;
        bool is_present;
    } features[] = {
        {"asimd", cpu->asimd},
        {"fp16", cpu->fp16},
        {"dotprod", cpu->dotprod},
        {"bf16", cpu->bf16},
        {"i8mm", cpu->i8mm},
        {"sve", cpu->sve},
        {"avx2", cpu->avx2},
        {"fma", cpu->fma},
        {"f16c", cpu->f16c},
        {"avx512f", cpu->avx512f},
        {"avx512bw", cpu->avx512bw},
        {"avx512vl", cpu->avx512vl},
        {"avx512dq", cpu->avx512dq},
        {"avx512_bf16", cpu->avx512_bf16},
        {"avx512_vnni", cpu->avx512_vnni},
        {"avx512_fp16", cpu->avx512_fp16},
        {"amx_tile", cpu->amx_tile},
        {"amx_bf16", cpu->amx_bf16},
        {"amx_int8", cpu->amx_int8},
    };
    const char *before = ", ";

    for (size_t i = 0; i < ASH_COUNT(features); i++) {
        if (!features[i].is_present) continue;
        append(buf, buf_bytes, before, features[i].name);
        before = " ";
    }
}

const char *ash_cpu_describe(const struct ash_cpu *cpu, char *buf, size_t buf_bytes)
{
    snprintf(buf, buf_bytes, "%s%s%s, %d core%s", cpu->arch, cpu->model[0] != '\0' ? " " : "", cpu->model,
             cpu->core_count, cpu->core_count == 1 ? "" : "s");
    append_size(buf, buf_bytes, ", L1d ", cpu->l1d_bytes);
    append_size(buf, buf_bytes, ", L2 ", cpu->l2_bytes);
    append_size(buf, buf_bytes, ", L3 ", cpu->l3_bytes);
    if (cpu->memory_bytes > 0) {
        char text[32];
        snprintf(text, sizeof(text), "%.1f GiB memory", (double)cpu->memory_bytes / 0x1p30);
        append(buf, buf_bytes, ", ", text);
    }
    append_features(cpu, buf, buf_bytes);
    return buf;
}
